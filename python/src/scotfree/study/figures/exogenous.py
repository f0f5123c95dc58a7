"""F17, F18 and Table 2: the state of a cluster, and how the calls in it fare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis import clustering, exogenous
from scotfree.study.analysis.exogenous import VARIABLES
from scotfree.study.analysis.place import local_calls
from scotfree.study.analysis.rank import Correlation, spearman
from scotfree.study.analysis.selection import Selected, selected
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs
from scotfree.study.figures.completion import missing_calls, missing_places, place_notes
from scotfree.study.figures.result import Coverage, Figure, Result, absent
from scotfree.study.figures.words import called, duration, listed, percent

DAY_WINDOWS: Final = 48
_WHICH: Final = ("fastest", "slowest")
# Half hours of a day that may be empty.
_DAY_WINDOWS_MIN: Final = 44
_DAY: Final = "traces and metrics of the same 24 hours"
_ENOUGH: Final = (
    "more calls: of one method in two clusters 100 in each, 20 in each half hour for which there are metrics"
)
_PUBLISHED_SERVICE: Final = "Bigtable"
# How sentences and charts call the variables, and how their values are said.
SPOKEN: Final = {
    "cpu_util": "processor use",
    "mem_bw": "memory bandwidth",
    "long_wakeup_rate": "long wake-ups",
    "cpi": "cycles per instruction",
}
SAID: Final[dict[str, Callable[[float], str]]] = {
    "cpu_util": percent,
    "mem_bw": lambda value: f"{value:.3g} GB/s",
    "long_wakeup_rate": percent,
    "cpi": lambda value: f"{value:.3g}",
}

Rows = list[dict[str, Any]]


def _missing(present: Iterable[str]) -> list[str]:
    known = set(present)
    lacking = [name for name in VARIABLES if name not in known]
    if len(lacking) == len(VARIABLES):
        return [inputs.EXOGENOUS]
    return [f"the metric {name} ({VARIABLES[name]}) with the label cluster" for name in lacking]


def compute_table_2(study: Study) -> Result:
    """Table 2: the exogenous variables, and in which range the user's are."""
    found = exogenous.series(study)
    rows = []
    for variable, meaning in VARIABLES.items():
        of = found.filter(pc.equal(found["variable"], variable))
        values = of["value"].to_numpy()
        known = len(values) > 0
        rows.append(
            {
                "variable": variable,
                "meaning": meaning,
                "clusters": len(pc.unique(of["cluster"])),
                "half_hours": len(pc.unique(of["window"])),
                "least": float(values.min()) if known else None,
                "median": float(np.sort(values)[(len(values) - 1) // 2]) if known else None,
                "greatest": float(values.max()) if known else None,
            }
        )
    missing = _missing(found["variable"].to_pylist())
    if len(found) == 0:
        return absent(*missing)
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"variables": pa.Table.from_pylist(rows)},
        missing,
        [_range(row) for row in rows if row["median"] is not None],
        notes=[
            "Means of half hours, per service and cluster.",
            "The paper found no correlation with last-level cache misses and mispredicted branches, and "
            "shows neither.",
        ],
    )


def _range(row: dict[str, Any]) -> str:
    """Where the user's clusters are."""
    say = SAID[row["variable"]]
    verb = "are" if SPOKEN[row["variable"]].endswith("s") else "is"
    return (
        f"{SPOKEN[row['variable']].capitalize()} {verb} {say(row['median'])} in the median, "
        f"{say(row['least'])} to {say(row['greatest'])} in all half hours."
    )


def correlations(study: Study) -> dict[tuple[Selected, str], Correlation]:
    """Spearman's rho between a variable and the P95, over clusters and half hours, by method and variable."""
    met, found = exogenous.met(study), {}
    for one in selected(study):
        for variable in VARIABLES:
            is_of = pc.and_(pc.equal(met["method_id"], one.method_id), pc.equal(met["variable"], variable))
            rows = met.filter(is_of)
            rho = spearman(rows["value"].to_numpy().astype(float), rows["p95"].to_numpy().astype(float))
            if rho:
                found[one, variable] = rho
    return found


