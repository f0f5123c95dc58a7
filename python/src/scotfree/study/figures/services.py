"""F8 and Table 1: which services the calls, bytes and cycles go to, and which methods are looked at one by one."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.cycles.services import cycles_by_service
from scotfree.study.analysis.selection import COUNT, TABLE_1, Selected, clients, plain_name, selected
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import part, volumes
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import called, percent

OTHER: Final = "other"
# Section 2.6: what is said of single services.
_PUBLISHED: Final = {
    "calls": {"Network Disk": 0.35, "ML Inference": 0.0017, "F1": 0.018},
    "bytes": {},
    "cycles": {"Network Disk": 0.02, "ML Inference": 0.0089, "F1": 0.018},
}
_TOP_CALLS: Final = 0.60
# Below this share of calls that say a number nothing is said of who has most.
_SAID_MIN: Final = 0.5

# Shares that differ by less are the same.
_TIED: Final = 1e-9

Shares = dict[str, float]


def service_shares(study: Study, column: str) -> Shares:
    """Each service's share of a column of `volumes`, the greatest first."""
    summed = volumes(study).group_by("service").aggregate([(column, "sum")])
    values = dict(zip(summed["service"].to_pylist(), summed[f"{column}_sum"].to_pylist(), strict=True))
    return _shares(values)


def _shares(values: dict[str, float]) -> Shares:
    whole = sum(values.values())
    ordered = sorted(values.items(), key=lambda one: (-one[1], one[0]))
    return {name: value / whole for name, value in ordered} if whole > 0 else {}


def _is_profiled(study: Study) -> bool:
    return "profile" in cycles_by_service(study)["source"].to_pylist()


def _top(shares: Shares, by: str) -> list[dict[str, Any]]:
    """The first eight, and all others as one."""
    rows = [{"by": by, "service": name, "share": share} for name, share in list(shares.items())[:COUNT]]
    rest = sum(list(shares.values())[COUNT:])
    return rows + ([{"by": by, "service": OTHER, "share": rest}] if len(shares) > COUNT else [])


def _comparisons(by: str, shares: Shares) -> list[Comparison]:
    named = {plain_name(name): share for name, share in shares.items()}
    found = [
        Comparison(
            f"{service}: share of {by}",
            value,
            named.get(plain_name(service)),
            "share",
            "<=" if (by, service) == ("cycles", "Network Disk") else "=",
            Row(plain_name(service), by),
        )
        for service, value in _PUBLISHED[by].items()
    ]
    if by == "calls":
        top = sum(list(shares.values())[:COUNT]) if shares else None
        found.insert(0, Comparison(f"the {COUNT} most called services: share of calls", _TOP_CALLS, top, "share"))
    return found


def _cycle_shares(study: Study) -> tuple[Shares, str]:
    """Shares of cycles, and what they are from."""
    found = cycles_by_service(study)
    shares = dict(zip(found["service"].to_pylist(), found["share"].to_pylist(), strict=True))
    if _is_profiled(study):
        return shares, "samples of profiles, with all that a service does"
    return shares, f"what {percent(part(volumes(study), 'costed'))} of the calls say of themselves"


def compute_shares(study: Study) -> Result:
    """F8: the services with most calls, bytes and cycles; the share of each."""
    volume = volumes(study)
    if volume.num_rows == 0:
        return absent(inputs.CALLS)
    cycles, source = _cycle_shares(study)
    found = {"calls": service_shares(study, "calls"), "bytes": service_shares(study, "bytes"), "cycles": cycles}
    sized = part(volume, "sized")
    missing = [inputs.SIZES] if sized < inputs.COMPLETE_MIN else []
    if not cycles:
        missing += [inputs.CYCLES, inputs.PROFILES]
    rows = [row for by, shares in found.items() for row in _top(shares, by)]
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"shares": pa.Table.from_pylist(rows)},
        missing,
        _findings(found, study),
        [entry for by, shares in found.items() for entry in _comparisons(by, shares)],
        [
            f"Calls: all, failed ones too. Bytes: request and response of the {percent(sized)} of the calls that "
            "say both.",
            f"Cycles: {source}.",
            "The paper says of Network Disk that it has most bytes; how many it does not say.",
        ],
    )


def _findings(found: dict[str, Shares], study: Study) -> list[str]:
    """Who has most of each, if it is one and more than half of the calls say it."""
    volume = volumes(study)
    known = {
        "calls": 1.0,
        "bytes": part(volume, "sized"),
        "cycles": 1.0 if _is_profiled(study) else part(volume, "costed"),
    }
    return [
        f"{name} has most {by}: {percent(share)}."
        for by, shares in found.items()
        for name, share in _most(shares)
        if known[by] > _SAID_MIN
    ]


