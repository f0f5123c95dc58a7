"""Folders that are watched: what changes in them changes in the index, a moment later.

The files are read whole once, when the watch has begun, so that nothing changes between the two unseen. A change
that cannot be taken in, as another process is changing the index, is tried again with the next. Of a folder that
is gone nothing is forgotten: when it is back it is read whole again.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from scotfree.rag.choosing import Wanted
from scotfree.rag.commands.reading import Reader, is_absent
from scotfree.rag.commands.summary import counted
from scotfree.rag.index import Index
from scotfree.rag.trouble import Busy, RagError, needed

# A program that writes a file is given so long to write the rest.
_DEBOUNCE_MS: Final = 500
# After so long without a change is looked whether the folders are still there, and what failed is tried again.
_IDLE_MS: Final = 1_000
# What fails so often in a row will fail again, unless it is that somebody else is at it.
_TRIES_MAX: Final = 60
# So often is waited at the beginning until nothing changes.
_WAITS_MAX: Final = 20
# Files that are told one by one.
_TOLD_MAX: Final = 20


def watch(
    index: Index,
    roots: list[Path],
    wanted: Wanted,
    read: Callable[[list[Path]], None],
    tell: Callable[[str], None],
    stop: Event | None = None,
) -> None:
    """Reads all, then what changes, until it is interrupted or told to stop; a `RagError` says what ended it.

    `read` makes the index what is at some of the roots: all of them at first, and again whatever comes back.
    """
    stop = stop or Event()
    known = _Roots(roots, tell)
    trying = _Trying(tell)
    try:
        while not stop.is_set():
            there = known.there()
            taken = _Taken(index, list(there), wanted, tell)
            for changed in _changes(list(there), stop, known.lose):
                if known.there() != there:
                    # All is read anew then: what changed meanwhile was told by nobody.
                    break
                if taken.is_begun:
                    trying.do(partial(taken.take, changed))
                elif not changed or taken.waits_no_longer():
                    taken.is_begun = trying.do(partial(read, list(there)))
                    if taken.is_begun:
                        tell(
                            f"watching {', '.join(map(str, there))}; Ctrl-C ends it"
                            if there
                            else "nothing is there"
                        )
    except KeyboardInterrupt:
        # How a watch is ended.
        tell("the watch is ended")


class _Roots:
    """Which of the roots are there: of a folder that is gone nothing is forgotten.

    One that came back is another folder, or a disk that is put in again: as long as it is empty it is not yet.
    """

    def __init__(self, roots: list[Path], tell: Callable[[str], None]) -> None:
        self._known = {root: _identity(root) for root in roots}
        self._gone: set[Path] = set()
        self._tell = tell

    def there(self) -> dict[Path, tuple[int, ...]]:
        """Each with which folder it is; tells of those that are gone, or are back."""
        found = {root: self._known[root] for root in list(self._known) if self._is_there(root)}
        for root in self._known.keys() - self._gone - found.keys():
            self._tell(f"waiting for {root}: it is gone; nothing of it is forgotten")
        for root in self._gone & found.keys():
            self._tell(f"{root}: it is back")
        self._gone = self._known.keys() - found.keys()
        return found

    def lose(self, root: Path) -> None:
        """It was told that a folder was removed: one that is there now is another, even if it has its number."""
        self._known[root] = ()

    def _is_there(self, root: Path) -> bool:
        try:
            now = _identity(root)
            if not now or (now != self._known[root] and root.is_dir() and not any(root.iterdir())):
                return False
        except OSError:
            return False
        self._known[root] = now
        return True


class _Trying:
    """Does what may fail for a while, as another process changes the index; what fails for long ends the watch."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._failed, self._told = 0, ""
        # What fails at the very beginning would fail again.
        self._tries_max = 1

    def do(self, what: Callable[[], None]) -> bool:
        """Whether it is done; a `RagError` says why it will never be."""
        try:
            what()
        except (RagError, OSError, sqlite3.OperationalError) as error:
            self._wait(error)
            return False
        self._failed, self._told, self._tries_max = 0, "", _TRIES_MAX
        return True

    def _wait(self, error: Exception) -> None:
        is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        if not is_locked and not isinstance(error, Busy):
            self._failed += 1
            if self._failed >= self._tries_max:
                raise error
        said = "change the index: another program has locked the file of its texts" if is_locked else str(error)
        if said != self._told:
            self._tell(f"{said}; it is tried again")
        self._told = said


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
        # All was read once.
        self.is_begun = False
        self._index, self._roots, self._wanted, self._tell = index, roots, wanted, tell
        self._left: set[Path] = set()
        self._files = _Files(roots)
        self._files.changed()
        self._waited = 0

    def waits_no_longer(self) -> bool:
        """Whether what still changes at the beginning is read all the same: what comes back, comes bit by bit."""
        self._waited += 1
        return self._waited > _WAITS_MAX

    def take(self, changed: set[Path]) -> None:
        """Takes it in, with what could not be before."""
        self._left |= changed | self._files.changed()
        if self._left:
            _take(self._index, Reader(self._roots, self._index.folder, self._wanted), self._left, self._tell)
            self._left = set()


def _changes(roots: list[Path], stop: Event, lose: Callable[[Path], None]) -> Iterator[set[Path]]:
    """What changed, as it comes, or nothing after a while; the first time when all that changes will be told.

    It ends when a folder is not what is watched any more: `lose` is told when it was removed.
    """
    if not roots:
        while not stop.wait(_IDLE_MS / 1000):
            yield set()
        return
    watchfiles = needed("watchfiles", "rag")
    folders = {root for root in roots if root.is_dir()}
    found = watchfiles.watch(
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
            removed = {Path(path) for kind, path in changes if kind == watchfiles.Change.deleted}
            if lost := folders & removed:
                # File systems give the number of what was removed to what is made next, of which nothing is told.
                for root in lost:
                    lose(root)
                return
            yield {Path(path) for _, path in changes}
    except FileNotFoundError:
        # Gone just now.
        stop.wait(_IDLE_MS / 1000)
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
        yield f"{len(paths):,} files: {counts}; {counted(changes.embedded, 'passage')} embedded"
        return
    for document in reader.documents(paths):
        changes = index.update([document], is_gone=reader.is_moved)
        kind = next((kind for kind in ("added", "changed", "moved") if getattr(changes, kind)), "")
        if kind:
            yield f"{document.name}: {kind}, {counted(changes.embedded, 'passage')} embedded"


def _forget(index: Index, absent: list[Path], unread: set[Path]) -> list[str]:
    """Forgets what was at these places, and below them."""
    names = [
        name
        for name in index.documents()
        if Path(name) in unread or any(Path(name).is_relative_to(path) for path in absent)
    ]
    index.remove(names)
    return names


def _identity(root: Path) -> tuple[int, ...]:
    """Which folder it is; a file is any that is there, since editors put others in its place."""
    try:
        details = root.stat()
    except OSError:
        return ()
    return (details.st_dev, details.st_ino) if stat.S_ISDIR(details.st_mode) else (0,)


def _details(path: Path) -> tuple[int, ...]:
    try:
        details = path.stat()
    except OSError:
        return ()
    return details.st_dev, details.st_ino, details.st_mtime_ns, details.st_size
