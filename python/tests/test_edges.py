"""compare by edges: verdicts, what stands first in the ranking, ranges of time, what cannot be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleet_of_edges as fleet_of
import numpy as np
import pyarrow as pa
import pytest
from fleet_of_edges import MS, SECOND_NS, Fleet
from small_store import spans, study_of

from bench.edges_found import FAULTS, is_named_first, side
from scotfree.study import cli
from scotfree.study.edges import compare, read, text
from scotfree.study.edges.evidence import Part
from scotfree.study.edges.ranking import ranking
from scotfree.study.edges.read import Edge

BEGAN = "2026-01-31T12:00:00Z"
BEGAN_NS = 1_769_860_800 * SECOND_NS


def rate(folder: Path, kind: str, rounds: int, growth: float) -> tuple[int, int]:
    """How many of one kind's faults stand first, and how many were planted."""
    fleet, first, planted = Fleet(3), 0, list(FAULTS[kind](growth))
    before = side(folder / "before", fleet, rounds, 1)
    for draw, (_, fault, right) in enumerate(planted, 2):
        found = compare.compare(before, side(folder / str(draw), fleet, rounds, draw, fault))
        first += is_named_first(found, right)
    return first, len(planted)


# bench/edges_found.py does the same with more sizes and calls. Growth 3: calls wait four times as long.
@pytest.mark.parametrize(
    ("kind", "rounds", "growth", "least"),
    [
        ("services", 20, 3.0, 1.0),
        ("services", 5, 10.0, 8 / 11),
        ("links", 20, 3.0, 0.9),
        ("clients", 20, 3.0, 0.8),
        ("pods", 60, 10.0, 0.9),
        ("handlers", 20, 3.0, 0.9),
    ],
)
def test_planted_faults_stand_first(tmp_path: Path, kind: str, rounds: int, growth: float, least: float) -> None:
    first, planted = rate(tmp_path, kind, rounds, growth)
    assert first >= least * planted


def test_data_that_differ_in_nothing_raise_no_alarm(tmp_path: Path) -> None:
    for seed in range(12):
        fleet = Fleet(seed)
        sides = [side(tmp_path / f"{seed}-{draw}", fleet, (5, 10)[seed % 2], draw) for draw in (1, 2)]
        assert not compare.compare(*sides).is_worse, seed


def stores(folder: Path, *tables: pa.Table) -> list[str]:
    for number, table in enumerate(tables):
        study_of(folder / f"side{number}", table)
    return [str(folder / f"side{number}") for number in range(len(tables))]


def sides_of(folder: Path, *tables: pa.Table) -> tuple[read.Side, read.Side]:
    a, b = (read.side(study_of(folder / f"of{number}", table), None) for number, table in enumerate(tables))
    return a, b


def found_of(folder: Path, *tables: pa.Table) -> compare.Comparison:
    return compare.compare(*sides_of(folder, *tables))


def flat(calls: int, seed: int = 1, *, wait_ms: float = 2.0, work_ms: float = 5.0, **columns: Any) -> pa.Table:
    """Calls of one edge; more columns as they are, of one value if it is a text."""
    chance = np.random.default_rng(seed)
    work = chance.lognormal(np.log(work_ms * MS), 0.3, calls).astype(np.int64)
    wait = chance.lognormal(np.log(wait_ms * MS), 0.3, calls).astype(np.int64)
    columns = {
        "client_service": "shop",
        "service": "cart",
        "total_ns": work + wait,
        "server_app_ns": work,
        "start_ns": BEGAN_NS + np.arange(calls) * SECOND_NS,
        "trace_id": [int(one).to_bytes(16, "big") for one in chance.integers(1, 2**62, calls)],
        **columns,
    }
    return spans(**{name: [of] * calls if isinstance(of, str) else of for name, of in columns.items()})


def verdicts(found: compare.Comparison) -> dict[tuple[str, str], str]:
    return {(edge.edge.method, one.part.value): one.verdict for edge in found.edges for one in edge.parts}


