"""The merge of one partition: records of sides to calls. Its rules, with examples: docs/study-merge.md.

Joins are DuckDB's, within its bound of memory; what follows parents is numpy's, a few integers per record.
Invariant: records = records in calls + internal ones + dropped ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from scotfree.study.ingest import clean, forest, merge_sql
from scotfree.study.ingest.forest import NONE, Mask, Rows
from scotfree.study.trouble import FAILED_INSIDE, Ledger

SLICE_CALLS = 500_000


@dataclass
class Counts:
    """What became of the records of a partition."""

    records: int = 0
    # Records in calls: two of a call whose both sides are there.
    merged: int = 0
    internal: int = 0
    dropped: int = 0
    calls: int = 0

    def add(self, other: Counts) -> None:
        """Counts of another partition."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def check(self) -> None:
        """The invariant."""
        if self.records != self.merged + self.internal + self.dropped:
            raise AssertionError(f"records were lost in the merge: {self}")


@dataclass
class _Nodes:
    """One row per id of a span: rows of `side` (or -1), the node of its parent (or -1)."""

    span_id: Rows
    client: Rows
    server: Rows
    internal: Rows
    parent: Rows
    has_parent: Mask
    # Its server's record says that its client's has the same id.
    is_shared: Mask

    @property
    def is_call(self) -> Mask:
        """Whether it stands for a call, not for work inside one."""
        return (self.client >= 0) | (self.server >= 0)

    def row(self) -> Rows:
        """One record of each: that which runs where children come from."""
        return np.where(self.server >= 0, self.server, np.where(self.internal >= 0, self.internal, self.client))


class Merge:
    """Merges what a connection's table `side` is loaded with; leaves the table `call`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, ledger: Ledger, now_ns: int, ok: int) -> None:
        self._db = connection
        self._ledger = ledger
        # The code of the status of what succeeded.
        self._ok = ok
        self._start_ns_max = now_ns + clean.DAY_NS
        self.counts = Counts()

    def run(self, records: pa.RecordBatchReader) -> Counts:
        """Records in the columns of `scratch.CODED` and `row`, a number for each."""
        self._db.register("incoming", records)
        self._db.execute(merge_sql.LOAD)
        self._db.unregister("incoming")
        self.counts.records = self._one("SELECT count(*) FROM side")
        self._infer_kinds()
        self._db.execute(merge_sql.NODES)
        self._drop_doubled()
        nodes = self._nodes()
        self._cut(nodes)
        self._register("links", _links(nodes, self._winners))
        self._join()
        self._note_calls()
        self._note(f"side WHERE role = {merge_sql.INTERNAL} AND status <> {self._ok}", FAILED_INSIDE, kept=True)
        self.counts.calls = self._one("SELECT count(*) FROM call")
        self.counts.merged = self._one("SELECT coalesce(sum(has_client::INT + has_server::INT), 0) FROM call")
        self.counts.internal = int(((nodes.internal >= 0) & ~nodes.is_call).sum())
        self.counts.check()
        return self.counts

    def _infer_kinds(self) -> None:
        if self._one("SELECT count(*) FROM side WHERE kind = 0"):
            self._db.execute(merge_sql.KINDLESS)
            self._db.execute(merge_sql.TAKE_KINDS)
            for kind, reason in merge_sql.KINDS.items():
                self._note(f"kindless WHERE kind = {kind}", reason, kept=True)

    def _drop_doubled(self) -> None:
        if self._one("SELECT count(*) FROM node WHERE is_doubled"):
            columns = [row[0] for row in self._db.execute("DESCRIBE side").fetchall()]
            self._db.execute(merge_sql.SURPLUS.format(content=merge_sql.content(columns)))
            for key, reason in merge_sql.SURPLUS_REASONS.items():
                self._note(f"surplus WHERE reason = '{key}'", reason, kept=False)
            self.counts.dropped = self._one("SELECT count(*) FROM surplus")
            self._db.execute(merge_sql.DROP_SURPLUS)
            self._db.execute(merge_sql.NODES)

    def _nodes(self) -> _Nodes:
        columns = self._db.execute(merge_sql.PARENTS).fetchnumpy()
        order = np.argsort(columns.pop("n"))
        has_parent, is_shared = (
            np.asarray(columns.pop(name))[order].astype(np.bool_) for name in ("has_parent", "is_shared")
        )
        # Rows as 32 bits: what is held here is what bounds the length of a trace.
        rows = {name: np.asarray(columns.pop(name))[order] for name in list(columns)}
        return _Nodes(**rows, has_parent=has_parent, is_shared=is_shared)

    def _cut(self, nodes: _Nodes) -> None:
        """Rules 7: a parent that is missing, and one that is a descendant, is none."""
        self._note_nodes(nodes, nodes.has_parent & (nodes.parent < 0), "the parent is missing: taken as without")
        ring = forest.rings(nodes.parent)
        self._note_nodes(nodes, ring, "is its own ancestor: taken as without parent")
        nodes.parent[ring] = NONE

    def _winners(self, attempts: Rows, nodes: _Nodes, parents: Rows) -> Rows:
        """Of servers under one client those which the clients' answers are from."""
        table = {
            "attempt": attempts,
            "server_row": nodes.server[attempts],
            "client_row": nodes.client[parents],
        }
        self._register("attempts", table)
        found: Rows = self._db.execute(merge_sql.WINNERS).fetchnumpy()["attempt"].astype(np.int64)
        further = np.setdiff1d(attempts, found)
        reason = "a further server's record of one client's: a call of its own"
        self._note_nodes(nodes, np.isin(np.arange(len(nodes.parent)), further), reason)
        return found

    def _join(self) -> None:
        """A slice at a time: what the joins hold is of one slice, also where a partition is one long trace."""
        links = self._one("SELECT count(*) FROM links")
        for first in range(0, max(1, links), SLICE_CALLS):
            query = merge_sql.calls(clean.START_NS_MIN, self._start_ns_max, first, first + SLICE_CALLS)
            self._db.execute(f"INSERT INTO call {query}" if first else f"CREATE OR REPLACE TABLE call AS {query}")

    def _note_calls(self) -> None:
        for condition, reason in merge_sql.KEPT.items():
            self._note(f"call WHERE {condition}", reason, kept=True)

    def _note_nodes(self, nodes: _Nodes, wrong: Mask, reason: str) -> None:
        if wrong.any():
            self._register("wrong", {"row": nodes.row()[wrong]})
            self._note("side SEMI JOIN wrong USING (row)", reason, kept=True)

    def _note(self, rows: str, reason: str, *, kept: bool) -> None:
        query = f"SELECT input, min(record), count(*) FROM {rows} GROUP BY input"
        for input_, record, count in self._db.execute(query).fetchall():
            self._ledger.note(input_, reason, record=record, kept=kept, count=count)

    def _register(self, name: str, columns: dict[str, Any]) -> None:
        self._db.register("columns_of_numpy", pa.table(columns))
        self._db.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM columns_of_numpy")
        self._db.unregister("columns_of_numpy")

    def _one(self, query: str) -> int:
        found = self._db.execute(query).fetchone()
        return int(found[0]) if found else 0


