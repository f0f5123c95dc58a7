"""A process that changes an index until it is killed: it says what it begins, and what has been done.

`python -m bench.rag_changing FOLDER SEED`
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from bench.words import Words
from scotfree.rag import Document, Index

NAMES = 40


def text_of(name: str, version: int) -> str:
    """Of a document's version: words of its own, in two passages."""
    return "\n\n".join(" ".join(f"{name}v{version}{part}{place}" for place in range(30)) for part in "ab")


def main(folder: Path, seed: int) -> None:
    """Changes it for ever."""
    chance = random.Random(seed)
    with Index(folder, Words()) as index:
        for version in range(seed * 1_000_000, (seed + 1) * 1_000_000):
            name, kind = f"doc{chance.randrange(NAMES)}", chance.choice(["put", "put", "remove", "compact"])
            print(kind, name, version, "begins", flush=True)
            if kind == "put":
                index.update([Document(name, text_of(name, version))])
            elif kind == "remove":
                index.remove([name])
            else:
                index.compact(is_forced=True)
            print(kind, name, version, "done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
