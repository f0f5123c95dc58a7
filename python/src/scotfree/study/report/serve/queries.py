"""Bounded questions to a store: every answer has a limit of rows, every value from outside is bound."""

from __future__ import annotations

from typing import Any

import duckdb

from scotfree.study import schema
from scotfree.study.store import Store

ROWS_MAX = 200
EXEMPLARS_MAX = 10
Rows = list[dict[str, Any]]

_GOOD = f"status = '{schema.STATUS_OK}'"
_SUMS = (
    f"count(*) AS calls, sum(CASE WHEN {_GOOD} THEN 0 ELSE 1 END) AS errors, "
    f"quantile_disc(total_ns, 0.5) FILTER ({_GOOD}) AS p50_ns, "
    f"quantile_disc(total_ns, 0.95) FILTER ({_GOOD}) AS p95_ns, "
    f"sum(total_ns - server_app_ns) FILTER ({_GOOD}) / "
    f"nullif(sum(total_ns) FILTER ({_GOOD} AND server_app_ns IS NOT NULL), 0) AS tax"
)
_STAGES = ", ".join(schema.STAGE_COLUMNS)
_CALL = (
    "lower(hex(trace_id)) AS trace, span_id, parent_id, method_id, service, method, client_service, "
    f"server_cluster, status, start_ns, total_ns, {_STAGES}"
)


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

    def services(self) -> Rows:
        """Those with most calls."""
        return self._rows(f"SELECT service, {_SUMS} FROM span GROUP BY 1 ORDER BY calls DESC, 1 LIMIT {ROWS_MAX}")

    def methods(self, service: str) -> Rows:
        """Of a service those with most calls; none if there is no such service."""
        question = f"SELECT method_id, any_value(method) AS method, {_SUMS} FROM span WHERE service = ? "
        return self._rows(question + f"GROUP BY 1 ORDER BY calls DESC, 1 LIMIT {ROWS_MAX}", service)

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

    def slowest(self, method_id: int) -> Rows:
        """The calls that took longest, of those that succeeded."""
        question = f"SELECT {_CALL} FROM span WHERE method_id = ? AND {_GOOD} AND total_ns IS NOT NULL "
        return self._rows(question + f"ORDER BY total_ns DESC, trace_id, span_id LIMIT {EXEMPLARS_MAX}", method_id)

    def around(self, method_id: int, total_ns: int) -> Rows:
        """The calls whose time is nearest, of those that succeeded."""
        question = f"SELECT {_CALL} FROM span WHERE method_id = ? AND {_GOOD} AND total_ns IS NOT NULL "
        question += f"ORDER BY abs(total_ns - ?), trace_id, span_id LIMIT {EXEMPLARS_MAX}"
        return self._rows(question, method_id, total_ns)

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
