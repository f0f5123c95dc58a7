"""`scot rag serve`: searches in a browser on this machine, with what they found and where their time went."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing

from scotfree.loopback import Server
from scotfree.numbers import whole
from scotfree.rag.commands import modelling, opening
from scotfree.rag.page.asking import Asker
from scotfree.rag.page.site import site

HELP = "search in a browser on this machine, and see which passages, which stages, how long"
EXAMPLES = """\
  scot rag serve                                     the index that `scot rag index` made
  scot rag serve --index docs.index --port 0         another one, on any port that is free
  scot rag serve --llm http://127.0.0.1:8080/v1 --model NAME"""
_PORT_MAX = 65_535


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    opening.add(parser)
    parser.add_argument(
        "--port", type=whole(0, _PORT_MAX), default=8322, help="on the loopback address (default: %(default)s)"
    )
    modelling.add(parser)


def run(flags: Namespace) -> int:
    """Does it, until interrupted."""
    with (
        opening.opened(flags) as index,
        modelling.opened(flags) as model,
        closing(Asker(index, model, flags.letters)) as asker,
    ):
        Server(site(asker), flags.port).serve_until_interrupted()
    return 0
