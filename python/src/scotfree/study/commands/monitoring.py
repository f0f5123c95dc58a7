"""`scot study monitoring`: rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import sys
from argparse import Namespace

from scotfree.study.report.monitoring import DASHBOARD_FILE, RULES_FILE, dashboard, rules
from scotfree.study.trouble import StudyError


def run(flags: Namespace) -> int:
    """Does it."""
    try:
        flags.output.mkdir(parents=True, exist_ok=True)
        (flags.output / RULES_FILE).write_text(rules(), encoding="utf-8")
        (flags.output / DASHBOARD_FILE).write_text(dashboard(), encoding="utf-8")
    except OSError as error:
        raise StudyError(f"write into {flags.output}: {error}", "name another folder with -o") from None
    print(f"{flags.output}: {RULES_FILE}, {DASHBOARD_FILE}", file=sys.stderr)
    return 0