def _rho_table(found: dict[tuple[Selected, str], Correlation]) -> pa.Table:
    rows = [
        {"service": one.service, "method": one.method, "variable": variable}
        | {"rho": rho.rho, "rho_low": rho.low, "rho_high": rho.high, "pairs": rho.pairs}
        for (one, variable), rho in found.items()
    ]
    return pa.Table.from_pylist(rows, schema=_RHO)


_RHO: Final = pa.schema(
    [
        ("service", pa.string()),
        ("method", pa.string()),
        ("variable", pa.string()),
        ("rho", pa.float64()),
        ("rho_low", pa.float64()),
        ("rho_high", pa.float64()),
        ("pairs", pa.int64()),
    ]
)


def _rho_findings(found: dict[tuple[Selected, str], Correlation]) -> list[str]:
    """Per method on which variables its P95 depends: those whose interval is above zero."""
    sentences = []
    for one in dict.fromkeys(method for method, _ in found):
        own = {variable: rho for (of, variable), rho in found.items() if of == one}
        sure = [
            f"{SPOKEN[name]} (rho {rho.rho:.2f}, {rho.low:.2f} to {rho.high:.2f})"
            for name, rho in own.items()
            if rho.low > 0
        ]
        name = called(one.service, one.method)
        sentences.append(
            f"The P95 of {name} rises with {listed(sure)}."
            if sure
            else f"The P95 of {name} rises with none of them."
        )
    return sentences


def compute_relation(study: Study) -> Result:
    """F17: per variable and bucket of its value the components of the calls around the bucket's P95."""
    table = exogenous.buckets(study)
    if table.num_rows == 0:
        return absent(*_missing(exogenous.series(study)["variable"].to_pylist()), *missing_calls(study))
    named = {one.method_id: one for one in selected(study)}
    rows = [
        {"service": named[row["method_id"]].service, "method": named[row["method_id"]].method, **row}
        for row in table.to_pylist()
    ]
    found = correlations(study)
    missing = _missing(row["variable"] for row in rows) + missing_places(local_calls(study))
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"buckets": pa.Table.from_pylist(rows).drop_columns(["method_id"]), "spearman": _rho_table(found)},
        missing,
        _rho_findings(found),
        notes=_relation_notes(study),
    )


def _relation_notes(study: Study) -> list[str]:
    return [
        *place_notes(local_calls(study)),
        f"{exogenous.BUCKETS} buckets of equally many half hours of a cluster by the variable's mean "
        "there; means of "
        "the calls within 1 % of the bucket's P95 (column `width` where that is wider).",
        "rho: Spearman's, between the variable and the P95 of half hours of a cluster with at least "
        f"{exogenous.WINDOW_SAMPLES_MIN} calls; its 95 % interval by Fisher's z takes them as independent.",
        "Published, without numbers: Bigtable and Video Metadata depend on all four, KV-Store on cycles per "
        "instruction alone, since it runs on reserved processors.",
    ]


def _day_rows(study: Study, one: Selected, cluster: str, which: str, last: int) -> Rows:
    """A cluster's half hours of the day that ends with `last`: the P95 and the variables."""
    tails, met = exogenous.tails(study).to_pylist(), exogenous.met(study).to_pylist()

    def is_of(row: dict[str, Any]) -> bool:
        same = row["method_id"] == one.method_id and row["server_cluster"] == cluster
        return bool(same) and last - DAY_WINDOWS < row["window"] <= last

    values = {(row["window"], row["variable"]): row["value"] for row in met if is_of(row)}
    return [
        {
            "service": one.service,
            "method": one.method,
            "cluster": cluster,
            "which": which,
            "start_ns": exogenous.window_start_ns(row["window"]),
            "p95_ns": float(row["p95"]),
            **{name: values.get((row["window"], name)) for name in VARIABLES},
        }
        for row in sorted(filter(is_of, tails), key=lambda row: int(row["window"]))
    ]


