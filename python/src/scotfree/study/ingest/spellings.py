"""The usual names of a span table's columns, and of the columns that `--map` names on its left."""

from __future__ import annotations

import re
from typing import Final

from scotfree.study.ingest import attributes

# When a call ended, for tables that say that instead of how long it took.
END: Final = "end_ns"
# Ours -> theirs without case and signs, the likeliest first. Times may have a unit behind the name.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "trace_id": ("traceid", "trace"),
    "span_id": ("spanid", "id", "span"),
    "parent_id": ("parentid", "parentspanid", "parent", "parentspan"),
    "service": ("service", "servicename", "servicecode", "localservice", "app", "application"),
    "peer_service": ("peerservice", "remoteservice", "remoteservicename", "servicepeername", "targetservice"),
    "name": ("name", "operationname", "operation", "spanname", "method", "endpoint", "endpointname", "rpcmethod"),
    "kind": ("kind", "spankind", "type", "spantype"),
    "start_ns": (
        "start",
        "starttime",
        "timestamp",
        "starttimestamp",
        "startedat",
        "begin",
        "begintime",
        "time",
        "ts",
    ),
    "duration_ns": (
        "duration",
        "dur",
        "elapsed",
        "elapsedtime",
        "latency",
        "took",
        "responsetime",
        "durationtime",
    ),
    END: ("end", "endtime", "endtimestamp", "endedat", "finish", "finishtime", "finishedat", "stop", "stoptime"),
    "status": ("status", "statuscode", "otelstatuscode", "error", "iserror", "httpstatuscode", "grpcstatuscode"),
    "machine": ("host", "hostname", "machine", "node", "instance", "serviceinstancename", "pod"),
    "cluster": ("cluster", "zone", "region"),
    "req_bytes": ("requestbytes", "requestsize", "reqsize", "bytesin"),
    "resp_bytes": ("responsebytes", "responsesize", "respsize", "bytesout"),
}
# What exporters put before the names of attributes.
_PREFIXES: Final = ("resourceattributes", "spanattributes", "attributes", "resource", "tags", "tag")


def usual_names() -> dict[str, list[str]]:
    """All usual names of each column, with the keys of attributes; without units behind times."""
    found = {ours: list(names) for ours, names in NAMES.items()}
    for key, ours in (attributes.INTEGERS | attributes.FLOATS | attributes.TEXTS).items():
        found.setdefault(ours, []).append(plain(key))
    return found


def plain(name: str) -> str:
    """A name without case and signs, and without what exporters put before attributes."""
    word = re.sub(r"[^0-9a-zµ]", "", name.lower())
    for prefix in _PREFIXES:
        if word.startswith(prefix) and len(word) > len(prefix):
            return word.removeprefix(prefix)
    return word
