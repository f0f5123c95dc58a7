"""The usual names of a span table's columns, and a guess for those that have others: by their words and values.

What a name and its values say beyond doubt is taken (`known`); what is only likely is a suggestion for `--map`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import pyarrow as pa

from scotfree.study.ingest import convert
from scotfree.study.ingest.mapping import UNITS, Column, ColumnMap
from scotfree.study.ingest.spellings import END, NAMES, plain, usual_names

# The first rows of a table, by their columns; a time of a type of its own is a text.
Sample = Mapping[str, Sequence[Any]]

NEEDED: Final = ("trace_id", "span_id", "start_ns", "duration_ns")
# What a span table has at best: what a message counts.
WANTED: Final = (*NEEDED, "parent_id", "service", "name", "kind", "status")
_UNIT_NAMES: Final = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanoseconds", "unixnano"), "ns"),
    **dict.fromkeys(("us", "micro", "micros", "microseconds", "usec", "µs"), "us"),
    **dict.fromkeys(("ms", "milli", "millis", "milliseconds", "msec", "unixms"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "seconds", "unix"), "s"),
}
_TIMES: Final = ("start_ns", "duration_ns", END)
# Words of which one in a name makes it likely.
_HINTS: Final[dict[str, tuple[str, ...]]] = {
    "start_ns": ("start", "beg", "began", "open", "time", "date", "when", "at", "ts", "from"),
    END: ("end", "fin", "stop", "clos", "done", "until", "to"),
    "duration_ns": ("dur", "took", "take", "elaps", "lat", "ms", "us", "time", "cost", "spent", "rt"),
    "trace_id": ("trace", "request", "req", "corr", "session", "transaction", "tx", "root", "flow"),
    "parent_id": ("parent", "caller", "cause", "prev", "up"),
    "span_id": ("span", "call", "event", "uuid", "step", "seq", "key", "id"),
    "service": ("serv", "svc", "app", "component", "system", "process", "module", "who", "source"),
    "name": ("op", "endpoint", "url", "uri", "path", "route", "action", "rpc", "api", "what", "func", "method"),
    "kind": ("kind", "role", "side", "direction", "type"),
    "status": ("stat", "err", "code", "result", "outcome", "ok", "fail", "success"),
}
# Of times since 1970: from 2000 to 2100, in seconds.
_SECONDS: Final = (946_684_800, 4_102_444_800)
_DATE: Final = re.compile(
    r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,](?P<fraction>[0-9]+))?"
)
_WITH_UNIT: Final = re.compile(r"^\s*[0-9.]+\s*(ns|us|µs|μs|ms|s)\s*$")
OWN: Final = "own"
_NAMED_MIN: Final = 3
# What values alone say, whatever the name.
_CERTAIN: Final = 20


@dataclass
class Guess:
    """Which columns are which."""

    theirs: Sequence[str]
    # With what the user says.
    known: ColumnMap
    # Ours that the table needs, or would better have, and theirs that is likely.
    likely: dict[str, Column] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def lacking(self) -> list[str]:
        """Of the columns that a span must have those that are not known."""
        return [name for name in NEEDED if not self.has(name)]

    def has(self, ours: str) -> bool:
        """Whether a column of ours is known; an end stands for a duration."""
        names = (ours, END) if ours == "duration_ns" else (ours,)
        return any(self.known.of(name).name in self.theirs for name in names)

    @property
    def is_near(self) -> bool:
        """Whether names speak for a table of spans, and not only that there are columns."""
        named = [ours for ours, column in self.likely.items() if _hint(ours, column.name)]
        return len(named) + sum(self.has(ours) for ours in WANTED) >= _NAMED_MIN

    def flags(self) -> str:
        """What to paste so that all that is likely counts."""
        return " ".join(f"--map {shlex.quote(_pair(ours, column))}" for ours, column in self.likely.items())


def _pair(ours: str, column: Column) -> str:
    # Without a unit a name that ends like one would be taken for a shorter name in that unit.
    is_plain = column.unit == "ns" and column.name.rpartition(":")[2] not in UNITS
    return f"{ours}={column.name}" if is_plain else f"{ours}={column.name}:{column.unit}"


def guess(names: Sequence[str], sample: Sample, given: ColumnMap) -> Guess:
    """What the columns are: by what the user says, by our names, by usual names, and what they may be."""
    found = Guess(names, given)
    taken = {column.name for column in given.columns.values()} | (set(names) & _ours())
    usual = dict(given.columns)
    for ours, theirs in _usual(names, taken, set(usual)):
        column = _timed(ours, theirs, sample, usual, found) if ours in _TIMES else Column(theirs)
        if column is not None:
            usual[ours] = column
            taken.add(theirs)
    if "duration_ns" in usual or "duration_ns" in names:
        usual = {ours: column for ours, column in usual.items() if ours != END or END in given.columns}
    found.known = ColumnMap(usual)
    _suggest(found, names, sample)
    return found


def _ours() -> set[str]:
    return {*NAMES, *WANTED}


def _usual(names: Sequence[str], taken: Collection[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Ours and theirs, each once. Start before duration, whose unit may be that of the start."""
    spelled: dict[str, str] = {}
    for name in names:
        if name not in taken:
            spelled.setdefault(plain(name), name)
    for ours, usual in _spellings().items():
        if ours in known or ours in names:
            continue
        theirs = next((spelled[one] for one in usual if one in spelled), None)
        if theirs is not None:
            del spelled[plain(theirs)]
            yield ours, theirs


