"""`scot rag serve`: searches in a browser on this machine, and for programs, with what they found and how long."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing
from typing import Final

from scotfree.loopback import HOST, Address, Server, is_loopback
from scotfree.numbers import whole
from scotfree.rag.address import key_of
from scotfree.rag.asking import Asker
from scotfree.rag.commands import modelling, opening, reranking
from scotfree.rag.page.site import site
from scotfree.rag.trouble import RagError

HELP = "search in a browser or from programs, and see which passages, which stages, how long"
EXAMPLES = """\
  scot rag serve                                     the index that `scot rag index` made
  scot rag serve --index docs.index --port 0         another one, on any port that is free
  scot rag serve --llm http://127.0.0.1:8080/v1 --model NAME
  scot rag serve --rerank ms-marco-MiniLM-L6-v2/     what is found in a cross-encoder's order
  curl http://127.0.0.1:8322/api/v1/search -H 'Content-Type: application/json' -d '{"question": "rotate logs?"}'
  SCOTFREE_API_TOKEN=SECRET scot rag serve --listen 0.0.0.0"""
# What who asks has to say, if anything.
TOKEN: Final = "SCOTFREE_API_TOKEN"
_TOKEN_LETTERS_MIN: Final = 16
_PORT_MAX: Final = 65_535


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    opening.add(parser)
    parser.add_argument(
        "--port", type=whole(0, _PORT_MAX), default=8322, help="0 for any that is free (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        default=HOST,
        help=f"another one than the loopback address only with a token in {TOKEN}, which then every request says "
        "(default: %(default)s)",
    )
    reranking.add(parser)
    modelling.add(parser)


def run(flags: Namespace) -> int:
    """Does it, until interrupted."""
    at = Address(flags.listen, flags.port, _token(flags.listen))
    ranking = reranking.opened(flags)
    with (
        opening.opened(flags) as index,
        modelling.opened(flags) as model,
        closing(Asker(index, model, flags.letters, ranking)) as asker,
    ):
        Server(site(asker), at).serve_until_interrupted()
    return 0


def _token(host: str) -> str:
    token = key_of(TOKEN)
    if token and len(token) < _TOKEN_LETTERS_MIN:
        problem = f"take the token in {TOKEN}: it has {len(token)} letters, and could be guessed"
        raise RagError(problem, f"take one of {_TOKEN_LETTERS_MIN} or more, as `openssl rand -hex 16` makes")
    if not token and not is_loopback(host):
        problem = f"listen on {host} without a token: whoever reaches it could ask"
        raise RagError(problem, f"set {TOKEN}, as to what `openssl rand -hex 16` prints, or leave out --listen")
    return token
