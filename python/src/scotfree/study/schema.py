"""The relations of the study: columns, types, units.

`side` is what a reader makes of its input: one row for each record of one side of a call, as it stands there.
`span` is one row per call: a client's and a server's record merged. Times are integers in nanoseconds; what is
not known is null, never 0. Source: study-spec 1.0 and 5.2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import pyarrow as pa

# The nine stages, in the order in which a call passes them; the names are those of `rpc.stage.*`.
STAGES: Final = (
    "client_send_queue",
    "request_stack",
    "request_wire",
    "server_recv_queue",
    "server_app",
    "server_send_queue",
    "response_stack",
    "response_wire",
    "client_recv_queue",
)
STAGE_COLUMNS: Final = tuple(f"{stage}_ns" for stage in STAGES)
APP: Final = STAGES.index("server_app")
QUEUES: Final = ("client_send_queue", "server_recv_queue", "server_send_queue", "client_recv_queue")
STACKS: Final = ("request_stack", "response_stack")
WIRES: Final = ("request_wire", "response_wire")
# The quantiles of every per-method figure (F2a).
QUANTILES: Final = (0.01, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
# A quantile is asked for in whole parts of so many, since 0.07 * 100 is more than 7 in binary (R6).
PARTS: Final = 10_000
# Sums of weights such as 1 / 0.3 lie beside the true ones by no more than this share.
ROUNDING: Final = 1e-12
# R3: a method needs that many samples for a per-method figure.
SAMPLES_MIN: Final = 100
# Up to that many samples of a method its quantiles are exact; above, within SKETCH_ERROR of the value.
EXACT_SAMPLES_MAX: Final = 10_000
SKETCH_ERROR: Final = 0.01
STATUS_OK: Final = "OK"


class Kind(IntEnum):
    """The role of a record, in OTLP's numbers."""

    UNKNOWN = 0
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class Provenance(IntEnum):
    """How a stage's time is known: two bits per stage in `span.provenance`, the first stage lowest."""

    MISSING = 0
    MEASURED = 1
    DERIVED = 2
    # Part of a sum that could not be split: the sum is the call's tax. Its own column is null.
    LUMPED = 3


def _stages() -> list[pa.Field]:
    return [pa.field(name, pa.int64()) for name in STAGE_COLUMNS]


_TEXT = pa.dictionary(pa.int32(), pa.string())

# What both relations say of a call beside its stages.
_COMMON: Final = [
    pa.field("req_bytes", pa.int64()),
    pa.field("resp_bytes", pa.int64()),
    pa.field("req_wire_bytes", pa.int64()),
    pa.field("resp_wire_bytes", pa.int64()),
    # Cycles times the machine's factor (F21).
    pa.field("cpu_cycles", pa.float64()),
    pa.field("cpu_ns", pa.int64()),
    pa.field("clock_bound_ns", pa.int64()),
    # 1 / probability of being sampled (R7).
    pa.field("sample_weight", pa.float64()),
    # This call repeats another that is still under way (hedging).
    pa.field("is_hedge", pa.bool_()),
    # Of the key that is asked for; only that it is the same as another's is told by it.
    pa.field("key_hash", pa.int64()),
]

PEER_ADDRESS: Final = "peer_address"
SIDE: Final = pa.schema(
    [
        pa.field("trace_id", pa.binary(16), nullable=False),
        pa.field("span_id", pa.int64(), nullable=False),
        pa.field("parent_id", pa.int64()),
        pa.field("kind", pa.int8(), nullable=False),
        # Zipkin: client and server write the same span id.
        pa.field("is_shared", pa.bool_(), nullable=False),
        pa.field("start_ns", pa.int64(), nullable=False),
        pa.field("duration_ns", pa.int64(), nullable=False),
        # Who wrote the record, and whom it calls or is called by if it says so.
        pa.field("service", _TEXT, nullable=False),
        pa.field("peer_service", _TEXT),
        # Where a client's call goes; the ingest makes `peer_service` of it where that is not said.
        pa.field(PEER_ADDRESS, _TEXT),
        pa.field("name", _TEXT, nullable=False),
        pa.field("cluster", _TEXT),
        pa.field("peer_cluster", _TEXT),
        pa.field("machine", _TEXT),
        pa.field("peer_machine", _TEXT),
        pa.field("status", _TEXT, nullable=False),
        # `server`, or the device on the path that answered (`device:1`), or its function (`device:1/cache`).
        pa.field("answered_by", _TEXT),
        *_stages(),
        *_COMMON,
        # Where it stands: the input's number in the store's manifest, and the record's number in it, from 0.
        pa.field("input", pa.int32(), nullable=False),
        pa.field("record", pa.int64(), nullable=False),
    ]
)

