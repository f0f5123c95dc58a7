"""What is kept beside passages is read as JSON reads it, and nobody shares what they were given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.words import Words
from scotfree.rag import Document, Index
from scotfree.rag.decoding import decoded, metadata


@pytest.mark.parametrize(
    "said", [{}, {"k": "v"}, {"k": [1, {"l": None}]}, {"k": {"l": 2}}, {"k": "x" * 300}, {"k": 1.5}]
)
def test_what_was_written_is_read_and_is_the_callers(said: dict[str, Any]) -> None:
    text = json.dumps(said)
    for _ in range(3):
        found = metadata(text)
        assert found == decoded(text) == said
        # Whoever is given it may change it, also what is deep in it.
        for value in list(found.values()):
            if isinstance(value, list | dict):
                value.clear()
        found["more"] = True


@pytest.mark.parametrize("text", ["", "{", "{} {}", "[1],", "nothing", "[" * 100_000])
def test_what_is_damaged_is_refused(text: str) -> None:
    for read in (decoded, metadata):
        with pytest.raises(ValueError):
            read(text)


def test_a_hit_that_is_changed_changes_no_other(tmp_path: Path) -> None:
    documents = [Document(name, f"one {name}", {"kind": "note", "tags": ["a"]}) for name in "abc"]
    documents += [Document(name, f"one {name}", {"kind": "note"}) for name in "def"]
    with Index.build(tmp_path / "index", documents, Words()) as index:
        for _ in range(2):
            hits = index.search("one").hits
            assert sorted(sorted(hit.metadata) for hit in hits) == 3 * [["kind"]] + 3 * [["kind", "tags"]]
            hits[0].metadata.clear()
            assert all(hit.metadata["kind"] == "note" for hit in hits[1:])
