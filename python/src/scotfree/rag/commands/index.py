"""`scot rag index`: the files of a folder become an index, or one that is there becomes as they are now."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tqdm import tqdm

from scotfree.rag.calibration import RECALL
from scotfree.rag.commands import opening
from scotfree.rag.documents import Document, Unread, files, read
from scotfree.rag.index import Index
from scotfree.rag.trouble import RagError
from scotfree.rag.updating import Changes
from scotfree.trouble import printable

HELP = "index the files of a folder: text, Markdown, HTML, PDF, source code, also gzipped"
EXAMPLES = """\
  scot rag index ~/notes                    again later: only what changed is embedded
  scot rag index docs/ --index docs.index   an index of its own
  scot rag index docs/ --smallest           a ninth of the room; each question embeds some passages again
  scot rag index docs/ --embedder int8:all-MiniLM-L6-v2     in half the time, of slightly other vectors
  scot rag index docs/ --embedder onnx:e5-small-v2/ --query-prompt "query: " --passage-prompt "passage: "
  scot rag index old/ --forget              forgets what was indexed from there"""
# Reasons for which files are not read, in the summary.
_REASONS_MAX: Final = 5


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
        help="of a new index: keep codes alone, 50 bytes a passage and not 450; searches then take a quarter of a "
        "second and not a hundredth, since they embed again what may be near",
    )
    parser.add_argument(
        "--recall",
        type=float,
        metavar="SHARE",
        help=f"how much of the nearest searches find (default: {RECALL}); `scot rag check` measures it",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def run(flags: Namespace) -> int:
    """Does it."""
    if flags.forget:
        return _forget(flags)
    roots = [_root(folder) for folder in flags.folders]
    with opening.begun(flags, keep="codes" if flags.smallest else None, recall=flags.recall) as index:
        reader = _Reader()
        paths = sorted({path for root in roots for path in reader.files(root, index.folder)})
        with tqdm(total=len(paths), unit="file", disable=True if flags.quiet else None, leave=False) as bar:
            changes = index.update(reader.documents(paths, bar))
        removed = index.remove(name for name in _below(index, roots) if reader.is_gone(Path(name)))
        index.compact()
        if not flags.quiet:
            print(printable("\n".join(_summary(index, changes, removed, reader))), file=sys.stderr)
    return 0


def _forget(flags: Namespace) -> int:
    with opening.opened(flags) as index:
        removed = index.remove(_below(index, [folder.resolve() for folder in flags.folders]))
        index.compact()
        if not flags.quiet:
            told = f"{index.folder}: {removed:,} files forgotten; {len(index):,} passages in all"
            print(printable(told), file=sys.stderr)
    return 0


def _root(folder: Path) -> Path:
    if not folder.exists():
        raise RagError(
            f"index {folder}: it is not there",
            "name a folder with files to read; --forget forgets what was indexed from it",
        )
    return folder.resolve()


def _below(index: Index, roots: list[Path]) -> list[str]:
    """Documents that were indexed from these folders."""
    return [name for name in index.documents() if any(Path(name).is_relative_to(root) for root in roots)]


class _Reader:
    """Reads files, and knows those that are no documents."""

    def __init__(self) -> None:
        # Of each reason how many there are, and the first.
        self.unread: Counter[str] = Counter()
        self.first: dict[str, Path] = {}
        self._read: set[Path] = set()
        # What could not be looked at: files, and folders with all that is below.
        self._unseen: set[Path] = set()

    def files(self, root: Path, index: Path) -> list[Path]:
        """What is to be read; an index is not its own document."""

        def unseen(folder: Path, error: OSError) -> None:
            self._unseen.add(folder)
            self._note(folder, f"folder: {error.strerror or error}")

        own = index.resolve()
        found = [root] if root.is_file() else files(root, unseen)
        return [path for path in found if not path.is_relative_to(own)]

    def documents(self, paths: list[Path], bar: tqdm[None]) -> Iterator[Document]:
        """Those that can be read."""
        for path in paths:
            try:
                document = read(path)
            except Unread as error:
                self._note(path, str(error))
                if error.is_unseen:
                    self._unseen.add(path)
            else:
                self._read.add(path)
                yield document
            bar.update()

    def is_gone(self, path: Path) -> bool:
        """Whether it was seen that there is no such document any more."""
        return path not in self._read and self._unseen.isdisjoint((path, *path.parents))

    def _note(self, path: Path, reason: str) -> None:
        self.unread[reason] += 1
        self.first.setdefault(reason, path)


def _summary(index: Index, changes: Changes, removed: int, reader: _Reader) -> list[str]:
    lines = [
        f"{index.folder}: {changes.added:,} files added, {changes.changed:,} changed, {removed:,} removed, "
        f"{changes.same:,} as they were; {changes.embedded:,} passages embedded, {len(index):,} in all"
    ]
    if (bound := index.bound) and not bound.is_held:
        lines.append(
            f"  searches find {bound.recall:.3f} of the nearest where {bound.target} was asked for, at the most "
            "careful; more bits a dimension would find more"
        )
    if reader.unread:
        lines.append(f"files that are no documents: {reader.unread.total():,}")
        shown = reader.unread.most_common(_REASONS_MAX)
        lines += [f"  {count:,}: {reason}, as {reader.first[reason]}" for reason, count in shown]
        if more := reader.unread.total() - sum(count for _, count in shown):
            lines.append(f"  {more:,} for other reasons")
    return lines
