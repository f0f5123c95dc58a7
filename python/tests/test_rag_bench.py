"""Corpora of experiments on retrieval: pages of Debian's packages, and what arms share of them."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import (
    debian_corpus,
    glosses_corpus,
    rag_build,
    rag_codes,
    rag_collections,
    rag_default,
    rag_edge,
    rag_glosses,
    rag_million,
    rag_planner,
    rag_spread,
)
from bench.rag_device import Device, Memory, Paced
from bench.words import DIMENSIONS, Words
from scotfree.rag import Document, RagError
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation import beir, comparing
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.evaluation.modes import Mode, Opening, build_ours, passages, texts_of
from scotfree.rag.evaluation.prepared import prepare
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.outline import Outline
from scotfree.rag.placement import costs, rates
from scotfree.rag.placement.rates import Rates

PAGES = {
    "html/ch01.html": "<h1>Chapter 1. Rotating log files daily ¶</h1><p>They shrink.</p><h2>Short one</h2>",
    "html/ch02.en.html": "<h2>2.1. Keeping a mirror of packages</h2><p>A mirror is kept.</p>",
    "html/ch02.de.html": "<h2>2.1. Einen Spiegel von Paketen halten</h2><p>Ein Spiegel.</p>",
    "html/pt-BR/ch01.html": "<h1>Rodar os arquivos de log</h1>",
    "guide.fr.html/ch1.html": "<h1>Faire tourner les journaux souvent</h1>",
    "html/genindex.html": "<h1>Index of all the words</h1>",
    "html/index.html": "<h1>A. The manual of all logs</h1><p>Contents.</p>",
    "html/copy.html": "<h2>2.1. Keeping a mirror of packages</h2><p>A mirror is kept.</p>",
    "html/empty.html": "<p> </p>",
    "notes.txt": "not a page",
}


def _assert_counted(experiment: str, found: Mapping[str, float], arm: str = "") -> None:
    """The counters that the lab asserts are there, and whole: otherwise it refuses a measurement at its end."""
    path = Path(__file__).parents[2] / f"lab/experiments/{experiment}.toml"
    counters = tomllib.loads(path.read_text())["counter"]
    for counter in (one for one in counters if one.get("arm", arm) == arm):
        assert float(found[counter["name"]]).is_integer(), counter
        assert found[counter["name"]] >= counter["at_least"], counter


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where a package with pages was fetched."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("there is no dpkg-deb, which packs and unpacks Debian's packages")
    root = tmp_path / "root"
    for name, text in PAGES.items():
        path = root / "usr/share/doc/manual" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<html><body>{text}</body></html>")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: manual\nVersion: 1\nArchitecture: all\nMaintainer: A Person <a@b.c>\nDescription: pages\n"
    )
    (tmp_path / "cache").mkdir()
    subprocess.run(["dpkg-deb", "-b", root, tmp_path / "cache/manual_1_all.deb"], check=True, capture_output=True)
    return tmp_path / "cache"


def test_the_english_pages_of_a_package_are_its_documents(cache: Path) -> None:
    found = {page.document.name: page for page in debian_corpus.pages("manual", cache)}
    base = "manual/usr/share/doc/manual/html"
    assert sorted(found) == [f"{base}/ch01.html", f"{base}/ch02.en.html", f"{base}/index.html"]
    assert found[f"{base}/ch02.en.html"].document.text == "2.1. Keeping a mirror of packages\nA mirror is kept."
    assert found[f"{base}/ch01.html"].headings == ["Rotating log files daily"]


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("4.2.1. Where the logs lie", ["Where the logs lie"]),
        ("Chapter 44 - Access control lists", ["Access control lists"]),
        ("A.2 Where the logs lie#", ["Where the logs lie"]),
        ("A bridge between networks", ["A bridge between networks"]),
        ("3.0 (quilt) source format", ["(quilt) source format"]),
        ("Two words", []),
        (" ".join(["many"] * 13), []),
    ],
)
def test_headings_are_without_their_numbers(heading: str, wanted: list[str]) -> None:
    assert debian_corpus.headings(f"<body><h3>{heading}</h3><h5>Too small to be asked</h5>".encode()) == wanted


def test_questions_are_chosen_by_a_seed(cache: Path) -> None:
    def chosen(seed: int) -> list[str]:
        return list(debian_corpus.collection(["manual"], cache, 2, seed).questions.values())

    assert chosen(1) == chosen(1) and len({tuple(chosen(seed)) for seed in range(9)}) > 1
    everything = debian_corpus.collection(["manual"], cache)
    assert sorted(everything.questions.values()) == [
        "Keeping a mirror of packages",
        "Rotating log files daily",
        "The manual of all logs",
    ]


def test_what_was_written_is_read_as_a_collection(cache: Path, tmp_path: Path) -> None:
    of = debian_corpus.collection(["manual"], cache)
    debian_corpus.write(of, tmp_path / "written")
    again = beir.read(tmp_path / "written")
    assert again.questions == of.questions and not again.judgements
    wanted = [(document.name, document.text) for document in of.documents]
    assert [(document.name, document.text) for document in again.documents] == wanted


def test_a_package_that_cannot_be_had_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "broken_1_all.deb").write_text("no archive")
    with pytest.raises(RagError, match=r"dpkg-deb -x"):
        list(debian_corpus.pages("broken", cache))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RagError, match=r"run apt-get: .*it takes a Debian with apt"):
        debian_corpus.fetch("absent", cache)
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho E: Unable to locate package $3 >&2\nexit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    with pytest.raises(RagError, match="Unable to locate package absent; renew apt's lists"):
        debian_corpus.fetch("absent", cache)
    (tmp_path / "apt-get").write_text("#!/bin/sh\n: > ${3}_2_all.deb\n")
    assert debian_corpus.fetch("present", cache) == cache / "present_2_all.deb"


def test_the_least_that_is_enough_is_found() -> None:
    for wanted in range(1, 20):
        assert rag_collections.fewest(19, lambda tried: tried >= wanted) == wanted  # noqa: B023


def test_a_judged_collection_is_asked_for_where_none_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCOT_BENCH_COLLECTIONS", raising=False)
    with pytest.raises(SystemExit, match="SCOT_BENCH_COLLECTIONS"):
        rag_collections.prepared("cisi", 10)


def test_passages_that_are_added_are_near_what_they_are_made_of_and_cost_the_same(tmp_path: Path) -> None:
    words, texts = Words(), [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    vectors = words.embed(texts)
    rag_spread.learn(vectors, tmp_path / "apart.npy")
    made = np.vstack([block for _, block in rag_spread.blocks(vectors, 900, tmp_path / "apart.npy")])
    assert made.shape == (900, words.dimensions) and np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    own = (made * np.tile(vectors, (3, 1))).sum(axis=1)
    assert 0.3 < own.mean() < 0.95 and not np.allclose(made[:300], made[300:600])
    words.asked.clear()
    spread = rag_spread.Spread(words, tmp_path / "apart.npy")
    found = spread.embed([rag_spread.numbered(310, texts[10]), "topic3"])
    assert np.allclose(found, [made[310], words.embed(["topic3"])[0]], atol=1e-5)
    assert words.asked[:2] == [texts[10], "topic3"]


def test_a_million_is_tried_with_a_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    of = Collection(
        [Document(str(at), text) for at, text in enumerate(texts)], {"1": "topic1 word1", "2": "topic5"}
    )
    monkeypatch.setenv("SCOT_BENCH_KEPT", str(tmp_path))
    monkeypatch.setattr(rag_million, "OnnxEmbedder", lambda **_: Words())
    monkeypatch.setattr(
        rag_million, "prepared", lambda *_: prepare(of, tmp_path / "of", Words(), Shown(is_quiet=True))
    )
    settings = {"passages": 1000, "questions": 2}
    assert rag_million.measure("build", settings)["passages"] == 1000
    found = {arm: rag_million.measure(arm, settings) for arm in ("ours", "flat", "flat-mapped")}
    assert found["flat"]["recall"] == found["flat-mapped"]["recall"] == 1
    assert found["ours"]["recall"] >= 0.9 and 10 <= found["ours"]["regenerated"] < 500


def test_a_gloss_is_its_words_and_its_definition_and_its_examples_are_questions(tmp_path: Path) -> None:
    line = (
        '00001740 00 a 02 able(p) 0 ready_to_hand 1 005 = 05200169 n 0000 | having the "means" (for it); "she was '
        'able to swim"; "able"; not unable '
    )
    gloss = glosses_corpus.parsed("adj", line)
    assert gloss.name == "adj-00001740" and gloss.examples == ["means", "she was able to swim", "able"]
    assert gloss.text.startswith("able, ready to hand: having the") and "swim" not in gloss.text
    if not shutil.which("dpkg-deb"):
        pytest.skip("there is no dpkg-deb, which packs and unpacks Debian's packages")
    root, words = tmp_path / "root", "usr/share/wordnet"
    (root / words).mkdir(parents=True)
    for part in ("adj", "adv", "noun", "verb"):
        (root / words / f"data.{part}").write_text(f"  1 the licence, not a | gloss\n{line}\n")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: wordnet-base\nVersion: 1\nArchitecture: all\nMaintainer: A Person <a@b.c>\nDescription: words\n"
    )
    package = tmp_path / "wordnet-base_1_all.deb"
    subprocess.run(["dpkg-deb", "-b", root, package], check=True, capture_output=True)
    of = glosses_corpus.collection(tmp_path, 2)
    assert [document.name for document in of.documents][::3] == ["adj-00001740", "verb-00001740"]
    assert all(document.is_whole and "licence" not in document.text for document in of.documents)
    assert list(of.questions.values()) == ["she was able to swim"] * 2
    (root / words / "data.verb").unlink()
    subprocess.run(["dpkg-deb", "-b", root, package], check=True, capture_output=True)
    with pytest.raises(RagError, match="renew it: apt-get download wordnet-base"):
        glosses_corpus.collection(tmp_path)


def test_indexes_of_others_are_asked_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("hnswlib", "usearch", "sqlite_vec", "apsw"):
        pytest.importorskip(library, reason=f"no {library} (pip install 'scotfree[test]')")
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(400)]
    documents = [Document(str(at), text, is_whole=True) for at, text in enumerate(texts)]
    of = Collection(documents, {str(at): f"topic{at % 9} word{at}" for at in range(40)})
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    monkeypatch.setattr(rag_glosses, "OnnxEmbedder", lambda **_: Words())
    # Processes of their own cannot be told of either.
    monkeypatch.setattr(rag_glosses, "asked_apart", lambda *_: {"resident": 4000, "anonymous": 400})
    found = rag_glosses.measure("made", {"questions": 40, "rounds": 2, "recall": 0.95})
    _assert_counted("rag-glosses", found)
    assert found["flat_recall"] == found["sqlite_vec_recall"] == 1
    for name in rag_glosses.KINDS:
        assert found[f"{name}_recall"] > 0.85 and found[f"{name}_cpu_us"] > 0, name
        assert found[f"{name}_embedded"] == 0 or name == "ours_smallest", name
        assert found[f"{name}_memory_b"] == 10
    assert 0 < found["sq8_effort"] < 20 and found["flat_disk_b"] == pytest.approx(DIMENSIONS * 4, rel=0.01)
    assert found["ours_smallest_disk_b"] < found["ours_disk_b"] < found["flat_disk_b"] < found["hnswlib_disk_b"]


def test_the_index_as_it_is_by_default_is_asked_beside_a_flat_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(400)]
    documents = [Document(str(at), text, outline=Outline(title=f"word{at % 7}")) for at, text in enumerate(texts)]
    of = Collection(documents, {str(at): f"topic{at % 9} word{at}" for at in range(40)})
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    monkeypatch.setattr(rag_default, "OnnxEmbedder", lambda **_: Words())
    monkeypatch.setattr(rag_glosses, "asked_apart", lambda *_: {"resident": 4000, "anonymous": 400})
    found = rag_default.measure("made", {"questions": 40, "rounds": 2})
    _assert_counted("rag-default", found)
    # Titles are embedded with the texts, by the index and by what it is compared with.
    assert found["flat_recall"] == 1 and found["ours_recall"] > 0.95 and found["questions"] == 40
    assert found["p50_times"] == found["ours_p50_ms"] / found["flat_p50_ms"] > 0
    flat = 400 * DIMENSIONS * 4
    assert found["mapped_percent"] == pytest.approx(100 * 3600 / flat) and 25 < found["disk_percent"] < 100


def test_codes_alone_are_measured_where_passages_are_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluated(_: object, __: object, settings: comparing.Settings, ___: object) -> None:
        assert settings.modes == (Mode.SMALLEST,) and not settings.cache_bytes
        raise RagError("evaluate: asked rightly", "go on")

    of = Collection([Document("a", "topic1 word1")], {"1": "topic1"})
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    monkeypatch.setattr(rag_codes, "evaluate", evaluated)
    with pytest.raises(RagError, match="asked rightly"):
        rag_codes.measure("made", {"questions": 1, "direct_questions": 1})


def test_clusters_are_embedded_again_with_titles_as_all_else_is(tmp_path: Path) -> None:
    documents = [Document(str(at), f"word{at}", outline=Outline(title=f"title{at}")) for at in range(9)]
    prepared = prepare(
        Collection(documents, {"1": "word1"}), tmp_path, Words(tokens_max=256), Shown(is_quiet=True)
    )
    build_ours(Mode.SMALLEST, prepared.base, documents, prepared.known, lambda _: None)
    with passages(prepared.base) as store:
        numbers = [number for number, _, _ in store.places()]
        assert texts_of(store, prepared.known)(numbers) == [part.embedded for part in prepared.parts]
    assert prepared.parts[3].embedded == "title3: word3"


def test_edgerag_is_asked_with_as_few_clusters_as_find_no_less(tmp_path: Path) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    documents = [Document(str(at), text) for at, text in enumerate(texts)]
    of = Collection(documents, {str(at): f"topic{at}" for at in range(9)})
    prepared = prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    build_ours(Mode.SMALLEST, prepared.base, documents, prepared.known, lambda _: None)
    found = [rag_codes._theirs(prepared, recall, Opening(0, None, 1e9, 1e5)) for recall in (0.3, 0.9)]
    assert all(recall >= wanted for (_, recall, _), wanted in zip(found, (0.3, 0.9), strict=True))
    assert 1 <= found[0][0] < found[1][0] and 10 <= found[0][2] < found[1][2] <= 300
    assert rag_codes._theirs(prepared, 1.0, Opening(0, None, 1e9, 1e5))[1] == 1, (
        "all of them, if all are looked at"
    )


def test_a_question_takes_what_its_clusters_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    documents = [Document(str(at), text) for at, text in enumerate(texts)]
    of = Collection(documents, {str(at): f"topic{at}" for at in range(4)})
    prepared = prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    build_ours(Mode.SMALLEST, prepared.base, documents, prepared.known, lambda _: None)
    opening = Opening(0, None, 1e9, 1e5)
    assert rag_codes._theirs(prepared, 0.9, opening)[0] >= 1
    clock = [0]
    monkeypatch.setattr("time.process_time_ns", lambda: clock[0])

    class Dear(Words):
        """A millisecond of processor time a text."""

        def embed(self, texts: Sequence[str]) -> Vectors:
            clock[0] += len(texts) * 1_000_000
            return super().embed(texts)

    dear = replace(prepared, model=Dear())
    all_of_them = round(300**0.5)
    assert rag_codes._processor_s(dear, opening, all_of_them) == pytest.approx([0.301] * 4)
    assert (rag_codes._processor_s(dear, opening, 1) < 0.2).all()


def test_a_modelled_device_takes_what_its_rates_say() -> None:
    device = Device.named("jetson-8gb-sd", letter_ns=30_000_000, threads=2)
    words = Words()
    paced = Paced(words, device)
    device.begin()
    before = device.embedding_ns
    assert np.allclose(paced.embed(["topic1 word1", "topic2"]), words.embed(["topic1 word1", "topic2"]))
    # 1.5 processors there, two here; looking up counts for nothing, so that it is less by what it took,
    # which is little beside a device as slow as this.
    assert 0 < device.embedding_ns - before < 18 * 40_000_000 and paced.calls == 1
    device.begin()
    device.read(90_000_000)
    assert device.spent_ns == pytest.approx(1e9 + 1e9 / 1500)


def test_a_small_memory_has_what_was_used_last() -> None:
    memory = Memory(100)
    assert [memory.has(run, 40) for run in (1, 2, 1, 2)] == [False, False, True, True]
    assert [memory.has(run, 40) for run in (1, 3, 1, 2)] == [True, False, True, False], "2 made room for 3"
    assert not memory.has(4, 101) and not memory.has(4, 101), "what is larger than all of it is never there"
    assert [memory.has(run, 40) for run in (1, 2, 3) * 3] == [False] * 9, "in turn, and more than has room"


def test_what_has_no_room_is_read_from_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    of = Collection(
        [Document(str(at), text) for at, text in enumerate(texts)], {str(at): f"topic{at % 5}" for at in range(12)}
    )
    monkeypatch.setattr(Device, "named", lambda *_: Device(1e5, 10.0, 1e6))
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    settings = {"collection": "made", "questions": 12, "slo_ms": 35, "modelled": "any", "letter_us": 1.0}
    ample = rag_edge.measure("made", settings)
    tight = rag_edge.measure("made", settings | {"memory_mib": ample["flat_memory_mib"] / 5})
    for mode in ("flat", "ivf", "generate"):
        assert ample[f"{mode}_reading_ms"] == 0, mode
    flat_bytes = 300 * DIMENSIONS * 4
    _assert_counted("rag-edge", tight, "debian-paged")
    assert tight["memories_filled"] == 4 and ample["memories_filled"] == 0
    assert tight["flat_reading_ms"] == pytest.approx(1 + flat_bytes * 10 / 1e6), "one run, each time all of it"
    assert tight["ivf_reading_ms"] > 0 and tight["generate_reading_ms"] == 0
    assert tight["load_reading_ms"] == ample["load_reading_ms"], "what is stored was never in memory"


def test_the_thesis_configurations_are_tried_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    documents = [Document(str(at), text) for at, text in enumerate(texts)]
    questions = {str(at): f"topic{at % 5}" for at in range(12)}
    judgements = {number: {str(at): 1 for at in range(int(number) % 5, 300, 9)} for number in questions}
    of = Collection(documents, questions, judgements)
    monkeypatch.setattr(rag_edge, "CACHED", 0.1)
    monkeypatch.setattr(rag_edge, "WARM_UP", 12)
    monkeypatch.setattr(Device, "named", lambda *_: Device(1e5, 10.0, 1e6))
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    settings = {"collection": "made", "questions": 12, "slo_ms": 35, "modelled": "any"}
    found = rag_edge.measure("made", settings)
    _assert_counted("rag-edge", found)
    assert found["passages"] == 300 and found["questions"] == 6 and found["flat_recall"] == 1
    clustered = [found[f"{name}_recall"] for name in ("ivf", "generate", "load", "edgerag")]
    assert len(set(clustered)) == 1 and clustered[0] > 0.9
    assert found["flat_regenerated"] == found["ivf_regenerated"] == 0 < found["edgerag_regenerated"]
    assert found["edgerag_regenerated"] < found["load_regenerated"] < found["generate_regenerated"]
    assert 0 < found["stored_clusters"] < found["clusters"] and found["load_reading_ms"] > 0
    assert found["generate_embedding_ms"] > 5 * found["ours_embedding_ms"]
    assert found["reuse_ratio"] > 1.5 and 0 < found["flat_ndcg10"] <= 1
    assert found["threshold_p0_hits_percent"] > found["threshold_p90_hits_percent"]
    assert found["threshold_p90_begun_ms"] == found["threshold_p90_ended_ms"] > 0 == found["threshold_p0_begun_ms"]
    best = min(found[f"threshold_p{percent}_p95_ms"] for percent in rag_edge.THRESHOLDS)
    assert found["own_than_best_threshold_p95_times"] == found["threshold_own_p95_ms"] / best


def test_one_question_is_looked_for_while_another_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="no xllamacpp (pip install 'scotfree[gguf]')")
    pytest.importorskip("gguf", reason="no gguf, which writes the model (pip install gguf)")
    from bench import drawn_model, rag_first_token  # noqa: PLC0415 - they need what is looked for above

    shape = drawn_model.Shape(width=64, layers=2, heads=2, key_heads=1, inner=64, is_small=True)
    assert shape.weights == 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 64)
    monkeypatch.setattr(rag_first_token, "SHAPE", shape)
    monkeypatch.setattr(rag_first_token, "OnnxEmbedder", lambda **_: Words())
    documents = [Document(str(at), f"topic{at % 9} word{at} word{at % 31}") for at in range(300)]
    of = Collection(documents, {str(at): f"topic{at % 5} word{at}" for at in range(6)})
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    found = rag_first_token.measure("made", {"questions": 6, "rounds": 2})
    _assert_counted("rag-first-token", found)
    assert found["passages"] == 300 and found["questions"] == 6 and found["retrieval_percent"] < 100
    for way in ("alone", "beside", "halves"):
        assert found[f"{way}_passages_shown"] == 12 * rag_first_token.COUNT and found[f"{way}_questions_per_s"] > 0
        assert found[f"{way}_retrieval_p50_ms"] > found[f"{way}_embedding_p50_ms"] > 0
        assert found[f"{way}_first_token_p50_ms"] > found[f"{way}_prefill_p50_ms"] > 0
    # What was waited for is of either the sum or the greater.
    assert 1 < found["overlap_times_at_most"] <= 2 and found["beside_times"] > 0 and found["halves_times"] > 0


def test_the_planner_keeps_more_of_what_is_asked_than_policies_that_do_not_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"topic{at % 9} word{at} word{at % 31}" for at in range(300)]
    documents = [Document(str(at), text) for at, text in enumerate(texts)]
    of = Collection(documents, {str(at): f"topic{at % 4 // 2} word{at}" for at in range(24)})
    # To embed takes longer than to read, whatever this machine does, and the model is not measured.
    dear = Rates("a table", [1, 100], [1e-3, 1e-3], [1e-3, 1e-1], 1e-4, 1e-6, 1e-3, 1e-6, 1e-8, 1e-5)
    monkeypatch.setattr(rates, "of", lambda *_, **__: dear)
    monkeypatch.setattr(costs, "_CORRECTING_MIN", 1_000)
    monkeypatch.setattr(rag_planner, "OnnxEmbedder", lambda **_: Words())
    monkeypatch.setattr(
        rag_collections, "prepared", lambda *_: prepare(of, tmp_path, Words(), Shown(is_quiet=True))
    )
    four = ["nothing", "smallest", "largest", "any"]
    settings = {"collection": "made", "questions": 24, "storage": "38%", "policies": four}
    for _ in range(2):
        found = rag_planner.measure("laptop", settings)
        _assert_counted("rag-planner", found)
        kept = {
            name: found[f"{name}_kept_percent"] for name in ("planned", "nothing", "smallest", "largest", "any")
        }
        assert kept["nothing"] == 0 and found["questions"] == 12 and found["asked"] >= 10
        assert kept["planned"] > max(kept["smallest"], kept["largest"], kept["any"]) > 0
        assert found["off_p50_percent"] >= 0 and found["predicted_p50_ms"] > 0 and found["planned_p50_ms"] > 0
        assert found["nothing_recall"] > 0.9 and 38 < found["of_budget_percent"] <= 100
    fewer = rag_planner.measure("fewer-codes", settings | {"storage": "21%", "policies": ["any"]})
    _assert_counted("rag-planner", fewer)
    assert fewer["planned_kept_percent"] == 0 < fewer["planned_clusters"] and fewer["of_budget_percent"] <= 100
    assert fewer["planned_recall"] > 0.8 and fewer["any_clusters"] > 0


def test_a_build_is_measured_beside_what_the_process_had() -> None:
    found = rag_build.measure("codes", {"passages": 300})
    assert found["passages"] == 300 and found["build_s"] > 0 and found["bytes_a_passage"] > 40
    # What 300 embeddings take, and no whole model.
    assert 0.1 < found["peak_mib"] < 60
    with pytest.raises(ValueError, match="arm none"):
        rag_build.measure("none", {"passages": 1})
