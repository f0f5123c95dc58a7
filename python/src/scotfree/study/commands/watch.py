"""`scot study watch`: traces as they come, in a browser on this machine."""

from __future__ import annotations

from argparse import Namespace

from scotfree.study.ingest.limits import Limits
from scotfree.study.watch.watching import Settings, watch


def run(flags: Namespace) -> int:
    """Does it, until interrupted."""
    settings = Settings(
        folder=flags.store,
        listen=flags.listen,
        serve=flags.serve,
        every_s=flags.every,
        keep_s=flags.keep,
        bytes_max=flags.max_bytes,
        ingest=Limits(flags.memory, flags.threads),
    )
    watch(settings)
    return 0