def _most(shares: Shares) -> list[tuple[str, float]]:
    """The one with the greatest share, if it is one."""
    first = list(shares.items())[:2]
    return [] if len(first) > 1 and first[0][1] - first[1][1] < _TIED else first[:1]


def _sizes(study: Study, quantity: str) -> dict[int, float]:
    found = study.quantiles(quantity)
    return dict(zip(found["method_id"].to_pylist(), found["p50"].to_pylist(), strict=True))


def _table_1(study: Study, methods: tuple[Selected, ...]) -> pa.Table:
    request, response = _sizes(study, "req_bytes"), _sizes(study, "resp_bytes")
    # Of each method the client that calls it most, and which part of the method's time these calls are.
    callers: dict[int, str | None] = {}
    parts: dict[int, float] = {}
    times: dict[int, float] = {}
    for row in clients(study).to_pylist():
        id_ = row["method_id"]
        callers.setdefault(id_, row["client_service"])
        parts.setdefault(id_, row["time_ns"])
        times[id_] = times.get(id_, 0.0) + row["time_ns"]
    rows = [
        {
            "service": one.service,
            "client": callers.get(one.method_id),
            "method": one.method,
            "request_bytes": request.get(one.method_id),
            "response_bytes": response.get(one.method_id),
            "time_share": one.time_share,
            "client_time_share": _of_client(one, parts, times),
            "published_category": one.published.category if one.published else None,
        }
        for one in methods
    ]
    return pa.Table.from_pylist(rows, schema=_TABLE_1)


def _of_client(one: Selected, parts: dict[int, float], times: dict[int, float]) -> float | None:
    """The share of all time that its main client's calls take."""
    whole = times.get(one.method_id, 0.0)
    return one.time_share * parts[one.method_id] / whole if whole else None


def _takes(row: dict[str, Any]) -> str:
    """How much of all time a method takes, and how much its calls by its main client take."""
    said = f"{called(row['service'], row['method'])} takes {percent(row['time_share'])} of the time of all calls"
    if row["client"] and row["client_time_share"] is not None:
        said += f"; its calls by {row['client']}, which calls it most, take {percent(row['client_time_share'])}"
    return f"{said}."


_TABLE_1: Final = pa.schema(
    [
        ("service", pa.string()),
        # Who calls it most; null where the callers are unknown.
        ("client", pa.string()),
        ("method", pa.string()),
        # Medians.
        ("request_bytes", pa.float64()),
        ("response_bytes", pa.float64()),
        # Of the time of all successful calls: what all clients' calls of it take, and what that client's take.
        ("time_share", pa.float64()),
        ("client_time_share", pa.float64()),
        ("published_category", pa.string()),
    ]
)


def compute_table_1(study: Study) -> Result:
    """Table 1: per service the method that stands for it, its main client and its size."""
    methods = selected(study)
    if not methods:
        return absent(inputs.SAMPLES)
    table = _table_1(study, methods)
    rows = {plain_name(row["service"]): row for row in table.to_pylist()}
    is_sized = all(row["request_bytes"] is not None for row in rows.values())
    comparisons = [
        Comparison(
            f"{row.service}: size of a call", row.size_bytes, _larger(rows.get(plain_name(row.service))), "bytes"
        )
        for row in TABLE_1
    ]
    published = [
        {
            "category": row.category,
            "service": row.service,
            "client": row.client,
            "bytes": row.size_bytes,
            "does": row.does,
        }
        for row in TABLE_1
    ]
    return Result(
        Coverage.COMPLETE if is_sized else Coverage.PARTIAL,
        {"services": table, "published": pa.Table.from_pylist(published)},
        [] if is_sized else [inputs.SIZES],
        [_takes(row) for row in table.to_pylist()],
        comparisons,
        [
            "Selected: the services that have the name of one in the paper's table, then those that take "
            "most time, "
            "eight in all; of a service of the paper the method that is called most, of others the one "
            f"that takes most time, with {schema.SAMPLES_MIN} samples or more. "
            "A call's time holds that of the calls it makes.",
            "The paper gives one size per method; the larger of the medians of request and response "
            "stands beside it.",
        ],
    )


def _larger(row: dict[str, Any] | None) -> float | None:
    sizes = [row[name] for name in ("request_bytes", "response_bytes") if row[name] is not None] if row else []
    return max(sizes) if sizes else None


FIGURES = (
    Figure("F8", "Services by calls, bytes and cycles", "2.6", compute_shares),
    Figure("T1", "Selected services", "3.3", compute_table_1),
)
