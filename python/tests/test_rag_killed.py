"""kill -9 while an index is changed: it opens, and what was acknowledged is there."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from rag_changing import text_of
from rag_embedders import Words

from scotfree.rag import Index
from scotfree.rag.passages import Passages

ROUNDS = 12
PROGRAM = Path(__file__).with_name("rag_changing.py")

# Per document the version that it has, None: it is not there.
State = dict[str, int | None]


def changed(folder: Path, seed: int, lines_max: int) -> list[list[str]]:
    """What a process said until it was killed."""
    process = subprocess.Popen([sys.executable, PROGRAM, folder, str(seed)], stdout=subprocess.PIPE, text=True)
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


def apply(state: State, kind: str, name: str, version: str) -> State:
    if kind == "compact":
        return state
    return state | {name: int(version) if kind == "put" else None}


def possible(state: State, said: list[list[str]]) -> tuple[State, State]:
    """What must be there, and what may be instead: the last change may have been made, though nobody was told."""
    for kind, name, version, what in said:
        if what == "done":
            state = apply(state, kind, name, version)
    kind, name, version, what = said[-1]
    return state, apply(state, kind, name, version) if what == "begins" else state


def found(folder: Path) -> State:
    """What is there: every document by a search for its own text."""
    state: State = {}
    with Index(folder, Words()) as index:
        store = Passages(folder / "passages.sqlite")
        for name in index.documents():
            texts = list(store.texts_of(name))
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
    return {name: version for name, version in state.items() if version is not None}


def test_what_was_acknowledged_is_there_after_each_of_many_kills(tmp_path: Path) -> None:
    chance, state = random.Random(4), State()
    kills = {"compact": 0, "put": 0, "remove": 0}
    for seed in range(ROUNDS):
        said = changed(tmp_path / "index", seed, chance.randrange(1, 60))
        certain, maybe = possible(state, said)
        state = found(tmp_path / "index")
        assert state in (there(certain), there(maybe)), said[-1]
        kills[said[-1][0]] += said[-1][3] == "begins"
    assert sum(kills.values()) > ROUNDS / 3, "most kills hit a change"


def test_a_planted_loss_is_found(tmp_path: Path) -> None:
    said = changed(tmp_path / "index", 1, 40)
    certain, maybe = possible({}, said)
    with Index(tmp_path / "index", Words()) as index:
        index.remove([next(iter(there(certain)))])
    assert found(tmp_path / "index") not in (there(certain), there(maybe))


@pytest.mark.parametrize("moment", ["before the snapshot counts", "before the old one is gone"])
def test_a_kill_within_a_compaction_leaves_the_one_or_the_other(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(tmp_path / "index", 2, 41)
    before = found(tmp_path / "index")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with Index(tmp_path / "index", Words()) as index:
        if moment == "before the snapshot counts":
            monkeypatch.setattr(Passages, "settle", killed)
        else:
            monkeypatch.setattr(Index, "_sweep", killed)
        with pytest.raises(KeyboardInterrupt):
            index.compact(is_forced=True)
    monkeypatch.undo()
    assert found(tmp_path / "index") == before
    with Index(tmp_path / "index", Words()) as index:
        index.compact(is_forced=True)
    assert found(tmp_path / "index") == before
    assert len(list((tmp_path / "index").glob("codes-*"))) == 1
