"""Sides of random call trees, whatever their order, give the calls that were made."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sides import START, Record, calls, client, content, merged, options, reasons, record, server, write

from scotfree.study.ingest import merge_sql
from scotfree.study.ingest.run import ingest
from scotfree.study.schema import Kind


@dataclass(frozen=True)
class Call:
    """A call as it was made, in a global clock."""

    parent: int | None
    # Internal spans between the caller's server and this call.
    inner: int
    has_client: bool
    has_server: bool
    is_shared: bool
    service: int
    app_ns: int
    before_ns: int
    after_ns: int


@st.composite
def traces(draw: st.DrawFn) -> list[list[Call]]:
    """Some call trees; ids repeat from trace to trace."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 8))
        found.append([draw(_call(number)) for number in range(count)])
    return found


@st.composite
def _call(draw: st.DrawFn, number: int) -> Call:
    has_client = draw(st.booleans())
    times = [draw(st.integers(1, 10**6)) for _ in range(3)]
    parent = draw(st.integers(0, number - 1)) if number else None
    return Call(
        parent,
        draw(st.integers(0, 2)) if number else 0,
        has_client,
        not has_client or draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 3)),
        *times,
    )


def _client_id(number: int) -> int:
    return 100 * number + 1


def _server_id(tree: list[Call], number: int) -> int:
    return 100 * number + (1 if tree[number].is_shared else 2)


def _pointer(tree: list[Call], number: int) -> int | None:
    """The parent that the caller's side gives to this call."""
    call = tree[number]
    if call.parent is None:
        return None
    return 100 * number + 50 + call.inner - 1 if call.inner else _server_id(tree, call.parent)


def _service(number: int) -> str:
    return f"service-{number}"


def _client_service(tree: list[Call], number: int) -> str:
    parent = tree[number].parent
    return "outside" if parent is None else _service(tree[parent].service)


def sides_of(trace: int, tree: list[Call]) -> list[Record]:
    """What tracing writes of it. A service's clock is 7 s per number ahead."""
    rows = []
    for number, call in enumerate(tree):
        start = 10**7 * number
        of: dict[str, Any] = {"trace": trace + 1, "name": f"pkg.S{call.service}/M"}
        pointer = _pointer(tree, number)
        for step in range(call.inner):
            assert call.parent is not None
            above = _server_id(tree, call.parent) if step == 0 else 100 * number + 50 + step - 1
            name = _client_service(tree, number)
            rows.append(
                record(Kind.INTERNAL, 100 * number + 50 + step, above, service=name, at=start, trace=trace + 1)
            )
        total = call.before_ns + call.app_ns + call.after_ns
        if call.has_client:
            caller = _client_service(tree, number)
            rows.append(client(_client_id(number), pointer, at=start, duration_ns=total, service=caller, **of))
        if call.has_server:
            ahead = 7 * 10**9 * call.service + call.before_ns
            shared = {"is_shared": True} if call.is_shared else {}
            caller_id = pointer if call.is_shared else _client_id(number)
            name = _service(call.service)
            of |= {"at": start + ahead, "duration_ns": call.app_ns, "service": name}
            rows.append(server(_server_id(tree, number), caller_id, **of, **shared))
    return rows


def truth_of(trace: int, tree: list[Call]) -> dict[tuple[int, int], dict[str, Any]]:
    """The calls, as far as the records that are there can tell."""
    found = {}
    for number, call in enumerate(tree):
        own = _client_id(number) if call.has_client else _server_id(tree, number)
        total = call.before_ns + call.app_ns + call.after_ns
        ahead = 0 if call.has_client else 7 * 10**9 * call.service + call.before_ns
        known = {
            "parent_id": _parent(tree, number),
            "service": _service(call.service) if call.has_server else f"callee of {_client_service(tree, number)}",
            "method": f"pkg.S{call.service}/M",
            "total_ns": total if call.has_client else None,
            "server_app_ns": call.app_ns if call.has_server else None,
            "start_ns": START + 10**7 * number + ahead,
        }
        found[trace + 1, own] = known
    return found


def _parent(tree: list[Call], number: int) -> int | None:
    """The call above: to be found only by way of records that are there."""
    call = tree[number]
    if call.parent is None or not (call.has_client or call.is_shared):
        return None
    above = tree[call.parent]
    if not (above.has_server or above.is_shared):
        return None
    return _client_id(call.parent) if above.has_client else _server_id(tree, call.parent)


FIELDS = ("parent_id", "service", "method", "total_ns", "server_app_ns", "start_ns")


