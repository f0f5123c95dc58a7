"""The fit of a remedy: what experiments on a machine say of it, kept as JSON with its age and its commit.

For persist it is the device's answer time A: in place of request_wire … response_wire of a call to the server
there is, with the remedy, one time from the request's departure until the caller goes on. It is what a call's
total is above the stages that the remedy leaves alone, so it is known whoever answered. The wake-up of a caller
that waits is in it: after a short wait it takes less than after a long one. And it is longer after a pause, in
which processors go to sleep; so an experiment calls at several rates, and A is kept by the pause before the call.
Where calls follow closely, a server that works is in the way of the next one; so it may have several servers, and
A is kept by how long one works on a call as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from scotfree.study.figures.words import duration, percent, size
from scotfree.study.plan import machine, pauses
from scotfree.study.plan.calls import Calls, Floats, Integers, Truths
from scotfree.study.plan.load import load
from scotfree.study.trouble import StudyError

VERSION: Final = 4
AGE_MAX: Final = timedelta(days=30)
# What of a call the remedy leaves as it is.
KEPT: Final = ("client_send_queue", "request_stack")
RECEIVED: Final = "client_recv_queue"
WORK: Final = "server_app"
# A machine's state drifts: the experiment is cut in so many parts of time, and the forecast is drawn from each.
PARTS: Final = 8
RANKS: Final = 200
_RANKS: Final = (np.arange(RANKS) + 0.5) / RANKS
# Pauses are looked at in steps of a factor of 1.4, above 1 us; with less than such a share of calls one is empty.
_STEP: Final = 0.5 * np.log(2.0)
_FULL: Final = 0.01
# Of a rate with fewer calls nothing is kept, if there are others.
_ALIKE_MIN: Final = 25 * PARTS
_AROUND: Final = 31
_US: Final = 1_000.0
_CALLS_MIN: Final = 400
# Nearly all calls of the experiment: a caller that is woken later has something else to do, and a call that is
# longer on the wires goes another way.
_NEARLY_ALL: Final = 0.99
# Of calls of one shape the middle request is of one size on both sides.
_SIZE_FACTOR: Final = 1.5
# A device that is full, or still to be opened, leaves a few calls to the server.
_BY_DEVICE_MIN: Final = 0.5
# Above any time, size and count that a fit may have.
_NS_MAX: Final = 1e18
# A fit of ten rates has 400 kB.
_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True)
class Answers:
    """A of calls after pauses alike, to a server that works alike."""

    # The median of what the server works on one without the remedy.
    work_ns: float
    # The median of the pauses.
    pause_ns: float
    # For each part of the experiment A at evenly spaced ranks.
    parts: list[list[float]]

    @property
    def median_ns(self) -> float:
        """The median of A, over all parts."""
        return float(np.median([np.median(part) for part in self.parts]))


@dataclass(frozen=True)
class Fit:
    """A remedy's experiments on one machine."""

    remedy: str
    date: str
    commit: str
    machine: str
    kernel: str
    # What the experiment's requests were.
    request_bytes: float
    outstanding: float
    baseline_calls: int
    remedy_calls: int
    # The time on the wires without the remedy: the median, and what nearly all calls take at most.
    wires_ns: float
    wires_most_ns: float
    # How long nearly all callers take at most to be woken.
    wakeup_ns: float
    # In the order of their servers' work, then of their pauses.
    answers: list[Answers]
    version: int = VERSION
    # What it was made with, in words; nothing where traces were given.
    about: str = ""

    def age(self, now: datetime) -> timedelta:
        """Since when it is."""
        return now - datetime.fromisoformat(self.date)

    def answer(self, part: int, works_ns: Floats, pauses_ns: Floats, ranks: Integers) -> Floats:
        """A of calls that a server works so long on, after pauses, at one of `RANKS` ranks each, in one part.

        Between two servers and two pauses of the experiment in proportion to their logarithms.
        """
        works = sorted({each.work_ns for each in self.answers})
        of_each = [self._after(part, works[0], pauses_ns, ranks)]
        for work in works[1:]:
            # After a longer rest than it was tried with, a server that works has long been ready.
            is_tried = pauses_ns <= max(each.pause_ns for each in self.answers if each.work_ns == work)
            of_each.append(np.where(is_tried, self._after(part, work, pauses_ns, ranks), of_each[0]))
        return _between(np.array(of_each), _places(works, works_ns), np.arange(len(ranks)))

    def _after(self, part: int, work_ns: float, pauses_ns: Floats, ranks: Integers) -> Floats:
        own = [each for each in self.answers if each.work_ns == work_ns]
        known = np.array([each.parts[part] for each in own])
        return _between(known, _places([each.pause_ns for each in own], pauses_ns), ranks)

    @property
    def in_words(self) -> str:
        """A after each pause."""
        usual = self.answers[0].work_ns
        each = [
            f"in {duration(one.median_ns)} after {duration(one.pause_ns)}"
            + (f" where the server works {duration(one.work_ns)}" if one.work_ns != usual else "")
            for one in self.answers
        ]
        which = self.about or "the device"
        return f"{which} answers (median, after a pause of): {', '.join(each)}"


