"""The flags that say where calls are counted."""

from __future__ import annotations

from argparse import ArgumentParser


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "--engine",
        choices=["duckdb", "spark"],
        default="duckdb",
        help="what counts: DuckDB in this process, or Spark (default: %(default)s)",
    )
    parser.add_argument(
        "--spark-master",
        metavar="URL",
        help="of a cluster that sees the store under the same path, spark://HOST:7077; or local[2]: this machine",
    )
