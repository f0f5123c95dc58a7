"""A process that changes an index until it is killed: it says what it begins, and what has been done.

`python -m bench.rag_changing FOLDER SEED [place]`: with `place` it also keeps exact values of clusters, or not
even codes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from bench.words import Words
from scotfree.rag import Document, Index, Placement

NAMES = 40


def text_of(name: str, version: int) -> str:
    """Of a document's version: words of its own, in two passages."""
    return "\n\n".join(" ".join(f"{name}v{version}{part}{place}" for place in range(30)) for part in "ab")


def main(folder: Path, seed: int, *more: str) -> None:
    """Changes it for ever."""
    chance = random.Random(seed)
    with Index(folder, Words(), keep="codes") as index:
        for version in range(seed * 1_000_000, (seed + 1) * 1_000_000):
            name, kind = f"doc{chance.randrange(NAMES)}", chance.choice(["put", "put", "remove", "compact", *more])
            print(kind, name, version, "begins", flush=True)
            if kind == "put":
                index.update([Document(name, text_of(name, version))])
            elif kind == "remove":
                index.remove([name])
            elif kind == "place":
                kinds = [
                    [cluster for cluster in range(len(index.clusters())) if chance.random() < 0.5]
                    for _ in ("memory", "disk", "bare")
                ]
                index.place(Placement.of(*kinds))
            else:
                index.compact(is_forced=True)
            print(kind, name, version, "done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
