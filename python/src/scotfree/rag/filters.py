"""Filters of documents by their metadata, in the words of MongoDB: read, tried on a document, written as SQL.

A key whose value is a list has each of its values: `{"tag": "new"}` and `{"year": {"$gt": 2020}}` ask whether one
of them is so. `$ne`, `$nin` and `$not` are true wherever what they deny is not, also where there is no such key.
Texts are compared with texts, letter by letter, numbers with numbers; true counts as 1.

Invariant: `passes` and `in_sql` say the same of every document, but for one with a zero letter in its metadata, at
which SQLite cuts texts: of that `passes` alone is right.
"""

from __future__ import annotations

import json
import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from scotfree.rag.trouble import RagError

# Filters within filters, and keys that all of them ask for: SQLite takes a statement that is ten times as large.
DEPTH_MAX: Final = 8
TERMS_MAX: Final = 100
# Whole numbers that SQLite keeps whole.
_WHOLE_MAX: Final = 1 << 63
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_SIGNS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_DENIALS: Final = {"$ne": "$eq", "$nin": "$in"}
_OPERATORS: Final = ("$eq", "$ne", *_ORDERS, "$in", "$nin", "$exists", "$not")
_ADVICE: Final = 'say keys and values that are texts or numbers: {"key": "value"}, {"key": {"$gt": 3}}'
# A value of a document, or one of its list, in SQL: of a key, and what must be true of it, twice.
_HAS: Final = (
    "exists (select 1 from json_each(metadata) as one where one.key = {key} and case one.type when 'array'"
    " then exists (select 1 from json_each(one.value) as each where {of_each}) else {of_one} end)"
)
_KINDS: Final = {True: "('text')", False: "('integer', 'real', 'true', 'false')"}

Value: TypeAlias = str | int | float


@dataclass(frozen=True)
class Has:
    """A key has one of several values."""

    key: str
    values: frozenset[Value]


@dataclass(frozen=True)
class Compares:
    """A key has a value beyond this one, in the order of an operator."""

    key: str
    order: str
    value: Value


@dataclass(frozen=True)
class Exists:
    """There is such a key."""

    key: str


@dataclass(frozen=True)
class Not:
    """What it denies is not so."""

    denied: Term


@dataclass(frozen=True)
class Every:
    """All parts are so."""

    parts: tuple[Term, ...]


@dataclass(frozen=True)
class Some:
    """One part at least is so."""

    parts: tuple[Term, ...]


Term: TypeAlias = Has | Compares | Exists | Not | Every | Some
EVERYTHING: Final = Every(())


def read(where: Mapping[str, Any]) -> Term:
    """A filter, as `{"year": {"$gte": 2020}, "$or": [{"kind": "note"}, {"tag": ["new", "read"]}]}`.

    A `RagError` says what of it is none.
    """
    if not isinstance(where, Mapping):
        raise RagError(
            f"look only in documents with {reprlib.repr(where)}", 'say keys and values: {"key": "value"}'
        )
    term = _filter(where, 1)
    if (count := _count(term)) > TERMS_MAX:
        raise RagError(f"look only in documents with {count} conditions", f"say at most {TERMS_MAX}")
    return term


def _filter(where: Any, depth: int) -> Term:
    _check_depth(depth)
    if not isinstance(where, Mapping):
        raise _refused(where)
    return _every([_part(key, asked, depth) for key, asked in where.items()])


def _part(key: Any, asked: Any, depth: int) -> Term:
    match key:
        case "$and" | "$or":
            if not isinstance(asked, list | tuple) or not asked:
                raise RagError(
                    f"look only in documents with {key} of {reprlib.repr(asked)}", "say a list of filters"
                )
            parts = [_filter(each, depth + 1) for each in asked]
            return _every(parts) if key == "$and" else Some(tuple(parts))
        case "$not":
            return Not(_filter(asked, depth + 1))
    if not isinstance(key, str):
        raise _refused({key: asked})
    if key.startswith("$"):
        raise _unknown(key, ("$and", "$or", "$not"))
    _checked(key, key)
    return _of_key(key, asked, depth)


def _of_key(key: str, asked: Any, depth: int) -> Term:
    if not isinstance(asked, Mapping):
        return Has(key, _values(key, asked))
    _check_depth(depth)
    if not asked:
        raise _refused({key: asked})
    return _every([_compared(key, how, value, depth) for how, value in asked.items()])


