"""The page of the newest store: what `scot study serve` shows, with what came and what was refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from scotfree.study.figures.words import counted
from scotfree.study.report.serve.queries import Queries
from scotfree.study.report.serve.server import Live, Pages
from scotfree.study.store import Store


class _Queries(Queries):
    """Those of a store that another takes the place of."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        # One page at a time is looked at, and the processors are the receiver's and the ingest's, too.
        self._connection.execute("SET threads = 2")

    def close(self) -> None:
        """Gives its memory and threads back."""
        self._connection.close()


class Site:
    """The pages of the store that was shown last."""

    def __init__(self, said: Callable[[], str], every_s: float) -> None:
        """`said` is what every page says beside its store."""
        self._said = said
        # A browser counts in whole seconds.
        self._every_s = max(1, round(every_s))
        self._pages: Pages | None = None

    def latest(self) -> Pages:
        """As they are now."""
        assert self._pages is not None
        return self._pages

    def show(self, folder: Path, *, is_empty: bool = False) -> None:
        """From now on they are of this store."""
        store = Store.open(folder)
        # When the last of it came.
        at = max((one.mtime_ns for one in store.manifest.inputs), default=0) / 1e9
        as_of = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        of = "Nothing has come yet" if is_empty else f"As of {as_of}, {counted(store.manifest.spans, 'call')}"
        queries = _Queries(store)
        live = Live(lambda: f"{of}; {self._said()}.", self._every_s)
        before, self._pages = self._pages, Pages(queries, live, queries.close)
        if before is not None:
            before.release()
