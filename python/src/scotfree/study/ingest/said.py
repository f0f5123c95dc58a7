"""What texts of tables say: times, numbers, yes or no, statuses. Each value is right or null.

A time is a number in the column's unit, a number with its own unit ("3.2 ms"), or a date of ISO 8601, which is of
UTC where it names no zone.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest import status
from scotfree.study.ingest.fields import INT64_MAX

_NUMBER: Final = (
    r"^\s*\+?(?P<whole>[0-9]{1,19})(?:\.(?P<fraction>[0-9]{0,15})[0-9]*)?\s*(?P<unit>ns|us|µs|μs|ms|s|)\s*$"
)
_FLOAT: Final = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
_DATE: Final = (
    r"^\s*(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[T ](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]{1,9})[0-9]*)?\s*(?P<zone>Z|UTC|[+-][0-9]{2}:?[0-9]{2}|)\s*(?:UTC)?\s*$"
)
UNITS: Final = {"": 0, "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_TRUE: Final = ("TRUE", "T", "YES", "Y", "1")
_FALSE: Final = ("FALSE", "F", "NO", "N", "0")
# Numbers up to here are codes of gRPC, from 100 on statuses of HTTP.
_GRPC_MAX: Final = len(status.GRPC) - 1


def nanoseconds(values: pa.Array, unit_ns: int) -> pa.Array:
    """Times and durations, not negative."""
    return pc.coalesce(_of_numbers(values, unit_ns), _of_floats(values, unit_ns), _of_dates(values))


def counts(values: pa.Array) -> pa.Array:
    """Whole numbers, not negative."""
    return _rounded(floats(values)) if _has_fractions(values) else _whole(_parts(values, _NUMBER, "whole"))


def floats(values: pa.Array) -> pa.Array:
    """Numbers, finite or not."""
    trimmed = pc.utf8_trim_whitespace(values)
    return _taken(trimmed, pc.match_substring_regex(trimmed, _FLOAT)).cast(pa.float64())


def booleans(values: pa.Array) -> pa.Array:
    """Yes or no."""
    upper = pc.utf8_upper(pc.utf8_trim_whitespace(values))
    yes, no = (pc.is_in(upper, pa.array(words, pa.string())) for words in (_TRUE, _FALSE))
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


def statuses(values: pa.Array) -> pa.Array:
    """OK or the name of an error: of texts in any case, codes, and flags."""
    coded = values.dictionary_encode()
    named = pa.array([status_of(text) for text in coded.dictionary.to_pylist()], pa.string())
    return named.take(coded.indices)


def status_of(text: str) -> str:
    """What became of a call of which a table says this."""
    word = text.strip().upper().removeprefix("STATUS_CODE_").removeprefix("STATUS_")
    if word in ("OK", "UNSET", "SUCCESS", "NONE", *_FALSE):
        return schema.STATUS_OK
    if word in ("ERR", "FAILED", "FAILURE", *_TRUE[:-1]):
        return status.ERROR
    return _of_number(int(word)) if word.isascii() and word.isdigit() and len(word) < 6 else text.strip()


def _of_number(code: int) -> str:
    """1 and 2 are OpenTelemetry's OK and error; gRPC's CANCELLED and UNKNOWN are rarer."""
    if code in (1, 2):
        return schema.STATUS_OK if code == 1 else status.ERROR
    if code <= _GRPC_MAX:
        return status.GRPC[code]
    return status.HTTP.get(code, f"HTTP_{code}") if code >= 400 else schema.STATUS_OK


def _of_numbers(values: pa.Array, unit_ns: int) -> pa.Array:
    """Exact also where a float is not: whole and fraction apart."""
    parts = pc.extract_regex(values, _NUMBER)
    own = pc.struct_field(parts, "unit").dictionary_encode()
    sizes = [UNITS[name] or unit_ns for name in own.dictionary.to_pylist()]
    unit = pa.array(sizes, pa.int64()).take(own.indices)
    whole = _whole(pc.struct_field(parts, "whole"))
    fits = pc.less_equal(whole, pc.subtract(pc.divide(pa.scalar(INT64_MAX), unit), 1))
    whole = pc.if_else(fits, whole, pa.scalar(None, pa.int64()))
    digits = pc.binary_join_element_wise("0", pc.coalesce(pc.struct_field(parts, "fraction"), ""), ".")
    fraction = pc.multiply(
        pc.binary_join_element_wise(digits, "0", "").cast(pa.float64()), unit.cast(pa.float64())
    )
    return pc.add(pc.multiply(whole, unit), pc.round(fraction).cast(pa.int64()))


def _of_floats(values: pa.Array, unit_ns: int) -> pa.Array:
    """Those with an exponent."""
    return _rounded(pc.multiply(floats(values), float(unit_ns)))


def _of_dates(values: pa.Array) -> pa.Array:
    parts = pc.extract_regex(values, _DATE)
    seconds = _seconds(
        pc.binary_join_element_wise(*(pc.struct_field(parts, name) for name in ("day", "time")), "T")
    )
    fraction = pc.utf8_rpad(pc.coalesce(pc.struct_field(parts, "fraction"), ""), 9, "0").cast(pa.int64())
    good = pc.and_(pc.greater_equal(seconds, 0), pc.less(seconds, INT64_MAX // 10**9 - 10**6))
    seconds = pc.if_else(good, seconds, pa.scalar(None, pa.int64()))
    local = pc.add(pc.multiply(seconds, 10**9), fraction)
    found = pc.subtract(local, pc.multiply(_zone_seconds(pc.struct_field(parts, "zone")), 10**9))
    return pc.if_else(pc.greater_equal(found, 0), found, pa.scalar(None, pa.int64()))


def _seconds(texts: pa.Array) -> pa.Array:
    """Seconds of dates; null for a day that there is not, which would be taken for one of the next month."""
    times = pc.strptime(texts, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    is_there = pc.equal(pc.day(times), pc.utf8_slice_codeunits(texts, 8, 10).cast(pa.int64()))
    return pc.if_else(is_there, times.cast(pa.int64()), pa.scalar(None, pa.int64()))


def _zone_seconds(zones: pa.Array) -> pa.Array:
    coded = zones.dictionary_encode()
    return pa.array([_offset(zone) for zone in coded.dictionary.to_pylist()], pa.int64()).take(coded.indices)


def _offset(zone: str) -> int:
    if zone[:1] not in ("+", "-"):
        return 0
    size = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -size if zone[0] == "-" else size


def _whole(digits: pa.Array) -> pa.Array:
    """Whole numbers of up to 64 bits."""
    is_short = pc.less(pc.utf8_length(digits), 19)
    fits = pc.or_(is_short, pc.less_equal(digits, str(INT64_MAX)))
    return _taken(digits, fits).cast(pa.int64())


def _rounded(numbers: pa.Array) -> pa.Array:
    good = pc.and_(pc.greater_equal(numbers, 0.0), pc.less(numbers, float(2**63)))
    return pc.round(pc.if_else(good, numbers, pa.scalar(None, pa.float64()))).cast(pa.int64(), safe=False)


def _parts(values: pa.Array, pattern: str, name: str) -> pa.Array:
    return pc.struct_field(pc.extract_regex(values, pattern), name)


def _has_fractions(values: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, r"[.eE]")).as_py())


def _taken(values: pa.Array, which: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(which, False), values, pa.scalar(None, pa.string()))
