"""`scot rag index`: the files of a folder become an index, or one that is there becomes as they are now."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scotfree.numbers import whole
from scotfree.rag.calibration import RECALL
from scotfree.rag.choosing import Wanted
from scotfree.rag.commands import opening, summary, watching
from scotfree.rag.commands.reading import Reader
from scotfree.rag.commands.sized import Sized
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.index import Index
from scotfree.rag.splitting import TOKENS_MAX
from scotfree.rag.trouble import RagError
from scotfree.trouble import printable

HELP = "index the files of a folder: text, Markdown, HTML, PDF, Word, EPUB, notebooks, source code"
EXAMPLES = """\
  scot rag index ~/notes                    again later: only what changed is embedded
  scot rag index docs/ --index docs.index   an index of its own
  scot rag index docs/ --smallest           a fifth of the room or less; each question embeds some passages again
  scot rag index docs/ --embedder int8:all-MiniLM-L6-v2     in half the time, of slightly other vectors
  scot rag index docs/ --embedder onnx:e5-small-v2/ --query-prompt "query: " --passage-prompt "passage: "
  scot rag index ~/notes --watch            and again whenever a file changes, until Ctrl-C
  scot rag index src/ --include '*.py' --exclude tests/ --gitignore
  scot rag index old/ --forget              forgets what was indexed from there"""
# Of a passage; what its embedder reads is asked later.
_TOKENS_MIN: Final = 8
_TOKENS_MAX: Final = 1 << 20


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a folder, or a single file")
    opening.add(parser)
    opening.add_prompts(parser)
    parser.add_argument(
        "--forget", action="store_true", help="read nothing: forget what was indexed from there, gone or not"
    )
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="of a new index: keep codes alone, 50 to 95 bytes a passage and not 450; searches then take tenths "
        "of a second or more and not hundredths, since they embed again what may be near",
    )
    parser.add_argument(
        "--recall",
        type=float,
        metavar="SHARE",
        help=f"how much of the nearest searches find (default: {RECALL}); `scot rag check` measures it",
    )
    parser.add_argument(
        "--passage-tokens",
        type=whole(_TOKENS_MIN, _TOKENS_MAX),
        metavar="N",
        help=f"of a new index: tokens that a passage has at most (default: {TOKENS_MAX})",
    )
    parser.add_argument(
        "--overlap",
        type=whole(0, _TOKENS_MAX),
        metavar="N",
        help="of a new index: tokens of the passage before with which one may begin (default: 0)",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="GLOB",
        help="read only such files, as '*.md' or 'manuals/' (again for more)",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="GLOB",
        help="leave out such files and folders, which are forgotten if they were read before (again for more)",
    )
    parser.add_argument("--gitignore", action="store_true", help="leave out what .gitignore files do")
    parser.add_argument(
        "--watch", action="store_true", help="then wait for changes and take them in as they come, until Ctrl-C"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def run(flags: Namespace) -> int:
    """Does it."""
    if flags.forget:
        return _forget(flags)
    roots = [_root(folder) for folder in flags.folders]
    wanted = Wanted(flags.include, flags.exclude, flags.gitignore)
    with opening.begun(flags) as index:
        if flags.watch:
            watching.watch(index, roots, wanted, lambda there: _read(flags, index, there, wanted), _tell(flags))
        else:
            _read(flags, index, roots, wanted)
    return 0


def _tell(flags: Namespace) -> Callable[[str], None]:
    return (lambda _: None) if flags.quiet else (lambda line: print(printable(line), file=sys.stderr, flush=True))


def _read(flags: Namespace, index: Index, roots: list[Path], wanted: Wanted) -> None:
    """Makes an index what the files are."""
    reader = Reader(roots, index.folder, wanted)
    shown = Shown(is_quiet=flags.quiet)
    with shown.wait("looking for files"):
        paths = reader.files()
    if flags.include and not paths and not flags.watch:
        # A slip of the pen would forget all that was read before.
        raise RagError(
            f"index {', '.join(map(str, roots))}: no file there is as --include {' '.join(flags.include)} says",
            "say other patterns; --forget forgets what was indexed from there",
        )
    with Sized(paths, is_quiet=flags.quiet) as bar:
        documents = reader.documents(paths, bar.unread)
        changes = index.update(documents, progress=bar.done, part=bar.part, is_gone=reader.is_moved)
    gone = [name for name in index.documents() if reader.is_below(Path(name)) and reader.is_gone(Path(name))]
    removed = index.remove(gone)
    with shown.wait("learning clusters, coding passages and measuring what is found"):
        index.compact()
    _tell(flags)("\n".join(summary.lines(index, changes, removed, reader)))


def _forget(flags: Namespace) -> int:
    roots = [folder.resolve() for folder in flags.folders]
    with opening.opened(flags) as index:
        below = {root: [name for name in index.documents() if Path(name).is_relative_to(root)] for root in roots}
        if unknown := [root for root, names in below.items() if not names]:
            # Nothing is forgotten where a name may be a slip of the pen.
            raise RagError(
                f"forget {', '.join(map(str, unknown))}: nothing of it is in the index {index.folder}",
                "name what was indexed",
            )
        removed = index.remove(sorted({name for names in below.values() for name in names}))
        index.compact()
        passages = summary.counted(len(index), "passage")
        _tell(flags)(f"{index.folder}: {summary.counted(removed, 'file')} forgotten; {passages} in all")
    return 0


def _root(folder: Path) -> Path:
    if not folder.exists():
        raise RagError(
            f"index {folder}: it is not there",
            "name a folder with files to read; --forget forgets what was indexed from it",
        )
    return folder.resolve()