def test_outside_and_handler_are_told_apart(tmp_path: Path) -> None:
    outside = verdicts(found_of(tmp_path / "outside", flat(40), flat(38, 2, wait_ms=164)))
    assert (outside["Get", "outside"], outside["Get", "handler"]) == ("slower", compare.SAME)
    handler = verdicts(found_of(tmp_path / "handler", flat(40), flat(38, 2, work_ms=20)))
    assert (handler["Get", "outside"], handler["Get", "handler"]) == (compare.SAME, "slower")
    faster = found_of(tmp_path / "faster", flat(40, wait_ms=164), flat(38, 2))
    assert verdicts(faster)["Get", "outside"] == "faster" and not faster.is_worse


def test_what_is_sure_and_small_is_told_to_be_too_little_to_matter(tmp_path: Path) -> None:
    # 5 % of 2 ms, and 20 us of 0.1 ms, of 20,000 calls: far beyond chance.
    for place, (before, after, verdict) in enumerate(((2.0, 2.1, compare.SMALL), (0.1, 0.12, compare.SLOWER))):
        sides = sides_of(tmp_path / str(place), flat(20_000, wait_ms=before), flat(20_000, 2, wait_ms=after))
        for least_ns, expected in ((50_000.0, compare.SMALL), (5_000.0, verdict)):
            found = compare.compare(*sides, least_ns=least_ns)
            (told, *_) = found.edges[0].parts
            assert told.p is not None and told.p < 1e-9 and told.verdict == expected
            said = "\n".join(text.lines(found, *sides, ("a", "b")))
            assert ("1 difference can be told and is too little to matter" in said) == (expected == compare.SMALL)


def test_a_handler_before_which_a_device_has_answered_is_not_compared(tmp_path: Path) -> None:
    """It was not awaited, and did not become faster; nor is it compared by the few calls that came to it."""
    who = ["device:1"] * 390 + ["server"] * 10
    answered = flat(400, 2, wait_ms=0.2, work_ms=0.001, answered_by=who)
    found = found_of(tmp_path, flat(400, wait_ms=2.0, work_ms=2.0), answered)
    told = {one.part: one for one in found.edges[0].parts}
    assert told[Part.HANDLER].verdict == compare.NOT_COMPARABLE
    assert told[Part.HANDLER].why == "a device has answered before it"
    assert told[Part.OUTSIDE].verdict == "faster"


def test_a_slow_callee_is_not_blamed_on_its_callers(tmp_path: Path) -> None:
    fleet = Fleet(5)
    found = found_of(tmp_path, fleet.side(40, 1), fleet.side(40, 2, fleet_of.handler("store", 5.0)))
    assert [one.names for one in ranking(found)] == [("store",)]
    worse = {edge.edge.server for edge in found.edges if edge.is_worse}
    # All of catalog's and cart's handlers take longer with it, and are not slower themselves.
    assert worse == {"store"}


def test_time_of_calls_that_overlap_is_covered_once(tmp_path: Path) -> None:
    # A handler of 10 ms with calls from 1 to 5, 3 to 6 and 8 to 9 ms has 4 ms of its own.
    starts, totals = np.array([0, 1, 3, 8]) * MS, np.array([11, 4, 3, 1]) * MS
    table = spans(
        trace_id=[bytes(15) + b"\1"] * 4,
        span_id=[1, 2, 3, 4],
        parent_id=[None, 1, 1, 1],
        service=["front", "cart", "cart", "cart"],
        client_service=["", "front", "front", "front"],
        start_ns=starts,
        total_ns=totals,
        server_app_ns=[10 * MS, MS, MS, MS],
    )
    of = read.side(study_of(tmp_path, table), None)
    edge = Edge("", "front", "Get")
    assert read.read(of, lambda one: one, {edge: of.counts[edge]}).calls[edge].own.tolist() == [4.0 * MS]


