"""`scot rag eval`: how much of what exact search finds is found, how judges like it, and what it takes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Final

from scotfree.command_line import in_help
from scotfree.numbers import amount, duration_ns, whole
from scotfree.rag.commands import judging
from scotfree.rag.evaluation.beir import read
from scotfree.rag.evaluation.comparing import Settings, evaluate
from scotfree.rag.evaluation.modes import Mode
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.evaluation.rows import told
from scotfree.rag.trouble import RagError
from scotfree.trouble import printable

HELP = "measure recall, judged quality, time and memory on a collection in BEIR's layout"
EXAMPLES = """\
  scot rag eval cranfield/ --queries 50
  scot rag eval cranfield/ --mode ours --mode four-bits --mode edgerag --recall 0.99
  scot rag eval cranfield/ --mode flat --mode ours --llm URL --model NAME --judge URL --judge-model NAME
  scot rag eval cranfield/ --json | jq '.modes[] | {mode, recall, regenerated}'"""
_QUESTIONS_MAX = 1_000_000
_CACHE_MIB_MAX = 1 << 20
# What is in a folder of evaluations.
_OWN: Final = re.compile(r"[0-9a-f]{32}")


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="corpus.jsonl, queries.jsonl and, if judged, qrels/test.tsv"
    )
    parser.add_argument(
        "--index",
        type=Path,
        metavar="FOLDER",
        help=f"where embeddings and indexes are kept for the next time (default: one below {in_help(_cache())})",
    )
    parser.add_argument(
        "--mode",
        type=_mode,
        action="append",
        metavar="MODE",
        help=f"what is measured (again for more; default: ours): {', '.join(mode.value for mode in Mode)}",
    )
    parser.add_argument(
        "--queries", type=whole(1, _QUESTIONS_MAX), metavar="N", help="ask only the first N (default: all judged)"
    )
    parser.add_argument(
        "--recall",
        type=amount(0, 1),
        default=Settings.recall,
        help="of exact search's ten passages, as many as the IVF modes look for (default: %(default)s)",
    )
    parser.add_argument(
        "--slo",
        type=duration_ns,
        default=Settings.slo_ns,
        metavar="TIME",
        help="EdgeRAG stores clusters that take longer to embed (default: 1s)",
    )
    parser.add_argument(
        "--cache-mib",
        type=whole(0, _CACHE_MIB_MAX),
        default=Settings.cache_bytes >> 20,
        metavar="MIB",
        help="of embeddings that searches make, in each mode that keeps some (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    judging.add(parser)


def _mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is none of {', '.join(mode.value for mode in Mode)}") from None


def run(flags: Namespace) -> int:
    """Does it."""
    folder = _own(flags.index or _cache() / _name(flags.folder))
    collection = read(flags.folder)
    if flags.queries:
        collection = collection.first(flags.queries)
    modes = tuple(dict.fromkeys(flags.mode or Settings.modes))
    settings = Settings(modes, flags.recall, flags.slo, flags.cache_mib << 20)
    with judging.opened(flags) as models:
        found = evaluate(collection, folder, settings, Shown(is_quiet=flags.quiet), models)
    print(json.dumps(asdict(found), indent=1) if flags.json else printable(told(found)))
    if not flags.quiet:
        print(printable(f"kept for the next time in {folder}"), file=sys.stderr)
    if found.grading and found.grading.broke_off:
        raise RagError(found.grading.broke_off, "what was answered is kept for the next time")
    return 0


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "scotfree" / "rag-eval"


def _name(folder: Path) -> str:
    """Of a collection's folder, told apart from others that are called the same."""
    path = folder.resolve()
    return f"{path.name}-{hashlib.blake2b(os.fsencode(path), digest_size=6).hexdigest()}"


def _own(folder: Path) -> Path:
    """A folder to write into; nothing that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise RagError(f"evaluate in {folder}: it is no folder", "name another with --index")
    if folder.is_dir() and not all(_OWN.fullmatch(path.name) for path in folder.iterdir()):
        raise RagError(f"evaluate in {folder}: it holds other files", "name another folder with --index")
    return folder
