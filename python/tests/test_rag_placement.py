"""Exact values beside the codes: never another passage's, through every change; and which of them to keep."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_rag_index import QUESTIONS, documents, flat, found

from bench.rag_kills import State, changed, possible, there
from bench.rag_kills import found as found_all
from bench.words import Words
from scotfree.rag import Document, Index, Placement, RagError
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.passages import Passages
from scotfree.rag.placement import rows
from scotfree.rag.placement.choice import Item, chosen, given_up, ordered
from scotfree.rag.placement.rows import Exact
from scotfree.rag.searching import bare_probes

DIMENSIONS = 384
SNAPSHOT = bytes(range(16))
items = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 30)).map(lambda pair: Item(0, pair[0] / 10, pair[1])), max_size=9
)


def unit(count: int, seed: int = 1) -> Vectors:
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSIONS))
    found: Vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return found


def saved(kept: list[Item]) -> float:
    return sum(item.saving_s for item in kept)


def best(among: list[Item], bytes_max: int) -> float:
    """By looking at all there are."""
    all_of_them = (list(some) for size in range(len(among) + 1) for some in combinations(among, size))
    return max(saved(some) for some in all_of_them if sum(item.bytes for item in some) <= bytes_max)


@given(items, st.integers(0, 120))
def test_the_choice_fits_and_is_at_least_half_as_good_as_the_best_of_all(among: list[Item], room: int) -> None:
    kept = chosen(among, room)
    assert sum(item.bytes for item in kept) <= room
    assert saved(kept) >= best(among, room) / 2 - 1e-9
    most = max((item.saving_s for item in among), default=0.0)
    assert saved(kept) >= best(among, room) - most, "it is short of one item"


@given(items, st.integers(0, 9))
def test_of_equal_sizes_and_where_nothing_is_left_out_the_choice_is_the_best(
    among: list[Item], count: int
) -> None:
    equal = [Item(item.key, item.saving_s, 7) for item in among]
    assert saved(chosen(equal, 7 * count)) == pytest.approx(best(equal, 7 * count))
    first = ordered(among)[:count]
    room = sum(item.bytes for item in first)
    assert saved(chosen(among, room)) == pytest.approx(best(among, room))


def test_what_saves_most_by_byte_comes_first_unless_one_alone_saves_more() -> None:
    small, large, useless = Item(1, 2.0, 1), Item(2, 10.0, 10), Item(3, 0.0, 1)
    assert ordered([large, useless, small]) == [small, large]
    assert chosen([large, useless, small], 10) == [large]
    assert chosen([large, useless, small], 11) == [small, large]
    assert chosen([large, useless, small], -1) == []


@given(items, st.integers(-5, 160))
def test_what_is_given_up_is_enough_and_none_of_it_too_much(among: list[Item], room: int) -> None:
    gone = given_up(among, room)
    freed, all_bytes = (sum(item.bytes for item in some) for some in (gone, among))
    assert freed >= min(room, all_bytes) and len(gone) <= len(among)
    if room <= all_bytes:
        assert all(freed - item.bytes < room for item in gone)


def test_what_saves_least_by_byte_is_given_up_first() -> None:
    small, large, dear = Item(1, 1.0, 10), Item(2, 2.0, 40), Item(3, 9.0, 10)
    assert given_up([dear, large, small], 10) == [large]
    assert given_up([dear, large, small], 45) == [large, small]
    assert given_up([dear, large, small], 60) == [large, small, dear]


def test_a_row_errs_by_less_than_said() -> None:
    vectors, questions = unit(500), unit(500, seed=2)
    restored = rows.restored(rows.rounded(range(500), vectors))
    errors = np.abs((restored - vectors) @ questions.T)
    scales = np.abs(vectors).max(axis=1) / 127
    assert (np.abs(restored - vectors) <= scales[:, None] * 0.5001).all()
    assert 1e-3 < errors.max() < 0.003
    assert errors.std() < scales.max() / np.sqrt(12)
    nothing = np.zeros((1, DIMENSIONS), np.float32)
    assert (rows.restored(rows.rounded([1], nothing)) == nothing).all()


def made(path: Path, held: list[int], others: list[int]) -> None:
    numbers = [*held, *others]
    rows.write(
        path,
        SNAPSHOT,
        np.array(held, np.uint32),
        np.array(others, np.uint32),
        [rows.rounded([number], unit(1, seed=number)) for number in numbers],
    )


def test_a_file_has_for_each_passage_its_own_row_whether_held_or_not(tmp_path: Path) -> None:
    made(tmp_path / "exact-1.scot", [2, 9], [1, 7, 4_000_000_000])
    exact = Exact(tmp_path / "exact-1.scot", SNAPSHOT, DIMENSIONS)
    vectors = exact.vectors([7, 3, 9, 2, 4_000_000_000, 0])
    assert list(vectors) == [7, 9, 2, 4_000_000_000]
    for number, vector in vectors.items():
        assert vector == pytest.approx(unit(1, seed=number)[0], abs=0.001)
    assert exact.file_bytes == 64 + 5 * rows.row_bytes(DIMENSIONS) == (tmp_path / "exact-1.scot").stat().st_size
    assert exact.memory_bytes == 5 * 4 + 2 * (rows.row_bytes(DIMENSIONS) - 4)
    assert exact.has([7, 3]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (0, "no file of exact values"),
        (8, "version 0"),
        (12, "header is damaged"),
        (65, "numbers are damaged"),
        (100, "row of passage 2 is damaged"),
        (None, "do not make its"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(tmp_path: Path, place: int | None, reason: str) -> None:
    path = tmp_path / "exact-1.scot"
    made(path, [2, 9], [1, 7])
    data = bytearray(path.read_bytes())
    if place is None:
        del data[-1:]
    else:
        data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(RagError, match=f"{reason}.*; `scot rag check --mend`"):
        Exact(path, SNAPSHOT, DIMENSIONS)


def test_a_foreign_file_is_refused_and_so_is_another_passages_row(tmp_path: Path) -> None:
    path = tmp_path / "exact-1.scot"
    made(path, [], [1, 7])
    with pytest.raises(RagError, match="belongs to another snapshot"):
        Exact(path, bytes(16), DIMENSIONS)
    with pytest.raises(RagError, match=f"its rows have {DIMENSIONS} numbers, and embeddings now have 128"):
        Exact(path, SNAPSHOT, 128)
    data, size = path.read_bytes(), rows.row_bytes(DIMENSIONS) - 4
    first, second = data[72 : 72 + size], data[72 + size :]
    path.write_bytes(data[:72] + second + first)
    exact = Exact(path, SNAPSHOT, DIMENSIONS)
    with pytest.raises(RagError, match="row of passage 7 is damaged"):
        exact.vectors([7])


@pytest.fixture
def embedder() -> Words:
    return Words()


@pytest.fixture
def index(tmp_path: Path, embedder: Words) -> Iterator[Index]:
    Index.build(tmp_path / "index", documents(), embedder, keep="codes").close()
    embedder.asked.clear()
    with Index(tmp_path / "index", embedder, cache_bytes=0, keep="codes") as opened:
        yield opened


def wrong(index: Index) -> list[int]:
    """Passages whose stored value is not that of their text."""
    passages = [number for cluster in index.clusters() for number in cluster]
    texts = index.passages.texts(passages)
    vectors = index.stored.vectors(passages)
    expected = {number: Words().embed([texts[number].text])[0] for number in vectors}
    return [number for number, vector in vectors.items() if np.abs(vector - expected[number]).max() > 0.002]


def is_near(index: Index, texts: list[Document], question: str) -> bool:
    """Whether it finds what looking at all finds, but for neighbours whose order a rounded value may change."""
    by_name = {document.name: document.text for document in texts}
    names, first = found(index, question), flat(texts, question)
    vector = Words().embed([question])[0]
    (ours, theirs) = (Words().embed([by_name[name] for name in some]) @ vector for some in (names, first))
    return len(set(names)) == len(first) and bool(np.abs(ours - theirs).max() < 0.003)


def kept_of(index: Index) -> set[int]:
    return {number for cluster in index.stored.placement.kept for number in index.clusters()[cluster]}


def test_what_is_kept_is_not_embedded_and_the_answers_are_the_same(
    tmp_path: Path, index: Index, embedder: Words
) -> None:
    assert len(index.clusters()) == 6 and sum(map(len, index.clusters())) == 240
    placement = Placement.of(memory=[0, 3], disk=[1, 2])
    count = sum(len(index.clusters()[cluster]) for cluster in range(4))
    assert index.place(placement) == count == len(embedder.asked)
    embedder.asked.clear()
    for place in (index, again := Index(tmp_path / "index", embedder, cache_bytes=0, keep="codes")):
        assert place.stored.placement == placement and not wrong(place)
        for question in QUESTIONS:
            answer = place.search(question)
            wanted = {number for some in answer.rounds for number in some}
            assert answer.loaded == len(wanted & kept_of(index)) and answer.cached == 0
            assert answer.regenerated == len(wanted - kept_of(index))
            assert is_near(place, documents(), question)
    again.close()
    assert 0 < len(set(embedder.asked) - set(QUESTIONS)) <= 240 - count
    # What is kept already is not embedded to be kept another way.
    assert index.place(Placement.of(memory=[1], disk=[0, 4])) == len(index.clusters()[4])
    assert not wrong(index) and len(list((tmp_path / "index").glob("exact-*"))) == 1
    index.place(Placement())
    assert index.search(QUESTIONS[0]).loaded == 0 and not list((tmp_path / "index").glob("exact-*"))
    with pytest.raises(RagError, match="6 clusters, and none of number 6"):
        index.place(Placement.of(disk=[6]))


def test_changes_and_compactions_keep_it_right_and_embed_nothing_twice(
    tmp_path: Path, index: Index, embedder: Words
) -> None:
    index.place(Placement.of(memory=[0, 3], disk=[1, 2, 5]))
    embedder.asked.clear()
    texts = documents()
    for turn in range(3):
        index.remove([document.name for document in texts[:20]])
        new = [
            Document(f"new{turn}-{place}", text.text) for place, text in enumerate(documents(30, seed=9 + turn))
        ]
        # A name that comes again is another text; in the next turn those of before move to the front.
        new.append(Document(texts[20].name, f"other words{turn} {texts[25].text}"))
        index.update(new)
        texts = [*texts[21:], *new]
        for is_compacted in (False, True):
            for question in QUESTIONS[:4]:
                assert is_near(index, texts, question), is_compacted
            assert not wrong(index)
            embedder.asked = [text for text in embedder.asked if text not in QUESTIONS]
            before = len(embedder.asked)
            index.compact(is_forced=True)
            assert len(embedder.asked) == before, "a compaction embeds nothing"
        assert index.stored.has(sorted(kept_of(index))) == kept_of(index), "what is added to a cluster is kept"
    assert index.stored.placement == Placement.of(memory=[0, 3], disk=[1, 2, 5])
    assert len(list((tmp_path / "index").glob("exact-*"))) == 1


def test_a_planted_mixing_up_of_passages_is_found(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.place(Placement.of(disk=range(6)))
    assert not wrong(index)
    honest = rows.rounded
    monkeypatch.setattr(rows, "rounded", lambda numbers, vectors: honest(numbers, np.roll(vectors, 1, axis=0)))
    index.update([Document("new", "something new"), Document("newer", "something newer")])
    index.compact(is_forced=True)
    assert len(wrong(index)) == 2


def test_a_file_that_is_gone_or_damaged_can_be_done_without(tmp_path: Path, index: Index) -> None:
    index.place(Placement.of(disk=range(6)))
    (path,) = (tmp_path / "index").glob("exact-*")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = max(number for cluster in index.clusters() for number in cluster)
    with pytest.raises(RagError, match=f"row of passage {last} is damaged; `scot rag check --mend`"):
        index.search(index.passages.texts([last])[last].text)
    data[9] ^= 1
    path.write_bytes(data)
    with pytest.raises(RagError, match="remove that file"):
        Index(tmp_path / "index", Words(), keep="codes")
    path.unlink()
    with Index(tmp_path / "index", Words(), keep="codes") as again:
        answer = again.search(QUESTIONS[0])
        assert answer.loaded == 0 and answer.regenerated >= 10
        again.update([Document("new", "something new")])
        again.compact(is_forced=True)
        assert found(again, "something new", 1) == ["new"] and not wrong(again)
        assert again.place(Placement.of(disk=range(6))) == 240, "of 241 one has not to be embedded again"


def test_a_process_that_reads_sees_what_another_placed(tmp_path: Path, index: Index) -> None:
    with Index(tmp_path / "index", Words(), cache_bytes=0, keep="codes") as other:
        index.place(Placement.of(disk=range(6)))
        other.update([])
        assert other.search(QUESTIONS[0]).regenerated == 0
        # It still has the file that it opened, whatever becomes of its name.
        index.place(Placement())
        assert other.search(QUESTIONS[0]).regenerated == 0


@pytest.mark.parametrize("change", ["place", "compact"])
@pytest.mark.parametrize("moment", ["before it counts", "before the old one is gone"])
def test_what_is_killed_in_between_leaves_the_one_or_the_other(
    tmp_path: Path, index: Index, change: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.place(Placement.of(disk=[0, 1]))
    index.remove(["doc1"])
    index.update([Document("new", "something new")])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    owner, name = {
        ("place", "before it counts"): (Passages, "make_known"),
        ("compact", "before it counts"): (Passages, "settle"),
    }.get((change, moment), (Index, "_sweep"))
    monkeypatch.setattr(owner, name, killed)
    with pytest.raises(KeyboardInterrupt):
        if change == "place":
            index.place(Placement.of(memory=[2, 3]))
        else:
            index.compact(is_forced=True)
    monkeypatch.undo()
    with Index(tmp_path / "index", Words(), keep="codes") as again:
        is_new = change == "place" and owner is Index
        assert again.stored.placement == (Placement.of(memory=[2, 3]) if is_new else Placement.of(disk=[0, 1]))
        assert not wrong(again) and again.stored.has(sorted(kept_of(again) - {241})) >= kept_of(again) - {241}
        again.compact(is_forced=True)
        assert found(again, "something new", 1) == ["new"] and not wrong(again)
        assert kept_of(again) == again.stored.has(sorted(kept_of(again)))
    assert len(list((tmp_path / "index").glob("exact-*"))) == len(list((tmp_path / "index").glob("codes-*"))) == 1


def test_what_is_kept_is_right_after_each_of_many_kills(tmp_path: Path) -> None:
    chance, state, rows_seen = random.Random(7), State(), 0
    for seed in range(5):
        said = changed(tmp_path / "index", seed, chance.randrange(20, 60), "place")
        certain, maybe = possible(state, said)
        state = found_all(tmp_path / "index")
        assert state in (there(certain), there(maybe)), said[-1]
        with Index(tmp_path / "index", Words(), keep="codes") as index:
            assert not wrong(index)
            rows_seen += len(index.stored.has(sorted(kept_of(index))))
            assert index.stored.has(sorted(kept_of(index))) == kept_of(index)
        assert len(list((tmp_path / "index").glob("exact-*"))) <= 2
    assert rows_seen > 50


def test_the_setting_says_the_file_and_the_clusters(index: Index) -> None:
    index.place(Placement.of(memory=[4], disk=[2]))
    said = json.loads(index.passages.setting("placement") or b"")
    assert said == {"file": "exact-1.scot", "memory": [4], "disk": [2], "bare": []}


def bare_of(index: Index) -> set[int]:
    return {number for cluster in index.stored.placement.bare for number in index.clusters()[cluster]}


def test_a_cluster_without_codes_takes_no_room_and_is_embedded_where_it_is_near(
    tmp_path: Path, index: Index, embedder: Words
) -> None:
    before = {question: found(index, question) for question in QUESTIONS}
    (codes,) = (tmp_path / "index").glob("codes-*")
    coded_bytes = codes.stat().st_size
    embedder.asked.clear()
    assert index.place(Placement.of(bare=[0, 3, 5])) == 0 == len(embedder.asked)
    (path, snapshot), texts = index.snapshot() or (codes, None), documents()
    assert snapshot and snapshot.bare() == [0, 3, 5] and not codes.exists()
    saved = coded_bytes - path.stat().st_size
    assert abs(saved - len(bare_of(index)) * snapshot.code_bytes) < 64 and snapshot.code_bytes > 16
    for place in (index, again := Index(tmp_path / "index", embedder, cache_bytes=0, keep="codes")):
        for question in QUESTIONS:
            answer = place.search(question, deviations=5)
            assert {hit.document for hit in answer.hits} == set(before[question])
            near = set(snapshot.along(lent(embedder.embed([question])[0]), bare_probes(6))) & {0, 3, 5}
            whole = {number for cluster in near for number in place.clusters()[cluster]}
            wanted = [number for some in answer.rounds for number in some]
            assert whole == set(wanted) & bare_of(place) and len(wanted) == answer.regenerated
            assert answer.estimated == 240 - len(bare_of(place))
    again.close()
    # What is put in and taken out stays without.
    index.remove([document.name for document in texts[:40]])
    index.add(new := [Document(f"new{place}", text.text) for place, text in enumerate(documents(40, seed=3))])
    embedder.asked.clear()
    index.compact(is_forced=True)
    assert not embedder.asked and index.stored.placement == Placement.of(bare=[0, 3, 5])
    for question in QUESTIONS:
        assert set(found(index, question)) == set(flat([*texts[40:], *new], question))
    # With codes again all is as it was; what has them need not be embedded for that.
    count = sum(len(index.clusters()[cluster]) for cluster in (0, 3))
    assert index.place(Placement.of(bare=[5], disk=[1])) == count + len(index.clusters()[1])
    assert not wrong(index) and index.stored.placement == Placement.of(bare=[5], disk=[1])
    assert index.place(Placement()) == sum(len(index.clusters()[cluster]) for cluster in (5,))
    for question in QUESTIONS:
        assert found(index, question) == flat([*texts[40:], *new], question)


def test_what_has_no_codes_is_known_though_nobody_says_so(tmp_path: Path, index: Index) -> None:
    index.place(Placement.of(bare=[1]))
    index.passages.make_known("placement", b'{"file": null, "memory": [], "disk": [], "bare": []}')
    with Index(tmp_path / "index", Words(), keep="codes") as again:
        again.update([Document("new", "something new")])
        assert again.compact(is_forced=True) and found(again, "something new", 1) == ["new"]
        assert again.stored.placement == Placement.of(bare=[1])
        assert again.place(Placement()) == len(again.clusters()[1])


def test_a_planted_passing_over_of_clusters_without_codes_is_found(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.place(Placement.of(bare=range(6)))
    whole = {question: set(found(index, question)) for question in QUESTIONS}
    monkeypatch.setattr("scotfree.rag.searching.bare_probes", lambda _: 1)
    assert any(set(found(index, question)) != names for question, names in whole.items())


def test_many_bits_without_codes_are_searched_by_what_is_exact(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", documents(), Words(), bits=4, keep="codes") as index:
        index.place(Placement.of(bare=range(6)))
        right = 0
        for question in QUESTIONS:
            answer = index.search(question)
            assert answer.estimated == 0 < answer.regenerated + answer.cached == sum(map(len, answer.rounds))
            right += len({*flat(documents(), question)} & {hit.document for hit in answer.hits})
        assert right >= 0.9 * 10 * len(QUESTIONS)


@pytest.mark.parametrize("killed_at", ["settle", "make_known"])
def test_what_is_killed_while_codes_go_or_come_can_be_searched(
    tmp_path: Path, index: Index, killed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Placement.of(disk=[0, 1], bare=[2, 3]), Placement.of(disk=[1, 2], bare=[3, 4])
    index.place(first)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Passages, killed_at, killed)
    with pytest.raises(KeyboardInterrupt):
        index.place(second)
    monkeypatch.undo()
    with Index(tmp_path / "index", Words(), cache_bytes=0, keep="codes") as again:
        # Codes are there and gone before exact values follow.
        half = first if killed_at == "settle" else Placement.of(disk=[0, 1], bare=[3, 4])
        assert again.stored.placement == half and not wrong(again)
        for question in QUESTIONS:
            assert len({*found(again, question)} & {*flat(documents(), question)}) >= 9
        again.place(second)
        assert again.stored.placement == second and not wrong(again)
    assert len(list((tmp_path / "index").glob("codes-*"))) == 1