def test_a_failure_is_its_origins(tmp_path: Path) -> None:
    fleet = Fleet(5)
    found = found_of(tmp_path, fleet.side(40, 1), fleet.side(40, 2, fleet_of.failing("mail", 0.5)))
    assert [(one.thing, one.names) for one in ranking(found)] == [("service", ("mail",))]
    told = {edge.edge.server: edge.parts[2].verdict for edge in found.edges}
    # Whoever depends on it fails too, and it shows.
    assert (told["mail"], told["checkout"], told["ads"]) == ("more errors", "more errors", compare.SAME)


def test_what_is_rare_is_not_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few: dict[str, Any] = {"method": ["Get"] * 41 + ["Put"] * 41}
    many: dict[str, Any] = {"method": ["Get"] * 41 + ["Put"] * 3 + ["Old"] * 2}
    assert cli.main(["compare", *stores(tmp_path, flat(46, **many), flat(82, 2, **few))]) == 0
    said = capsys.readouterr().out
    assert "Not comparable: shop > cart Put: 3 calls beside 41: too few to tell." in said
    assert "In A, and not in B, but so rare that this may be chance: shop > cart Old (2 calls)." in said
    assert "Only in" not in said


def test_five_calls_on_each_side_are_enough(tmp_path: Path) -> None:
    for calls, verdict in ((4, compare.NOT_COMPARABLE), (5, "slower")):
        others = [flat(calls * 8, seed, method=[f"m{place % 8}" for place in range(calls * 8)]) for seed in (1, 2)]
        slow = np.arange(calls * 8) % 8 == 3
        total = others[1]["total_ns"].to_numpy() + np.where(slow, 50 * MS, 0)
        changed = others[1].set_column(others[1].schema.get_field_index("total_ns"), "total_ns", pa.array(total))
        told = verdicts(found_of(tmp_path / str(calls), others[0], changed))
        assert told["m3", "outside"] == verdict, calls


def eight(calls: int, seed: int, wait_ms: float = 2.0) -> pa.Table:
    return flat(calls * 8, seed, wait_ms=wait_ms, method=[f"m{place % 8}" for place in range(calls * 8)])


def test_of_few_calls_it_is_said_what_could_not_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = stores(tmp_path, flat(5), flat(5, 2, wait_ms=5.2))
    assert cli.main(["compare", *sides]) == 0
    said = capsys.readouterr().out
    assert "Nothing is worse" in said
    assert re.search(
        r"In 1 edge there are too few calls to tell less than several times \(about [\d.,]+ times as long\): "
        r"shop > cart Get\.",
        said,
    ), said
    assert len([line for line in said.splitlines() if line.endswith("no difference that can be told")]) == 2


def test_of_many_calls_nothing_is_said_of_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *stores(tmp_path, flat(200), flat(200, 2))]) == 0
    assert "too few" not in capsys.readouterr().out


@pytest.mark.parametrize("calls", [5, 12])
def test_what_few_calls_could_tell_is_what_they_tell(tmp_path: Path, calls: int) -> None:
    """Nearly twice as much is told of nearly all edges, a third as much of none."""
    told = [
        one for edge in found_of(tmp_path / "same", eight(calls, 1), eight(calls, 2)).edges for one in edge.parts
    ]
    factor = float(np.median([one.told_from for one in told if one.part is Part.OUTSIDE]))
    assert factor > 1.5
    for times, least, most in ((1.8 * factor, 3, 4), (1 + (factor - 1) / 3, 0, 0)):
        before, after = eight(calls, 1), eight(calls, 2)
        slow = np.arange(calls * 8) % 8
        found = 0
        for method in range(0, 8, 2):
            wait = after["total_ns"].to_numpy() - after["server_app_ns"].to_numpy()
            total = after["server_app_ns"].to_numpy() + np.where(slow == method, wait * times, wait).astype(
                np.int64
            )
            changed = after.set_column(after.schema.get_field_index("total_ns"), "total_ns", pa.array(total))
            verdict = verdicts(found_of(tmp_path / f"{times}-{method}", before, changed))[f"m{method}", "outside"]
            found += verdict == "slower"
        assert least <= found <= most, (times, found)


