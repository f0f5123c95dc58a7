"""`scot study fleet`: a synthetic fleet with known truth, for tests and benchmarks."""

from __future__ import annotations

from argparse import Namespace

from scotfree.study.fleet import FleetOptions, Truth, generate, otlp, write
from scotfree.study.working import Working


def run(flags: Namespace) -> int:
    """Does it."""
    names = ("spans", "methods", "seed", "partitions", "clusters", "depth")
    options = FleetOptions(**{name: getattr(flags, name) for name in names})
    with Working(f"making {options.spans:,} calls"):
        if flags.form == "otlp":
            truth = Truth(write.plan(options))
            otlp.write(flags.to, truth.fleet, stages=not flags.no_stages)
        else:
            truth = generate(flags.to, options)
        if flags.truth:
            truth.write(flags.truth)
    print(f"{flags.to}: {truth.fleet.spans:,} calls of {options.methods:,} methods as {flags.form}")
    return 0
