"""`scot study watch`: traces as they come, in a browser on this machine."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Final

from scotfree.command_line import later
from scotfree.study.commands.flags import reading

HELP = "receive traces over OTLP/HTTP and look at them in a browser as they come"
EXAMPLES = """\
  scot study watch                                 then, in another terminal, your program:
  OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 ./program
  scot study watch --keep 10m --max-bytes 200MB    the last ten minutes, and no more than that
  scot study report watch.live/store -o page.html  all figures of what came, when it has ended"""

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNITS_B: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "--listen",
        type=_address,
        default="127.0.0.1:4318",
        metavar="HOST:PORT",
        help="where exporters send to; who reaches it can write (default: %(default)s)",
    )
    parser.add_argument(
        "--serve",
        type=_address,
        default="127.0.0.1:8321",
        metavar="HOST:PORT",
        help="where the page is; who reaches it can read (default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=Path("watch.live"),
        metavar="DIR",
        help="where what comes is kept, and the newest store as DIR/store (default: %(default)s)",
    )
    parser.add_argument(
        "--every",
        type=_seconds,
        default="5s",
        metavar="TIME",
        help="between two stores, if making one takes no longer (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=_seconds,
        default="1h",
        metavar="TIME",
        help="what came so long before the newest is dropped (default: %(default)s)",
    )
    parser.add_argument(
        "--max-bytes",
        type=_bytes,
        default="1GB",
        metavar="SIZE",
        help="of what is kept; the oldest goes first (default: %(default)s)",
    )
    reading.add_limits(parser)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ArgumentTypeError(f"{text} is no HOST:PORT, such as 127.0.0.1:4318")
    return host, int(port)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if not found or int(found[1]) == 0:
        raise ArgumentTypeError(f"{text} is no time, such as 5s, 10m or 1h")
    return float(found[1]) * _UNITS_S[found[2]]


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([KMGT]B)", text, re.IGNORECASE)
    if not found or int(found[1]) == 0:
        raise ArgumentTypeError(f"{text} is no size, such as 200MB")
    return int(found[1]) * _UNITS_B[found[2].upper()]


run = later("scotfree.study.commands.watch")
