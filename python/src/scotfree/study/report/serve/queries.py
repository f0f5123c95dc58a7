"""Bounded questions to a store: every answer has a limit of rows, every value from outside is bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb
import ibis
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import path_times
from scotfree.study.engine.relations import plain
from scotfree.study.store import Store

ROWS_MAX = 200
EXEMPLARS_MAX = 10
Rows = list[dict[str, Any]]

_GOOD = f"status = '{schema.STATUS_OK}'"
# Of calls without their client's record what is known is how long their server took.
_SERVERS = f"{_GOOD} AND total_ns IS NULL AND server_app_ns IS NOT NULL"
# Clients' times and servers' are not mixed: the side that more calls are known of speaks, as in a report.
_TIMES = (
    f"count(total_ns) FILTER ({_GOOD}) >= count(*) FILTER ({_SERVERS}) AS is_client, "
    f"quantile_disc(total_ns, [0.5, 0.95, 0.99]) FILTER ({_GOOD}) AS of_clients, "
    f"quantile_disc(server_app_ns, [0.5, 0.95, 0.99]) FILTER ({_SERVERS}) AS of_servers, "
    "CASE WHEN is_client THEN of_clients ELSE of_servers END AS times, "
    "times[1] AS p50_ns, times[2] AS p95_ns, times[3] AS p99_ns"
)
_SUMS = (
    f"count(*) AS calls, sum(CASE WHEN {_GOOD} THEN 0 ELSE 1 END) AS errors, errors / calls AS error_share, "
    f"{_TIMES}, "
    f"sum(total_ns - server_app_ns) FILTER ({_GOOD}) / "
    f"nullif(sum(total_ns) FILTER ({_GOOD} AND server_app_ns IS NOT NULL), 0) AS tax"
)
_OUTSIDE = f"quantile_disc(total_ns - server_app_ns, 0.5) FILTER ({_GOOD}) AS outside_ns"
_STAGES = ", ".join(schema.STAGE_COLUMNS)
_CALL = (
    "lower(hex(trace_id)) AS trace, span_id, parent_id, method_id, service, method, client_service, "
    f"server_cluster, client_machine, server_machine, status, start_ns, total_ns, {_STAGES}"
)
_KNOWN = "coalesce(total_ns, server_app_ns)"
_ONES = f"SELECT {_CALL}, {_KNOWN} AS known_ns FROM span WHERE method_id = ? AND {_GOOD} AND known_ns IS NOT NULL "
# What a table of methods, services or clients is sorted by, as it stands in an address.
SORTS: Final = {
    "name": "name",
    "calls": "calls",
    "errors": "error_share",
    "p50": "p50_ns",
    "p95": "p95_ns",
    "p99": "p99_ns",
    "outside": "outside_ns",
    "tax": "tax",
}
ORDERS: Final = {"asc": "ASC", "desc": "DESC"}


@dataclass(frozen=True)
class Listing:
    """In which order rows are wanted, and which part of them."""

    sort: str = "calls"
    order: str = "desc"
    # From 1.
    page: int = 1

    def clause(self, unique: str) -> str:
        """The end of a question. What is not known comes last; a row too many says that there are others."""
        by = f"ORDER BY {SORTS[self.sort]} {ORDERS[self.order]} NULLS LAST, {unique}"
        return f" {by} LIMIT {ROWS_MAX + 1} OFFSET {(self.page - 1) * ROWS_MAX}"


MOST_CALLED: Final = Listing()


class Queries:
    """A store's calls, read only."""

    def __init__(self, store: Store, *, memory: str = "1GB") -> None:
        self._store = store
        self._connection = duckdb.connect(config={"memory_limit": memory})
        files = [str(file) for file in store.files("span")]
        if files:
            self._connection.read_parquet(files).create_view("span")
        else:
            # A table of the database: what is registered is of one cursor.
            self._connection.register("no_calls", schema.SPAN.empty_table())
            self._connection.execute("CREATE TABLE span AS SELECT * FROM no_calls")

    def _rows(self, question: str, *values: object) -> Rows:
        # A cursor for each question: requests come in threads.
        with self._store.at_rest():
            answer = self._connection.cursor().execute(question, list(values))
            names = [column[0] for column in answer.description]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def services(self, listing: Listing = MOST_CALLED) -> Rows:
        """All of them, and one row more than `ROWS_MAX` if there are others."""
        question = f"SELECT service AS name, {_SUMS}, {_OUTSIDE} FROM span GROUP BY 1"
        return self._rows(question + listing.clause("name"))

    def methods(self, service: str, listing: Listing = MOST_CALLED) -> Rows:
        """Those of a service, as `services`; none if there is no such service."""
        question = f"SELECT method_id, any_value(method) AS name, {_SUMS}, {_OUTSIDE} FROM span WHERE service = ? "
        return self._rows(question + "GROUP BY 1" + listing.clause("method_id"), service)

    def clients(self, method_id: int, listing: Listing = MOST_CALLED) -> Rows:
        """The edges into a method: its calls by the service that makes them; whether that is called itself."""
        sums = f"SELECT coalesce(client_service, '') AS name, {_SUMS}, {_OUTSIDE} FROM span WHERE method_id = ? "
        question = f"SELECT *, name IN (SELECT service FROM span) AS is_service FROM ({sums} GROUP BY 1)"
        return self._rows(question + listing.clause("name"), method_id)

    def callees(self, method_id: int, listing: Listing = MOST_CALLED) -> Rows:
        """The methods that its calls call."""
        made = (
            "FROM span JOIN (SELECT DISTINCT trace_id, span_id AS parent_id FROM span WHERE method_id = ?) "
            "USING (trace_id, parent_id)"
        )
        question = (
            f"SELECT method_id, any_value(service) AS service, any_value(method) AS name, {_SUMS}, {_OUTSIDE} "
        )
        return self._rows(f"{question} {made} GROUP BY 1" + listing.clause("method_id"), method_id)

    def method_id(self, service: str, method: str) -> int | None:
        """The number of a method in this store."""
        question = "SELECT method_id FROM span WHERE service = ? AND method = ? LIMIT 1"
        found = self._rows(question, service, method)
        return int(found[0]["method_id"]) if found else None

    def method(self, method_id: int) -> dict[str, Any] | None:
        """Its sums, and the means of its stages."""
        means = ", ".join(f"avg({name}) FILTER ({_GOOD}) AS {name}" for name in schema.STAGE_COLUMNS)
        question = (
            f"SELECT service, method, {_SUMS}, {means}, avg(total_ns) FILTER ({_GOOD}) AS total_ns FROM span "
        )
        return next(iter(self._rows(question + "WHERE method_id = ? GROUP BY 1, 2", method_id)), None)

    def critical_path(self, method_id: int) -> pa.Table:
        """What its calls wait for at their percentiles: rows of `path_times.METHODS`."""
        with self._store.at_rest():
            return path_times.methods_at_percentiles(_Asked(self._connection.cursor()), [method_id])

    def slowest(self, method_id: int) -> Rows:
        """The calls that took longest, of those that succeeded; `known_ns` is as their client or server saw it."""
        return self._rows(f"{_ONES} ORDER BY known_ns DESC, trace_id, span_id LIMIT {EXEMPLARS_MAX}", method_id)

    def around(self, method_id: int, known_ns: int) -> Rows:
        """The calls whose time is nearest, of those that succeeded."""
        question = f"{_ONES} ORDER BY abs(known_ns - ?), trace_id, span_id LIMIT {EXEMPLARS_MAX}"
        return self._rows(question, method_id, known_ns)

    def call(self, trace: str, span: int) -> dict[str, Any] | None:
        """A call by the id of its trace (in hexadecimal digits) and its own."""
        question = f"SELECT {_CALL} FROM span WHERE trace_id = ? AND span_id = ? LIMIT 1"
        return next(iter(self._rows(question, bytes.fromhex(trace), span)), None)

    def calls_in(self, trace: str) -> int:
        """How many calls a trace has."""
        return int(
            self._rows("SELECT count(*) AS calls FROM span WHERE trace_id = ?", bytes.fromhex(trace))[0]["calls"]
        )

    def trace(self, trace: str) -> Rows:
        """The first calls of a trace, in the order of their starts."""
        question = f"SELECT {_CALL} FROM span WHERE trace_id = ? ORDER BY start_ns, span_id LIMIT {ROWS_MAX}"
        return self._rows(question, bytes.fromhex(trace))


# Ibis knows no binary values of a fixed length.
_SPAN: Final = ibis.schema(
    pa.schema([each.with_type(pa.binary()) if each.name == "trace_id" else each for each in plain(schema.SPAN)])
)


class _Asked:
    """One question's cursor, as analyses ask an engine; what it registers goes with it."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def table(self, name: str) -> Any:
        """See `Engine.table`."""
        return ibis.table(_SPAN, name=name)

    def register(self, name: str, table: pa.Table) -> Any:
        """See `Engine.register`."""
        self._cursor.register(name, table)
        return ibis.table(ibis.schema(table.schema), name=name)

    def arrow(self, expression: Any) -> pa.Table:
        """See `Engine.arrow`."""
        # Ibis' own connection would add its functions to every cursor.
        found = self._cursor.sql(str(ibis.to_sql(expression, dialect="duckdb"))).to_arrow_table()
        return found.cast(expression.schema().to_pyarrow())
