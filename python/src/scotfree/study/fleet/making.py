"""A fleet as a complete store."""

from __future__ import annotations

import shutil
from pathlib import Path

from scotfree.study.fleet import write
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.fleet.truth import Truth


def generate(folder: Path, options: FleetOptions, *, threads: int = 2) -> Truth:
    """Writes a fleet as a complete store, some 100 MB of memory a thread.

    The calls do not depend on the threads. What is known of them costs nothing until it is asked for. Of a
    store that was not finished nothing is left.
    """
    write.refuse_used(folder)
    fleet = write.plan(options)
    try:
        spans = write.write(folder, fleet, threads)
        write.finish(folder, fleet, spans)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Truth(fleet)
