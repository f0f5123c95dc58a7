"""F14, F16, F17 and F19: what calls consist of, by quantile, cluster, state of the cluster, distance."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.figures.exogenous import SPOKEN
from scotfree.study.figures.result import Result
from scotfree.study.figures.words import called, percent
from scotfree.study.report import text
from scotfree.study.report.charts import plain, stages
from scotfree.study.report.charts.chart import Chart

# Of F17 the methods that are drawn; the table of correlations has all.
_METHODS_MAX = 3
# The slowest hundredth would press all others to the axis.
_SHOWN_CDF = 0.99


def named(table: pa.Table) -> pa.Table:
    """With `name`: a method as one word."""
    names = zip(table["service"].to_pylist(), table["method"].to_pylist(), strict=True)
    return table.append_column("name", pa.array([called(*name) for name in names], pa.string()))


def _only(**fields: str) -> str:
    """A filter of rows, as an expression; names are data, so they are quoted as JSON."""
    return " && ".join(f"datum[{json.dumps(field)}] === {json.dumps(value)}" for field, value in fields.items())


def _names(table: pa.Table) -> list[str]:
    return list(dict.fromkeys(table["name"].to_pylist()))


def _completion(result: Result) -> list[Chart]:
    table = named(result.tables["cdf"])
    rows = stages.wide(table, ["name", "cdf"])
    made = [stages.key()]
    for name in _names(table):
        own = table.filter(pc.and_(pc.equal(table["name"], name), pc.less_equal(table["cdf"], _SHOWN_CDF)))
        up_to = float(pc.max(own["total_ns"]).as_py() or 1.0)
        about = (
            f"{name}: the share of calls up to a completion time, and what they consist of (slowest 1 % cut off)"
        )
        made.append(stages.layers("f14", _only(name=name), rows, about, up_to))
    return made


def _clusters(result: Result) -> list[Chart]:
    table = named(result.tables["clusters"])
    table = table.rename_columns([name if name != "name" else "method_name" for name in table.column_names])
    ranks = _ranks(table["method_name"].to_pylist())
    table = table.append_column("order", pa.array(ranks, pa.int32()))
    table = table.append_column("label", pa.array([str(rank + 1) for rank in ranks], pa.string()))
    table = table.append_column("name", table["server_cluster"])
    rows = stages.wide(table, ["method_name", "order", "label", "name"])
    made = [stages.key()]
    for name in dict.fromkeys(table["method_name"].to_pylist()):
        ends = table.filter(pc.equal(table["method_name"], name))["name"].to_pylist()
        about = f"{name}: the P95 call in each cluster, from {ends[0]} to {ends[-1]}"
        made.append(stages.columns("f16", _only(method_name=name), rows, about, "clusters, by their median"))
    return made


def _ranks(groups: list[str]) -> list[int]:
    """Of each row its place among those of its group."""
    seen: dict[str, int] = {}
    ranks = []
    for group in groups:
        ranks.append(seen.get(group, 0))
        seen[group] = ranks[-1] + 1
    return ranks


def _relation(result: Result) -> list[Chart]:
    table = named(result.tables["buckets"])
    table = table.rename_columns([name if name != "name" else "method_name" for name in table.column_names])
    values = table["value"].to_pylist()
    shown = [
        percent(v) if of in _SHARES else text.digits(v)
        for v, of in zip(values, table["variable"].to_pylist(), strict=True)
    ]
    table = table.append_column("label", pa.array(shown, pa.string())).append_column(
        "name", pa.array(shown, pa.string())
    )
    table = table.append_column("order", table["bucket"])
    rows = stages.wide(table, ["method_name", "variable", "order", "label", "name"])
    made = [*_rho(result.tables["spearman"]), stages.key()]
    for name in _first(table, result.tables["spearman"]):
        for variable, spoken in SPOKEN.items():
            if variable in set(table.filter(pc.equal(table["method_name"], name))["variable"].to_pylist()):
                about = f"{name}: the P95 call by {spoken} of its cluster"
                title = f"{spoken}, GB/s" if variable == "mem_bw" else spoken
                made.append(stages.columns("f17", _only(method_name=name, variable=variable), rows, about, title))
    return made


def _first(buckets: pa.Table, spearman: pa.Table) -> list[str]:
    """Those that are drawn: in the order of the correlations."""
    ordered = [*_names(named(spearman)), *buckets["method_name"].to_pylist()]
    known = set(buckets["method_name"].to_pylist())
    return [name for name in dict.fromkeys(ordered) if name in known][:_METHODS_MAX]


_SHARES = ("cpu_util", "long_wakeup_rate")


def _rho(spearman: pa.Table) -> list[Chart]:
    if spearman.num_rows == 0:
        return []
    table = named(spearman)
    rows = pa.table(
        {
            "row": table["name"],
            "column": pa.array([SPOKEN[of] for of in table["variable"].to_pylist()], pa.string()),
            "value": table["rho"],
            "low": table["rho_low"],
            "high": table["rho_high"],
            "pairs": table["pairs"],
        }
    )
    about = "Rank correlation (Spearman) of the P95 with the state of the cluster; 95 % intervals in the data"
    if len(set(_names(table))) > _METHODS_MAX:
        about += f"; below, the first {_METHODS_MAX} methods that are known in several states"
    return [plain.matrix("f17-rho", rows, about, columns=list(SPOKEN.values()), form=".2f", is_signed=True)]


def _remote(result: Result) -> list[Chart]:
    table = result.tables["client_clusters"]
    names = [
        cluster if is_remote else f"{cluster} (own)"
        for cluster, is_remote in zip(
            table["client_cluster"].to_pylist(), table["is_remote"].to_pylist(), strict=True
        )
    ]
    table = table.append_column("name", pa.array(names, pa.string()))
    order = np.argsort(table["p50"].to_numpy(), kind="stable")
    rows = stages.wide(table.take(pa.array(order)), ["name"])
    first = named(table.select(["service", "method"])).slice(0, 1)["name"][0].as_py()
    about = f"The median call of {first} in {table['server_cluster'][0].as_py()}, by the cluster of its client"
    return [stages.bars("f19", rows, "name", about, title="median call")]


DRAW = {"F14": _completion, "F16": _clusters, "F17": _relation, "F19": _remote}
