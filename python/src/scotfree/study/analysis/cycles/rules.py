"""The ordered table of rules that gives a frame its category, read from TOML and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import toml
from scotfree.study.trouble import StudyError

# Study-spec 5.3. What the published tax consists of (figure 20) stands first.
TAX: Final = ("compression", "networking", "serialization", "rpc_library")
CATEGORIES: Final = (*TAX, "encryption", "allocation_memcpy", "kernel", "runtime", "application", "idle")
UNCLASSIFIED: Final = "unclassified"
# A frame of these belongs to the nearest caller with a category of the tax, if there is one.
SPLIT: Final = ("allocation_memcpy",)
# Not a category: the frame says nothing, its caller is asked.
PASS: Final = "pass"

_OURS: Final = Path(__file__).with_name("rules.toml")
_KEYS: Final = {"name", "category", "symbol", "module", "namespace"}
_PROGRAM: Final = "program"
# Names that no program has, in the shapes of several languages, and files: who matches all matches anything.
_NONSENSE_SYMBOLS: Final = ("qzx_vwj_kkpt", "Zqx7::Jjwv::pqzk", "wqz.xjk.(*Vzq).Hjx")
_NONSENSE_MODULES: Final = ("/qzx/vwj", "vwj", "/qzx/libvwj.so.1", "[vwj]")


@dataclass(frozen=True)
class Rule:
    """Frames that meet every condition given belong to the category."""

    name: str
    category: str
    symbol: str | None = None
    module: str | None = None
    # Whether the symbol's crate, package or namespace must have the name of the file it stands in.
    is_of_program: bool = False


@dataclass(frozen=True)
class Rules:
    """The table, first match wins; `version` is that of ours."""

    version: int
    table: tuple[Rule, ...]


def load(user_files: tuple[Path, ...] = ()) -> Rules:
    """Our rules, behind those of the user's files in their order."""
    ours = _parse(_OURS)
    users = [rule for path in user_files for rule in _rules(path, _parse(path))]
    return Rules(int(ours["version"]), (*users, *_rules(_OURS, ours)))


def _parse(path: Path) -> dict[str, Any]:
    return toml.read(path, "read rules of", "name a file of [[rule]] tables (docs/cycle-tax.md)")


def _rules(path: Path, text: dict[str, Any]) -> list[Rule]:
    entries = text.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise StudyError(f"read rules of {path}: `rule` is no list of tables", "begin each rule with [[rule]]")
    return [_rule(entry, f"{path}, rule {number}") for number, entry in enumerate(entries, 1)]


def _rule(entry: dict[str, Any], place: str) -> Rule:
    unknown = set(entry) - _KEYS
    if unknown or not all(isinstance(value, str) for value in entry.values()):
        allowed = ", ".join(sorted(_KEYS))
        raise StudyError(f"read {place}: {sorted(unknown) or 'a value'} is not understood", f"texts of: {allowed}")
    if entry.get("category") not in (*CATEGORIES, PASS):
        names = ", ".join((*CATEGORIES, PASS))
        raise StudyError(f"read {place}: no category {entry.get('category')!r}", f"use one of {names}")
    if entry.get("namespace", _PROGRAM) != _PROGRAM:
        raise StudyError(f"read {place}: no namespace {entry['namespace']!r}", f"the only one is {_PROGRAM!r}")
    rule = Rule(
        entry.get("name", place),
        entry["category"],
        entry.get("symbol"),
        entry.get("module"),
        "namespace" in entry,
    )
    _check_patterns(rule, place)
    return rule


def _check_patterns(rule: Rule, place: str) -> None:
    if rule.symbol is None and rule.module is None and not rule.is_of_program:
        raise StudyError(f"read {place}: it has neither `symbol` nor `module`", "give it a pattern")
    takes_all = [
        _takes_all(rule.symbol, _NONSENSE_SYMBOLS, place),
        _takes_all(rule.module, _NONSENSE_MODULES, place),
    ]
    if rule.category != PASS and not rule.is_of_program and all(takes_all):
        advice = "name what it is to match: a share that takes all the rest says nothing"
        raise StudyError(f"read {place}: it matches anything", advice)


def _takes_all(pattern: str | None, names: tuple[str, ...], place: str) -> bool:
    if pattern is None:
        return True
    try:
        return all(pc.match_substring_regex(pa.array(names), pattern).to_pylist())
    except pa.ArrowInvalid as error:
        advice = "patterns are RE2: no look-around, no back references"
        raise StudyError(f"read {place}: {pattern!r}: {error}", advice) from None
