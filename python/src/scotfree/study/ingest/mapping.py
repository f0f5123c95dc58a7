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
from scotfree.study.ingest import spellings
from scotfree.study.ingest.spellings import END
from scotfree.study.trouble import StudyError

UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
RELATIONS: Final = {
    "side": schema.SIDE,
    "span": schema.SPAN,
    "metric": schema.METRIC,
    "profile": schema.PROFILE,
}
# Said by the reader itself, or by the merge.
_OWN: Final = ("input", "record", "method_id", "request_side_ns", "response_side_ns", "provenance")
# How like a name must be to be meant, and what is said where none is.
_NEAR: Final = 0.75
_MOST: Final = ("trace_id", "span_id", "parent_id", "start_ns", "duration_ns", "service", "name", "kind", "status")
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
        return cls({_ours(name): _entry(_ours(name), entry) for name, entry in entries.items()})

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
                _check_unit(ours, column.name, theirs)
                raise StudyError(
                    f"take {ours} from the column {column.name}: there is none of that name",
                    nearest(column.name, theirs),
                )


def _check_unit(ours: str, name: str, theirs: Collection[str]) -> None:
    """A column of theirs with what is no unit behind it."""
    bare, _, unit = name.rpartition(":")
    if bare in theirs:
        raise _no_unit(ours, unit)


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
    ours = _ours(ours)
    return ours, _column(ours, name, unit) if name and unit in UNITS else _column(ours, theirs, "ns")


def _entry(ours: str, entry: Any) -> Column:
    if isinstance(entry, str):
        return _column(ours, entry, "ns")
    if isinstance(entry, dict) and isinstance(entry.get("from"), str) and set(entry) <= {"from", "unit"}:
        return _column(ours, entry["from"], entry.get("unit", "ns"))
    raise StudyError(
        f"read the mapping of {ours}: {entry!r} is no column", 'write "THEIRS" or { from = "THEIRS", unit = "us" }'
    )


def _ours(name: str) -> str:
    """Our column of that name, which may be a usual one."""
    if name in TARGETS:
        return name
    usual: dict[str, str] = {spellings.plain(ours): ours for ours in sorted(TARGETS)}
    usual |= {word: ours for ours, words in spellings.usual_names().items() for word in words}
    found = usual.get(spellings.plain(name))
    if found is None:
        near = difflib.get_close_matches(spellings.plain(name), usual, n=1, cutoff=_NEAR)
        advice = f"perhaps {usual[near[0]]}" if near else f"of spans there are {', '.join(_MOST)}"
        raise StudyError(f"map to {name}: the study has no such column", f"{advice}; docs/study-inputs.md has all")
    return found


def _no_unit(ours: str, unit: Any) -> StudyError:
    return StudyError(f"read {ours} in {unit!r}: that is no unit", f"units are {', '.join(UNITS)}")


def _column(ours: str, name: str, unit: Any) -> Column:
    if not isinstance(unit, str) or unit not in UNITS:
        raise _no_unit(ours, unit)
    if unit != "ns" and not ours.endswith("_ns"):
        raise StudyError(f"read {ours} in {unit}: it is no time", "leave the unit out")
    return Column(name, unit)
