"""The watch: receives, and every few seconds makes a store of what is kept and shows it, until it is ended.

Invariant: whatever fails, the store that was there stays whole, and is made anew as soon as that can be done.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

from scotfree.study.figures.words import counted
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.lock import NAME as LOCK
from scotfree.study.ingest.lock import locked
from scotfree.study.report.serve.server import serve_latest
from scotfree.study.store import Manifest, write_manifest
from scotfree.study.trouble import StudyError
from scotfree.study.watch import receiver
from scotfree.study.watch.builder import Builder
from scotfree.study.watch.receiver import TRACES_PATH, Receiver
from scotfree.study.watch.refusing import DISK
from scotfree.study.watch.segments import PARTS, SUFFIX, Segments
from scotfree.study.watch.site import Site
from scotfree.study.watch.stores import LINK, STORES, Stores, remove
from scotfree.study.watch.tally import Tally, say

SEGMENTS: Final = "segments"
# For requests that are under way when it is ended.
_ENDING_S: Final = 5.0
_STORE: Final = "store"
_SEAL: Final = "segment"
_DROP: Final = "drop"


@dataclass(frozen=True)
class Settings:
    """What the user may set."""

    folder: Path
    listen: tuple[str, int]
    serve: tuple[str, int]
    every_s: float
    keep_s: float
    bytes_max: int
    ingest: Limits
    senders: receiver.Limits = field(default_factory=receiver.Limits)


class Watch:
    """What is kept and what is shown, of the one process that holds the folder's lock."""

    def __init__(self, settings: Settings) -> None:
        self.tally = Tally()
        self._settings = settings
        self._segments = Segments(settings.folder / SEGMENTS, settings.bytes_max)
        self._stores = Stores(settings.folder)
        self._builder = Builder(settings.ingest)
        # What the newest store is of.
        self._built = (0, 0, 0)
        # At the last round, by the disk.
        self._refused = 0
        self.site = Site(self._said, settings.every_s)
        self.receiver = Receiver(settings.listen, self._segments, self.tally, limits=settings.senders)
        self._show_first()

    def _show_first(self) -> None:
        """What a watch before this one left, or nothing."""
        newest = self._stores.newest()
        if newest is None:
            empty = self._stores.next().with_name("000000")
            empty.mkdir(exist_ok=True)
            write_manifest(empty, Manifest())
        self.site.show(newest or empty, is_empty=newest is None)

    def _said(self) -> str:
        return self.tally.text()

    def url(self) -> str:
        """Where senders find it."""
        return address_of("http", self.receiver)

    def round(self) -> None:
        """A store of all that came until now, if there is something new."""
        try:
            self._segments.sync(self._settings.keep_s / PARTS)
            self.tally.over(_SEAL, "segments are written again")
        except OSError as error:
            self.tally.say(_SEAL, f"a segment cannot be written: {error}; it is tried again")
        self._tell_of_room()
        self._drop()
        state = self._segments.state()
        if state != self._built and self._build():
            self._built = state

    def _drop(self) -> None:
        """What is too old or too much, and what somebody else removed."""
        try:
            self._segments.drop(self._settings.keep_s)
            self.tally.over(_DROP, "segments are dropped again")
        except OSError as error:
            self.tally.say(_DROP, f"a segment cannot be dropped: {error}; it is tried again")
        dropped, gone = self._segments.no_longer()
        self.tally.drop(dropped)
        if gone:
            self.tally.lose(gone)

    def _tell_of_room(self) -> None:
        """Says that the disk takes what comes again: once something came and nothing was refused for a round."""
        refused, before = self.tally.refused[DISK.name], self._refused
        self._refused = refused
        if refused == before and self.tally.has_taken_since(DISK):
            self.tally.over(DISK.name, "the disk takes it again")

    def _build(self) -> bool:
        path = self._stores.next()
        rest = path.with_suffix(SUFFIX)
        try:
            files = self._segments.files()
            files += [rest] if self._segments.copy(rest) else []
            if not files:
                return True
            self._builder.build(files, path)
            self._stores.publish(path)
        except (OSError, StudyError) as error:
            remove(path)
            problem = error.problem if isinstance(error, StudyError) else str(error)
            self.tally.say(_STORE, f"{problem}; the store before stays, and it is tried again")
            return False
        finally:
            remove(rest)
        self.tally.over(_STORE, "stores are made again")
        self.site.show(path)
        return True

    def end(self) -> None:
        """Takes no more, makes the last store and says what there was."""
        self.receiver.end(_ENDING_S)
        try:
            self._segments.close()
        except OSError as error:
            say(f"the last segment is not sealed: {error}; the next watch does that")
        self.round()
        self._builder.close()

    def close(self) -> None:
        """Whatever became of it."""
        self._builder.close()


def watch(settings: Settings) -> None:
    """Does it until SIGINT or SIGTERM."""
    _check_folder(settings.folder)
    ended = threading.Event()
    with locked(settings.folder), _signals(ended):
        watched = Watch(settings)
        page = serve_page(watched.site, settings.serve)
        threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in (watched.receiver, page)]
        for thread in threads:
            thread.start()
        say(f"receives spans at {watched.url()}{TRACES_PATH} into {settings.folder}")
        say(f"shows them at {address_of('http', page)}/ (end with Ctrl-C)")
        try:
            _rounds(watched, settings.every_s, ended)
            watched.end()
        finally:
            watched.close()
            page.shutdown()
    say(f"ended: {watched.tally.text()}; see scot study report {settings.folder / LINK}")
    if gone := watched.tally.gone:
        raise StudyError(
            f"keep what was answered: {counted(gone.spans, 'span')} in {settings.folder / SEGMENTS} were removed",
            "only what the store has of them is left; let nobody remove files there while a watch runs",
        )


def _rounds(watched: Watch, every_s: float, ended: threading.Event) -> None:
    took_s = 0.0
    # A store that takes long to make is made less often: half of the time at most goes into it.
    while not ended.wait(max(every_s, took_s)):
        begun = time.monotonic()
        watched.round()
        took_s = time.monotonic() - begun


def serve_page(site: Site, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Its server, bound. A `StudyError` says why it cannot listen."""
    try:
        return serve_latest(site.latest, address)
    except (OSError, OverflowError) as error:
        raise StudyError(
            f"listen on {address[0]}, port {address[1]}: {error}", "name another with --serve"
        ) from None


def address_of(scheme: str, server: ThreadingHTTPServer) -> str:
    """What a client is told."""
    host, port = server.server_address[:2]
    name = f"[{host!s}]" if ":" in str(host) else str(host)
    return f"{scheme}://{name}:{port}"


def _check_folder(folder: Path) -> None:
    """What is there is written over and dropped: so it must be a watch's."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"write {folder}: it is a file", "name a new folder with --store")
    own = {SEGMENTS, STORES, LINK, f".{LINK}.half", LOCK}
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    # The lock is what every watch begins with.
    if names and not (LOCK in names and names <= own):
        raise StudyError(f"write {folder}: it holds other things", "name a new folder with --store")


@contextmanager
def _signals(ended: threading.Event) -> Iterator[None]:
    """The first one ends it in order; a second one interrupts what is then under way."""

    def end(_number: int, _frame: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
