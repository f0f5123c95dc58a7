"""An index that keeps rows embeds nothing but questions, and finds the share of the nearest that it is to find."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from test_rag_index import QUESTIONS, documents, flat

from bench.words import Words
from scotfree.rag import Document, Index, RagError, calibration, pending, snapshots
from scotfree.rag.calibration import Bound
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.passages import Passages
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.searching import Hit
from scotfree.rag.settings import Keep


@pytest.fixture
def embedder() -> Words:
    return Words()


@pytest.fixture
def index(tmp_path: Path, embedder: Words) -> Iterator[Index]:
    with Index.build(tmp_path / "index", documents(600), embedder) as built:
        embedder.asked.clear()
        yield built


def recall(index: Index, texts: list[Document], deviations: float | None = None) -> float:
    shares = []
    for question in QUESTIONS:
        near = set(flat(texts, question))
        hits = index.search(question, 10, deviations=deviations).hits
        shares.append(len(near & {hit.document for hit in hits}) / len(near))
    return float(np.mean(shares))


def test_a_search_embeds_its_question_alone(index: Index, embedder: Words) -> None:
    for question in QUESTIONS:
        answer = index.search(question)
        assert (answer.regenerated, answer.cached) == (0, 0)
        assert answer.loaded >= 10
    assert embedder.asked == QUESTIONS


def test_it_finds_the_share_that_was_asked_for_and_says_so(index: Index) -> None:
    assert index.bound is not None and index.bound.is_held
    assert (index.bound.target, index.bound.passages) == (0.99, 600)
    measured = index.measured()
    assert measured is not None and measured.questions == calibration.QUESTIONS and measured.found.recall >= 0.985
    assert recall(index, documents(600)) >= 0.97


def test_a_bound_that_is_too_narrow_is_found(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    # So many as are read at once are read in any case.
    monkeypatch.setattr(calibration, "BATCH", 10)
    assert recall(index, documents(600), deviations=0) < recall(index, documents(600), deviations=5.0) - 0.02
    questions = np.array(Words().embed(QUESTIONS))
    found = index.snapshot()
    assert found is not None

    def none_near_enough(numbers: Sequence[int]) -> Vectors:
        return np.zeros((len(numbers), questions.shape[1]), np.float32)

    sample = calibration.Sample(questions, [{10**6: 1.0} for _ in QUESTIONS])
    bound = calibration.calibrated(found[1], sample, 0.9, calibration.by_asking(none_near_enough))
    assert not bound.is_held and bound.recall == 0
    assert bound.deviations == 0.5, "a wider one finds no more"


def test_another_share_is_measured_anew_and_stays(
    tmp_path: Path, index: Index, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = index.bound
    monkeypatch.setattr(calibration, "BATCH", 10)
    with Index(tmp_path / "index", embedder, recall=0.99999) as other:
        assert not other.compact() and other.bound != before
        assert other.bound is not None and before is not None and other.bound.deviations > before.deviations
    with Index(tmp_path / "index", embedder) as again:
        assert again.bound is not None and again.bound.target == 0.99999
        again.compact(is_forced=True)
        assert again.bound.target == 0.99999


def test_what_has_doubled_is_measured_again(index: Index) -> None:
    more = [Document(f"more{place}", f"{found.text} more{place}") for place, found in enumerate(documents(600))]
    index.update(more[:50])
    index.compact(is_forced=True)
    assert index.bound is not None and index.bound.passages == 600
    assert index.update(more).embedded == 550
    index.compact(is_forced=True)
    assert index.bound.passages == 1200
    # What is added has rows, too.
    assert index.search(more[599].text).hits[0].document == "more599"
    assert all(index.search(question).regenerated == 0 for question in QUESTIONS)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 7.0, math.nan, math.inf])
def test_a_share_that_no_search_finds_is_refused(tmp_path: Path, embedder: Words, share: float) -> None:
    with pytest.raises(RagError, match=r"above 0 and below 1"):
        Index(tmp_path / "other", embedder, keep="rows", recall=share)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("deviations", [math.nan, math.inf, -1.0])
def test_a_bound_that_is_no_number_is_refused(index: Index, deviations: float) -> None:
    with pytest.raises(RagError, match="say a number from 0 on"):
        index.search("word1", deviations=deviations)


def test_what_an_index_does_not_keep_is_refused(tmp_path: Path, index: Index, embedder: Words) -> None:
    with pytest.raises(RagError, match="it keeps rows"):
        Index(index.folder, embedder, keep="codes")
    Index.build(tmp_path / "codes", documents(40), embedder, keep="codes").close()
    with pytest.raises(RagError, match="it keeps codes"):
        Index(tmp_path / "codes", embedder, keep="rows")


def test_a_bound_is_read_as_it_was_written() -> None:
    bound = Bound(0.9, 0.93, 1.2, 7)
    assert Bound.read(bound.written()) == bound and bound.is_held


def test_few_passages_are_found_and_none_is_no_fault(tmp_path: Path, embedder: Words) -> None:
    with Index.build(tmp_path / "few", documents(3), embedder) as few:
        assert len(few.search(QUESTIONS[0]).hits) == 3 and few.bound is not None and few.bound.is_held
    with Index.build(tmp_path / "none", [], embedder) as none:
        assert none.search(QUESTIONS[0]).hits == [] and none.bound is None


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few embeddings are in memory at once."""
    monkeypatch.setattr(pending, "MEMORY_MAX", 40)
    monkeypatch.setattr(pending, "PART", 16)
    monkeypatch.setattr(snapshots, "MEMORY_MAX", 40)
    monkeypatch.setattr(snapshots, "_CODED", 7)


