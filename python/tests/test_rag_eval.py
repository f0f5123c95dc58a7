"""`scot rag eval`: its measures beside what they are by hand, and what it says of collections that are none."""

from __future__ import annotations

import fcntl
import gzip
import json
import sys
from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.words import DIMENSIONS, Words
from scotfree.rag import Document, RagError, cli, clustering
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation import judged
from scotfree.rag.evaluation.beir import Collection, read
from scotfree.rag.evaluation.comparing import Settings, evaluate
from scotfree.rag.evaluation.corpus import Part, embeddings, parts
from scotfree.rag.evaluation.exact import Exact
from scotfree.rag.evaluation.known import Known
from scotfree.rag.evaluation.measuring import Job, measure
from scotfree.rag.evaluation.modes import Mode, Opening, build_ours
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.evaluation.rows import Evaluation, Row, told
from scotfree.rag.passages import Passages

TESTS = Path(__file__).parent
QUIET = Shown(is_quiet=True)
OPENING = Opening(cache_bytes=1 << 20, probes=None, slo_ns=1e9, letter_ns=1000.0)
ALL = tuple(Mode)

CORPUS = [
    {"_id": "violin", "title": "Violin", "text": "It has four strings and is played with a bow."},
    {"_id": "drum", "title": "", "text": "Drums are struck with sticks."},
    {"_id": "flute", "title": "Flute", "text": "Air is blown over an edge."},
]
QUESTIONS = [
    {"_id": "q1", "text": "what has four strings and a bow?"},
    {"_id": "q2", "text": "nobody judged this"},
    {"_id": "q3", "text": "what is struck with sticks?"},
]
JUDGED = "query-id\tcorpus-id\tscore\nq3\tdrum\t2\nq1\tviolin\t1\nq1\tdrum\t0\n"


def beir(folder: Path, **files: str | bytes | None) -> Path:
    """A folder in BEIR's layout, with some of its files otherwise."""
    of: dict[str, str | bytes | None] = {
        "corpus": "\n".join(map(json.dumps, CORPUS)),
        "queries": "\n".join(map(json.dumps, QUESTIONS)),
        "qrels": JUDGED,
    }
    names = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}
    (folder / "qrels").mkdir(parents=True)
    for name, text in (of | files).items():
        if text is not None:
            data = text.encode() if isinstance(text, str) else text
            path = folder / names[name]
            (path if data[:2] != b"\x1f\x8b" else path.with_suffix(f"{path.suffix}.gz")).write_bytes(data)
    return folder


def test_a_folder_in_beirs_layout_is_read(tmp_path: Path) -> None:
    collection = read(beir(tmp_path))
    assert [document.name for document in collection.documents] == ["violin", "drum", "flute"]
    assert collection.documents[0].text == "It has four strings and is played with a bow."
    assert collection.documents[0].outline.title == "Violin"
    violin = parts(collection.documents, Words(tokens_max=200))[0]
    assert (violin.text, violin.embedded) == (collection.documents[0].text, f"Violin: {violin.text}")
    assert collection.documents[1].text == "Drums are struck with sticks."
    assert list(collection.questions) == ["q1", "q3"], "only what is judged is asked, in the order of questions"
    assert collection.judgements == {"q3": {"drum": 2}, "q1": {"violin": 1, "drum": 0}}
    first = collection.first(1)
    assert list(first.questions) == ["q1"] and first.judgements == {"q1": {"violin": 1, "drum": 0}}


def test_without_judgements_every_question_is_asked_and_files_may_be_gzipped(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(map(json.dumps, CORPUS)).encode())
    collection = read(beir(tmp_path, corpus=packed, qrels=None))
    assert not (tmp_path / "corpus.jsonl").exists() and len(collection.documents) == 3
    assert list(collection.questions) == ["q1", "q2", "q3"] and not collection.judgements