def _compared(key: str, how: Any, value: Any, depth: int) -> Term:
    if how not in _OPERATORS:
        raise _unknown(how, _OPERATORS)
    if how in _DENIALS:
        return Not(_compared(key, _DENIALS[how], value, depth))
    if how in _ORDERS:
        return Compares(key, how, _checked(key, value))
    if how == "$eq":
        return Has(key, frozenset([_checked(key, value)]))
    if how == "$not":
        if not isinstance(value, Mapping):
            raise _refused({key: {how: value}})
        return Not(_of_key(key, value, depth + 1))
    if how == "$in":
        if isinstance(value, str | Mapping) or not isinstance(value, Sequence | set | frozenset):
            raise _refused({key: {how: value}})
        return Has(key, _values(key, value))
    if not isinstance(value, bool):
        raise RagError(f"look only in documents with {how} of {reprlib.repr(value)}", "say true or false")
    return Exists(key) if value else Not(Exists(key))


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise RagError("look only in documents with filters within filters", f"nest at most {DEPTH_MAX} of them")


def _every(parts: list[Term]) -> Term:
    return parts[0] if len(parts) == 1 else Every(tuple(parts))


def _values(key: str, asked: Any) -> frozenset[Value]:
    """One value, or those of which a key has one."""
    several = asked if isinstance(asked, list | tuple | set | frozenset) else [asked]
    return frozenset([_checked(key, each) for each in several])


def _checked(key: str, value: Any) -> Value:
    try:
        if not isinstance(value, Value):
            raise ValueError
        # Numbers that are none, and halves of letters, are in no document.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise _refused({key: value}) from None
    return value


def _refused(where: Any) -> RagError:
    try:
        # Shortened: a filter may be large, and deep.
        said = reprlib.repr(where)
    except ValueError:
        said = "a number of thousands of digits"
    return RagError(f"look only in documents with {said}", _ADVICE)


def _unknown(how: Any, known: Sequence[str]) -> RagError:
    said = reprlib.repr(how)
    return RagError(f"look only in documents with {said}: there is no such operator", f"say {', '.join(known)}")


def _count(term: Term) -> int:
    match term:
        case Every(parts) | Some(parts):
            return sum(map(_count, parts))
        case Not(denied):
            return _count(denied)
        case Has() | Compares() | Exists():
            return 1


def passes(term: Term, metadata: Mapping[str, Any]) -> bool:
    """Whether a document of these metadata is so."""
    match term:
        case Every(parts):
            return all(passes(part, metadata) for part in parts)
        case Some(parts):
            return any(passes(part, metadata) for part in parts)
        case Not(denied):
            return not passes(denied, metadata)
        case Exists(key):
            return key in metadata
        case Has(key, values):
            return any(value in values for value in _of_document(metadata, key))
        case Compares(key, order, bound):
            is_text = isinstance(bound, str)
            found = [value for value in _of_document(metadata, key) if isinstance(value, str) == is_text]
            return any(_ORDERS[order](value, bound) for value in found)


def _of_document(metadata: Mapping[str, Any], key: str) -> list[Value]:
    """The texts and numbers that a key has."""
    value = metadata.get(key)
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Value)]


def is_for_sql(term: Term) -> bool:
    """Whether SQLite can hold its values: no number beyond 63 bits, no text with a zero letter."""
    match term:
        case Every(parts) | Some(parts):
            return all(map(is_for_sql, parts))
        case Not(denied):
            return is_for_sql(denied)
        case Exists(key):
            return _is_held(key)
        case Has(key, values):
            return _is_held(key) and all(map(_is_held, values))
        case Compares(key, _, value):
            return _is_held(key) and _is_held(value)


def _is_held(value: Value) -> bool:
    return "\0" not in value if isinstance(value, str) else abs(value) < _WHOLE_MAX


def in_sql(term: Term) -> tuple[str, dict[str, Any]]:
    """A condition of documents by their column `metadata`, with its values by their names."""
    values: dict[str, Any] = {}

    def named(value: Any) -> str:
        name = f"v{len(values)}"
        values[name] = value
        return f":{name}"

    return _sql(term, named), values


def _sql(term: Term, named: Callable[[Any], str]) -> str:
    match term:
        case Every(parts):
            return f"({' and '.join([_sql(part, named) for part in parts]) or 'true'})"
        case Some(parts):
            return f"({' or '.join([_sql(part, named) for part in parts])})"
        case Not(denied):
            return f"not {_sql(denied, named)}"
        case Exists(key):
            return f"exists (select 1 from json_each(metadata) as one where one.key = {named(key)})"
        case Has(key, several):
            among = f"in (select value from json_each({named(json.dumps(list(several), ensure_ascii=False))}))"
            return _has(named(key), f"{{}}.atom {among}")
        case Compares(key, order, bound):
            kinds = _KINDS[isinstance(bound, str)]
            return _has(named(key), f"({{0}}.type in {kinds} and {{0}}.atom {_SIGNS[order]} {named(bound)})")


def _has(key: str, of: str) -> str:
    return _HAS.format(key=key, of_one=of.format("one"), of_each=of.format("each"))
