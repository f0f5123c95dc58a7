"""A synthetic fleet with known truth: services, call trees and the nine stages, metrics and profiles of a day."""

from __future__ import annotations

from pathlib import Path

from scotfree.study.fleet import write
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.fleet.truth import Truth


def generate(folder: Path, options: FleetOptions) -> Truth:
    """Writes a fleet as a complete store; what is known of it costs nothing until it is asked for."""
    fleet = write.plan(options)
    spans = write.write(folder, fleet)
    write.finish(folder, fleet, spans)
    return Truth(fleet)


__all__ = ["FleetOptions", "Truth", "generate"]