@pytest.mark.parametrize("keep", ["rows", "codes"])
def test_an_index_that_is_built_some_passages_at_a_time_is_the_one_built_at_once(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    Index.build(tmp_path / "whole", documents(600), embedder, keep=keep).close()
    small(monkeypatch)
    with Index(tmp_path / "parts", embedder, keep=keep) as parts:
        parts.update(documents(600))
        for question in QUESTIONS:
            # Before there are codes all are compared, where they lie.
            assert [hit.document for hit in parts.search(question).hits] == flat(documents(600), question)
        parts.compact()
        bound = parts.bound
    with Index(tmp_path / "whole", embedder) as whole:
        assert whole.bound == bound
    names = {path.name for path in (tmp_path / "whole").glob("*.scot")}
    assert len(names) == (2 if keep == "rows" else 1)
    for name in names:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("keep", ["rows", "codes"])
def test_many_changes_are_merged_some_at_a_time_and_none_is_lost(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    with Index.build(tmp_path / "index", documents(200), embedder, keep=keep) as index:
        small(monkeypatch)
        index.update(documents(600))
        index.remove([f"doc{place}" for place in range(0, 600, 3)])
        index.compact()
        left = [document for place, document in enumerate(documents(600)) if place % 3]
        assert index.documents() == sorted(document.name for document in left)
        assert index.changes == 0 and (found := index.snapshot()) is not None and found[1].rows == len(left)
        for document in left[::10]:
            assert document.name in [hit.document for hit in index.search(document.text, 3).hits]


def test_one_that_has_grown_fourfold_learns_anew_and_embeds_nothing_for_it(
    tmp_path: Path, embedder: Words
) -> None:
    with Index.build(tmp_path / "index", documents(600)[:150], embedder) as index:
        before = index.snapshot()
        index.update(documents(599))
        embedder.asked.clear()
        index.compact()
        assert (same := index.snapshot()) is not None and before is not None
        assert same[1].clusters == before[1].clusters, "it has not grown so much"
        index.update(documents(600))
        index.remove(["doc0"])
        index.update([Document("more", "word1 more")])
        index.compact(is_forced=True)
        assert (anew := index.snapshot()) is not None and anew[1].clusters > before[1].clusters
        assert anew[1].rows == 600 == index.stored.exact.numbers.size if index.stored.exact else False
        assert not [text for text in embedder.asked if text in {one.text for one in documents(600)[:599]}]
        assert recall(index, [*documents(600)[1:], Document("more", "word1 more")]) >= 0.97


def test_what_is_settled_during_a_search_is_looked_for_again(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents(600))
        honest, times = Passages.embeddings, []

        def settled(passages: Passages, numbers: Sequence[int], dimensions: int) -> Vectors:
            times.append(len(numbers))
            if len(times) == 3:
                with Index(tmp_path / "index", Words()) as other:
                    other.compact()
            return honest(passages, numbers, dimensions)

        monkeypatch.setattr(Passages, "embeddings", settled)
        found = [hit.document for hit in index.search(QUESTIONS[0], deviations=5.0).hits]
        assert len(times) > 3 and set(found) == set(flat(documents(600), QUESTIONS[0]))


def test_what_is_said_once_is_kept(tmp_path: Path, embedder: Words) -> None:
    Index(tmp_path / "index", embedder, bits=2, keep="rows").close()
    with Index(tmp_path / "index", embedder, recall=0.9) as index:
        index.update(documents(150))
        index.compact()
        assert (one := index.snapshot()) is not None and one[1].bits == 256
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents(600))
        index.compact()
        assert (two := index.snapshot()) is not None and two[1].bits == 256 and two[1].clusters > one[1].clusters
        assert index.bound is not None and index.bound.target == 0.9
    with Index(tmp_path / "other", embedder) as other:
        assert other.hold(0.95) is None
        other.update(documents(200))
        other.compact()
        assert other.bound is not None and other.bound.target == 0.95


def test_who_has_planned_keeps_the_clusters_that_there_are(tmp_path: Path, embedder: Words) -> None:
    with Index.build(tmp_path / "index", documents(150), embedder) as index:
        before = index.snapshot()
        index.update(documents(600))
        assert before is not None and before[1].clusters > 1
        index.place(Placement.of(memory=[0], disk=range(1, before[1].clusters)))
        index.compact()
        assert (after := index.snapshot()) is not None and after[1].clusters == before[1].clusters
        assert index.stored.placement.memory == {0} and after[1].rows == 600


def test_a_search_does_not_wait_for_a_change_that_settles_what_it_reads(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents(600))
        found: list[list[Hit]] = []

        def searched(_: Document) -> None:
            if not found:
                thread = threading.Thread(target=lambda: found.append(index.search(QUESTIONS[0]).hits))
                thread.start()
                thread.join()

        # It is told of each change while the change is under way.
        index.update([Document("doc5", "another text"), *documents(599)], progress=searched)
        assert [hit.document for hit in found[0]] == flat(documents(600), QUESTIONS[0])


def test_damage_among_what_is_pending_is_told_and_not_waited_for(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents(600))
        honest = Passages.embeddings
        monkeypatch.setattr(Passages, "embeddings", lambda *of: honest(*of)[1:])
        with pytest.raises(RagError, match="embeddings of some passages are damaged"):
            index.search(QUESTIONS[0])


def test_any_number_of_passages_may_be_asked_for(index: Index) -> None:
    assert len(index.search(QUESTIONS[0], 2**40).hits) == 600
    assert index.search(QUESTIONS[0], 0).hits == []


def test_a_build_of_damaged_embeddings_is_refused_in_words(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents(100))
        honest = Passages.embeddings
        monkeypatch.setattr(Passages, "embeddings", lambda *of: honest(*of)[1:])
        with pytest.raises(RagError, match="some are not there; remove the folder"):
            index.compact()