LINE = json.dumps(CORPUS[0])


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"corpus": None}, r"there is no corpus\.jsonl in it; name a folder in BEIR's layout"),
        ({"queries": None}, r"there is no queries\.jsonl in it"),
        ({"corpus": "\n\n"}, "it has no document;"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "it has no question that is judged;"),
        ({"queries": "", "qrels": None}, "it has no question;"),
        ({"corpus": f"{LINE}\nno JSON"}, r"corpus\.jsonl, line 2: it is no JSON object whose _id and text"),
        ({"corpus": '\n\n{"_id": 7, "text": "x"}'}, r"corpus\.jsonl, line 3: it is no JSON object"),
        ({"corpus": '{"_id": "a"}'}, r"corpus\.jsonl, line 1: it is no JSON object"),
        ({"corpus": "[" * 100_000}, r"corpus\.jsonl, line 1: it is no JSON object"),
        ({"corpus": '{"_id": "a", "text": "x", "title": 3}'}, r"line 1: its title is no text"),
        ({"corpus": '{"_id": "a", "text": "\\ud800"}'}, r"line 1: half of a pair of surrogates"),
        ({"corpus": f"{LINE}\n{LINE}"}, r"corpus\.jsonl, line 2: the _id violin is there already"),
        ({"corpus": LINE.encode() + b'\n{"_id": "\xff"}'}, r"corpus\.jsonl, line 2: it is no UTF-8"),
        (
            {"corpus": gzip.compress(LINE.encode(), mtime=0)[:-9]},
            r"corpus\.jsonl\.gz, after line 0: .*put the whole file",
        ),
        ({"qrels": "q1\tviolin\n"}, r"test\.tsv, line 1: it is no question, document and whole number"),
        ({"qrels": f"{JUDGED}q1 violin 1\n"}, r"test\.tsv, line 5: it is no question, document"),
        ({"qrels": "q1\tviolin\thigh\n"}, r"test\.tsv, line 1: it is no question, document"),
        ({"qrels": f"{JUDGED}q9\tviolin\t1\n"}, r"test\.tsv, line 5: no question q9 is in queries\.jsonl"),
        ({"qrels": f"{JUDGED}q1\tviolin\t0\n"}, r"line 5: question q1 and document violin were judged otherwise"),
    ],
)
def test_what_is_wrong_is_said_with_its_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, Any], said: str
) -> None:
    folder = beir(tmp_path / "none", **files)
    with pytest.raises(RagError, match=said):
        read(folder)
    assert cli.main(["eval", str(folder), "--index", str(tmp_path / "kept")]) == 2
    assert "Traceback" not in capsys.readouterr().err and not (tmp_path / "kept").exists()


def test_measures_are_what_they_are_by_hand() -> None:
    judgements = {"q1": {"a": 2, "b": 1, "z": 1, "x": 0}, "q2": {"a": 1}, "q3": {"a": 1}}
    few = {"q1": ["b", "x", "a"], "q2": [], "q3": ["x", "y", "w", "a"]}
    many = {"q1": ["b", "x", "a", "y", "z"], "q2": [], "q3": few["q3"]}
    found = judged.measures(judgements, few, many)
    # Gains 1, 0, 2 of 2, 1, 1 at best; nothing; one at the fourth place.
    ndcg = (1 / log2(2) + 2 / log2(4)) / (2 / log2(2) + 1 / log2(3) + 1 / log2(4)), 0, 1 / log2(5)
    assert found == pytest.approx(
        {
            "nDCG@10": sum(ndcg) / 3,
            "recall@10": (2 / 3 + 0 + 1) / 3,
            "MRR@10": (1 + 0 + 1 / 4) / 3,
            "recall@100": (1 + 0 + 1) / 3,
            "MAP@100": ((1 / 1 + 2 / 3 + 3 / 5) / 3 + 0 + 1 / 4) / 3,
        }
    )


def test_the_order_of_an_answer_is_not_that_of_names() -> None:
    for answer, wanted in ((["a", "b"], 1), (["b", "a"], 1 / 2)):
        assert judged.measures({"q": {"a": 1}}, {"q": answer}, {"q": answer})["MRR@10"] == wanted


def test_what_judges_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytrec_eval", None)
    with pytest.raises(RagError, match=r"pip install 'scotfree\[rag-eval\]'"):
        judged.library()