def test_one_outlier_of_five_hides_nothing_and_makes_nothing(tmp_path: Path) -> None:
    before, after = (flat(10, seed, method=["Get", "Put"] * 5) for seed in (1, 2))
    total = after["total_ns"].to_numpy().copy()
    total[0] += 9 * SECOND_NS
    late = after.set_column(after.schema.get_field_index("total_ns"), "total_ns", pa.array(total))
    assert not found_of(tmp_path, before, late).is_worse


def test_without_a_servers_record_the_total_is_compared_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = pa.nulls(40, pa.int64())
    sides = stores(tmp_path, flat(40, server_app_ns=nothing), flat(40, 2, wait_ms=90, server_app_ns=nothing))
    assert cli.main(["compare", *sides]) == 1
    said = capsys.readouterr().out
    assert "with what their handlers take, which no record says," in said
    assert "handler: the server's record is missing" in said


def test_names_that_differ_on_both_sides_are_compared_by_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = flat(40, service="store-without-remedy", client_service="a")
    after = flat(40, 2, wait_ms=20, service="store-with-persist", client_service="b")
    assert cli.main(["compare", *stores(tmp_path, before, after)]) == 1
    said = capsys.readouterr().out
    assert "compared by method (store-without-remedy beside store-with-persist)" in said
    assert "1. calls of Get wait" in said
    other_client = flat(40, 2, client_service="b")
    assert found_of(tmp_path / "client", flat(40), other_client).by == "service and method"


def test_nothing_in_common_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *stores(tmp_path, flat(40), flat(40, method="Other"))]) == 2
    assert "no method of one is in the other" in capsys.readouterr().err
    assert cli.main(["compare", *stores(tmp_path / "few", flat(4), flat(40))]) == 2
    assert "4 calls beside 40 of shop > cart Get at most" in capsys.readouterr().err


def halves(calls: int = 80) -> pa.Table:
    """One data set whose second half waits longer."""
    later = np.arange(calls) >= calls // 2
    table = flat(calls)
    total = table["total_ns"].to_numpy() + np.where(later, 90 * MS, 0)
    return table.set_column(table.schema.get_field_index("total_ns"), "total_ns", pa.array(total))


@pytest.mark.parametrize(
    "words",
    [
        ["--baseline", "-80s..-40s", "--from", "-40s"],
        ["--baseline", "+0s..+40s", "--from", "+40s", "--to", "2026-01-31T12:01:20Z"],
        ["--baseline", f"..{BEGAN[:-3]}40Z"],
        ["--baseline", "2026-01-31T13:00:00+01:00..2026-01-31T12:00:39.5Z", "--from", "-30s"],
    ],
)
def test_a_range_is_compared_with_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (one,) = stores(tmp_path, halves())
    assert cli.main(["compare", one, *words]) == 1
    said = capsys.readouterr().out
    assert f"A: {one}, 2026-01-31T12:00:00.000Z to 2026-01-31T12:00:39.000Z, 40 calls of 1 edge" in said
    assert "1. calls into cart wait" in said


