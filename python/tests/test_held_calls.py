"""Of few calls all is read once: the same quantiles as by a query for each quantity, and fewer questions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from scotfree.study import schema
from scotfree.study.analysis import per_method, quantities
from scotfree.study.analysis.columns import Calls
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.fleet import FleetOptions, generate
from scotfree.study.store import Store

QUANTITIES = (
    *per_method.USUAL,
    quantities.named(["server_app", "server_send_queue"]),
    quantities.rest(["server_recv_queue"]),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("fleet") / "fleet.store"
    generate(folder, FleetOptions(spans=20_000, methods=20, metrics=False, profiles=False))
    return Store.open(folder)


class Asked(DuckEngine):
    """Counts what it is asked."""

    count = 0

    def arrow(self, expression: Any) -> Any:
        self.count += 1
        return super().arrow(expression)


def test_quantiles_are_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Study(store, DuckEngine(store))
    assert store.manifest.spans / 4 < schema.EXACT_SAMPLES_MAX
    found = {name: held.quantiles(name) for name in QUANTITIES}
    assert all(table.num_rows for table in found.values())
    monkeypatch.setattr(per_method, "_CALLS_HELD_MAX", 0)
    asked = Study(store, DuckEngine(store))
    assert [name for name in QUANTITIES if not asked.quantiles(name).equals(found[name])] == []


def test_another_quantity_is_no_further_question(store: Store) -> None:
    engine = Asked(store)
    study = Study(store, engine)
    study.quantiles("total")
    before = engine.count
    for name in (*quantities.NAMED, *schema.STAGES):
        study.quantiles(name)
    assert engine.count == before


def test_a_table_is_that_which_was_registered_last(store: Store) -> None:
    engine = DuckEngine(store)
    for columns in ({"a": [1]}, {"b": [2, 3]}):
        given = engine.register("given", pa.table(columns))
        assert given.columns == engine.table("given").columns == tuple(columns)
        assert engine.arrow(engine.table("given")).to_pydict() == columns


def test_a_ratio_of_numbers_beyond_floating_point_is_the_nearest() -> None:
    calls = pa.table(
        {"total_ns": pa.array([2**60 + 1], pa.int64()), "server_app_ns": pa.array([2**59], pa.int64())}
    )
    assert quantities.value("tax_ratio")(Calls(calls)).values.to_pylist() == [0.5]
