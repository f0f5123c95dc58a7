"""`scot rag index`: the files of a folder become an index, or one that is there becomes as they are now."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from scotfree.rag.commands import opening
from scotfree.rag.documents import Document, Unread, files, read
from scotfree.rag.index import Changes, Index
from scotfree.rag.trouble import RagError
from scotfree.trouble import printable

HELP = "index the files of a folder: text, Markdown, HTML, PDF, source code, also gzipped"
EXAMPLES = """\
  scot rag index ~/notes                    again later: only what changed is embedded
  scot rag index docs/ --index docs.index   an index of its own"""
# Reasons for which files are not read, in the summary.
_REASONS_MAX = 5


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a folder, or a single file")
    opening.add(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def run(flags: Namespace) -> int:
    """Does it."""
    roots = [_root(folder) for folder in flags.folders]
    with opening.begun(flags) as index:
        paths = sorted({path for root in roots for path in _files(root, index.folder)})
        reader = _Reader(paths)
        with tqdm(total=len(paths), unit="file", disable=True if flags.quiet else None, leave=False) as bar:
            changes = index.update(reader.documents(bar))
        removed = index.remove(_gone(index, roots, {str(path) for path in paths}))
        index.compact()
        if not flags.quiet:
            print(printable("\n".join(_summary(index, changes, removed, reader))), file=sys.stderr)
    return 0


def _root(folder: Path) -> Path:
    if not folder.exists():
        raise RagError(f"index {folder}: it is not there", "name a folder with files to read")
    return folder.resolve()


def _files(root: Path, index: Path) -> Iterator[Path]:
    """What is to be read; an index is not its own document."""
    own = index.resolve()
    found = [root] if root.is_file() else files(root)
    return (path for path in found if not path.is_relative_to(own))


class _Reader:
    """Reads files, and counts those that are no documents."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.unread: Counter[str] = Counter()

    def documents(self, bar: tqdm[None]) -> Iterator[Document]:
        """Those that can be read."""
        for path in self._paths:
            try:
                yield read(path)
            except Unread as error:
                self.unread[str(error)] += 1
            bar.update()


def _gone(index: Index, roots: list[Path], there: set[str]) -> list[str]:
    """Documents of these folders whose files are not there any more."""
    return [
        name
        for name in index.documents()
        if name not in there and any(Path(name).is_relative_to(root) for root in roots)
    ]


def _summary(index: Index, changes: Changes, removed: int, reader: _Reader) -> list[str]:
    lines = [
        f"{index.folder}: {changes.added:,} files added, {changes.changed:,} changed, {removed:,} removed, "
        f"{changes.same:,} as they were; {changes.embedded:,} passages embedded, {len(index):,} in all"
    ]
    if reader.unread:
        lines.append(f"files that are no documents: {reader.unread.total():,}")
        lines += [f"  {count:,}: {reason}" for reason, count in reader.unread.most_common(_REASONS_MAX)]
    return lines