def told(rows: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    return {
        (int.from_bytes(row["trace_id"], "big"), row["span_id"]): {name: row.get(name) for name in FIELDS}
        for row in rows
    }


def truth(forest: list[list[Call]]) -> dict[tuple[int, int], dict[str, Any]]:
    return {key: call for trace, tree in enumerate(forest) for key, call in truth_of(trace, tree).items()}


def all_sides(forest: list[list[Call]]) -> list[Record]:
    return [row for trace, tree in enumerate(forest) for row in sides_of(trace, tree)]


@settings(deadline=None, max_examples=12)
@given(traces(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_shuffled_and_doubled_sides_in_any_number_of_files_give_the_calls_that_were_made(
    forest: list[list[Call]], chance: random.Random, files: int
) -> None:
    rows = all_sides(forest)
    doubled = chance.sample(rows, chance.randint(0, min(3, len(rows))))
    rows = rows + doubled
    chance.shuffle(rows)
    with TemporaryDirectory() as folder:
        store = merged(Path(folder), *[rows[part::files] for part in range(files)])
        assert told(calls(store)) == truth(forest)
        assert reasons(store, kept=False) == (
            {merge_sql.SURPLUS_REASONS["twice"]: len(doubled)} if doubled else {}
        )


TWO_TRACES = [
    [Call(None, 0, True, True, False, 1, 500, 100, 200), Call(0, 1, True, True, False, 2, 50, 10, 20)],
    [Call(None, 0, True, True, False, 3, 700, 10, 20)],
]


FAULTS = {
    "traces are mixed": (
        "NODES",
        {"GROUP BY hi, lo,": "GROUP BY", "SELECT hi, lo,": "SELECT min(hi) AS hi, min(lo) AS lo,"},
    ),
    "parents of other traces": ("PARENTS", {"p.lo = node.lo AND ": ""}),
    "servers are clients": ("NODES", {f"(role = {merge_sql.SERVER})": f"(role = {merge_sql.CLIENT})"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_merge_with_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, changes = FAULTS[fault]
    query = getattr(merge_sql, name)
    for right, wrong in changes.items():
        assert right in query
        query = query.replace(right, wrong)
    assert told(calls(merged(tmp_path / "good", all_sides(TWO_TRACES)))) == truth(TWO_TRACES)
    monkeypatch.setattr(merge_sql, name, query)
    try:
        found = told(calls(merged(tmp_path / "bad", all_sides(TWO_TRACES))))
    except AssertionError as error:
        assert "records were lost" in str(error)
    else:
        assert found != truth(TWO_TRACES)


def _conflicting() -> list[Record]:
    """Two records of each id that differ, starting at the same time, and two answers to one call."""
    rows = []
    for trace in range(1, 4):
        rows += [client(1, trace=trace, duration_ns=d, service="a") for d in (500, 700)]
        rows += [server(n, 1, trace=trace, at=n, duration_ns=100, machine=f"m{n}") for n in (2, 3)]
        rows += [client(9, 2, trace=trace, name=f"N{n}", service="cart") for n in (1, 2)]
    return rows


@settings(deadline=None, max_examples=5)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_ids_that_repeat_give_the_same_store_in_any_order(chance: random.Random, files: int) -> None:
    rows = _conflicting()
    with TemporaryDirectory() as folder:
        first = calls(merged(Path(folder) / "1", rows))
        chance.shuffle(rows)
        second = merged(Path(folder) / "2", *[rows[part::files] for part in range(files)])
        assert calls(second) == first
        assert reasons(second, kept=False) == {merge_sql.SURPLUS_REASONS["id"]: 6}


def test_a_merge_that_keeps_the_first_that_comes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = merge_sql.SURPLUS
    monkeypatch.setattr(
        merge_sql, "SURPLUS", good.replace("start_ns, duration_ns DESC, content, input, record", "record")
    )
    rows = _conflicting()
    assert calls(merged(tmp_path / "1", rows)) != calls(merged(tmp_path / "2", rows[::-1]))


def test_the_order_of_inputs_changes_nothing(tmp_path: Path) -> None:
    rows = all_sides(TWO_TRACES) + _conflicting()
    data = [write(tmp_path / f"{part}.sides", rows[part::3]) for part in range(3)]
    first = ingest(data, tmp_path / "first", options())
    second = ingest(data[::-1], tmp_path / "second", options())
    assert content(first) == content(second)
    assert first.manifest.inputs == second.manifest.inputs
