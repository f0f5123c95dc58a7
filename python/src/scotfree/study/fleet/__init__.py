"""A synthetic fleet with known truth: services, call trees and the nine stages, metrics and profiles of a day."""

from __future__ import annotations

from pathlib import Path

from scotfree.study.fleet import write
from scotfree.study.fleet.options import FleetOptions


def generate(folder: Path, options: FleetOptions) -> None:
    """Writes a fleet as a store."""
    fleet = write.plan(options)
    spans = write.write(folder, fleet)
    write.finish(folder, fleet, spans)


__all__ = ["FleetOptions", "generate"]
