"""Writes a fleet as OTLP's JSON lines, each side of a call a record of its own with its own machine's clock.

client.jsonl and server.jsonl, one line for the records of one process. For tests of the ingest: a call takes some
20 us, so small fleets only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import orjson

from scotfree.study import schema
from scotfree.study.fleet.draws import Array, mix
from scotfree.study.fleet.population import STATUSES, Population
from scotfree.study.fleet.write import Drawn, Fleet, refuse_used
from scotfree.study.trouble import StudyError

SPANS_MAX: Final = 2_000_000
# Who calls the roots: a client outside the fleet.
ROOT_SERVICE: Final = "outside"
_RECORDS_PER_LINE: Final = 500
_CLIENT, _SERVER = int(schema.Kind.CLIENT), int(schema.Kind.SERVER)
_BEFORE_APP: Final = schema.STAGE_COLUMNS[: schema.APP]

Record = dict[str, Any]


def write(folder: Path, fleet: Fleet, *, stages: bool = True) -> int:
    """Writes both files; the number of calls. Without `stages` only starts and durations tell of tax."""
    if fleet.options.spans > SPANS_MAX:
        raise StudyError(
            f"write {fleet.options.spans:,} calls as OTLP", f"give at most {SPANS_MAX:,}, or write them as a store"
        )
    refuse_used(folder)
    folder.mkdir(parents=True, exist_ok=True)
    calls = 0
    with (folder / "client.jsonl").open("wb") as clients, (folder / "server.jsonl").open("wb") as servers:
        for drawn in fleet.drawn():
            sides = _Sides(fleet.population, drawn, stages)
            _write_lines(clients, fleet.population, sides.client_process(), sides.clients())
            _write_lines(servers, fleet.population, sides.server_process(), sides.servers())
            calls += len(drawn.columns["span_id"])
    return calls


class _Sides:
    """The records of a batch of calls, on both sides."""

    def __init__(self, who: Population, drawn: Drawn, stages: bool) -> None:
        self._who = who
        self._columns = drawn.columns
        self._stages = stages
        self._root = drawn.columns["level"] == 0
        self._traces = [word.tobytes().hex() for word in drawn.traces.ids]
        self._server_ids = mix(drawn.columns["span_id"].view(np.uint64) + np.uint64(1)).view(np.int64)

    def client_process(self) -> Array:
        """Machine and service of each client as one number; the last service is outside."""
        outside = len(self._who.services)
        return self._process("client_machine", np.where(self._root, outside, self._columns["client_service"]))

    def server_process(self) -> Array:
        """Machine and service of each server."""
        return self._process("server_machine", self._columns["service"])

    def _process(self, machine: str, service: Array) -> Array:
        return self._columns[machine].astype(np.int64) * (len(self._who.services) + 1) + service

    def clients(self) -> list[Record]:
        """As clients saw the calls."""
        # The server's record of the call that this call serves.
        parents = mix(self._columns["parent_id"].view(np.uint64) + np.uint64(1)).view(np.int64)
        return self._records(
            _CLIENT,
            self._columns["span_id"],
            np.where(self._root, 0, parents),
            self._columns["start_ns"],
            self._columns["total_ns"],
        )

    def servers(self) -> list[Record]:
        """As servers did: the application's time, from when it began."""
        columns, clock = self._columns, self._who.clock_ns
        away = clock[columns["server_machine"]] - clock[columns["client_machine"]]
        start = columns["start_ns"] + np.sum([columns[name] for name in _BEFORE_APP], axis=0) + away
        return self._records(_SERVER, self._server_ids, columns["span_id"], start, columns["server_app_ns"])

    def _records(self, kind: int, ids: Array, parents: Array, start: Array, duration: Array) -> list[Record]:
        names = [name for _, name in self._who.methods]
        statuses = ["", *STATUSES]
        return [
            {
                "traceId": self._traces[trace],
                "spanId": _hex(span),
                **({"parentSpanId": _hex(parent)} if parent else {}),
                "name": names[method],
                "kind": kind,
                "startTimeUnixNano": str(begin),
                "endTimeUnixNano": str(begin + lasted),
                "attributes": own,
                "status": {"code": 2, "message": statuses[status]} if status else {},
            }
            for trace, span, parent, method, begin, lasted, status, own in zip(
                self._columns["trace"].tolist(),
                ids.tolist(),
                parents.tolist(),
                self._columns["method_id"].tolist(),
                start.tolist(),
                duration.tolist(),
                self._columns["status"].tolist(),
                self._attributes(kind),
                strict=True,
            )
        ]

    def _attributes(self, kind: int) -> Iterator[list[Record]]:
        columns = {"sampling.weight": self._columns["sample_weight"].tolist()}
        if kind == _SERVER:
            return (_attributes(row) for row in _rows(columns | {"rpc.cpu.cycles": self._cycles()}))
        services = self._who.services
        columns |= {
            "peer.service": [services[service] for service in self._columns["service"].tolist()],
            "rpc.request.size": self._columns["req_bytes"].tolist(),
            "rpc.response.size": self._columns["resp_bytes"].tolist(),
            "rpc.attempt.kind": ["hedge" if hedge else None for hedge in self._columns["is_hedge"].tolist()],
        }
        if self._stages:
            columns |= {f"rpc.stage.{stage}": self._columns[f"{stage}_ns"].tolist() for stage in schema.STAGES}
        return (_attributes(row) for row in _rows(columns))

    def _cycles(self) -> list[float | None]:
        pairs = zip(self._columns["cpu_cycles"].tolist(), self._columns["no_cycles"].tolist(), strict=True)
        return [None if unknown else cycles for cycles, unknown in pairs]


def _rows(columns: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _attributes(row: dict[str, Any]) -> list[Record]:
    """As OTLP has them; what is None is left out."""
    return [{"key": key, "value": _value(value)} for key, value in row.items() if value is not None]


def _value(value: float | str) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _hex(number: int) -> str:
    return (number & (2**64 - 1)).to_bytes(8, "big").hex()


def _write_lines(file: BinaryIO, who: Population, process: Array, records: list[Record]) -> None:
    """The records by process, so many a line."""
    order = np.argsort(process, kind="stable")
    numbers, starts = np.unique(process[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        resource = _resource(who, number)
        for first in range(0, len(rows), _RECORDS_PER_LINE):
            spans = [records[row] for row in rows[first : first + _RECORDS_PER_LINE].tolist()]
            of = {"resource": resource, "scopeSpans": [{"scope": {"name": "fleet"}, "spans": spans}]}
            file.write(orjson.dumps({"resourceSpans": [of]}) + b"\n")


def _resource(who: Population, process: int) -> Record:
    machine, service = divmod(process, len(who.services) + 1)
    names = {
        "service.name": [*who.services, ROOT_SERVICE][service],
        "k8s.cluster.name": who.clusters[machine // who.machines_per_cluster],
        "host.name": who.machines[machine],
    }
    return {"attributes": _attributes(names)}
