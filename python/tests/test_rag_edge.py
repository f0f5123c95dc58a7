"""The thesis' five configurations: the same answers, from embeddings that come from elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.words import Words
from scotfree.rag.edge.index import Configuration, EdgeIndex, Found, Settings
from scotfree.rag.edge.threshold import STEP_SHARE, Threshold, step_ns
from scotfree.rag.embed.embedder import Vectors

TEXTS = [f"topic{place % 9}a topic{place % 9}b word{place} word{place % 31}" for place in range(300)]
CLUSTERS = 10
LETTER_NS = 1000.0


def built(folder: Path, configuration: Configuration, **settings: float) -> tuple[EdgeIndex, Words]:
    embedder = Words()
    texts = dict(enumerate(TEXTS)) | {900 + place: f"topic3a new{place}" for place in range(80)}
    index = EdgeIndex(
        folder,
        embedder,
        lambda passages: [texts[passage] for passage in passages],
        Settings(configuration, letter_ns=LETTER_NS, **settings),  # type: ignore[arg-type]
    )
    index.build(range(len(TEXTS)), embedder.embed(TEXTS), CLUSTERS)
    embedder.asked.clear()
    return index, embedder


def questions() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return Words().embed([f"topic{topic}a word{topic * 5}" for topic in range(9)])


@pytest.mark.parametrize("configuration", Configuration)
def test_every_configuration_answers_as_ivf_does(tmp_path: Path, configuration: Configuration) -> None:
    ivf, _ = built(tmp_path / "ivf", Configuration.IVF)
    index, _ = built(tmp_path / "own", configuration, slo_ns=0.98e6)
    probes = CLUSTERS if configuration is Configuration.FLAT else 3
    for question in questions():
        # Twice: the second time from the cache, if there is one.
        for _ in range(2):
            found, wanted = index.search(question, 10, probes), ivf.search(question, 10, probes)
            assert [one for one, _ in found.nearest] == [one for one, _ in wanted.nearest]
            similar = [np.array([value for _, value in each.nearest]) for each in (found, wanted)]
            assert np.abs(similar[0] - similar[1]).max() < 1e-6


@pytest.mark.parametrize("configuration", Configuration)
def test_what_was_saved_answers_as_before(tmp_path: Path, configuration: Configuration) -> None:
    built_here, _ = built(tmp_path, configuration, slo_ns=0.98e6)
    built_here.save()
    embedder, texts = Words(), dict(enumerate(TEXTS))
    index = EdgeIndex.opened(
        tmp_path, embedder, lambda passages: [texts[passage] for passage in passages], built_here.settings
    )
    assert not embedder.asked, "to open it is to embed nothing"
    assert (index.clusters, index.stored) == (built_here.clusters, built_here.stored)
    assert index.passages == built_here.passages and index.memory_bytes() == built_here.memory_bytes()
    assert [index.cost_ns(at) for at in range(index.clusters)] == [
        built_here.cost_ns(at) for at in range(index.clusters)
    ]
    for question in questions():
        # Twice: the second time from the cache, if there is one.
        for _ in range(2):
            found, wanted = index.search(question, 10, 3), built_here.search(question, 10, 3)
            assert [one for one, _ in found.nearest] == [one for one, _ in wanted.nearest]
            # How long a search takes decides what is cached.
            counts = [(each.regenerated + each.cached, each.loaded) for each in (found, wanted)]
            assert counts[0] == counts[1]
    # It can be changed as the one before.
    texts[999] = "topic3a new"
    index.insert(999, texts[999])
    assert 999 in [one for one, _ in index.search(Words().embed(["topic3a new"])[0], 3, 99).nearest]


def test_flat_is_all_of_them(tmp_path: Path) -> None:
    index, embedder = built(tmp_path, Configuration.FLAT)
    vectors = Words().embed(TEXTS)
    for question in questions():
        wanted = np.argsort(-(vectors @ question), kind="stable")[:10].tolist()
        assert [one for one, _ in index.search(question, 10, 1).nearest] == wanted
    assert index.clusters == 1 and not embedder.asked
    assert index.memory_bytes() >= vectors.nbytes


def test_what_is_dear_to_make_is_stored_and_loaded(tmp_path: Path) -> None:
    """Algorithm 1."""
    index, embedder = built(tmp_path, Configuration.LOAD, slo_ns=0.98e6)
    dear = [cluster for cluster in range(CLUSTERS) if index.cost_ns(cluster) > 0.98e6]
    assert 0 < len(dear) < CLUSTERS and index.stored == dear
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"cluster-{place}.npy" for place in dear)
    found = index.search(questions()[0], 10, CLUSTERS)
    assert found.loaded + found.regenerated == len(TEXTS) and found.loaded > 0
    assert len(embedder.asked) == found.regenerated
    assert {"centroid search", "load", "regenerate", "score"} <= set(found.stages_ns)


def test_only_edgerag_takes_from_a_cache(tmp_path: Path) -> None:
    for configuration, again in ((Configuration.GENERATE, len(TEXTS)), (Configuration.EDGERAG, 0)):
        index, embedder = built(tmp_path / configuration.value, configuration, slo_ns=1e12)
        assert index.search(questions()[0], 10, CLUSTERS).regenerated == len(TEXTS)
        embedder.asked.clear()
        found = index.search(questions()[0], 10, CLUSTERS)
        assert (found.regenerated, len(embedder.asked)) == (again, again)
        assert found.hits == (CLUSTERS if again == 0 else 0)
        assert found.cached == (len(TEXTS) if again == 0 else 0)


def test_memory_is_that_of_centroids_and_cache(tmp_path: Path) -> None:
    index, _ = built(tmp_path, Configuration.EDGERAG, slo_ns=1e12, cache_bytes=20_000)
    for question in questions():
        index.search(question, 10, 3)
        assert index.memory_bytes() <= CLUSTERS * 512 + 20_000


@pytest.mark.parametrize("configuration", Configuration)
def test_insertion_and_removal_split_and_merge(tmp_path: Path, configuration: Configuration) -> None:
    settings = {"slo_ns": 0.98e6, "split_above": 60, "merge_share": 0.5}
    index, _ = built(tmp_path, configuration, **settings)
    probes, texts = 99, dict(enumerate(TEXTS))
    before = index.clusters
    for place in range(80):
        texts[900 + place] = f"topic3a new{place}"
        index.insert(900 + place, texts[900 + place])
    assert configuration is Configuration.FLAT or index.clusters > before, "eighty in one cluster split it"
    grown = index.clusters
    for passage in [passage for passage in list(texts) if passage % 9 != 4 and passage < 900]:
        index.remove(passage)
        del texts[passage]
    assert grown == 1 or index.clusters < grown, "clusters that are nearly empty join their neighbours"
    assert index.passages == sorted(texts)
    with pytest.raises(KeyError):
        index.remove(0)
    own = list(texts)
    vectors = Words().embed([texts[passage] for passage in own])
    for question in questions():
        wanted = (vectors @ question)[np.argsort(-(vectors @ question))[:10]]
        for _ in range(2):
            found = index.search(question, 10, probes).nearest
            assert np.abs(np.array([value for _, value in found]) - wanted).max() < 1e-6
    assert index.stored == [at for at in range(index.clusters) if index.cost_ns(at) > 0.98e6] * (
        configuration in (Configuration.LOAD, Configuration.EDGERAG)
    )
    assert len(list(tmp_path.iterdir())) == len(index.stored)


def test_an_empty_index_takes_its_first_passage(tmp_path: Path) -> None:
    embedder = Words()
    index = EdgeIndex(tmp_path, embedder, lambda passages: ["a text" for _ in passages], Settings())
    assert index.search(embedder.embed(["a"])[0], 3, 3).nearest == []
    index.insert(5, "a text")
    assert [one for one, _ in index.search(embedder.embed(["text"])[0], 3, 3).nearest] == [5]


class Slow(EdgeIndex):
    """On a machine where clusters cost seconds and nothing else takes time."""

    spent_ns = 0.0
    thresholds_ns: list[float]

    def fix_step(self, fixed_ns: float | None) -> None:
        """Its threshold moves so far, whatever clusters cost."""
        self.thresholds_ns = []
        if fixed_ns is not None:
            self._threshold, self._is_step_old = Threshold(step_ns=fixed_ns), False

    def _made(self, cluster: int) -> Vectors:
        self.spent_ns += self.cost_ns(cluster)
        return super()._made(cluster)

    def _observe(self, latency_ns: int, found: Found) -> None:
        spent, self.spent_ns = self.spent_ns, 0.0
        super()._observe(round(spent), found)
        self.thresholds_ns.append(self._threshold.cost_ns)


def test_where_clusters_cost_seconds_the_threshold_moves_among_them(tmp_path: Path) -> None:
    """Algorithm 3. A step of a fixed length is none there: a threshold that never moves keeps the same."""

    def asked(name: str, fixed_ns: float | None) -> tuple[Slow, list[int]]:
        embedder = Words()
        room = len(TEXTS) * embedder.dimensions * 4 // 3
        settings = Settings(letter_ns=2e6, slo_ns=1e12, cache_bytes=room)
        index = Slow(tmp_path / name, embedder, lambda passages: [TEXTS[one] for one in passages], settings)
        index.build(range(len(TEXTS)), embedder.embed(TEXTS), CLUSTERS)
        index.fix_step(fixed_ns)
        of_questions = [index.search(question, 10, 3).regenerated for _ in range(6) for question in questions()]
        return index, of_questions

    own, regenerated = asked("own", None)
    costs = sorted(own.cost_ns(cluster) for cluster in range(CLUSTERS))
    assert costs[0] > 0.1e9 and costs[CLUSTERS // 2] > 1e9
    assert max(own.thresholds_ns) > costs[0] and 0.0 in own.thresholds_ns
    _, never = asked("never", 0.0)
    short, in_milliseconds = asked("milliseconds", 1e6)
    assert regenerated != never, "what is cheap is no longer kept"
    assert max(short.thresholds_ns) < costs[0] and in_milliseconds == never, "the step that it had before"


def test_a_question_that_finds_as_many_clusters_as_it_lacks_has_not_missed_the_cache(tmp_path: Path) -> None:
    """Otherwise a threshold rises until nearly all above it have room, whatever the counters would keep."""
    index, _ = built(tmp_path, Configuration.EDGERAG, slo_ns=1e12)
    question = questions()[0]
    index.search(question, 10, 2)
    # Slow enough on average that a miss raises the threshold.
    index._threshold.average_ns, index._threshold.cost_ns = 1e12, 0.0
    half = index.search(question, 10, 4)
    assert (half.hits, half.misses) == (2, 2) and index.threshold_ns == 0.0
    index._cache.drop_cheaper(1e12)
    lacking = index.search(question, 10, 4)
    assert lacking.misses == 4 and index.threshold_ns == index._threshold.step_ns


def test_a_threshold_above_all_clusters_comes_down_again(tmp_path: Path) -> None:
    """What is not to be cached is not missed: it would be by every question, and nothing be cached any more."""
    index, _ = built(tmp_path, Configuration.EDGERAG, slo_ns=1e12)
    dearest = max(index.cost_ns(cluster) for cluster in range(CLUSTERS))
    index._threshold.cost_ns = 2 * dearest
    found = index.search(questions()[0], 10, 3)
    assert found.regenerated and not found.misses
    assert index.threshold_ns == 2 * dearest - index._threshold.step_ns
    for _ in range(3):
        for _ in range(round(1 / STEP_SHARE) * 3):
            index.search(questions()[0], 10, 3)
        assert index.threshold_ns <= dearest + index._threshold.step_ns, "it rose beyond what anything costs"


def test_a_cheap_cluster_joins_one_with_which_it_stays_within_the_limit(tmp_path: Path) -> None:
    """Merging by cost (4.5.4): whole, without embedding anything, and never to cost more than the SLO."""

    def shrunk(name: str, slo_ns: float) -> tuple[EdgeIndex, int, list[str], Found]:
        index, embedder = built(tmp_path / name, Configuration.EDGERAG, slo_ns=slo_ns)
        index.search(questions()[0], 10, CLUSTERS)
        smallest = min(range(CLUSTERS), key=lambda at: len(index._clusters[at].passages))
        gone = list(index._clusters[smallest].passages)
        embedder.asked.clear()
        for passage in gone[:-1]:
            if index.clusters == CLUSTERS:
                index.remove(passage)
        asked = list(embedder.asked)
        return index, len(gone), asked, index.search(questions()[0], 300, CLUSTERS)

    # Clusters that are stored are asked nothing of: none is here, and one of any size has room for another.
    index, _, asked, found = shrunk("roomy", 1e12)
    assert index.clusters == CLUSTERS - 1 and not asked, "it joined, and nothing was embedded for it"
    assert [one for one, _ in sorted(found.nearest)] == index.passages
    median = float(np.median([index.cost_ns(at) for at in range(index.clusters)]))
    assert min(index.cost_ns(at) for at in range(index.clusters)) > 0.25 * median
    # The same where no two have room together.
    least = min(index.cost_ns(at) for at in range(index.clusters))
    tight, count, _, found = shrunk("tight", least / 2)
    assert tight.clusters == CLUSTERS and len(tight.passages) == len(TEXTS) - count + 1
    assert all((tight.cost_ns(at) > least / 2) == (at in tight.stored) for at in range(CLUSTERS))
    # An empty one goes all the same.
    tight.remove(next(of.passages[0] for of in tight._clusters if len(of.passages) == 1))
    assert tight.clusters == CLUSTERS - 1


def test_the_step_is_a_share_of_the_clusters_that_may_be_cached(tmp_path: Path) -> None:
    assert step_ns([]) == 0 and step_ns([1e9, 2e9, 40e9]) == STEP_SHARE * 2e9
    index, _ = built(tmp_path, Configuration.EDGERAG, slo_ns=0.98e6)
    index.search(questions()[0], 10, CLUSTERS)
    stored = set(index.stored)
    assert 0 < len(stored) < CLUSTERS
    costs = [index.cost_ns(cluster) for cluster in range(CLUSTERS) if cluster not in stored]
    before = index._threshold.step_ns
    assert before == step_ns(costs)
    # Of clusters as they are now.
    for passage in range(0, len(TEXTS), 2):
        index.remove(passage)
    index.search(questions()[0], 10, CLUSTERS)
    assert 0 < index._threshold.step_ns < before
