"""Corpora of experiments on retrieval: pages of Debian's packages, and what arms share of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench import debian_corpus, rag_collections
from scotfree.rag import RagError
from scotfree.rag.evaluation import beir

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
