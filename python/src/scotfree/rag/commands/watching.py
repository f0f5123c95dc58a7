"""Folders that are watched: what changes in them changes in the index, a moment later.

The files are read whole once, when the watch has begun, so that nothing changes between the two unseen. A change
that cannot be taken in, as another process is changing the index, is tried again with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Final

from scotfree.rag.choosing import Wanted
from scotfree.rag.commands.reading import Reader, is_absent
from scotfree.rag.index import Index
from scotfree.rag.trouble import RagError, needed

# A program that writes a file is given so long to write the rest.
_DEBOUNCE_MS: Final = 500
# After so long without a change is looked whether the folders are still there, and what failed is tried again.
_IDLE_MS: Final = 1_000
# What fails so often in a row will fail again.
_TRIES_MAX: Final = 60
# Files that are told one by one.
_TOLD_MAX: Final = 20


def watch(
    index: Index,
    roots: list[Path],
    wanted: Wanted,
    read_all: Callable[[], None],
    tell: Callable[[str], None],
    stop: Event | None = None,
) -> None:
    """Reads all, then what changes, until it is interrupted or told to stop; a `RagError` says what ended it."""
    seen = _Files(roots)
    taken = _Taken(index, roots, wanted, tell)
    try:
        for at, changed in enumerate(_changes(roots, stop)):
            if not at:
                seen.changed()
                read_all()
                tell(f"watching {', '.join(map(str, roots))}; Ctrl-C ends it")
            else:
                taken.take(changed | seen.changed())
    except KeyboardInterrupt:
        # How a watch is ended.
        tell("the watch is ended")


class _Files:
    """Roots that are files. An editor puts another file in its place, of which the kernel does not tell."""

    def __init__(self, roots: list[Path]) -> None:
        self._were: dict[Path, tuple[int, ...]] = {root: () for root in roots if not root.is_dir()}

    def changed(self) -> set[Path]:
        """Those that are others than the last time."""
        are = {path: _details(path) for path in self._were}
        found = {path for path, details in are.items() if details != self._were[path]}
        self._were = are
        return found


class _Taken:
    """What changed, until it is in the index."""

    def __init__(self, index: Index, roots: list[Path], wanted: Wanted, tell: Callable[[str], None]) -> None:
        self._index, self._roots, self._wanted, self._tell = index, roots, wanted, tell
        self._folders = [root for root in roots if root.is_dir()]
        self._left: set[Path] = set()
        self._failed = 0

    def take(self, changed: set[Path]) -> None:
        """Takes it in, with what could not be before; a `RagError` says that a folder is gone, or what fails."""
        if gone := [folder for folder in self._folders if is_absent(folder)]:
            raise RagError(
                f"watch {gone[0]}: it is gone", "put it back; --forget forgets what was indexed from it"
            )
        self._left |= changed
        if not self._left:
            return
        try:
            _take(self._index, Reader(self._roots, self._index.folder, self._wanted), self._left, self._tell)
        except RagError as error:
            self._failed += 1
            if self._failed >= _TRIES_MAX:
                raise
            if self._failed == 1:
                self._tell(f"{error}; it is tried again")
        else:
            self._left, self._failed = set(), 0


def _changes(roots: list[Path], stop: Event | None) -> Iterator[set[Path]]:
    """What changed, as it comes: the first time nothing, as soon as all that changes will be told."""
    found = needed("watchfiles", "rag").watch(
        *roots,
        watch_filter=None,
        debounce=_DEBOUNCE_MS,
        rust_timeout=_IDLE_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
        stop_event=stop,
    )
    try:
        for changes in found:
            yield {Path(path) for _, path in changes}
    except OSError as error:
        raise RagError(
            f"watch {', '.join(map(str, roots))}: {error}",
            "the kernel's limit may be too low: sysctl fs.inotify.max_user_watches",
        ) from None


def _take(index: Index, reader: Reader, changed: set[Path], tell: Callable[[str], None]) -> None:
    """Takes in what changed."""
    absent = [path for path in changed if is_absent(path)]
    paths = sorted({path for one in changed.difference(absent) for path in reader.changed(one)})
    for line in _put(index, reader, paths):
        tell(line)
    for doubt in reader.doubts:
        tell(f"{reader.first[doubt]}: its front matter is left as text: {doubt}")
    # Files that are no documents any more, too.
    unread = {path for path in paths if reader.is_gone(path)}
    if absent or unread:
        for name in _forget(index, absent, unread):
            tell(f"{name}: forgotten")
    index.compact()


def _put(index: Index, reader: Reader, paths: list[Path]) -> Iterator[str]:
    """Puts files in, and says of each what became of it; of many at once only of how many."""
    if len(paths) > _TOLD_MAX:
        changes = index.update(reader.documents(paths), is_gone=reader.is_moved)
        counts = f"{changes.added:,} added, {changes.changed:,} changed, {changes.moved:,} renamed"
        yield f"{len(paths):,} files: {counts}; {changes.embedded:,} passages embedded"
        return
    for document in reader.documents(paths):
        changes = index.update([document], is_gone=reader.is_moved)
        kind = next((kind for kind in ("added", "changed", "moved") if getattr(changes, kind)), "")
        if kind:
            yield f"{document.name}: {kind}, {changes.embedded:,} passages embedded"


def _forget(index: Index, absent: list[Path], unread: set[Path]) -> list[str]:
    """Forgets what was at these places, and below them."""
    names = [
        name
        for name in index.documents()
        if Path(name) in unread or any(Path(name).is_relative_to(path) for path in absent)
    ]
    index.remove(names)
    return names


def _details(path: Path) -> tuple[int, ...]:
    try:
        details = path.stat()
    except OSError:
        return ()
    return details.st_dev, details.st_ino, details.st_mtime_ns, details.st_size
