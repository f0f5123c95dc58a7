"""`scot rag edge` as a user has it, and the clusters that it keeps beside an index."""

from __future__ import annotations

import fcntl
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.words import Words
from scotfree.rag import Document, Index, RagError, cli
from scotfree.rag.commands import opening
from scotfree.rag.edge import beside
from scotfree.rag.edge.beside import EdgeRag, Wanted
from scotfree.rag.outline import Heading, Outline

TEXTS = {f"{at}": f"topic{at % 9}a topic{at % 9}b word{at} word{at % 31}" for at in range(300)}
# Some clusters take longer, others not, whatever this machine does.
LETTER_NS = 1000.0
SLO_NS = 0.4e6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that is no other than any."""
    monkeypatch.setattr(beside, "_letter_ns", lambda *_: LETTER_NS)
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    with Index.build(tmp_path / "index", documents(TEXTS), Words()):
        pass
    return tmp_path / "index"


def documents(texts: dict[str, str]) -> list[Document]:
    return [Document(name, text, is_whole=True) for name, text in texts.items()]


def exact(texts: dict[str, str], question: str, count: int) -> set[str]:
    vectors = Words().embed(list(texts.values()))
    similar = vectors @ Words().embed([question])[0]
    return {list(texts)[row] for row in np.argsort(-similar, kind="stable")[:count]}


def found(edge: EdgeRag, question: str, count: int = 10) -> set[str]:
    return {hit.document for hit in edge.search(question, count).hits}


def test_it_finds_what_is_near_and_is_opened_as_it_was_left(folder: Path) -> None:
    embedder = Words()
    with Index(folder, embedder) as index:
        with EdgeRag.opened(index, Wanted(SLO_NS, 0.95)) as edge:
            assert edge.built.probes < edge.edge.clusters and 0 < len(edge.edge.stored) < edge.edge.clusters
            shares = [len(found(edge, text) & exact(TEXTS, text, 10)) / 10 for text in list(TEXTS.values())[::7]]
            assert np.mean(shares) >= 0.9
            built, stored = edge.built, edge.edge.stored
            edge.edge.resume(1234.0, 5678.0)
        embedder.asked.clear()
        with EdgeRag.opened(index, Wanted()) as edge:
            assert not embedder.asked, "to open it is to embed nothing"
            assert (edge.built, edge.edge.stored) == (built, stored)
            assert (edge.edge.threshold_ns, edge.edge.average_ns) == (1234.0, 5678.0)
    # Nothing is left of what it was built of, and the index is one as before.
    names = {path.name for path in (folder / "edgerag").iterdir()}
    assert names == {"1", "current.json", "lock", "threshold.json"}
    with Index(folder, Words()) as index:
        assert len(index) == len(TEXTS)


def test_another_limit_or_recall_is_built_anew(folder: Path) -> None:
    with Index(folder, Words()) as index:
        numbers = []
        for wanted in (Wanted(SLO_NS), Wanted(), Wanted(2 * SLO_NS), Wanted(recall=0.5), Wanted(2 * SLO_NS, 0.5)):
            with EdgeRag.opened(index, wanted) as edge:
                numbers.append((edge.built.number, edge.built.slo_ns, edge.built.recall))
                probes = edge.built.probes
        assert numbers == [
            (1, SLO_NS, 0.99),
            (1, SLO_NS, 0.99),
            (2, 2 * SLO_NS, 0.99),
            (3, 2 * SLO_NS, 0.5),
            (3, 2 * SLO_NS, 0.5),
        ]
        with EdgeRag.opened(index, Wanted(recall=1.0)) as edge:
            assert edge.built.probes > probes


def test_it_follows_the_index(folder: Path) -> None:
    embedder, texts = Words(), dict(TEXTS)
    with Index(folder, embedder) as index:
        with EdgeRag.opened(index, Wanted(SLO_NS)):
            pass
        more = {f"new{at}": f"topic3a topic3b fresh{at}" for at in range(20)}
        index.update(documents(more))
        index.remove([f"{at}" for at in range(50)])
        texts = {name: text for name, text in (texts | more).items() if not name.isdigit() or int(name) >= 50}
        embedder.asked.clear()
        with EdgeRag.opened(index, Wanted()) as edge:
            assert edge.built.number == 2 and len(edge.edge.passages) == len(texts)
            assert set(more.values()) <= set(embedder.asked)
            assert found(edge, "topic3a topic3b fresh7", 1) == {"new7"}
            every = edge.search("topic3a topic3b fresh7", 1000, edge.edge.clusters)
            assert {hit.document for hit in every.hits} == set(texts)
        # Where most is new, clusters are learnt anew.
        index.update(documents({f"other{at}": f"other{at % 7} thing{at}" for at in range(400)}))
        with EdgeRag.opened(index, Wanted()) as edge:
            assert edge.built.number == 3 and edge.edge.clusters == round((len(texts) + 400) ** 0.5)
            # One that is removed meanwhile is not shown.
            index.remove(["other5"])
            assert "other5" not in found(edge, "other5 thing5")


def test_an_interrupted_build_loses_no_embedding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Words()

    def interrupt(*_: Any) -> float:
        raise KeyboardInterrupt

    with Index(folder, embedder) as index:
        with monkeypatch.context() as patched:
            patched.setattr(beside, "_letter_ns", interrupt)
            with pytest.raises(KeyboardInterrupt):
                EdgeRag.opened(index, Wanted(SLO_NS))
        embedder.asked.clear()
        with EdgeRag.opened(index, Wanted(SLO_NS)) as edge:
            assert edge.built.number == 1
    assert len(embedder.asked) < len(TEXTS), "only the drawn questions and their like"


def test_what_it_cannot_do_it_says(folder: Path, tmp_path: Path) -> None:
    with Index(tmp_path / "empty", Words()) as index, pytest.raises(RagError, match="fill it: scot rag index"):
        EdgeRag.opened(index, Wanted())
    with Index(folder, Words()) as index:
        with EdgeRag.opened(index, Wanted(SLO_NS)) as edge:
            stored = edge.edge.stored[0]
        own = folder / "edgerag"
        with (own / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(RagError, match="another process builds them; wait"):
                EdgeRag.opened(index, Wanted())
        (own / "threshold.json").write_text("{")
        path = own / "1" / f"cluster-{stored}.npy"
        whole = path.read_bytes()
        for damage in (whole[: len(whole) // 2], b"", np.lib.format.magic(1, 0)):
            path.write_bytes(damage)
            with EdgeRag.opened(index, Wanted()) as edge, pytest.raises(RagError, match="remove that folder"):
                edge.search("topic1a", 10, edge.edge.clusters)
        np.save(path, np.zeros((1, Words().dimensions), np.float32))
        with EdgeRag.opened(index, Wanted()) as edge, pytest.raises(RagError, match="not a row for each passage"):
            edge.search("topic1a", 10, edge.edge.clusters)
        for name in ("1/clusters.npz", "current.json"):
            (own / name).write_bytes((own / name).read_bytes()[:20])
            with pytest.raises(RagError, match="remove that folder"):
                EdgeRag.opened(index, Wanted())


def test_a_hit_says_where_it_stands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "alpha\nbeta\n\ngamma delta epsilon"
    outline = Outline(unit="line", headings=(Heading(0, 1, "Letters"),))
    with Index(folder, Words()) as index:
        index.add([Document("notes.md", text, outline=outline)])
        with EdgeRag.opened(index, Wanted(SLO_NS, 0.95)) as edge:
            (found,) = edge.search(text, 1).hits
            assert found == replace(index.search(text, 1).hits[0], similarity=found.similarity)
            assert (found.location, found.section) == ("line 1", "Letters")
    assert cli.main(["edge", "--index", str(folder), "--quiet", text, "--count", "1"]) == 0
    assert "1. notes.md:1 (1.00, Letters)\n" in capsys.readouterr().out


def test_a_copy_is_no_hit_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXTS["7"]
    with Index(folder, Words()) as index:
        index.add([Document(f"copy{at}", text, is_whole=True) for at in range(5)])
        with EdgeRag.opened(index, Wanted(SLO_NS, 0.95)) as edge:
            hits = edge.search(text, 3, is_distinct=True).hits
            assert len({hit.text for hit in hits}) == len(hits) == 3
            assert len(hits[0].copies) == 5 and not hits[1].copies
            assert {hit.text for hit in edge.search(text, 3).hits} == {text}
    assert cli.main(["edge", "--index", str(folder), "--quiet", text, "--count", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("also in: ") == 1 and "2. " in printed


def test_it_is_built_and_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["edge", "--index", str(folder)]
    assert cli.main([*words, "--slo", "400us"]) == 0
    printed = capsys.readouterr()
    assert not printed.out and "300 passages in 17 clusters" in printed.err and "0.0004 s" in printed.err
    assert cli.main([*words, TEXTS["7"], TEXTS["7"], "--count", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("1. 7 (1.00, letter 0)") == 2 and "2. " not in printed.out
    assert "\n0 passages embedded again" in printed.err, "the second time from the cache"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TEXTS['8']}\n\n{TEXTS['9']}\n"))
    assert cli.main([*words, "-", "--json", "--quiet", "--count", "2"]) == 0
    printed = capsys.readouterr()
    answers = [json.loads(line) for line in printed.out.splitlines()]
    assert [answer["hits"][0]["document"] for answer in answers] == ["8", "9"] and not printed.err
    assert all(answer["regenerated"] + answer["loaded"] + answer["cached"] > 10 for answer in answers)
    for wrong, told in (([" "], "empty question"), (["-", "x"], "say - alone")):
        assert cli.main([*words, *wrong]) == 2
        assert told in capsys.readouterr().err
    assert cli.main(["edge", "--index", str(folder / "absent")]) == 2
    assert "make it: scot rag index FOLDER" in capsys.readouterr().err
