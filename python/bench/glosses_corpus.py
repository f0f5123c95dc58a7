"""WordNet's glosses as a collection: 117,659 texts that nobody made for measuring, which Debian has as a package.

A passage is the words of a meaning and its definition, without the sentences that show its use. Those sentences
are the questions: they stand in no passage, and nobody has judged what answers them.
"""

from __future__ import annotations

import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.debian_corpus import fetch
from scotfree.rag.documents import Document
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.trouble import RagError

PACKAGE: Final = "wordnet-base"
QUESTIONS: Final = 1000
_SEED: Final = 7
_PARTS: Final = ("adj", "adv", "noun", "verb")
_FOLDER: Final = Path("usr/share/wordnet")
# A sentence of fewer words asks nothing.
_WORDS_MIN: Final = 4
_EXAMPLE: Final = re.compile(r'"([^"]+)"')
# An example with what separates it from the definition, and with who said it.
_QUOTED: Final = re.compile(r'[;:]?\s*"[^"]+"[^;"]*')
# Where an adjective stands, behind it.
_MARKER: Final = re.compile(r"\(.*\)$")


@dataclass(frozen=True)
class Gloss:
    """A meaning: its name in the package's file, its words with their definition, and sentences that show it."""

    name: str
    text: str
    examples: list[str]


def collection(cache: Path, questions: int = QUESTIONS, seed: int = _SEED) -> Collection:
    """All meanings as documents of one passage, and so many example sentences; the package stays in the cache."""
    found = list(glosses(fetch(PACKAGE, cache)))
    examples = [example for gloss in found for example in gloss.examples if _is_question(example)]
    chosen = random.Random(seed).sample(examples, min(questions, len(examples)))
    documents = [Document(gloss.name, gloss.text, is_whole=True) for gloss in found]
    return Collection(documents, {f"example{place}": text for place, text in enumerate(chosen, 1)})


def glosses(package: Path) -> Iterator[Gloss]:
    """What stands in the package's files; a `RagError` says that they are not there."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True, capture_output=True)
        for part in _PARTS:
            path = Path(scratch) / _FOLDER / f"data.{part}"
            try:
                lines = path.read_text().splitlines()
            except OSError as error:
                raise RagError(f"read {package}: {error}", f"renew it: apt-get download {PACKAGE}") from None
            # The licence stands before, indented.
            yield from (parsed(part, line) for line in lines if not line.startswith(" "))


def parsed(part: str, line: str) -> Gloss:
    """A line of a part of speech: where it begins, file, kind, count of words, each with a number; then `|`."""
    head, _, said = line.partition(" | ")
    fields = head.split()
    words = [_MARKER.sub("", word).replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
    definition = _QUOTED.sub("", said).strip(" ;")
    return Gloss(f"{part}-{fields[0]}", f"{', '.join(words)}: {definition}", _EXAMPLE.findall(said))


def _is_question(example: str) -> bool:
    return len(example.split()) >= _WORDS_MIN
