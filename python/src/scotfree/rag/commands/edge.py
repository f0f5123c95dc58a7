"""`scot rag edge`: EdgeRAG as its thesis describes it, beside an index, for who wants to compare or to have it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from scotfree.numbers import amount, duration_ns, whole
from scotfree.rag.commands import opening
from scotfree.rag.commands.ask import shown
from scotfree.rag.edge.beside import CACHE_BYTES, EdgeRag, Wanted
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.searching import Answer
from scotfree.rag.trouble import RagError
from scotfree.trouble import is_unicode, printable

HELP = "search an index as EdgeRAG does: clusters of passages that are embedded again while it searches"
EXAMPLES = """\
  scot rag edge                                        builds its clusters beside the index, and asks nothing
  scot rag edge "how do I rotate logs?" "and keep them?"
  scot rag edge - < questions.txt                      one a line: what one has embedded serves the next
  scot rag edge "how do I rotate logs?" --slo 500ms    stores clusters that take longer to embed"""
_COUNT_MAX: Final = 1000
_CACHE_MIB_MAX: Final = 1 << 20
_PROBES_MAX: Final = 1_000_000
# Letters of a passage that are shown.
_SHOWN: Final = 400


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help="one or more; - reads them, one a line")
    opening.add(parser)
    parser.add_argument("--count", type=whole(1, _COUNT_MAX), default=5, help="passages (default: %(default)s)")
    parser.add_argument(
        "--slo",
        type=duration_ns,
        metavar="TIME",
        help="time to answer in: clusters that take longer to embed are stored (default: as built; at first 1s)",
    )
    parser.add_argument(
        "--recall",
        type=amount(0.01, 1),
        metavar="SHARE",
        help="of the ten nearest passages, as many as are in the clusters looked at, measured on sentences of the "
        "texts when clusters are built (default: as built; at first 0.99)",
    )
    parser.add_argument(
        "--probes",
        type=whole(1, _PROBES_MAX),
        metavar="N",
        help="clusters that a question looks at (default: the fewest that have that recall)",
    )
    parser.add_argument(
        "--cache-mib",
        type=whole(0, _CACHE_MIB_MAX),
        default=CACHE_BYTES >> 20,
        metavar="MIB",
        help="of embeddings that questions made, in memory while it runs (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print each answer as one line of JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress, and nothing but answers")


def run(flags: Namespace) -> int:
    """Does it."""
    _check(flags.questions)
    shown = Shown(is_quiet=flags.quiet)
    with (
        opening.opened(flags) as index,
        EdgeRag.opened(index, Wanted(flags.slo, flags.recall), flags.cache_mib << 20, shown) as edge,
    ):
        if not flags.quiet:
            print(_told(edge), file=sys.stderr)
        for place, question in enumerate(_asked(flags.questions)):
            answer = edge.search(question, flags.count, flags.probes, is_distinct=True)
            if flags.json:
                print(json.dumps({"question": question} | asdict(answer)), flush=True)
            else:
                _show(question, answer, is_first=place == 0)
            if not flags.quiet:
                print(_took(answer, edge), file=sys.stderr)
    return 0


def _check(questions: list[str]) -> None:
    if "-" in questions and len(questions) > 1:
        raise RagError("read questions from standard input and the command line", "say - alone")
    for question in questions:
        _checked(question)


def _asked(questions: list[str]) -> Iterator[str]:
    if questions != ["-"]:
        yield from questions
        return
    for line in sys.stdin:
        if line.strip():
            yield _checked(line.strip())


def _checked(question: str) -> str:
    if not question.strip():
        raise RagError("ask an empty question", "say what is looked for")
    if not is_unicode(question):
        raise RagError(f"ask {printable(question)}: it is no UTF-8", "write it in UTF-8")
    return question


def _told(edge: EdgeRag) -> str:
    built, of = edge.built, edge.edge
    return (
        f"EdgeRAG: {len(of.passages):,} passages in {of.clusters:,} clusters, of which {len(of.stored):,} take "
        f"more than {built.slo_ns / 1e9:g} s to embed and are stored; a question looks at {built.probes:,}"
    )


def _show(question: str, answer: Answer, *, is_first: bool) -> None:
    lines = [] if is_first else [""]
    lines.append(f"# {question}")
    lines += [shown(place, hit) for place, hit in enumerate(answer.hits, 1)]
    print(printable("\n".join(lines)), flush=True)


def _took(answer: Answer, edge: EdgeRag) -> str:
    times = ", ".join(f"{name} {ns / 1e6:.1f} ms" for name, ns in answer.stages_ns.items())
    return (
        f"{answer.regenerated:,} passages embedded again, {answer.cached:,} of the cache, {answer.loaded:,} "
        f"loaded; clusters are cached from {edge.edge.threshold_ns / 1e6:.0f} ms on; {times}"
    )