def _links(nodes: _Nodes, winners: Callable[[Rows, _Nodes, Rows], Rows]) -> dict[str, Any]:
    """Rule 4: which records make a call, and under which call it hangs."""
    each = np.arange(len(nodes.parent), dtype=np.int32)
    parent = nodes.parent
    above = np.maximum(parent, 0)
    # A server's record without a client's of its id, under a client's without a server's of its id.
    is_attempt = (nodes.server >= 0) & (nodes.client < 0) & ~nodes.is_shared & (parent >= 0)
    attempts = each[is_attempt & (nodes.client[above] >= 0) & (nodes.server[above] < 0)]
    several = np.bincount(parent[attempts], minlength=len(each))[parent[attempts]] > 1
    joined = attempts[~several]
    contested = attempts[several]
    if len(contested):
        joined = np.concatenate([joined, winners(contested, nodes, parent[contested])])
    further = np.setdiff1d(contested, joined)

    server = nodes.server.copy()
    server[parent[joined]] = nodes.server[joined]
    is_joined = np.zeros(len(each), np.bool_)
    is_joined[joined] = True
    is_further = np.zeros(len(each), np.bool_)
    is_further[further] = True

    hop = np.where(nodes.is_call & ~is_joined, each, parent)
    call_of = np.append(forest.settle(hop), NONE)
    # The caller of a further attempt is that of the first.
    caller = np.where(is_further, parent[above], parent)
    call_above = call_of[caller]
    is_call = nodes.is_call & ~is_joined
    row = np.append(nodes.row(), NONE)
    upstream = np.where(is_further, nodes.client[above], row[parent])
    links = {
        "span_id": nodes.span_id,
        "parent_id": pa.array(np.append(nodes.span_id, 0)[call_above], mask=call_above < 0),
        "client": nodes.client,
        "server": server,
        "upstream": np.where(nodes.client < 0, upstream, NONE),
        "winner": np.where(is_further, server[above], NONE),
        "is_further": is_further,
    }
    return {name: pa.array(values).filter(pa.array(is_call)) for name, values in links.items()}
