"""kill -9 while an index is changed: it opens, and what was acknowledged is there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.rag_kills import State, changed, found, possible, there
from bench.words import Words
from scotfree.rag import Index
from scotfree.rag.passages import Passages

ROUNDS = 12


def test_what_was_acknowledged_is_there_after_each_of_many_kills(tmp_path: Path) -> None:
    chance, state = random.Random(4), State()
    kills = {"compact": 0, "put": 0, "remove": 0}
    # Where a kill falls is the machine's affair: rounds are added until enough of them fell within a change.
    for seed in range(5 * ROUNDS):
        if seed >= ROUNDS and sum(kills.values()) > ROUNDS / 3:
            break
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
        # The kill may have been in a compaction, too, and have left a file of its own.
        index.compact(is_forced=True)
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