def _spellings() -> dict[str, list[str]]:
    """All usual names of each column, with units behind times."""
    found = usual_names()
    for ours in _TIMES:
        found[ours] += [name + unit for name in NAMES[ours] for unit in _UNIT_NAMES]
    return found


def _timed(ours: str, theirs: str, sample: Sample, known: Mapping[str, Column], found: Guess) -> Column | None:
    """The column with its unit; none if that cannot be known."""
    values = _values(sample, theirs)
    unit = (
        _named_unit(ours, theirs) or _own_unit(values) or (None if ours == "duration_ns" else epoch_unit(values))
    )
    if unit is None and ours == "duration_ns" and _are_numbers(values):
        unit = _unit_of_start(known)
        if unit is not None:
            found.notes.append(f"the unit of {theirs} is not named: taken as that of the start, {unit}")
    return None if unit is None else Column(theirs, "ns" if unit == OWN else unit)


def _unit_of_start(known: Mapping[str, Column]) -> str | None:
    """Seconds are of no use to guess by: who writes starts in seconds often writes durations in milliseconds."""
    start = known.get("start_ns")
    return start.unit if start is not None and _is_number_of(start) else None


def _is_number_of(start: Column) -> bool:
    return start.unit in ("us", "ms") or _named_unit("start_ns", start.name) == "ns"


def _named_unit(ours: str, theirs: str) -> str | None:
    word = plain(theirs)
    if word in NAMES[ours]:
        return None
    return next((unit for end, unit in _UNIT_NAMES.items() if word in {name + end for name in NAMES[ours]}), None)


def _own_unit(values: Sequence[Any]) -> str | None:
    """Of dates, and of numbers with a unit."""
    texts = [value for value in values if isinstance(value, str)]
    good = sum(bool(_DATE.match(text) or _WITH_UNIT.match(text)) for text in texts)
    return OWN if texts and good > len(values) // 2 else None


