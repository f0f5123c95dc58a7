"""`scot rag ask`: the passages nearest to a question, where they stand, and what it took to find them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict

from scotfree.numbers import whole
from scotfree.rag.commands import opening
from scotfree.rag.index import Answer, Hit
from scotfree.trouble import printable

HELP = "find the passages nearest to a question"
EXAMPLES = """\
  scot rag ask "how do I rotate logs?"
  scot rag ask "what does errno 28 mean?" --words --where suffix=.md
  scot rag ask "how do I rotate logs?" --count 3 --json | jq -r '.hits[].document'"""
_COUNT_MAX = 1000
# Letters of a passage that are shown.
_SHOWN = 400


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("question")
    opening.add(parser)
    parser.add_argument("--count", type=whole(1, _COUNT_MAX), default=5, help="passages (default: %(default)s)")
    parser.add_argument(
        "--words", action="store_true", help="look also for the question's words, not only its meaning"
    )
    parser.add_argument(
        "--where",
        type=_condition,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of what a document is said to be, as suffix=.md (again for more)",
    )
    parser.add_argument("--json", action="store_true", help="print them whole as JSON, with each stage's time")


def _condition(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise ArgumentTypeError(f"{text} is no KEY=VALUE")
    return key, value


def run(flags: Namespace) -> int:
    """Does it."""
    with opening.opened(flags) as index:
        answer = index.search(flags.question, flags.count, where=dict(flags.where), with_words=flags.words)
    if flags.json:
        print(json.dumps(asdict(answer), indent=1))
        return 0
    shown = "\n\n".join(_shown(place, hit) for place, hit in enumerate(answer.hits, 1))
    print(printable(shown or "nothing found"))
    print(_stages(answer), file=sys.stderr)
    return 0


def _shown(place: int, hit: Hit) -> str:
    text = " ".join(hit.text.split())
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    return f"{place}. {hit.document} ({hit.similarity:.2f}, letter {hit.start:,})\n   {text}"


def _stages(answer: Answer) -> str:
    times = ", ".join(f"{name} {ns / 1e6:.1f} ms" for name, ns in answer.stages_ns.items())
    return f"{answer.estimated:,} passages estimated, {answer.regenerated:,} embedded again; {times}"
