"""`scot study monitoring`: rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later

HELP = "write the live counterparts of a report: Prometheus' rules and Grafana's dashboard"
EXAMPLES = """\
  scot study monitoring -o monitoring     then: promtool check rules monitoring/scotfree.rules.yml"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("-o", "--output", type=Path, default=Path("monitoring"), help="(default: %(default)s)")


run = later("scotfree.study.commands.monitoring")