def drawn(similarities: Sequence[float]) -> Vectors:
    """Vectors of two dimensions that are as similar to (1, 0) as is said."""
    return np.array([(value, (1 - value**2) ** 0.5) for value in similarities], np.float32)


def test_exact_search_has_documents_by_the_best_of_their_passages() -> None:
    texts = [Part(name, start, "") for name, start in (("a", 0), ("a", 9), ("b", 0), ("c", 0), ("c", 5))]
    question = np.array([[1, 0], [0, 1]], np.float32)
    exact = Exact(texts, drawn([0.1, 0.9, 0.5, 0.2, 0.6]))
    first, second = exact.nearest(question, 2)
    assert first.rows == [1, 4, 2, 3, 0] and first.documents == ["a", "c"]
    assert second.rows == [0, 3, 2, 4, 1] and second.documents == ["a", "c"]


def test_recall_counts_passages_that_are_as_near_as_the_nearest() -> None:
    similarities = [0.9 - 0.01 * place for place in range(12)] + [0.81]
    question = np.array([1, 0], np.float32)
    exact = Exact([Part(f"d{place}", 0, "") for place in range(13)], drawn(similarities))
    (nearest,) = exact.nearest(question[None], 3)
    assert nearest.rows == list(range(10))
    for rows, wanted in (
        (range(10), 1.0),
        ([*range(9), 10], 0.9),
        # As near as the tenth, and so as good; one place twice is one.
        ([*range(9), 12], 1.0),
        (range(13), 1.0),
        ([3, 3, 3], 0.1),
        ([11], 0.0),
        ([], 0.0),
    ):
        assert exact.share(question, nearest, list(rows)) == pytest.approx(wanted), rows


TEXTS = [f"text{place} word{place % 7}" for place in range(1300)]