def _log(times_ns: Any) -> Floats:
    """Pauses, and works, as they are told apart: below 1 us they are alike."""
    found: Floats = np.log1p(np.asarray(times_ns) / _US)
    return found


def _places(known_ns: Sequence[float], times_ns: Floats) -> Floats:
    """Between which two of what is known each is, and where between: 1.5 is midway between those at 1 and 2."""
    found: Floats = np.interp(_log(times_ns), _log(known_ns), np.arange(len(known_ns)))
    return found


def _between(known: Floats, places: Floats, columns: Integers) -> Floats:
    """Of two rows what is at each place between them, in its column."""
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, len(known) - 1)
    found: Floats = known[low, columns] * (1 - (places - low)) + known[high, columns] * (places - low)
    return found


def kept(calls: Calls) -> Floats:
    """What of each call the remedy leaves alone; NaN where a stage of it is not known."""
    total: Floats = np.sum([calls.ns(stage) for stage in KEPT], axis=0)
    return total


# Calls without and with the remedy.
Experiment = tuple[Calls, Calls]


def fit(experiments: Sequence[Experiment], *, remedy_name: str = "persist") -> Fit:
    """Of real calls of one shape, without and with the remedy, made in turns on this machine, for each server.

    The first server's calls say what the ways and a wake-up take.
    """
    usable = [_both(baseline, remedy) for baseline, remedy in experiments]
    without = usable[0][0]
    state = load(without)
    here = machine.this()
    answers = [each for baseline, remedy in usable for each in _answers(middle(baseline.ns(WORK)), remedy)]
    return Fit(
        remedy_name,
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine.commit(),
        here.name,
        here.kernel,
        middle(without.floats("req_bytes")),
        state.outstanding,
        sum(len(baseline) for baseline, _ in usable),
        sum(len(remedy) for _, remedy in usable),
        middle(wires(without)),
        _most(wires(without)),
        _most(without.ns(RECEIVED)),
        sorted(answers, key=lambda each: (each.work_ns, each.pause_ns)),
    )


def _both(baseline: Calls, remedy: Calls) -> Experiment:
    """What of an experiment's calls says something; a `StudyError` says why nothing does."""
    without = _usable(baseline, "without the remedy")
    with_it = _usable(remedy, "with the remedy")
    _refuse_others(without, with_it)
    if load(without).is_saturated:
        raise StudyError(
            "fit: the server of the experiment is saturated, so that a call's time is that of those before it",
            "repeat the experiment at a lower rate",
        )
    return without, with_it.only(~_by_server(with_it))


def _by_server(calls: Calls) -> Truths:
    """Which calls the server itself answered: of a device's answers the server's time is not known, or 0."""
    which: Truths = np.nan_to_num(calls.ns(WORK)) > 0
    return which


def _refuse_others(without: Calls, with_it: Calls) -> None:
    """A `StudyError` says why these are no calls of one shape, without and with the remedy."""
    shares = [float(1 - _by_server(calls).mean()) for calls in (without, with_it)]
    if shares[0] > shares[1] and shares[0] >= _BY_DEVICE_MIN:
        raise StudyError(
            f"fit: a device answered {percent(shares[0])} of the calls without the remedy and "
            f"{percent(shares[1])} of those with it",
            "name those without the remedy first, those with it after --remedy",
        )
    if shares[1] < _BY_DEVICE_MIN:
        raise StudyError(
            f"fit: the server answered {percent(1 - shares[1])} of the calls with the remedy, and no device did",
            "record them with --mode early behind a device that has room for them (scot doctor), and of updates "
            "(--method); name those with the remedy after --remedy",
        )
    sizes = [middle(calls.floats("req_bytes")) for calls in (without, with_it)]
    if min(sizes) > 0 and max(sizes) > _SIZE_FACTOR * min(sizes):
        raise StudyError(
            f"fit: the requests without the remedy are of {size(sizes[0])} and those with it of {size(sizes[1])}",
            "record calls of one shape on both sides, or choose a method with --method",
        )


