"""Which attribute of a record says what: one table for all forms, and for the decoder in Rust.

Keys are those of OpenTelemetry's semantic conventions, of older ones that Jaeger and Zipkin data still have, and
of the project's own `rpc.stage.*` (study-spec 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scotfree.study import schema

# Attribute -> column of `side`. Of two that say the same the first in this order wins: a message's size before a
# body's, one that is not compressed before one that may be, the current name before older ones.
INTEGERS: Final[dict[str, str]] = {
    **{f"rpc.stage.{stage}": f"{stage}_ns" for stage in schema.STAGES},
    "rpc.stage.clock_bound": "clock_bound_ns",
    "rpc.request.size": "req_bytes",
    "rpc.client.request.size": "req_bytes",
    "http.request.body.size": "req_bytes",
    "http.request_content_length_uncompressed": "req_bytes",
    "http.request_content_length": "req_bytes",
    "messaging.message.body.size": "req_bytes",
    # Until version 1.22 of the conventions.
    "messaging.message.payload_size_bytes": "req_bytes",
    "messaging.message_payload_size_bytes": "req_bytes",
    # Envoy's.
    "request_size": "req_bytes",
    "rpc.response.size": "resp_bytes",
    "rpc.client.response.size": "resp_bytes",
    "http.response.body.size": "resp_bytes",
    "http.response_content_length_uncompressed": "resp_bytes",
    "http.response_content_length": "resp_bytes",
    "response_size": "resp_bytes",
    "rpc.request.wire_size": "req_wire_bytes",
    "rpc.response.wire_size": "resp_wire_bytes",
    # With what stands before the body.
    "http.request.size": "req_wire_bytes",
    "http.response.size": "resp_wire_bytes",
    "messaging.message.envelope.size": "req_wire_bytes",
    "rpc.cpu.ns": "cpu_ns",
    "rpc.key.hash": "key_hash",
}
FLOATS: Final[dict[str, str]] = {
    "rpc.cpu.cycles": "cpu_cycles",
    "sampling.weight": "sample_weight",
}
TEXTS: Final[dict[str, str]] = {
    "service.name": "service",
    "service.peer.name": "peer_service",
    "peer.service": "peer_service",
    "server.address": "peer_address",
    # Until version 1.20 of the conventions.
    "net.peer.name": "peer_address",
    "k8s.cluster.name": "cluster",
    "cloud.availability_zone": "cluster",
    "cloud.region": "cluster",
    "region": "cluster",
    "peer.cluster": "peer_cluster",
    "host.name": "machine",
    "k8s.node.name": "machine",
    "host.id": "machine",
    # Jaeger's clients'.
    "hostname": "machine",
    # Where no host is named: what runs there is a place of its own.
    "k8s.pod.name": "machine",
    "service.instance.id": "machine",
    "container.id": "machine",
    "peer.host.name": "peer_machine",
    "rpc.stage.answered_by": "answered_by",
}

# An attribute of a record, or of one of its links, with this value: the call repeats one that is still under way.
HEDGES: Final[dict[str, str]] = {"rpc.attempt.kind": "hedge", "scotfree.link": "hedge"}


def number(value: Any) -> int | None:
    """An integer, whichever way it is written; None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 <= found < 2**63 else None


def take(row: dict[str, Any], attributes: Mapping[str, Any]) -> list[str]:
    """Puts into a row of `side` what attributes say and the row does not; the decoder in Rust does the same.

    The keys whose values cannot be are returned.
    """
    wrong = []
    for key, to, read in _NUMBERS:
        if key in attributes:
            value = read(attributes[key])
            if value is None:
                wrong.append(key)
            elif row.get(to) is None:
                row[to] = value
    for key, to in TEXTS.items():
        if row.get(to) is None and isinstance(attributes.get(key), str):
            row[to] = attributes[key]
    return wrong


def _float(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    return None


_NUMBERS: Final = [(key, to, number) for key, to in INTEGERS.items()] + [
    (key, to, _float) for key, to in FLOATS.items()
]
