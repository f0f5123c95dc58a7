"""Collections of Debian's documentation: English pages of packages that apt fetches, in BEIR's layout, unjudged.

`python -m bench.debian_corpus FOLDER middle` writes one, which `scot rag eval FOLDER` takes, too. Its questions
are headings of its pages, chosen by a seed (1): what people look for in a manual. Nobody has judged the answers.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from scotfree.rag.documents import Document, Unread, files, read
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.trouble import RagError

# Passages of up to 128 tokens that each had when it was chosen (Debian 12).
MIDDLE: Final = {
    "apt-doc": 93,
    "aptitude-doc-en": 668,
    "autoconf-doc": 2834,
    "bash-doc": 2025,
    "debian-faq": 372,
    "debian-policy": 1696,
    "debian-reference-en": 1946,
    "debmake-doc": 1085,
    "developers-reference": 1611,
    "exim4-doc-html": 4930,
    "harden-doc": 1328,
    "installation-guide-amd64": 1078,
    "maint-guide": 526,
    "zsh-doc": 4552,
}
CORPORA: Final = {"middle": MIDDLE}

QUESTIONS: Final = 400
_SEED: Final = 1
# Seconds that a mirror may take for one package.
_PATIENCE_S: Final = 600
_PAGES: Final = (".html", ".htm")
# Of a path's parts and of what stands before a name's ending: languages, as in `fr`, `pt-BR`, `ch05.zh-cn`.
_LANGUAGE: Final = re.compile(r"(?:^|\.)([a-z]{2})(?:[-_][A-Za-z]{2,4})?$")
# Words of a heading: fewer say too little, more are no heading.
_WORDS: Final = range(3, 13)
# "4.2.1.", "Chapter 3 -", "A.2" before a heading, and the sign of a link behind it.
_NUMBER: Final = re.compile(
    r"^(?:(?:Chapter|Appendix|Part|Section)\s+)?(?:[0-9]+(?:\.[0-9]+)*[.:]?|[A-Z](?:\.[0-9]+)+[.:]?|[A-Z][.:])\s+"
    r"(?:[-\u2013\u2014]\s+)?(?=\S)"
)
_LINK: Final = re.compile(r"\s*[¶#§\uf0c1]+\s*$")


@dataclass(frozen=True)
class Page:
    """A document and the headings in it."""

    document: Document
    headings: list[str]


def collection(packages: Iterable[str], cache: Path, questions: int = QUESTIONS, seed: int = _SEED) -> Collection:
    """The packages' pages, and so many of their headings as questions; packages stay in the cache."""
    found = [page for package in packages for page in pages(package, cache)]
    headings = sorted({heading for page in found for heading in page.headings})
    chosen = random.Random(seed).sample(headings, min(questions, len(headings)))
    asked = {f"heading{place}": heading for place, heading in enumerate(chosen, 1)}
    return Collection([page.document for page in found], asked)


def pages(package: str, cache: Path) -> Iterator[Page]:
    """The English pages of a package; one that stands in it twice comes once."""
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch:
        _run(["dpkg-deb", "-x", str(fetch(package, cache)), scratch])
        for path in files(Path(scratch)):
            name = path.relative_to(scratch)
            if not is_english_page(name) or path.is_symlink():
                continue
            try:
                document = read(path)
            except Unread:
                continue
            if document.text not in seen:
                seen.add(document.text)
                yield Page(replace(document, name=f"{package}/{name}"), headings(path.read_bytes()))


def fetch(package: str, cache: Path) -> Path:
    """The package's file, which apt puts into the cache if it is not there."""
    cache.mkdir(parents=True, exist_ok=True)
    if not (there := _newest(package, cache)):
        _run(["apt-get", "download", "-q", package], cache)
        there = _newest(package, cache)
    if not there:
        raise RagError(f"fetch the package {package}: apt left no file of it", "see: apt-cache policy")
    return there


def is_english_page(name: Path) -> bool:
    """Whether a file is a page that is not said to be in another language; lists of all words are none."""
    if name.suffix not in _PAGES or "index" in name.stem.removeprefix("index"):
        return False
    # Some put pages into folders that are called as pages are.
    said = [_LANGUAGE.search(part.removesuffix(name.suffix)) for part in name.parts]
    return all(found is None or found[1] == "en" for found in said)


def headings(page: bytes) -> list[str]:
    """Of a page the headings that say something, without their numbers."""
    found = []
    for node in LexborHTMLParser(page).css("h1, h2, h3, h4"):
        text = _NUMBER.sub("", _LINK.sub("", " ".join(node.text().split())))
        if len(text.split()) in _WORDS:
            found.append(text)
    return found


def write(of: Collection, folder: Path) -> None:
    """Writes a collection in BEIR's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"_id": document.name, "title": "", "text": document.text} for document in of.documents)
    _write_lines(folder / "corpus.jsonl", rows)
    _write_lines(folder / "queries.jsonl", ({"_id": name, "text": text} for name, text in of.questions.items()))


def _write_lines(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("w") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    part.rename(path)


def _newest(package: str, cache: Path) -> Path | None:
    """By when it was fetched."""
    found = sorted(cache.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1] if found else None


def _run(words: Sequence[str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RagError(
            f"run {words[0]}: {error}", "it takes a Debian with apt and a mirror that answers"
        ) from None
    if done.returncode:
        what = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RagError(f"run {' '.join(words[:2])} for {words[-1]}: {what}", "renew apt's lists: apt-get update")


def main(folder: str, corpus: str) -> int:
    """Writes one of `CORPORA`."""
    base = Path(folder)
    write(collection(CORPORA[corpus], base / "packages"), base)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
