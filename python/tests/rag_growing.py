"""A process that puts many small documents into an index at once, until it is killed, and says which are in.

`python -m tests.rag_growing FOLDER`, where bench is
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.words import Words
from scotfree.rag import Document, Index

COUNT = 2500


def documents() -> list[Document]:
    """Of one passage each, whose words are its own."""
    return [Document(f"doc{place}", f"first{place} second{place} third{place}") for place in range(COUNT)]


def main(folder: Path) -> None:
    """Puts them in."""
    with Index(folder, Words()) as index:
        index.update(documents(), progress=lambda document: print(document.name, flush=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
