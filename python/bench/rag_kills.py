"""A process that adds, removes and compacts is killed again and again: what it acknowledged is there.

`changed` runs it until it has said so much; `possible` is what may be there then, `found` what is.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.rag_changing import text_of
from bench.words import Words
from scotfree.rag import Index
from scotfree.rag.passages import Passages

# Per document the version that it has, None: it is not there.
State = dict[str, int | None]

_LINES_MAX = 60


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """Kills of one index, one behind the other."""
    chance, state = random.Random(settings["seed"]), State()
    lost = 0
    hit = dict.fromkeys(("put", "remove", "compact"), 0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        for seed in range(settings["kills"]):
            said = changed(folder, seed, chance.randrange(1, _LINES_MAX))
            certain, maybe = possible(state, said)
            state = found(folder)
            lost += state not in (there(certain), there(maybe))
            hit[said[-1][0]] += said[-1][3] == "begins"
    return {"kills": settings["kills"], "lost": lost, **{f"within_{kind}": count for kind, count in hit.items()}}


def changed(folder: Path, seed: int, lines_max: int, *more: str) -> list[list[str]]:
    """What the process said until it was killed."""
    words = [sys.executable, "-m", "bench.rag_changing", str(folder), str(seed), *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.split())
        if len(said) == lines_max:
            break
    process.kill()
    # What it still said before the kill counts, too.
    said += [line.split() for line in process.stdout if line.endswith("\n")]
    process.wait()
    return said


def possible(state: State, said: list[list[str]]) -> tuple[State, State]:
    """What must be there, and what may be instead: the last change may have been made, though nobody was told."""
    for kind, name, version, what in said:
        if what == "done":
            state = _applied(state, kind, name, version)
    kind, name, version, what = said[-1]
    return state, _applied(state, kind, name, version) if what == "begins" else state


def _applied(state: State, kind: str, name: str, version: str) -> State:
    if kind in ("compact", "place"):
        return state
    return state | {name: int(version) if kind == "put" else None}


def found(folder: Path) -> State:
    """What is there: every document by a search for its own text. An `AssertionError` says what is half there."""
    state: State = {}
    with Index(folder, Words(), keep="codes") as index:
        store = Passages(folder / "passages.sqlite")
        for name in index.documents():
            texts = [text for text, _ in store.texts_of(name)]
            assert len(texts) == 2
            for text in texts:
                hit = index.search(text, 1, deviations=5.0).hits[0]
                assert (hit.document, hit.text) == (name, text)
            state[name] = int(texts[0].split("v")[1].split("a")[0].split("b")[0])
            assert set(texts) == set(text_of(name, state[name] or 0).split("\n\n")), "a version is whole"
        store.close()
        assert len(list(folder.glob("codes-*"))) <= 2
    return state


def there(state: State) -> State:
    """Without what is not there."""
    return {name: version for name, version in state.items() if version is not None}
