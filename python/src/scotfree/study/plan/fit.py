"""The fit of a remedy: what experiments on a machine say of it, kept as JSON with its age and its commit.

For persist it is the device's answer time A: in place of request_wire … response_wire of a call to the server
there is, with the remedy, one time from the request's departure until the caller goes on. It is what a call's
total is above the stages that the remedy leaves alone, so it is known whoever answered. The wake-up of a caller
that waits is in it: after a short wait it takes less than after a long one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.study.plan import machine
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.load import load
from scotfree.study.trouble import StudyError

VERSION: Final = 2
AGE_MAX: Final = timedelta(days=30)
# What of a call the remedy leaves as it is.
KEPT: Final = ("client_send_queue", "request_stack")
RECEIVED: Final = "client_recv_queue"
# A machine's state drifts: the experiment is cut in so many parts of time, and the forecast is drawn from each.
PARTS: Final = 8
_RANKS: Final = (np.arange(200) + 0.5) / 200
_CALLS_MIN: Final = 400
# A caller that waited longer than all but so many of the experiment's to be woken has something else to do.
_WAKEUP: Final = 0.99
# Above any time, size and count that a fit may have.
_NS_MAX: Final = 1e18


@dataclass(frozen=True)
class Part:
    """What one part of the experiment says."""

    # A at evenly spaced ranks.
    answer_ns: list[float]


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
    # The median time on the wires without the remedy.
    wires_ns: float
    # How long nearly all callers take at most to be woken.
    wakeup_ns: float
    parts: list[Part]
    version: int = VERSION

    def age(self, now: datetime) -> timedelta:
        """Since when it is."""
        return now - datetime.fromisoformat(self.date)

    def answers(self, part: int) -> Floats:
        """A at evenly spaced ranks, in one part."""
        return np.array(self.parts[part].answer_ns)


def kept(calls: Calls) -> Floats:
    """What of each call the remedy leaves alone; NaN where a stage of it is not known."""
    total: Floats = np.sum([calls.ns(stage) for stage in KEPT], axis=0)
    return total


def fit(baseline: Calls, remedy: Calls, *, remedy_name: str = "persist") -> Fit:
    """Of real calls of one shape, without and with the remedy, made in turns on this machine."""
    without = _usable(baseline, "without the remedy")
    with_it = _usable(remedy, "with the remedy")
    state = load(without)
    if state.is_saturated:
        raise StudyError(
            "fit: the server of the experiment is saturated, so that a call's time is that of those before it",
            "repeat the experiment at a lower rate",
        )
    here = machine.this()
    return Fit(
        remedy_name,
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine.commit(),
        here.name,
        here.kernel,
        middle(without.floats("req_bytes")),
        state.outstanding,
        len(without),
        len(with_it),
        wires(without),
        float(np.quantile(without.ns(RECEIVED), _WAKEUP, method="inverted_cdf")),
        [_part(each) for each in _parts(with_it)],
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


def wires(calls: Calls) -> float:
    """The median time on the wires of a call; 0 if it is not known."""
    return middle(calls.ns("request_wire") + calls.ns("response_wire"))


def middle(values: Floats) -> float:
    """The median of what is known; 0 of nothing."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def _parts(calls: Calls) -> list[Calls]:
    """Equal parts in the order of time."""
    place = np.arange(len(calls)) * PARTS // len(calls)
    return [calls.only(place == part) for part in range(PARTS)]


def _part(remedy: Calls) -> Part:
    answers = np.quantile(remedy.total - kept(remedy), _RANKS, method="inverted_cdf")
    return Part([float(each) for each in answers])


def write(fit: Fit, to: Path) -> None:
    """Whole or not at all."""
    if to.is_dir():
        raise StudyError(
            f"write the fit {to}: it is a folder", f"name a file with -o, such as {to / 'persist.json'}"
        )
    to.parent.mkdir(parents=True, exist_ok=True)
    half = to.with_suffix(".half")
    half.write_text(json.dumps(asdict(fit), indent=1) + "\n")
    half.rename(to)


def read(path: Path) -> Fit:
    """A fit as it was written; of any age."""
    try:
        text: dict[str, Any] = json.loads(path.read_bytes())
        parts = [Part(**part) for part in text.pop("parts")]
        found = Fit(parts=parts, **text)
        wrong = _wrong(found)
    except OSError as error:
        raise StudyError(f"read the fit {path}: {error.strerror or error}", _anew(path)) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StudyError(f"read the fit {path}: it is none: {error}", _anew(path)) from None
    if found.version != VERSION:
        raise StudyError(
            f"read the fit {path}: it is of version {found.version}, this reads {VERSION}", _anew(path)
        )
    if wrong is not None:
        raise StudyError(f"read the fit {path}: it is none: {wrong}", _anew(path))
    return found


def _wrong(fit: Fit) -> str | None:
    """What of a fit cannot be: a forecast takes it as it is."""
    texts = (fit.remedy, fit.date, fit.commit, fit.machine, fit.kernel)
    if not all(isinstance(text, str) for text in texts) or datetime.fromisoformat(fit.date).tzinfo is None:
        return "a name is no text, or its date has no zone"
    counts = (fit.request_bytes, fit.outstanding, fit.baseline_calls, fit.remedy_calls)
    if not all(map(_is_amount, (*counts, fit.wires_ns, fit.wakeup_ns))):
        return "a size or count is none"
    answers = [answer for part in fit.parts for answer in part.answer_ns]
    if not fit.parts or not all(part.answer_ns for part in fit.parts):
        return "it has no answers"
    # A call's stages may come to a little more than its total.
    return None if all(_is_amount(answer, -_NS_MAX) for answer in answers) else "a time is none"


def _is_amount(value: object, low: float = 0) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= _NS_MAX


def stale(fit: Fit, now: datetime) -> str | None:
    """Why a fit must not be used here and now; None if it may."""
    here = machine.this()
    if fit.machine != here.name:
        return f"it was made on another machine ({fit.machine}; this is {here.name})"
    if fit.age(now) > AGE_MAX:
        return f"it is {fit.age(now).days} days old, and more than {AGE_MAX.days} are too many"
    if fit.age(now) < timedelta(hours=-1):
        return f"its date, {fit.date}, is to come"
    if machine.has_changed_since(fit.commit):
        return f"what it measured has changed since its commit {fit.commit[:12]}"
    return None


def _anew(path: Path) -> str:
    return f"make it anew: scot plan fit BASELINE… --remedy REMEDY… -o {path}"


def find(folder: Path, remedy: str, now: datetime) -> Fit:
    """The newest fit of a remedy in a folder that may be used; a `StudyError` says why there is none."""
    fits, others = _fits(folder)
    fits = [one for one in fits if one.remedy == remedy]
    usable = [one for one in fits if stale(one, now) is None]
    if usable:
        return max(usable, key=lambda one: datetime.fromisoformat(one.date))
    if not fits and others:
        raise others[0]
    why = f"the one in {folder}: {stale(fits[-1], now)}" if fits else f"there is none in {folder}"
    raise StudyError(f"use a fit of {remedy}: {why}", _anew(folder / f"{remedy}.json"))


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


def answer_median_ns(fit: Fit) -> float:
    """The median of A, over all parts."""
    return float(np.median([np.median(part.answer_ns) for part in fit.parts]))
