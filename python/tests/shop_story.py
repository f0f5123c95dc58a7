"""The shop of docs/read-your-tax.md: three days of plain traces, as files of Zipkin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from fleet_of_edges import Call, Fault, Fleet, none

# 2026-03-02, a Monday, 09:00 UTC.
MONDAY_NS = 1_772_442_000 * 10**9
DAY_NS = 86_400 * 10**9
ROUNDS = 240
_MS = 1_000_000


def _slow_way_to_payment(call: Call, _outside: float, _handler: float) -> tuple[float, float, float]:
    return (40.0 * _MS if (call.client, call.server) == ("checkout", "payment") else 0.0), 0.0, 0.0


DAYS: dict[str, Fault] = {"monday": none, "tuesday": _slow_way_to_payment, "wednesday": none}


def write(folder: Path) -> None:
    """monday/, tuesday/ and wednesday/, each with one file."""
    fleet = Fleet(seed=3)
    for day, (name, fault) in enumerate(DAYS.items()):
        (folder / name).mkdir()
        rows = fleet.side(ROUNDS, day + 1, fault, MONDAY_NS + day * DAY_NS)
        (folder / name / "spans.json").write_text(json.dumps(_zipkin(rows)))


def _zipkin(rows: pa.Table) -> list[dict[str, Any]]:
    return [span for row in rows.to_pylist() for span in _sides(row)]


def _sides(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The client's span and its server's, of one id."""
    both = {"traceId": row["trace_id"].hex(), "id": f"{row['span_id']:016x}", "name": row["method"]}
    if row["parent_id"] is not None:
        both["parentId"] = f"{row['parent_id']:016x}"
    total, handler, start = (row[name] // 1_000 for name in ("total_ns", "server_app_ns", "start_ns"))
    server = {"serviceName": row["service"]}
    client = both | {
        "kind": "CLIENT",
        "timestamp": start,
        "duration": total,
        "localEndpoint": {"serviceName": row["client_service"]},
        "remoteEndpoint": server,
    }
    served = both | {
        "kind": "SERVER",
        "shared": True,
        "timestamp": start + (total - handler) // 2,
        "duration": max(handler, 1),
        "localEndpoint": server,
        "tags": {"host.name": row["server_machine"]},
    }
    return [client, served]
