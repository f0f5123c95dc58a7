"""The flags of how inputs are read."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Final

from scotfree.study.ingest.limits import Limits

# Of the readers (`ingest.forms`), which stand on what takes long to import.
FORMS: Final = (
    "alibaba",
    "csv",
    "folded",
    "jaeger",
    "json-table",
    "otlp-json",
    "otlp-profiles",
    "otlp-profiles-json",
    "otlp-proto",
    "parquet",
    "perf-script",
    "pprof",
    "prometheus",
    "skywalking",
    "zipkin",
)
# Far above any machine's: more would only be started.
_THREADS_MAX: Final = 1024
# Earlier times are those that count from elsewhere.
_YEARS: Final = (1990, 2200)
_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("--form", choices=FORMS, help="of all inputs (default: each is looked at)")
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="which column of a table (CSV, JSON, Parquet) is what, also OURS=THEIRS:UNIT, or a file of TOML; "
        "again for more",
    )
    parser.add_argument(
        "--epoch",
        type=_epoch,
        metavar="TIME",
        help="when times began that count from 0, not from 1970, as 2026-01-31T12:00:00Z",
    )
    parser.add_argument("--replace", action="store_true", help="a store of other data becomes one of this")
    add_limits(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def add_limits(parser: ArgumentParser) -> None:
    """Says the flags of what an ingest may hold."""
    default = Limits()
    parser.add_argument(
        "--memory",
        type=_memory,
        default=default.memory,
        help="for joins; the rest takes up to some 1.5 GB beside (default: %(default)s)",
    )
    parser.add_argument("--threads", type=_threads, default=default.threads, help="(default: %(default)s)")


def _epoch(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not _YEARS[0] <= moment.year < _YEARS[1]:
        raise ArgumentTypeError(f"{text} is no time with a zone from {_YEARS[0]} on, such as 2026-01-31T12:00:00Z")
    return round((moment - _UNIX).total_seconds() * 1e6) * 1000


def _memory(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)? ?([KMGT]i?)?B", text, re.IGNORECASE):
        raise ArgumentTypeError(f"{text} is no size of memory, such as 2GB")
    return text


def _threads(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= _THREADS_MAX:
        raise ArgumentTypeError(f"{text} is no number from 1 to {_THREADS_MAX}")
    return int(text)
