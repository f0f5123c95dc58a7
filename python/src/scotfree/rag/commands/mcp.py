"""`scot rag mcp`: an index as tools of a model's host, which starts this and speaks to it on its streams."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing

from scotfree.rag.commands import opening
from scotfree.signals import INTERRUPTED, TERMINATED

HELP = "let an assistant search and read your documents, by the Model Context Protocol"
EXAMPLES = """\
  scot rag mcp                         what the host starts; in its configuration:
  {"mcpServers": {"documents": {"command": "scot", "args": ["rag", "mcp"]}}}
  scot rag mcp --index docs.index      another index"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    opening.add(parser)


def run(flags: Namespace) -> int:
    """Does it, until the host closes the stream."""
    from scotfree.rag.asking import Asker  # noqa: PLC0415
    from scotfree.rag.mcp_server import server  # noqa: PLC0415

    with opening.opened(flags) as index, closing(Asker(index)) as asker:
        if sys.stdin.isatty():
            print("this speaks to an assistant's host, which starts it; end with Ctrl-C", file=sys.stderr)
        _end_when_told()
        server(asker).run()
    return 0


def _end_when_told() -> None:
    """At once: the protocol's reader waits for its stream, whatever comes, and what only reads loses nothing."""
    for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        signal.signal(number, lambda *_, code=code: os._exit(code))
