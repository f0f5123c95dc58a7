"""The page of an index, served while a test looks at it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from scotfree.loopback import Server
from scotfree.rag import Index, LanguageModel
from scotfree.rag.page.asking import Asker
from scotfree.rag.page.site import site


@contextmanager
def serving(index: Index, model: LanguageModel | None = None) -> Iterator[Server]:
    """Its server, which runs."""
    with closing(Asker(index, model)) as asker, Server(site(asker), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
