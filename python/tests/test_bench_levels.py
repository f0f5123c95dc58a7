"""The same places in trees by a kernel, by recursion in SQL, and by a loop of joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import generated

from bench import levels, ours, sql
from scotfree.study.engine.duck import DuckEngine


def test_all_ways_give_the_same_places(tmp_path: Path) -> None:
    store = generated.store(tmp_path)
    tables = ours.trees(DuckEngine(store)), sql.trees(sql.connect(store)), levels.polars(store)
    first, *others = (_rows(table) for table in tables)
    assert len(first) == 8
    assert max(row["above"] for row in first) > 3
    assert others == [first, first]


def _rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.sort_by("method_id").to_pylist()
    return found