def _trend(rows: Rows, which: str) -> str | None:
    """How a cluster's P95 goes with the variables over the day."""
    own = [row for row in rows if row["which"] == which]
    p95 = np.array([row["p95_ns"] for row in own], float)
    if len(p95) == 0:
        return None
    rhos = {name: spearman(np.array([row[name] for row in own], float), p95) for name in VARIABLES}
    said = [f"{SPOKEN[name]} {rho.rho:.2f}" for name, rho in rhos.items() if rho]
    spread = f"{duration(p95.min())} to {duration(p95.max())}"
    return (
        f"{own[0]['cluster']}, the {which} cluster of {called(own[0]['service'], own[0]['method'])}: P95 "
        f"from {spread} "
        "over the day" + (f"; its correlation with {listed(said)}." if said else ".")
    )


@dataclass(frozen=True)
class _Watched:
    """A method in its fastest and its slowest cluster over a day."""

    one: Selected
    rows: Rows

    @property
    def half_hours(self) -> int:
        """Those that both clusters have."""
        starts = [{row["start_ns"] for row in self.rows if row["which"] == which} for which in _WHICH]
        return len(set.intersection(*starts))


def _watch(study: Study, one: Selected) -> _Watched | None:
    """Of the clusters with metrics those with the least and the greatest median, on the last day with calls."""
    met, tails = exogenous.met(study), exogenous.tails(study)
    seen = set(met.filter(pc.equal(met["method_id"], one.method_id))["server_cluster"].to_pylist())
    own = [row["server_cluster"] for row in clustering.rows_of(study, one.method_id)]
    known = [cluster for cluster in own if cluster in seen]
    if len(known) < len(_WHICH):
        return None
    last = pc.max(tails.filter(pc.equal(tails["method_id"], one.method_id))["window"]).as_py()
    ends = zip((known[0], known[-1]), _WHICH, strict=True)
    return _Watched(one, [row for cluster, which in ends for row in _day_rows(study, one, cluster, which, last)])


def _watched(study: Study) -> _Watched | None:
    """Bigtable if there, else what takes most time, of those with a whole day; else what has most of a day."""
    of = sorted(
        selected(study), key=lambda one: not (one.published and one.published.service == _PUBLISHED_SERVICE)
    )
    found = [watched for one in of if (watched := _watch(study, one))]
    return max(found, key=lambda watched: min(watched.half_hours, _DAY_WINDOWS_MIN), default=None)


def compute_day(study: Study) -> Result:
    """F18: over 24 hours the P95 and the variables of the fastest and the slowest cluster."""
    watched = _watched(study)
    if watched is None:
        missing = _missing(exogenous.series(study)["variable"].to_pylist())
        return absent(*(missing + missing_calls(study) or [_ENOUGH]))
    missing = _missing(name for name in VARIABLES if any(row[name] is not None for row in watched.rows))
    if watched.half_hours < _DAY_WINDOWS_MIN:
        missing.append(
            f"{_DAY}, with {exogenous.WINDOW_SAMPLES_MIN} calls of a method in each half hour and cluster"
        )
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"day": pa.Table.from_pylist(watched.rows)},
        missing,
        [sentence for which in _WHICH if (sentence := _trend(watched.rows, which))],
        notes=[
            *place_notes(local_calls(study)),
            "The day that ends with the last call; half hours with at least "
            f"{exogenous.WINDOW_SAMPLES_MIN} calls. Fastest and slowest: by the method's median.",
            "Published, without numbers: in both clusters the P95 follows processor and memory bandwidth use.",
        ],
    )


FIGURES = (
    Figure("T2", "Exogenous variables", "3.3.4", compute_table_2),
    Figure("F17", "The state of a cluster and the P95 call", "3.3.4", compute_relation),
    Figure("F18", "A day in the fastest and the slowest cluster", "3.3.4", compute_day),
)
