"""`scot study serve`: from the fleet down to one call's nine stages, in a browser on this machine."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from scotfree.study.report.serve.queries import Queries
from scotfree.study.report.serve.server import HOST, serve
from scotfree.study.report.write import parquet_folder
from scotfree.study.store import INDEX, Store
from scotfree.study.trouble import StudyError


def run(flags: Namespace) -> int:
    """Does it, until interrupted."""
    queries = Queries(Store.open(_store(flags.store)))
    try:
        server = serve(queries, flags.port)
    except (OSError, OverflowError) as error:
        raise StudyError(f"listen on {HOST}, port {flags.port}: {error}", "name another with --port") from None
    print(f"http://{HOST}:{server.server_address[1]}/ (end with Ctrl-C)", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


def _store(given: Path) -> Path:
    """The store behind a report, as the index beside it says."""
    if given.suffix != ".html":
        return given
    index = parquet_folder(given) / INDEX
    try:
        return Path(json.loads(index.read_bytes())["store"])
    except (OSError, ValueError, KeyError) as error:
        raise StudyError(f"find the store of {given} in {index}: {error}", "name the store itself") from None