# A record of a side once it is cleaned.
RECORD: Final = pa.schema([field for field in SIDE if field.name != PEER_ADDRESS])

SPAN: Final = pa.schema(
    [
        pa.field("trace_id", pa.binary(16), nullable=False),
        pa.field("span_id", pa.int64(), nullable=False),
        # The call that this call serves: the nearest ancestor that is a call.
        pa.field("parent_id", pa.int64()),
        pa.field("start_ns", pa.int64(), nullable=False),
        # Row of `methods`: dense, in the order of (service, method).
        pa.field("method_id", pa.int32(), nullable=False),
        pa.field("service", _TEXT, nullable=False),
        pa.field("method", _TEXT, nullable=False),
        pa.field("client_service", _TEXT),
        pa.field("server_cluster", _TEXT),
        pa.field("client_cluster", _TEXT),
        pa.field("server_machine", _TEXT),
        pa.field("client_machine", _TEXT),
        pa.field("status", _TEXT, nullable=False),
        pa.field("answered_by", _TEXT),
        *_stages(),
        # As the client saw it; null if only the server's record is there.
        pa.field("total_ns", pa.int64()),
        # All before and all behind the application: known for nine measured stages, and where the clocks of both
        # machines allow it (study-spec 5.1). With server_app_ns their sum is the total.
        pa.field("request_side_ns", pa.int64()),
        pa.field("response_side_ns", pa.int64()),
        pa.field("provenance", pa.int32(), nullable=False),
        *_COMMON,
    ]
)

METHOD: Final = pa.schema(
    [
        pa.field("method_id", pa.int32(), nullable=False),
        pa.field("service", pa.string(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
    ]
)

METRIC: Final = pa.schema(
    [
        # One of METRIC_SERIES, or the name that the input gives.
        pa.field("series", _TEXT, nullable=False),
        pa.field("service", _TEXT),
        pa.field("method", _TEXT),
        pa.field("cluster", _TEXT),
        pa.field("machine", _TEXT),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
# The series that figures use: requests/s; cycles/s; processors used and allowed; GB/s; share of scheduling
# events above 50 us; cycles per instruction; share of processor time (Table 2, F1, F17, F18, F22).
METRIC_SERIES: Final = (
    "rps",
    "cpu_cycles",
    "cpu_used",
    "cpu_limit",
    "mem_bw",
    "long_wakeup_rate",
    "cpi",
    "cpu_util",
)

PROFILE: Final = pa.schema(
    [
        pa.field("service", _TEXT),
        pa.field("machine", _TEXT),
        pa.field("ts_ns", pa.int64()),
        # Symbols from the root to the leaf.
        pa.field("stack", pa.list_(_TEXT), nullable=False),
        # The file that each symbol stands in (program, library, kernel), where the input says it; else null.
        pa.field("modules", pa.list_(_TEXT)),
        pa.field("weight", pa.float64(), nullable=False),
        # What a weight counts: one of PROFILE_UNITS. Others (heap, locks) are kept and not used.
        pa.field("unit", _TEXT, nullable=False),
    ]
)
# Processor time as nanoseconds, as cycles, as samples of a period that is not known. Different units never add up.
PROFILE_UNITS: Final = ("cpu_ns", "cpu_cycles", "cpu_samples")

TROUBLE: Final = pa.schema(
    [
        # Its number in the manifest; -1 if it concerns all.
        pa.field("input", pa.int32(), nullable=False),
        # The first record it was seen at; null if it concerns the whole input.
        pa.field("record", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        # How often; records that were kept in spite of it say so in `is_kept`.
        pa.field("count", pa.int64(), nullable=False),
        pa.field("is_kept", pa.bool_(), nullable=False),
        pa.field("detail", pa.string()),
    ]
)
# Reasons of `trouble` that a report's first screen speaks of.
FAILED_WORK: Final = "work inside a service that failed: no call, so no error of one"


def provenance_bits(stages: dict[str, Provenance]) -> int:
    """The bits of `span.provenance` for stages by name; those not named are missing."""
    return sum(int(how) << (2 * STAGES.index(stage)) for stage, how in stages.items())


ALL_MEASURED: Final = provenance_bits(dict.fromkeys(STAGES, Provenance.MEASURED))
