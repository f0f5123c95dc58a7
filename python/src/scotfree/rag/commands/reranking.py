"""What commands say of a cross-encoder that puts in order what was found: which one, and of how many passages."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from scotfree.numbers import whole
from scotfree.rag.rerank.ranked import Reranking
from scotfree.rag.trouble import missing

# As many as can be asked for.
COUNT_MAX: Final = 1000
# Among so many it chooses.
_FROM: Final = 50


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "--rerank",
        type=Path,
        metavar="FOLDER",
        help="of a cross-encoder, which reads question and passage together: it puts what was found in order",
    )
    parser.add_argument(
        "--rerank-from",
        type=whole(1, COUNT_MAX),
        default=_FROM,
        metavar="N",
        help="of how many passages it chooses (default: %(default)s)",
    )


def opened(flags: Namespace) -> Reranking | None:
    """Opened before the index is asked: what is wrong with it is better known first."""
    if not flags.rerank:
        return None
    try:
        from scotfree.rag.rerank.cross_encoder import CrossEncoder  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing(error, "rag") from None
    return Reranking(CrossEncoder(flags.rerank, device=flags.device), flags.rerank_from)
