"""Which column of somebody's table is which of ours: `--map duration_ns=took:us`, or a file of TOML.

[columns]
trace_id = "traceId"
duration_ns = { from = "took", unit = "us" }
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scotfree.study import schema, toml
from scotfree.study.trouble import StudyError

UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
# When a call ended, for tables that say that instead of how long it took.
END: Final = "end_ns"
RELATIONS: Final = {
    "side": schema.SIDE,
    "span": schema.SPAN,
    "metric": schema.METRIC,
    "profile": schema.PROFILE,
}
# Said by the reader itself.
_OWN: Final = ("input", "record", "method_id")
TARGETS: Final = frozenset({END, *(name for of in RELATIONS.values() for name in of.names if name not in _OWN)})


@dataclass(frozen=True)
class Column:
    """A column of theirs, and the unit in which it gives times."""

    name: str
    unit: str = "ns"


@dataclass(frozen=True)
class ColumnMap:
    """Our columns' names -> theirs. A name that is not here means itself."""

    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def given(cls, words: Iterable[str]) -> ColumnMap:
        """From what `--map` was given: files, and pairs as `parse` takes them; the later word counts."""
        columns: dict[str, Column] = {}
        for word in words:
            one = cls.parse([word]) if "=" in word and not Path(word).exists() else cls.load(Path(word))
            columns |= one.columns
        return cls(columns)

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> ColumnMap:
        """From `ours=theirs` and `ours=theirs:unit`."""
        return cls(dict(_pair(pair) for pair in pairs))

    @classmethod
    def load(cls, path: Path) -> ColumnMap:
        """From a file of TOML."""
        advice = "give a file of TOML with a table [columns]"
        entries = toml.read(path, "read the mapping", advice).get("columns")
        if not isinstance(entries, dict):
            raise StudyError(f"read the mapping {path}: it has no table [columns]", "write the columns below it")
        return cls({ours: _entry(ours, entry) for ours, entry in entries.items()})

    def of(self, ours: str) -> Column:
        """Their column for ours."""
        return self.columns.get(ours, Column(ours))

    def digest(self) -> str:
        """What it is known again by; empty if it says nothing."""
        entries = sorted((ours, column.name, column.unit) for ours, column in self.columns.items())
        return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16] if entries else ""

    def check(self, theirs: Collection[str]) -> None:
        """That the columns which are named are there."""
        for ours, column in self.columns.items():
            if column.name not in theirs:
                raise StudyError(
                    f"take {ours} from the column {column.name}: there is none of that name",
                    nearest(column.name, theirs),
                )


def nearest(name: str, names: Collection[str]) -> str:
    """What to do about a name that is none of these."""
    plain = {_plain(other): other for other in names}
    found = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.5)
    if found:
        return f"the nearest is {plain[found[0]]}"
    return f"there are {', '.join(sorted(names)[:20])}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "")


def _pair(pair: str) -> tuple[str, Column]:
    ours, equals, theirs = pair.partition("=")
    if not equals or not theirs:
        raise StudyError(f"read the mapping {pair!r}: it has no =", "write OURS=THEIRS or OURS=THEIRS:UNIT")
    name, _, unit = theirs.rpartition(":")
    return ours, _column(ours, name, unit) if name and unit in UNITS else _column(ours, theirs, "ns")


def _entry(ours: str, entry: Any) -> Column:
    if isinstance(entry, str):
        return _column(ours, entry, "ns")
    if isinstance(entry, dict) and isinstance(entry.get("from"), str) and set(entry) <= {"from", "unit"}:
        return _column(ours, entry["from"], entry.get("unit", "ns"))
    raise StudyError(
        f"read the mapping of {ours}: {entry!r} is no column", 'write "THEIRS" or { from = "THEIRS", unit = "us" }'
    )


def _column(ours: str, name: str, unit: Any) -> Column:
    if ours not in TARGETS:
        raise StudyError(f"map to {ours}: the study has no such column", nearest(ours, TARGETS))
    if not isinstance(unit, str) or unit not in UNITS:
        raise StudyError(f"read {ours} in {unit!r}: that is no unit", f"units are {', '.join(UNITS)}")
    if unit != "ns" and not ours.endswith("_ns"):
        raise StudyError(f"read {ours} in {unit}: it is no time", "leave the unit out")
    return Column(name, unit)