class Failing(Words):
    """Ends after some texts, as one does that is killed."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        if len(self.asked) >= 1000:
            raise KeyboardInterrupt
        return super().embed(texts)


def test_embeddings_are_made_once_and_those_of_a_killed_process_are_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        embeddings(tmp_path, Failing(), TEXTS)
    (part,) = tmp_path.iterdir()
    torn = np.lib.format.open_memmap(part, mode="r+")
    torn[5, 60:] = 0
    del torn
    embedder, done = Words(), 0

    def progress(count: int) -> None:
        nonlocal done
        done += count

    found = embeddings(tmp_path, embedder, TEXTS, progress)
    assert np.array_equal(found, Words().embed(TEXTS)) and done == len(TEXTS)
    assert embedder.asked == [TEXTS[5], *TEXTS[1024:]], "what was whole is kept, and a torn row is made anew"
    again = Words()
    assert np.array_equal(embeddings(tmp_path, again, TEXTS), found) and not again.asked
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_embeddings_are_of_a_model_and_of_texts(tmp_path: Path) -> None:
    for embedder, texts in ((Words(), TEXTS[:3]), (Words("other"), TEXTS[:3]), (Words(), TEXTS[:4])):
        assert len(embeddings(tmp_path, embedder, texts)) == len(texts) and embedder.asked == texts
    assert len(list(tmp_path.iterdir())) == 3
    assert embeddings(tmp_path, Words(), []).shape == (0, DIMENSIONS)


@pytest.mark.parametrize("what", [b"", b"something else", b"\x93NUMPY"])
def test_a_damaged_part_of_embeddings_is_begun_anew(tmp_path: Path, what: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        embeddings(tmp_path, Failing(), TEXTS)
    next(tmp_path.iterdir()).write_bytes(what)
    assert np.array_equal(embeddings(tmp_path, Words(), TEXTS), Words().embed(TEXTS))


def test_only_one_process_makes_embeddings(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        embeddings(tmp_path, Failing(), TEXTS)
    with next(tmp_path.iterdir()).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RagError, match="another process is at it; wait for it to end"):
            embeddings(tmp_path, Words(), TEXTS)


def test_what_is_known_is_looked_up_and_anything_else_embedded_once() -> None:
    embedder = Words()
    vectors = embedder.embed(["a b", "c d"])
    embedder.asked.clear()
    known = Known(embedder, ["a b", "c d"], vectors)
    wanted = np.array([vectors[1], *Words().embed(["e"]), vectors[0], *Words().embed(["e"])])
    for _ in range(2):
        assert np.array_equal(known.embed(["c d", "e", "a b", "e"]), wanted)
    assert embedder.asked == ["e"]


TOPICS = 8
RECALL = 0.97


def collection(count: int = 240) -> Collection:
    """Documents of a few topics, the first of many passages."""
    chance = np.random.default_rng(1)
    documents = []
    for place in range(count):
        topic = place % TOPICS
        words = [f"topic{topic}word{chance.integers(0, 6)}" for _ in range(12 if place else 800)]
        documents.append(Document(f"doc{place}", " ".join([*words, *(f"own{place}x{at}" for at in range(6))])))
    asked = {
        f"q{at}": f"topic{at % TOPICS}word{at % 6} topic{at % TOPICS}word{at % 5} own{at}x0" for at in range(24)
    }
    # All of its topic are judged, and one of them is better than the others.
    grades = {
        f"q{at}": {f"doc{place}": 1 + (place == at) for place in range(at % TOPICS, count, TOPICS)}
        for at in range(24)
    }
    return Collection(documents, asked, grades)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """Every mode on one collection, while this process has much in memory."""
    settings = Settings(ALL, recall=RECALL, slo_ns=5e6, embedder="bench.words:Words")
    ballast = np.ones(80 << 20, np.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS.parent}:{TESTS}", prepend=":")
        found = evaluate(collection(), tmp_path_factory.mktemp("kept"), settings, QUIET)
    assert ballast.nbytes == 640 << 20
    return found


def row(evaluation: Evaluation, mode: Mode) -> Row:
    return next(one for one in evaluation.modes if one.mode == mode.value)


def test_every_mode_is_compared_with_exact_search_on_the_other_half(measured: Evaluation) -> None:
    of = collection()
    split = parts(of.documents, Words())
    vectors = Words().embed([part.embedded for part in split])
    similar = vectors @ Words().embed(list(of.questions.values())[12:]).T
    answers = {}
    for name, values in zip(list(of.questions)[12:], similar.T, strict=True):
        order = np.argsort(-values, kind="stable")
        answers[name] = list(dict.fromkeys(split[place].document for place in order))[:100]
    few = {name: found[:10] for name, found in answers.items()}
    assert measured.exact == judged.measures(of.judgements, few, answers)
    assert (measured.questions, measured.tuned_on, measured.passages) == (12, 12, len(split))
    assert measured.flat_bytes == vectors.nbytes and measured.documents == 240
    for mode in (Mode.FLAT, Mode.OURS):
        assert row(measured, mode).judged["nDCG@10"] == pytest.approx(measured.exact["nDCG@10"], abs=0.02)
    assert row(measured, Mode.FLAT).judged == pytest.approx(measured.exact)


def test_nprobe_is_the_least_that_finds_enough_and_the_same_for_all(measured: Evaluation) -> None:
    tuned = [one for one in measured.modes if one.probes]
    assert [one.mode for one in tuned] == ["ivf", "ivf+gen", "ivf+gen+load", "edgerag"]
    assert {(one.probes, one.clusters) for one in tuned} == {(tuned[0].probes, round(measured.passages**0.5))}
    # The clusters of what exact search finds, by how many are nearer to the question.
    of = collection()
    vectors = Words().embed([part.embedded for part in parts(of.documents, Words())])
    centres = clustering.centroids(vectors, tuned[0].clusters or 0, seed=1)
    places, needed = clustering.nearest(vectors, centres), []
    for question in Words().embed(list(of.questions.values())[:12]):
        order = np.argsort(np.linalg.norm(centres - question, axis=1), kind="stable").tolist()
        rows = np.argsort(-(vectors @ question), kind="stable")[:10]
        needed += [1 + order.index(places[row]) for row in rows]
    shares = [np.mean([one <= probes for one in needed]) for probes in range(1, len(centres) + 1)]
    assert tuned[0].probes == 1 + next(place for place, share in enumerate(shares) if share >= RECALL) > 1
    assert len({one.recall for one in tuned}) == 1 and 0.9 < tuned[0].recall <= 1
    assert row(measured, Mode.FLAT).recall == 1


def test_passages_are_counted_by_what_was_done_with_them(measured: Evaluation) -> None:
    counts = {one.mode: (one.estimated, one.loaded, one.cached, one.regenerated) for one in measured.modes}
    assert counts["ours"][0] == measured.passages and counts["ours"][1] >= 10 and counts["ours"][2:] == (0, 0)
    estimated, _, cached, regenerated = counts["smallest"]
    assert estimated == measured.passages and 5 <= cached + regenerated < 100
    assert counts["four-bits"] == (measured.passages, 0, 0, 0)
    assert counts["flat"] == counts["ivf"] == (0, 0, 0, 0)
    looked_at = counts["ivf+gen"][3]
    assert looked_at > 2 * regenerated and counts["ivf+gen"][:3] == (0, 0, 0)
    assert counts["ivf+gen+load"][1] + counts["ivf+gen+load"][3] == pytest.approx(looked_at)
    # How many of them the cache had depends on how long searches took.
    assert sum(counts["edgerag"]) == pytest.approx(looked_at)


def test_time_memory_and_disk_are_of_each_mode_alone(measured: Evaluation) -> None:
    for one in measured.modes:
        assert 0 < one.latency_ms.p50 <= one.latency_ms.p95
        assert 0 < sum(stage.p50 for stage in one.stages_ms.values()) <= 1.5 * one.latency_ms.p95
        assert one.cpu_ms > 0 and "embed query" in one.stages_ms
        assert 20e6 < one.peak_bytes < 500e6, "not what the process had that started it"
        assert one.codes_of_flat == one.disk.codes_bytes / measured.flat_bytes
    for mode in (Mode.FLAT, Mode.IVF):
        assert 1 < row(measured, mode).codes_of_flat < 1.2
    own, four, generated = (
        row(measured, mode).codes_of_flat for mode in (Mode.SMALLEST, Mode.FOUR_BITS, Mode.GENERATE)
    )
    # Of so few passages the axes take as much as the codes.
    assert own < four < 0.5 and generated < 0.3
    assert row(measured, Mode.LOAD).codes_of_flat >= generated
    assert four < row(measured, Mode.OURS).codes_of_flat < 1
    disk = row(measured, Mode.SMALLEST).disk
    assert 1 <= disk.texts_bytes / measured.text_bytes < 1.3 and disk.words_bytes > 0


def test_the_table_says_what_was_measured(measured: Evaluation) -> None:
    lines = told(measured).splitlines()
    assert (
        f"12 questions; nprobe was set by 12 others before them, so that it finds {RECALL} of exact search's 10"
        in lines[1]
    )
    at = next(place for place, line in enumerate(lines) if line.split()[:1] == ["exact"])
    assert lines[at].split()[1:] == [mode.value for mode in ALL]
    cells = next(line for line in lines if line.startswith("nDCG@10")).split()[1:]
    assert cells == [
        f"{measured.exact['nDCG@10']:.3f}",
        *(f"{one.judged['nDCG@10']:.3f}" for one in measured.modes),
    ]
    edgerag = row(measured, Mode.EDGERAG)
    (nprobe,) = (line for line in lines if line.startswith("nprobe"))
    assert nprobe.endswith(f"{edgerag.probes} of {edgerag.clusters}")
    (whole,) = (line for line in lines if line.startswith("a question, ms"))
    assert whole.endswith(f"{edgerag.latency_ms.p50:,.1f} / {edgerag.latency_ms.p95:,.1f}")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent / 'src'}:{TESTS.parent}:{TESTS}", prepend=":")
    build_ours(Mode.OURS, tmp_path, collection(20).documents, Words(), lambda _: None)
    return Job(Mode.OURS, tmp_path, "bench.words:Words", OPENING, ["topic1word1", "topic2word2"])


def test_questions_are_asked_in_their_order(job: Job) -> None:
    counted: list[int] = []
    asked = measure(job, counted.append).asked
    assert counted == [1, 1] and len(asked) == 2
    split = parts(collection(20).documents, Words())
    vectors = Words().embed([part.embedded for part in split])
    for question, one in zip(job.questions, asked, strict=True):
        best = split[int(np.argmax(vectors @ Words().embed([question])[0]))]
        assert one.outcome.places[0] == (best.document, best.start) and one.latency_ns > 0


@pytest.mark.parametrize(
    ("embedder", "kind", "said"),
    [
        ("Killed", RagError, "measure ours: its process was ended by SIGKILL; if that was for want of memory"),
        ("Refusing", RagError, "embed: the endpoint is away; start it"),
        ("Faulty", RuntimeError, "ended with 1: .*a fault of its own"),
    ],
)
def test_a_process_that_cannot_measure_says_why(job: Job, embedder: str, kind: type[Exception], said: str) -> None:
    of = Job(job.mode, job.base, f"rag_eval_embedders:{embedder}", job.opening, job.questions)
    with pytest.raises(kind, match=rf"(?s){said}"):
        measure(of)


def test_a_file_of_passages_is_texts_words_free_pages_and_the_rest(job: Job) -> None:
    path = job.base / "default" / "passages.sqlite"
    store = Passages(path)
    sizes = store.sizes()
    store.close()
    texts = sum(len(part.text) for part in parts(collection(20).documents, Words()))
    assert texts <= sizes.texts_bytes < texts + 3 * 4096, "a page that is not full, and two that say which are"
    total = sizes.texts_bytes + sizes.words_bytes + sizes.free_bytes + sizes.others_bytes
    assert total == path.stat().st_size and min(sizes.words_bytes, sizes.others_bytes) > 0


def test_a_user_evaluates_and_what_was_embedded_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = beir(tmp_path / "music")
    assert cli.main(["eval", str(folder), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["exact"]["nDCG@10"] == found["modes"][0]["judged"]["nDCG@10"] == 1
    assert (found["questions"], found["documents"], found["tuned_on"]) == (2, 3, 0)
    assert found["model_bytes"] > 80e6 and found["modes"][0]["recall"] == 1
    (kept,) = (tmp_path / "cache/scotfree/rag-eval").iterdir()
    assert f"kept for the next time in {kept}" in printed.err and kept.name.startswith("music-")
    (own,) = kept.iterdir()
    (made,) = own.glob("embeddings-*.npy")
    before = made.stat().st_mtime_ns
    assert cli.main(["eval", str(folder), "--queries", "1", "--mode", "four-bits", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1] == "1 questions" and printed.err == ""
    assert made.stat().st_mtime_ns == before and [path.name for path in kept.iterdir()] == [own.name]


def test_what_cannot_be_evaluated_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = beir(tmp_path / "music")
    empty = beir(tmp_path / "empty", corpus='{"_id": "a", "text": " "}', qrels=None)
    kept = str(tmp_path / "kept")
    for words, said in (
        ([str(tmp_path / "absent")], "there is no corpus.jsonl in it; name a folder in BEIR's layout"),
        ([str(folder), "--index", str(folder)], "it holds other files; name another folder with --index"),
        ([str(folder), "--index", str(folder / "corpus.jsonl")], "it is no folder; name another with --index"),
        (
            [str(folder), "--index", kept, "--mode", "edgerag", "--queries", "1"],
            "set nprobe: there is one question",
        ),
        ([str(empty), "--index", kept], "no document has a text"),
    ):
        assert cli.main(["eval", *words]) == 2
        assert said in capsys.readouterr().err
    for words, said in (
        (
            ["--mode", "none"],
            "none is none of ours, smallest, four-bits, flat, ivf, ivf+gen, ivf+gen+load, edgerag",
        ),
        (["--recall", "1.5"], "1.5 is no number from 0 to 1"),
        (["--queries", "0"], "0 is no whole number"),
        (["--slo", "fast"], "fast is no time"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["eval", str(folder), *words])
        assert ended.value.code == 2 and said in capsys.readouterr().err
