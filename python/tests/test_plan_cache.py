"""What a cache of reads would answer, and what its calls would take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import ANSWER_NS, answered, one_method, paced, staged
from small_store import spans, study_of

from scotfree.study.plan import accesses
from scotfree.study.plan.accesses import ENTRY_BYTES, Accesses
from scotfree.study.plan.calls import methods
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import Fit, fit
from scotfree.study.plan.forecasts import make
from scotfree.study.plan.price import Effect, Refused
from scotfree.study.plan.remedies import cache

READS = 1_000


@pytest.fixture(scope="module")
def fitted() -> Fit:
    """On calls that take 30 us behind a device."""
    return fit([(one_method(stages=staged(800), start_ns=paced(800)), one_method(**answered(800)))])


def played(asked: str, bytes_max: float = 1e9, size: float = 100.0, one_in: float = 1.0) -> str:
    """What becomes of reads (`a`), overwrites (`A=`) and other updates (`A+`): `!` is a hit."""
    words = [
        asked[place : place + 1 + (asked[place].isupper())]
        for place in range(len(asked))
        if asked[place].isalpha()
    ]
    keys = np.array([ord(word[0].lower()) for word in words])
    is_update = np.array([len(word) == 2 for word in words])
    is_overwrite = np.array([word.endswith("=") for word in words])
    sizes = np.full(len(words), size)
    hits = Accesses(np.arange(len(words)), keys, is_update, is_overwrite, sizes, one_in).hits(bytes_max)
    return "".join("!" if hit else "." for hit in hits)


def test_a_key_is_kept_from_its_second_read_on_and_lost_by_what_changes_it() -> None:
    assert played("aaaa") == "..!!"
    assert played("ababab") == "....!!"
    # What gives it its whole value leaves it known, and is no reason to keep a key that nobody read.
    assert played("aaA=a") == "...!" and played("A=A=a") == "..."
    # After any other update it has to be read again.
    assert played("aaA+aa") == "....!"


def test_what_was_not_asked_for_longest_makes_room() -> None:
    two = 2 * (100 + ENTRY_BYTES)
    assert played("aabbab", two) == "....!!"
    assert played("aabbccab", two) == "........"
    assert played("aabbaccab", two) == "....!..!."
    # One key in four is seen: so is a fourth of the cache.
    assert played("aabbab", 4 * two, one_in=4) == "....!!"
    assert played("aabbab", 4 * two - 1, one_in=4) == "......"
    # What is larger than the cache is not kept.
    assert played("aaa", ENTRY_BYTES) == "..."


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from("r=+")), max_size=120), st.integers(0, 6))
def test_it_is_what_a_list_of_keys_would_do(asked: list[tuple[int, str]], room: int) -> None:
    known: list[int] = []
    reads = [0] * 8
    expected = []
    for key, what in asked:
        hit = what == "r" and key in known
        expected.append(hit)
        reads[key] += what == "r" and not hit
        kept = key in known if what == "=" else what == "r" and (hit or reads[key] > 1)
        known = [other for other in known if other != key] + [key] * kept
        known = known[-room:] if room else []
    keys, kinds = np.array([key for key, _ in asked], np.int64), np.array([kind for _, kind in asked], str)
    found = Accesses(keys, keys, kinds != "r", kinds == "=", np.zeros(len(asked)), 1.0)
    assert found.hits(room * ENTRY_BYTES).tolist() == expected


def calls_of(keys: list[int], **columns: Any) -> dict[str, Any]:
    """Reads of these keys, one a millisecond, behind each other."""
    count = len(keys)
    return {
        "stages": staged(count),
        "start_ns": paced(count),
        "key_hash": keys,
        "resp_bytes": [100] * count,
        "method": ["GET"] * count,
    } | columns


def context_of(folder: Path, fitted: Fit | None, **columns: Any) -> tuple[Any, Context]:
    """The study and what a forecast may know of it."""
    study = study_of(folder, spans(**columns))
    context = Context(fits={"persist": fitted} if fitted else {}, is_one_machine=True)
    return study, Context(**(vars(context) | {"accesses": accesses.read(study, context)}))


def test_a_hit_takes_what_a_device_takes_and_the_others_what_they_did(tmp_path: Path, fitted: Fit) -> None:
    # Ten keys in turn, but every tenth read is of a key of its own.
    keys = [place % 10 if place % 10 else 1_000 + place for place in range(READS)]
    study, context = context_of(tmp_path, fitted, **calls_of(keys))
    priced = next(one for one in make(study, context, 5).prices if one.remedy == "cache")
    assert priced.pays and priced.at(0.50).forecast_ns == pytest.approx(3 * 10_000 + ANSWER_NS, rel=0.05)
    assert priced.at(0.95).forecast_ns == pytest.approx(priced.at(0.95).now_ns, rel=0.05)
    assert "hits: 88 % with 4.19 MB" in priced.notes[0] and "0 % of the service's calls" in priced.notes[0]
    # Nine values of 228 bytes fit no cache of 500 bytes in turn.
    small = Context(**(vars(context) | {"cache_bytes": 500.0}))
    none = next(one for one in make(study, small, 5).prices if one.remedy == "cache")
    assert not none.pays and none.at(0.50).forecast_ns == none.at(0.50).now_ns
    assert "0 % with 500 B" in none.notes[0]


def test_updates_of_other_methods_take_what_is_known_away(tmp_path: Path, fitted: Fit) -> None:
    for name, share in (("SET", 0.996), ("APPEND", 0.0)):
        keys, names = [7] * READS, ["GET", name] * (READS // 2)
        study, context = context_of(tmp_path / name, fitted, **calls_of(keys, method=names))
        calls = next(one for one in methods(study, 5) if one.method == "GET")
        found = context.accesses["Cart"]
        assert found.update_share == 0.5
        assert float(found.of(calls, found.hits(1e6)).mean()) == pytest.approx(share)


def test_it_says_what_is_missing(tmp_path: Path, fitted: Fit) -> None:
    reads = calls_of([1] * 200)
    without_keys = reads | {"key_hash": [None] * 200}
    study, context = context_of(tmp_path / "keys", fitted, **without_keys)
    refused = cache.forecast(next(methods(study, 1)), context)
    assert isinstance(refused, Refused) and "--trace-keys" in refused.reason
    study, context = context_of(tmp_path / "fit", None, **reads)
    refused = cache.forecast(next(methods(study, 1)), context)
    assert isinstance(refused, Refused) and "no fit of persist" in refused.reason
    study, context = context_of(tmp_path / "set", fitted, **reads | {"method": ["SET"] * 200})
    refused = cache.forecast(next(methods(study, 1)), context)
    assert isinstance(refused, Refused) and "update" in refused.reason
    study, context = context_of(tmp_path / "good", fitted, **reads)
    assert isinstance(cache.forecast(next(methods(study, 1)), context), Effect)
