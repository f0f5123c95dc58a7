"""The page of an index, served while a test looks at it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scotfree.loopback import HOST, Address, Limits, Server
from scotfree.rag import Index, LanguageModel
from scotfree.rag.asking import Asker
from scotfree.rag.page.site import site
from scotfree.rag.rerank.ranked import Reranking
from scotfree.turns import Turns

PROGRAM = """
import sys
from bench.words import Words
from scotfree.rag import cli
from scotfree.rag.commands import opening
opening.by_name = lambda *_, **__: Words()
sys.exit(cli.main(sys.argv[1:]))
"""


@contextmanager
def serving(
    index: Index,
    model: LanguageModel | None = None,
    *,
    token: str = "",
    host: str = HOST,
    ranking: Reranking | None = None,
    limits: Limits | None = None,
    searching: Turns | None = None,
) -> Iterator[Server]:
    """Its server, which runs."""
    with (
        closing(Asker(index, model, ranking=ranking)) as asker,
        Server(site(asker, searching), Address(host, token=token), limits) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def started(folder: Path, *words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`scot rag serve` in a process of its own, on any port that is free, and that port."""
    command = [sys.executable, "-c", PROGRAM, "serve", "--index", str(folder), "--port", "0", *words]
    given = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    running = subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr
        said = running.stderr.readline()
        found = re.fullmatch(r"http://(?:[0-9.]+|\[::1\]):(\d+)/ \(end with Ctrl-C\)\n", said)
        assert found, said
        yield running, int(found[1])
    finally:
        running.kill()
        running.wait()
        assert running.stderr
        running.stderr.close()
