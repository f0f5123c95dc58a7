"""The planner: within its budgets, the smallest that is fast enough, predicted by what searches ask for."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_rag_cli import folder
from test_rag_index import QUESTIONS, documents

from bench.words import Words
from scotfree.rag import Budget, Document, Index, Placement, Planner, RagError, cli
from scotfree.rag.embed.names import by_name
from scotfree.rag.placement import costs, rates, sample
from scotfree.rag.placement.rates import Rates
from scotfree.rag.placement.rows import row_bytes

__all__ = ["folder"]

# A millisecond for a call, and for a token; nothing else takes as long.
RATES = Rates("a table", [1, 100], [1e-3, 1e-3], [1e-3, 1e-1], 1e-4, 1e-6, 1e-3, 1e-6, 1e-8, 1e-5)
ROW = row_bytes(128)
PROCESS = 10_000_000


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.build(tmp_path_factory.mktemp("placed") / "index", documents(), Words(), keep="codes") as built:
        yield built


@pytest.fixture(scope="module")
def planner(index: Index) -> Planner:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "of", lambda *_, **__: RATES)
        patch.setattr(costs, "_process_bytes", lambda *_: PROCESS)
        # What a table takes says nothing of what an embedder does.
        patch.setattr(costs, "_CORRECTING_MIN", 1_000)
        return Planner(index, [*QUESTIONS, *QUESTIONS[:4]])


def size(planner: Planner, placement: Placement) -> int:
    return sum(len(planner.index.clusters()[cluster]) for cluster in placement.kept) * ROW


def slow(planner: Planner, placement: Placement) -> float:
    halves = (planner.choosing, planner.checking)
    return max(planner.costs.predicted(placement, half).p95_s for half in halves)


def test_a_prediction_is_the_sum_of_what_a_search_does(planner: Planner) -> None:
    one = planner.checking[0]
    texts = planner.index.passages.texts([number for numbers in one.rounds for number in numbers])
    words = {number: len(text.text.split()) for number, text in texts.items()}
    fixed = 1e-3 + one.tokens * 1e-3 + 240 * 1e-8 + 1e-5
    made = sum(1e-3 + 1e-5 + sum(words[number] for number in numbers) * 1e-3 for numbers in one.rounds)
    assert planner.costs.latency_s(Placement(), one) == pytest.approx(fixed + made)
    read = sum(1e-5 + 1e-4 * len(numbers) for numbers in one.rounds)
    assert planner.costs.latency_s(Placement.of(disk=range(6)), one) == pytest.approx(fixed + read)
    held = 1e-5 * len(one.rounds)
    assert planner.costs.latency_s(Placement.of(memory=range(6)), one) == pytest.approx(fixed + held)


def test_storage_is_filled_with_what_saves_most_and_never_exceeded(planner: Planner) -> None:
    codes = planner.predicted(Placement()).storage_bytes
    flat_bytes = 240 * 128 * 4
    last = planner.predicted(Placement()).median_s
    for clusters in range(1, 7):
        storage = f"{codes + clusters * 40 * ROW}B"
        plan = planner.plan(Budget(storage=storage))
        assert plan.missing == [] and plan.flat_bytes == flat_bytes
        assert plan.predicted.storage_bytes == codes + size(planner, plan.placement) <= int(storage[:-1])
        assert plan.predicted.median_s <= last
        last = plan.predicted.median_s
    assert plan.placement == Placement.of(memory=range(6)), "memory has no bound here"
    share = planner.plan(Budget(storage=f"{(codes + 100 * ROW) / flat_bytes * 100:.9f}%"))
    assert 0 < size(planner, share.placement) <= 100 * ROW


def test_the_hottest_cluster_by_byte_is_kept_first(planner: Planner) -> None:
    clusters = planner.index.clusters()
    asked = [number for one in planner.choosing for numbers in one.rounds for number in numbers]
    heat = [sum(number in cluster for number in asked) / len(cluster) for cluster in clusters]
    first = planner.costs.reading(planner.choosing)
    best = max(first, key=lambda item: item.saving_s / item.bytes)
    assert heat[best.key] == max(heat) > 2 * min(heat), "the sample's questions are of half of the topics"


def test_memory_bounds_what_is_held_and_what_is_listed(planner: Planner) -> None:
    least = planner.predicted(Placement()).memory_bytes
    assert least > PROCESS
    some = planner.plan(Budget(memory=f"{least + 240 * 4 + 100 * ROW}B"))
    assert some.placement.kept == set(range(6)) and 0 < len(some.placement.memory) < 6
    assert some.predicted.memory_bytes <= least + 240 * 4 + 100 * ROW
    few = planner.plan(Budget(memory=f"{least + 60 * 4}B"))
    assert not few.placement.memory and 0 < size(planner, few.placement) <= 60 * ROW


def test_of_placements_that_are_fast_enough_it_takes_the_smallest(planner: Planner) -> None:
    least, most = (slow(planner, Placement.of(disk=range(end))) for end in (0, 6))
    bound_s = (least + most) / 2
    plan = planner.plan(Budget(latency=f"{bound_s * 1e3:.6f}ms"))
    assert slow(planner, plan.placement) <= bound_s and plan.missing == [] and not plan.placement.memory
    assert 0 < len(plan.placement.kept) < 6
    for cluster in plan.placement.disk:
        without = Placement(disk=plan.placement.disk - {cluster})
        assert slow(planner, without) > bound_s, "none of it can be left out"
    assert planner.plan(Budget(latency="30s")).placement == Placement()


def test_what_cannot_be_is_said_with_what_it_would_take(planner: Planner) -> None:
    least, most = planner.predicted(Placement()), planner.predicted(Placement.of(disk=range(6)))
    latency = f"{(least.p95_s + most.p95_s) / 2 * 1e3:.6f}ms"
    nearest = planner.plan(Budget(latency=latency, storage=f"{least.storage_bytes + 45 * ROW}B"))
    (missing,) = nearest.missing
    assert "latency: 95 of 100 searches take up to" in missing and "that takes storage of" in missing
    assert 0 < size(planner, nearest.placement) <= 45 * ROW, "the nearest"
    (missing,) = planner.plan(Budget(latency="1us")).missing
    assert "with all exact values on the disk they take" in missing
    impossible = planner.plan(Budget(memory="1MB", storage="100B"))
    assert impossible.placement == Placement()
    assert [missing.split(":")[0] for missing in impossible.missing] == ["storage", "memory"]


def test_where_codes_have_no_room_those_that_save_least_go(planner: Planner) -> None:
    codes, flat_bytes = planner.predicted(Placement()).storage_bytes, 240 * 128 * 4
    each = planner.costs.code_bytes_of(0) // len(planner.index.clusters()[0])
    last = 0.0
    for passages in (10, 60, 150):
        plan = planner.plan(Budget(storage=f"{(codes - passages * each) / flat_bytes * 100:.9f}%"))
        gone = plan.placement.bare
        size = sum(len(planner.index.clusters()[cluster]) for cluster in gone)
        assert plan.missing == [] and not plan.placement.kept
        assert codes - plan.predicted.storage_bytes == size * each >= passages * each
        near = [len(one.near & gone) for one in planner.checking]
        assert (plan.predicted.median_s > planner.predicted(Placement()).median_s) == (np.median(near) > 0)
        assert slow(planner, plan.placement) >= last
        last = slow(planner, plan.placement)
    saving = {item.key: item.saving_s / item.bytes for item in planner.costs.coding(planner.choosing)}
    few = planner.plan(Budget(memory=f"{planner.predicted(Placement()).memory_bytes - 100}B"))
    assert few.missing == [] and [saving[key] for key in few.placement.bare] == [min(saving.values())]


def test_a_budget_is_met_or_missing_and_one_that_cannot_be_met_spoils_no_other(planner: Planner) -> None:
    every = planner.predicted(Placement())
    least = planner.predicted(Placement.of(bare=range(6)))
    for more in (0, 1, 63, 64, 200):
        plan = planner.plan(Budget(storage=f"{least.storage_bytes + more}B"))
        assert plan.missing == [] and plan.predicted.storage_bytes <= least.storage_bytes + more
        plan = planner.plan(Budget(memory=f"{least.memory_bytes + more}B"))
        assert plan.missing == [] and plan.predicted.memory_bytes <= least.memory_bytes + more
    storage_bytes = (least.storage_bytes + every.storage_bytes) // 2
    plan = planner.plan(Budget(memory="1MB", storage=f"{storage_bytes}B"))
    assert [missing.split(":")[0] for missing in plan.missing] == ["memory"]
    assert least.storage_bytes <= plan.predicted.storage_bytes <= storage_bytes
    memory_bytes = (least.memory_bytes + every.memory_bytes) // 2
    plan = planner.plan(Budget(memory=f"{memory_bytes}B", storage="1kB"))
    assert [missing.split(":")[0] for missing in plan.missing] == ["storage"]
    assert plan.predicted.memory_bytes <= memory_bytes


def test_a_plan_without_codes_takes_what_was_predicted_of_it(planner: Planner) -> None:
    bare = Placement.of(bare=[1, 4])
    one = planner.checking[0]
    needed = [number for numbers in one.coded for number in numbers]
    clusters = planner.index.clusters()
    whole = sum(len(clusters[cluster]) for cluster in one.near & {1, 4})
    left = [number for number in needed if number not in {*clusters[1], *clusters[4]}]
    planner.index.place(bare)
    try:
        answer = planner.index.search(one.question)
        assert answer.regenerated == pytest.approx(whole + len(left), abs=4), "by a round"
        assert planner.measured().storage_bytes == pytest.approx(planner.predicted(bare).storage_bytes, abs=64)
        # A plan from here on knows what was found of them, and no more.
        again = Planner(planner.index, [one.question])
        assert again.predicted(Placement()).storage_bytes == pytest.approx(
            planner.predicted(Placement()).storage_bytes, abs=64
        )
        coded = {number for numbers in again.checking[0].coded for number in numbers}
        assert coded & {*clusters[1], *clusters[4]} <= {hit.number for hit in answer.hits}
    finally:
        planner.index.place(Placement())


def test_the_frontier_goes_from_few_codes_to_everything(planner: Planner) -> None:
    frontier = planner.plan(Budget()).frontier
    assert [figures.storage_bytes for figures in frontier] == sorted({one.storage_bytes for one in frontier})
    assert planner.predicted(Placement()) in frontier[1:-1], "with fewer codes before, and exact values behind"
    assert frontier[-1] == planner.predicted(Placement.of(disk=range(6)))
    assert all(one.p95_s >= other.p95_s for one, other in pairwise(frontier))


def test_a_slower_embedder_than_was_calibrated_slows_predictions(planner: Planner) -> None:
    doubled = [
        replace(one, embedded_s=2 * (planner.costs.latency_s(Placement(), one) - 240 * 1e-8 - 1e-5))
        for one in planner.choosing
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "_CORRECTING_MIN", 5)
        slowed = costs.Costs(planner.index, RATES, doubled)
    # The question's own embedding and the texts' look-ups are among what was doubled here.
    assert 2 < slowed.correction < 2.2 and planner.costs.correction == 1
    one = planner.choosing[0]
    assert slowed.latency_s(Placement(), one) > 1.9 * planner.costs.latency_s(Placement(), one)


def test_a_plan_in_place_is_measured_as_if_each_search_were_the_first(planner: Planner) -> None:
    everything = Placement.of(disk=range(6))
    before = planner.measured()
    planner.index.place(everything)
    after = planner.measured()
    assert after.storage_bytes - before.storage_bytes == 240 * ROW + 64
    assert planner.predicted(everything).storage_bytes == after.storage_bytes - 64
    assert before.memory_bytes > PROCESS and 0 < before.median_s <= before.p95_s
    assert planner.index.search(planner.checking[-1].question).cached == 0
    planner.index.place(Placement())


def test_rates_are_measured_once_for_each_machine(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def embedded() -> int:
        assert isinstance(index.embedder, Words)
        before = len(index.embedder.asked)
        rates.of(index, ["some words of a text"])
        return len(index.embedder.asked) - before

    found = rates.of(index, ["some words of a text"])
    assert found.tokens == [6, 24, 40], "no longer than the embedder reads"
    assert min(found.row_cold_s, found.row_warm_s, found.code_s, found.texts_s, *found.embed_text_s) > 0
    assert len(found.shown()) == 3 and platform.node() in found.shown()[0]
    assert embedded() == 0
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert embedded() > 0 and rates.of(index, []).machine.startswith("another")
    assert rates.of(index, ["some words"], is_new=True) != rates.of(index, ["some words"], is_new=True)


def test_between_lengths_and_beyond_them_rates_are_drawn_on() -> None:
    some = Rates("a table", [10, 20], [1.0, 3.0], [2.0, 6.0], 0, 0, 0, 0, 0, 0)
    assert some.embed_s([]) == 0
    assert some.embed_s([15, 10]) == pytest.approx(2 + 4 + 2)
    assert some.embed_s([30]) == pytest.approx(3 + 6)
    assert some.slowed(2).embed_s([15, 10]) == pytest.approx(2 * 8)


def test_questions_are_drawn_from_what_passages_say(tmp_path: Path) -> None:
    texts = [Document(f"doc{place}", f"Short one. The word{place} is in this sentence.") for place in range(90)]
    with Index.build(tmp_path / "index", texts, Words(), keep="codes") as index:
        found = sample.drawn(index)
        assert len(set(found)) == sample.DRAWN == 64 and found == sample.drawn(index)
        assert all(question.startswith("The word") and question.endswith("sentence.") for question in found)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"memory": "400"}, "memory: 400 is no size; write 400MB"),
        ({"memory": "4%"}, "memory: 4% is no size; write 400MB"),
        ({"storage": "four"}, "storage: four is no size; write 400MB, 1.5GB, 64MiB or 100kB, or 4%"),
        ({"storage": "0%"}, "storage: 0% is nothing; give it more"),
        ({"storage": "-4%"}, "storage: -4% is no size"),
        ({"latency": "250"}, "latency: 250 is no time of up to 30 days; write 2ms"),
    ],
)
def test_a_bad_budget_is_refused(budget: dict[str, str], said: str) -> None:
    with pytest.raises(RagError) as refused:
        Budget(**budget)
    assert said in str(refused.value)


def test_a_budget_is_read_with_its_units() -> None:
    budget = Budget("1.5GB", "4%", "250ms")
    assert (budget.memory_bytes(), budget.storage_bytes(1_000), budget.latency_s()) == (1.5e9, 40, 0.25)
    assert Budget(storage="64 MiB").storage_bytes(1) == 64 << 20
    assert np.isinf([Budget().memory_bytes(), Budget().storage_bytes(1), Budget().latency_s()]).all()


def test_an_index_without_codes_has_nothing_to_plan(tmp_path: Path) -> None:
    with (
        Index(tmp_path / "index", Words(), keep="codes") as empty,
        pytest.raises(RagError, match="index documents first"),
    ):
        Planner(empty)


def test_an_index_that_embeds_nothing_again_keeps_nothing(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", documents(), Words(), bits=4, keep="codes") as index:
        planner = Planner(index, QUESTIONS)
        plan = planner.plan(Budget())
        assert plan.placement == Placement() and plan.frontier[-1] == planner.predicted(Placement())


def test_the_command_plans_applies_and_measures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", str(folder), "--quiet", "--smallest"]) == 0
    assert cli.main(["plan"]) == 0
    told = capsys.readouterr().out
    assert "tokens embedded a second" in told and "a search wants exact values of 4.0 passages" in told
    assert "plan: exact values of 1 clusters of 1 on the disk" in told and "measured" not in told
    (folder / "asked.txt").write_text("which instrument has strings?\n\nwhat fills the disk?\n")
    words = ["plan", "--questions", str(folder / "asked.txt"), "--count", "2", "--apply", "--json"]
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert said["placement"] == {"memory": [0], "disk": [], "bare": []} and said["missing"] == []
    assert said["measured"]["storage_bytes"] == said["predicted"]["storage_bytes"] + 64
    assert said["rates"]["machine"].startswith(platform.node()) and "4 passages embedded" in printed.err
    assert cli.main(["ask", "which instrument has strings?", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["loaded"], answer["regenerated"]) == (4, 0)
    assert answer["hits"][0]["document"].endswith("violin.html")
    assert cli.main(["plan", "--storage", "100B", "--apply"]) == 1
    told = capsys.readouterr().out
    assert "not met: storage: axes, centroids and places alone take" in told and "this is the nearest plan" in told
    assert "predicted    measured       error" in told


def test_what_is_applied_was_planned_for_all_there_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", str(folder), "--quiet", "--smallest"]) == 0
    (codes,) = (folder.parent / "data").rglob("codes-*.scot")
    with Index(codes.parent, by_name(), keep="codes") as index:
        index.add([Document(f"more{at}", f"word{at}") for at in range(3)])
        assert index.changes == 3
    assert cli.main(["plan", "--apply", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["measured"]["storage_bytes"] == said["predicted"]["storage_bytes"] + 64


def test_the_command_says_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan"]) == 2
    assert "there is none; make it: scot rag index FOLDER" in capsys.readouterr().err
    (folder / "blank.txt").write_text("\n \n")
    for words, said in (
        (["--latency", "soon"], "a budget of latency: soon is no time"),
        (["--questions", str(folder / "absent.txt")], "name a text file, one question a line"),
        (["--questions", str(folder / "blank.txt")], "it has none; write one a line"),
    ):
        assert cli.main(["plan", *words]) == 2
        assert said in capsys.readouterr().err