def test_a_range_of_both_is_a_range_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = stores(tmp_path, halves(), halves())
    assert cli.main(["compare", *sides, "--from", "+10s", "--to", "-50s", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for letter in "ab":
        assert found[letter]["first"] == "2026-01-31T12:00:10.000Z" and found[letter]["calls"] == 20


def test_the_baseline_of_two_is_the_firsts_and_the_rest_the_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = stores(tmp_path, halves(), halves())
    assert cli.main(["compare", *sides, "--baseline", "..-40s", "--from", "-40s", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["a"]["last"], found["b"]["first"]) == ("2026-01-31T12:00:39.000Z", "2026-01-31T12:00:40.000Z")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "with nothing"),
        (["--baseline", "-60s..-20s", "--from", "-40s"], "overlaps"),
        (["--baseline", "-20s..-40s"], "that is no range"),
        (["--baseline", "2020-01-01T00:00:00Z..2020-01-02T00:00:00Z", "--from", "-9s"], "its calls start from"),
        (["--baseline", "+0.1s..+0.2s", "--from", "-9s"], "no call starts in that range"),
    ],
)
def test_ranges_that_cannot_be_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert cli.main(["compare", *stores(tmp_path, halves()), *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("time", ["10m", "-10", "2026-01-31T12:00:00", "yesterday", "-99999999999m"])
def test_a_time_that_is_none_is_refused_at_once(capsys: pytest.CaptureFixture[str], time: str) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["compare", "a", "b", "--from", time])
    assert refused.value.code == 2
    assert "argument --from: " in capsys.readouterr().err


def test_sides_are_named_with_their_times_and_swapped_ones_are_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = flat(40, 2, start_ns=BEGAN_NS + (3600 + np.arange(40)) * SECOND_NS)
    early, late = stores(tmp_path, flat(40), later)
    assert cli.main(["compare", early, late]) == 0
    assert "later than" not in capsys.readouterr().out
    assert cli.main(["compare", late, early]) == 0
    said = capsys.readouterr().out
    assert f"A: {late}, 2026-01-31T13:00:00.000Z to" in said and "A is later than B" in said


def test_frequent_edges_are_sampled_and_counted_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "EDGE_CALLS_MAX", 500)
    found = found_of(tmp_path, flat(4_000), flat(4_000, 2, wait_ms=40))
    (edge,) = found.edges
    assert edge.a.calls == 4_000 and 300 < edge.parts[0].calls_a < 700
    # 38 ms more of each call, not of those that were read.
    assert ranking(found)[0].added_ns == pytest.approx(4_000 * 38 * MS, rel=0.1)


def test_calls_that_stand_for_more_are_not_fewer(tmp_path: Path) -> None:
    # B keeps all slow calls and one in 20 of the others; with its weights nothing has changed.
    chance = np.random.default_rng(4)
    wait = chance.lognormal(np.log(2 * MS), 0.5, 4_000).astype(np.int64)
    is_kept = (wait > 4 * MS) | (np.arange(4_000) % 20 == 0)
    table = flat(4_000)
    index = table.schema.get_field_index
    total = pa.array(wait + table["server_app_ns"].to_numpy())
    table = table.set_column(index("total_ns"), "total_ns", total)
    weights = pa.array(np.where(wait > 4 * MS, 1.0, 20.0))
    sampled = table.set_column(index("sample_weight"), "sample_weight", weights).filter(pa.array(is_kept))
    assert found_of(tmp_path / "unweighted", table, table.filter(pa.array(is_kept))).is_worse
    assert not found_of(tmp_path / "weighted", table, sampled).is_worse


Change = Callable[[compare.Comparison], object]


def test_json_says_all_that_the_text_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = stores(tmp_path, flat(40, server_machine="cart-2"), flat(38, 2, wait_ms=164, server_machine="cart-2"))
    assert cli.main(["compare", *sides, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["worse"] and found["compared_by"] == "edge"
    (first,) = found["ranking"]
    assert (first["kind"], first["names"]) == ("service", ["cart"])
    assert "40 calls beside 38" in first["says"] and first["says"].endswith("starvation of cart-2")
    (edge,) = found["edges"]
    assert edge["server_machines"] == {"cart-2": [40, 38]}
    outside = edge["parts"]["outside"]
    assert outside["verdict"] == "slower" and outside["median_b"]["low"] < outside["median_b"]["value"]
    # The greatest of 40 calls bounds no P95 from above.
    assert outside["p95_a"]["high"] is None
    assert Part.ERRORS.value in edge["parts"]