def _usable(calls: Calls, which: str) -> Calls:
    needed = (*KEPT, RECEIVED)
    found = calls.only(calls.known(needed))
    if len(found) < _CALLS_MIN:
        raise StudyError(
            f"fit: of the calls {which} {len(found)} have {', '.join(needed)}, and {_CALLS_MIN} are needed",
            "record every call of the experiment with its rpc.stage.* attributes",
        )
    return found


def wires(calls: Calls) -> Floats:
    """The time on the wires of each call; NaN where it is not known."""
    return calls.ns("request_wire") + calls.ns("response_wire")


def _most(values: Floats) -> float:
    """What nearly all of what is known takes at most; 0 of nothing."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, _NEARLY_ALL, method="inverted_cdf")) if len(known) else 0.0


def middle(values: Floats) -> float:
    """The median of what is known; 0 of nothing."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _answers(work_ns: float, calls: Calls) -> list[Answers]:
    """By the usual pause around each call: that before it alone is short where the call before it was slow."""
    rested = _around(pauses.before(calls))
    rates = _rates(rested)
    chosen = [which for rate in np.unique(rates[rates >= 0]) if (which := rates == rate).sum() >= _ALIKE_MIN]
    # A call's stages may come to a little more than its total.
    answer_ns = np.maximum(calls.total - kept(calls), 0.0)
    return [
        Answers(work_ns, float(np.median(rested[which])), _parts(answer_ns[which]))
        for which in chosen or [np.ones(len(calls), np.bool_)]
    ]


def _rates(rested: Floats) -> Integers:
    """Which of the experiment's few rates each call is of; -1 of a step with few calls, between or beyond rates.

    Steps side by side are of one rate, for a boundary among its calls would tell slow moments from quick ones.
    """
    step = np.floor(_log(rested) / _STEP).astype(np.int64)
    is_full = np.bincount(step) >= _FULL * len(step)
    begins = is_full & ~np.concatenate([[False], is_full[:-1]])
    rates: Integers = np.where(is_full, np.cumsum(begins) - 1, -1)[step]
    return rates


def _around(values: Floats) -> Floats:
    """The median of each with its neighbours in time."""
    reach = (min(_AROUND, len(values)) - 1) // 2
    windows = sliding_window_view(np.pad(values, reach, mode="edge"), 2 * reach + 1)
    found: Floats = np.median(windows, axis=1)
    return found


def _parts(answer_ns: Floats) -> list[list[float]]:
    """Equal parts in the order of time, each at evenly spaced ranks."""
    place = np.arange(len(answer_ns)) * PARTS // len(answer_ns)
    ranked = [np.quantile(answer_ns[place == part], _RANKS, method="inverted_cdf") for part in range(PARTS)]
    return [[float(answer) for answer in part] for part in ranked]


