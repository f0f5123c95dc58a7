"""Stacks to categories: from the leaf upward the first frame with a rule decides (study-spec 5.3).

So zlib called by an RPC library is compression. A frame that only serves its caller (an allocation, a copy)
belongs to the nearest caller with a rule, if that is of the tax: a memcpy called by protobuf is serialization.
Rules are asked once per distinct frame, frames once per distinct stack, both as columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis.cycles.rules import PASS, SPLIT, TAX, UNCLASSIFIED, Rules

_NONE = -1
# The crate or namespace that a symbol begins with, also that of `<&mut cart::Cart as core::fmt::Debug>::fmt`.
_FIRST_NAME = re.compile(r"^<*&?(?:mut )?([A-Za-z_][A-Za-z0-9_]*)(?:::|\.)")
# Shorter names meet others by chance.
_PROGRAM_CHARS_MIN = 3
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Classified:
    """What became of each stack, in their order."""

    category: pa.Array
    # The rule that decided; null where none did.
    rule: pa.Array
    # How many callers were asked before one had a rule: 0 means the leaf itself. Null where none had.
    callers: pa.Array


def classify(stacks: pa.Array, modules: pa.Array, rules: Rules) -> Classified:
    """Classifies stacks, given root first; `modules` is parallel to their frames, or null."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(stacks), 0), dtype=np.int64)
    ends = np.cumsum(lengths)
    frame_rules = _rules_of_frames(stacks, modules, rules)
    positions = np.arange(len(frame_rules))
    is_split, is_tax = _of_category(rules, SPLIT), _of_category(rules, TAX)
    ruled = frame_rules != _NONE
    leafmost = _last(positions, ruled, ends, lengths)
    parent = _last(positions, ruled & ~_lookup(is_split, frame_rules), ends, lengths)
    decided = _at(frame_rules, leafmost)
    parent_rule = _at(frame_rules, parent)
    takes_over = _lookup(is_split, decided) & _lookup(is_tax, parent_rule)
    chosen = np.where(takes_over, parent_rule, decided)
    return _named(chosen, ends - 1 - leafmost, rules)


def _rules_of_frames(stacks: pa.Array, modules: pa.Array, rules: Rules) -> _Ints:
    """The rule of every frame of every stack, by its index; _NONE where it has none or is to be passed."""
    symbols = pc.fill_null(pc.list_flatten(stacks).cast(pa.string()), "")
    frames = pa.table({"symbol": symbols, "module": _modules_of_frames(stacks, modules, len(symbols))})
    distinct = frames.group_by(["symbol", "module"]).aggregate([])
    found = first_rules(distinct["symbol"].combine_chunks(), distinct["module"].combine_chunks(), rules)
    passed = np.append(np.array([rule.category == PASS for rule in rules.table], dtype=bool), False)
    found = np.where(passed[found], _NONE, found)
    return found[_index(frames, distinct)]


def _modules_of_frames(stacks: pa.Array, modules: pa.Array, count: int) -> pa.Array:
    """A module for each frame, "" where it is not known; lists that do not fit their stack are not believed."""
    lengths = pc.list_value_length(stacks)
    fits = pc.fill_null(pc.equal(lengths, pc.list_value_length(modules)), False)
    known = np.repeat(np.asarray(fits), np.asarray(pc.fill_null(lengths, 0)))
    assert len(known) == count
    values = pc.list_flatten(modules.filter(fits)).cast(pa.string())
    places = pa.array(np.cumsum(known) - 1, mask=~known)
    return pc.fill_null(values.take(places), "")


def _index(frames: pa.Table, distinct: pa.Table) -> _Ints:
    """Of each frame the row of its like among the distinct ones."""
    key = pc.binary_join_element_wise(frames["symbol"], frames["module"], "\x00")
    keys = pc.binary_join_element_wise(distinct["symbol"], distinct["module"], "\x00")
    return np.asarray(pc.index_in(key, keys.combine_chunks()), dtype=np.int64)


def first_rules(symbols: pa.Array, modules: pa.Array, rules: Rules) -> _Ints:
    """The first rule that matches each (symbol, module), by its index; _NONE where none does."""
    found = np.full(len(symbols), _NONE, dtype=np.int64)
    pairs = zip(symbols.to_pylist(), modules.to_pylist(), strict=True)
    of_program = np.fromiter((is_of_program(*pair) for pair in pairs), bool, len(symbols))
    for number, rule in enumerate(rules.table):
        matches = of_program.copy() if rule.is_of_program else np.ones(len(symbols), dtype=bool)
        for pattern, values in ((rule.symbol, symbols), (rule.module, modules)):
            if pattern is not None:
                matches &= np.asarray(pc.match_substring_regex(values, pattern))
        found[matches & (found == _NONE)] = number
    return found


def is_of_program(symbol: str, module: str) -> bool:
    """Whether a symbol's crate (cart::, cart_db::), package (example.org/cart/db.) or namespace names its file."""
    program = module.rpartition("/")[2].replace("-", "_")
    if len(program) < _PROGRAM_CHARS_MIN:
        return False
    path = symbol.partition("(")[0]
    if "/" in path:
        *folders, last = path.replace("-", "_").split("/")
        return program in (*folders, last.partition(".")[0])
    found = _FIRST_NAME.match(symbol)
    return found is not None and (found[1] == program or found[1].startswith(program + "_"))


def _last(positions: _Ints, wanted: _Bools, ends: _Ints, lengths: _Ints) -> _Ints:
    """Of each stack the position of the last wanted frame; _NONE without one."""
    reached = np.append(np.maximum.accumulate(np.where(wanted, positions, _NONE)), _NONE)
    last = reached[ends - 1]
    return np.where((lengths > 0) & (last >= ends - lengths), last, _NONE)


def _of_category(rules: Rules, categories: tuple[str, ...]) -> _Bools:
    return np.append(np.array([rule.category in categories for rule in rules.table], dtype=bool), False)


def _lookup(table: _Bools, indices: _Ints) -> _Bools:
    """The table ends with False, which _NONE finds."""
    found: _Bools = table[indices]
    return found


def _at(values: _Ints, positions: _Ints) -> _Ints:
    found: _Ints = np.append(values, _NONE)[positions]
    return found


def _named(chosen: _Ints, callers: _Ints, rules: Rules) -> Classified:
    categories = pa.array([*(rule.category for rule in rules.table), UNCLASSIFIED])
    names = pa.array([*(rule.name for rule in rules.table), None], pa.string())
    index = pa.array(np.where(chosen == _NONE, len(rules.table), chosen))
    return Classified(
        categories.take(index), names.take(index), pa.array(callers, mask=chosen == _NONE, type=pa.int64())
    )