def epoch_unit(values: Sequence[Any]) -> str | None:
    """The unit in which numbers are times since 1970; none if they are not, such as those that begin at 0."""
    numbers = _numbers(values)
    if not numbers or len(numbers) <= len(values) // 2:
        return None
    middle = median(numbers)
    sizes = {unit: 10**9 // ns for unit, ns in UNITS.items()}
    return next((unit for unit, size in sizes.items() if _SECONDS[0] * size <= middle < _SECONDS[1] * size), None)


def unit_of_fractions(ours: str, theirs: str, sample: Sample) -> str | None:
    """The likely unit of numbers that are not whole; none where all are, or say their own."""
    values = _values(sample, theirs)
    if all(number.is_integer() for number in _numbers(values)):
        return None
    return "ms" if ours in ("duration_ns", "total_ns") else epoch_unit(values) or "ms"


def _are_numbers(values: Sequence[Any]) -> bool:
    return bool(values) and len(_numbers(values)) > len(values) // 2


def _numbers(values: Sequence[Any]) -> list[float]:
    return [number for value in values if (number := _number(value)) is not None]


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 <= found < float("inf") else None


def _values(sample: Sample, name: str) -> list[Any]:
    return [value for value in sample.get(name, ()) if value is not None]


def _suggest(found: Guess, names: Sequence[str], sample: Sample) -> None:
    """For each column that is not known the likeliest of those that are left."""
    taken = {found.known.of(ours).name for ours in (*WANTED, END, *found.known.columns)}
    left = [name for name in names if name not in taken]
    for ours in (
        "start_ns",
        "duration_ns",
        "trace_id",
        "parent_id",
        "span_id",
        "status",
        "kind",
        "service",
        "name",
    ):
        if found.has(ours):
            continue
        for each in (ours, END) if ours == "duration_ns" else (ours,):
            column = _likeliest(each, left, sample, found)
            if column is not None:
                found.likely[each] = column
                left.remove(column.name)
                break


def _likeliest(ours: str, left: Sequence[str], sample: Sample, found: Guess) -> Column | None:
    scored = [
        (score, -at, name) for at, name in enumerate(left) if (score := _score(ours, name, sample, found)) > 0
    ]
    if not scored:
        return None
    name = max(scored)[2]
    return Column(name, _likely_unit(ours, name, sample, found) if ours in _TIMES else "ns")


def _score(ours: str, name: str, sample: Sample, found: Guess) -> int:
    """By words, and by whether the values can be that at all; 0 if not, or if nothing speaks for it."""
    word = plain(name)
    hint = _hint(ours, name)
    usual = 20 if word in _spellings()[ours] else 0
    fit = _fit(ours, name, sample, found)
    return hint + usual + fit if fit > 0 and (hint or usual or ours in NEEDED or fit >= _CERTAIN) else 0


def _hint(ours: str, name: str) -> int:
    """The first words of a list say more than the last."""
    hints, word = _HINTS[ours], plain(name)
    return max((len(hints) - at + 4 for at, one in enumerate(hints) if one in word), default=0)


def _fit(ours: str, name: str, sample: Sample, found: Guess) -> int:
    values = _values(sample, name)
    if ours in ("start_ns", END):
        return 9 if epoch_unit(values) or _is_dates(values) else 1 if _are_numbers(values) and ours != END else 0
    if ours == "duration_ns":
        is_duration = (_are_numbers(values) and epoch_unit(values) is None) or _own_unit(values) == OWN
        return 0 if not is_duration or _is_dates(values) else 3
    if epoch_unit(values) is not None or _is_dates(values) or not values:
        return 0
    return _fit_of_ids(ours, name, sample, found) if ours.endswith("_id") else _fit_of_texts(ours, values)


def _fit_of_ids(ours: str, name: str, sample: Sample, found: Guess) -> int:
    """A span's id occurs once, a trace's more often, and a parent's is that of another span."""
    values, is_one_each = _values(sample, name), _is_one_each(name, sample)
    if ours == "trace_id":
        return 6 if 1 < len(set(values)) < len(values) else 1
    if ours == "span_id":
        parent = found.likely.get("parent_id") or found.known.columns.get("parent_id")
        is_parents = parent is not None and set(_values(sample, parent.name)) <= set(values)
        return 1 + 8 * is_one_each + _CERTAIN * (is_one_each and is_parents)
    others = [other for other in sample if other != name and _is_one_each(other, sample)]
    return _CERTAIN if any(set(values) <= set(_values(sample, other)) for other in others) else 1


def _is_one_each(name: str, sample: Sample) -> bool:
    """Whether each row has a value of its own."""
    return None not in sample[name] and len(set(sample[name])) == len(sample[name])


def _fit_of_texts(ours: str, values: list[Any]) -> int:
    if ours == "kind":
        kinds = convert.kinds(pa.array(sorted({str(value) for value in values}), pa.string()))
        return 9 if kinds.null_count == 0 else 0
    if ours in ("service", "name"):
        return 0 if _are_numbers(values) else 3
    return 2


def _is_dates(values: Sequence[Any]) -> bool:
    good = sum(isinstance(value, str) and bool(_DATE.match(value)) for value in values)
    return good > len(values) // 2


def _likely_unit(ours: str, name: str, sample: Sample, found: Guess) -> str:
    values = _values(sample, name)
    named = _named_unit(ours, name) or _unit_in(name)
    if named or _own_unit(values) == OWN:
        return named or "ns"
    if ours != "duration_ns":
        return epoch_unit(values) or "ms"
    return _unit_beside(found.known.columns.get("start_ns") or found.likely.get("start_ns"), sample)


def _unit_in(name: str) -> str | None:
    """A unit that is a word of the name."""
    words = re.split(r"[^a-zµ]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return next((_UNIT_NAMES[word] for word in reversed(words) if word in _UNIT_NAMES and word != "s"), None)


def _unit_beside(start: Column | None, sample: Sample) -> str:
    """That of the start, as fine as its dates are."""
    if start is None:
        return "ms"
    values = _values(sample, start.name)
    if not _is_dates(values):
        return start.unit if start.unit != "s" else "ms"
    matches = [_DATE.match(value) for value in values if isinstance(value, str)]
    digits = max((len(match["fraction"] or "") for match in matches if match), default=0)
    return "ns" if digits > 6 else "us" if digits > 3 else "ms"