def write(fit: Fit, to: Path) -> None:
    """Whole or not at all."""
    check(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    half = to.with_suffix(".half")
    try:
        half.write_text(json.dumps(asdict(fit), indent=1) + "\n")
        half.rename(to)
    finally:
        # What a full disk has left takes room that is wanted.
        half.unlink(missing_ok=True)


def check(to: Path) -> None:
    """That a fit can be written there and removes nothing but an earlier fit; a `StudyError` otherwise."""
    advice = "name a file with -o, such as fits/persist.json"
    if to.is_dir():
        raise StudyError(f"write the fit {to}: it is a folder", f"{advice}, such as {to / 'persist.json'}")
    if to.exists() and not to.is_file():
        raise StudyError(f"write the fit {to}: it is a pipe or a device", advice)
    if to.exists() and not _is_some_fit(to):
        raise StudyError(f"write the fit {to}: it is there, and no fit", advice)
    # Calls are made for half a minute before it is written.
    folder = next(one for one in to.absolute().parents if one.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise StudyError(f"write the fit {to}: nothing can be written in {folder}", advice)


def _is_some_fit(path: Path) -> bool:
    """Of whatever version."""
    with suppress(OSError, ValueError, RecursionError):
        text = json.loads(path.read_bytes()) if path.stat().st_size <= _BYTES_MAX else None
        return isinstance(text, dict) and {"remedy", "version", "machine"} <= set(text)
    return False


def read(path: Path) -> Fit:
    """A fit as it was written; of any age."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise StudyError(f"read the fit {path}: it is none: it is too large for one", _anew(path))
        text: dict[str, Any] = json.loads(path.read_bytes())
        version = text["version"]
        if version != VERSION or not isinstance(version, int):
            raise StudyError(
                f"read the fit {path}: it is of version {version!r}, this reads {VERSION}", _anew(path)
            )
        answers = [Answers(**one) for one in text.pop("answers")]
        found = Fit(answers=answers, **text)
        wrong = _wrong(found)
    except OSError as error:
        raise StudyError(f"read the fit {path}: {error.strerror or error}", _anew(path)) from None
    except (ValueError, RecursionError) as error:
        raise StudyError(f"read the fit {path}: it is none: {error}", _anew(path)) from None
    except (TypeError, KeyError, AttributeError, IndexError):
        raise StudyError(f"read the fit {path}: it is none: it has not the fields of one", _anew(path)) from None
    if wrong is not None:
        raise StudyError(f"read the fit {path}: it is none: {wrong}", _anew(path))
    return found


def _wrong(fit: Fit) -> str | None:
    """What of a fit cannot be: a forecast takes it as it is."""
    texts = (fit.remedy, fit.date, fit.commit, fit.machine, fit.kernel, fit.about)
    if not all(map(_is_line, texts)) or datetime.fromisoformat(fit.date).tzinfo is None:
        return "a name is no text of one line, or its date has no zone"
    if not re.fullmatch("[0-9a-f]{0,64}", fit.commit):
        return "its commit is none"
    counts = (fit.request_bytes, fit.outstanding, fit.baseline_calls, fit.remedy_calls)
    if not all(map(_is_amount, (*counts, fit.wires_ns, fit.wires_most_ns, fit.wakeup_ns))):
        return "a size or count is none"
    told = [(each.work_ns, each.pause_ns) for each in fit.answers]
    if not told or not all(map(_is_amount, chain.from_iterable(told))) or told != sorted(set(told)):
        return "it has no works and pauses, or not in their order"
    parts = [part for each in fit.answers for part in each.parts]
    if any(len(each.parts) != PARTS for each in fit.answers) or any(len(part) != RANKS for part in parts):
        return "it has no answers, or not as many as it should"
    return None if all(_is_amount(one) for part in parts for one in part) else "a time is none"


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value.splitlines() in ([], [value])


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _NS_MAX


def stale(fit: Fit, now: datetime) -> str | None:
    """Why a fit must not be used here and now; None if it may."""
    here = machine.this()
    if fit.machine != here.name:
        return f"it was made on another machine ({fit.machine}; this is {here.name})"
    if fit.kernel != here.kernel:
        return f"it was made under another kernel ({fit.kernel}; this is {here.kernel})"
    if fit.age(now) > AGE_MAX:
        return f"it is {fit.age(now).days} days old, and more than {AGE_MAX.days} are too many"
    if fit.age(now) < timedelta(hours=-1):
        return f"its date, {fit.date}, is to come"
    if machine.has_changed_since(fit.commit, fit.remedy):
        return f"what it measured has changed since its commit {fit.commit[:12]}"
    return None


def _anew(path: Path) -> str:
    return f"make it anew: scot plan fit --here -o {path}"


def _first(path: Path) -> str:
    return f"make one on this machine, in half a minute: scot plan fit --here -o {path}"


def find(folder: Path, remedy: str, now: datetime) -> Fit:
    """The newest fit of a remedy in a folder that may be used; a `StudyError` says why there is none."""
    fits, others = _fits(folder)
    fits = [one for one in fits if one.remedy == remedy]
    usable = [one for one in fits if stale(one, now) is None]
    if usable:
        return max(usable, key=lambda one: datetime.fromisoformat(one.date))
    if not fits and others:
        raise others[0]
    path = folder / f"{remedy}.json"
    if fits:
        raise StudyError(f"use a fit of {remedy}: the one in {folder}: {stale(fits[-1], now)}", _anew(path))
    raise StudyError(f"use a fit of {remedy}: there is none in {folder}", _first(path))


def _fits(folder: Path) -> tuple[list[Fit], list[StudyError]]:
    """What can be read; what is no fit does not stand in the way of one."""
    fits: list[Fit] = []
    others: list[StudyError] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            fits.append(read(path))
        except StudyError as error:
            others.append(error)
    return fits, others
