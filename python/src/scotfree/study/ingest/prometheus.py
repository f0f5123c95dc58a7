"""Prometheus' series: answers of its HTTP API to range queries, one or many a file, and OpenMetrics text.

Of a counter the rate between two samples is stored, at the later one; its first sample has none. A sample of text
needs its time. Which name means which series of the study: series.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from scotfree.study import schema
from scotfree.study.ingest import fields
from scotfree.study.ingest.intake import CUT, LINE_BYTES_MAX
from scotfree.study.ingest.json_stream import Malformed, elements
from scotfree.study.ingest.json_stream import Path as JsonPath
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Rows, Source
from scotfree.study.ingest.series import series_of

# Column of `metric` <- labels; the first that is there wins.
LABELS: Final[dict[str, tuple[str, ...]]] = {
    "service": ("service_name", "service", "app", "app_kubernetes_io_name", "job"),
    "method": ("rpc_method", "grpc_method", "method", "http_route", "route"),
    "cluster": ("cluster", "k8s_cluster_name", "cloud_availability_zone", "zone", "cloud_region", "region"),
    "machine": ("machine", "host_name", "node", "k8s_node_name", "host", "instance"),
}
_COUNTERS: Final = ("_total", "_count", "_bucket")
# Series whose last sample is remembered for the next one's rate.
SERIES_MAX: Final = 1_000_000
# OpenMetrics gives seconds, Prometheus' older text milliseconds: no second of the data is that late.
_SECONDS_MAX: Final = 10**11
_NS_PER_S: Final = 1_000_000_000
_HEAD_JSON: Final = re.compile(rb'"resultType"\s*:\s*"(matrix|vector)"')
_HEAD_TEXT: Final = re.compile(
    rb"^\s*(#\s(TYPE|HELP|UNIT)\s[^\n]+|[A-Za-z_:][\w:]*\{[^\n]*\}\s+[-+\w.]+(\s+[-+\d.eE]+)?\s*)\n"
)
_SAMPLE: Final = re.compile(
    r'^([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+(\S+))?\s*(?:#.*)?$'
)
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


class Prometheus:
    """See the module."""

    form = "prometheus"

    def __init__(self, counters: frozenset[str] = frozenset()) -> None:
        # Names of counters beside those that end like one.
        self._counters = counters

    def recognises(self, path: Path, head: bytes) -> bool:
        """By an answer's type, or by a first line of the text form."""
        if head.lstrip()[:1] in (b"{", b"["):
            return bool(_HEAD_JSON.search(head))
        return bool(_HEAD_TEXT.match(head))

    def read(self, source: Source) -> Iterator[Batch]:
        """Series by series, or line by line."""
        intake = _Intake(source, self._counters)
        with opened(source) as file:
            is_json = file.peek(1).lstrip()[:1] in (b"{", b"[")
            for labels, samples in _json(file, intake) if is_json else _text(file, intake):
                for sample in samples:
                    intake.add(labels, *sample)
                    yield from intake.batch()
            yield from intake.batch(last=True)


_Samples = tuple[Mapping[str, Any], list[tuple[Any, Any]]]


class _Intake:
    """Samples to rows of `metric`."""

    def __init__(self, source: Source, counters: frozenset[str]) -> None:
        self._source = source
        self._counters = set(counters)
        self._rows = Rows("metric", schema.METRIC)
        self._last: dict[tuple[tuple[str, Any], ...], tuple[int, float]] = {}
        self._records = 0
        # Samples that only began a counter.
        self._firsts = 0

    def declare_counter(self, name: str) -> None:
        """From now on this name is a counter's."""
        if len(self._counters) < SERIES_MAX:
            self._counters.add(name)

    def add(self, labels: Mapping[str, Any], time: Any, value: Any) -> None:
        """Takes a sample, its time in seconds or their digits."""
        record, self._records = self._records, self._records + 1
        try:
            name = fields.text_of(labels.get("__name__"))
            if name is None:
                raise fields.Unfit("a series has no name (functions take it off)")
            at, number = _time_ns(time), _number(value)
            if self._is_counter(name):
                rate = self._rate(labels, at, number)
                if rate is None:
                    self._firsts += 1
                    return
                number = rate
        except fields.Unfit as error:
            self._source.ledger.note(self._source.number, str(error), record=record)
            return
        self._rows.add({**_places(labels), "series": _series(name, labels), "ts_ns": at, "value": number})

    def drop(self, reason: str, detail: str | None = None) -> None:
        """A record that could not be taken apart."""
        self._source.ledger.note(self._source.number, reason, record=self._records, detail=detail)
        self._records += 1

    def batch(self, *, last: bool = False) -> Iterator[Batch]:
        """The rows that have come together, if they are enough or the last."""
        if last or self._rows.count >= BATCH_ROWS_MAX:
            taken = self._rows.take()
            yield Batch(taken.relation, taken.rows, taken.records + self._firsts)
            self._firsts = 0

    def _is_counter(self, name: str) -> bool:
        return name.endswith(_COUNTERS) or name in self._counters

    def _rate(self, labels: Mapping[str, Any], at: int, value: float) -> float | None:
        """Per second since the sample before; a counter that fell began again at 0."""
        key = tuple(sorted((name, str(label)) for name, label in labels.items()))
        if key not in self._last and len(self._last) >= SERIES_MAX:
            raise fields.Unfit(f"more than {SERIES_MAX} series of counters")
        before = self._last.get(key)
        if before is not None and at <= before[0]:
            raise fields.Unfit("a counter's sample is not later than the one before")
        self._last[key] = (at, value)
        if before is None:
            return None
        grown = value - before[1] if value >= before[1] else value
        return _number(grown * _NS_PER_S / (at - before[0]))


def _json(file: BinaryIO, intake: _Intake) -> Iterator[_Samples]:
    """The series of all answers in the file."""
    try:
        for element in elements(file, _enter, 4):
            if element.text is not None and element.path[-2:] == ("result", "[]"):
                yield from _series_of_json(element.text, intake)
            elif element.text is None and not element.is_end:
                intake.drop("the series is too long")
    except Malformed as error:
        intake.drop(CUT, str(error))


def _enter(path: JsonPath, is_array: bool) -> bool:
    return path in ((), ("data",)) or (is_array and path == ("data", "result"))


def _series_of_json(text: bytes, intake: _Intake) -> Iterator[_Samples]:
    series = fields.mapping_of(fields.json_of(text))
    labels = series.get("metric")
    values = fields.list_of(series.get("values")) or [series.get("value")]
    if not isinstance(labels, dict):
        intake.drop("no series of samples")
        return
    yield labels, [tuple(value) if _is_pair(value) else (None, None) for value in values]


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _text(file: BinaryIO, intake: _Intake) -> Iterator[_Samples]:
    while line := file.readline(LINE_BYTES_MAX):
        text = line.decode("utf-8", "replace").strip()
        if text.startswith("#"):
            _declaration(text, intake)
        elif text:
            yield from _sample(text, intake)


def _declaration(text: str, intake: _Intake) -> None:
    parts = text.split()
    if len(parts) == 4 and parts[1] == "TYPE" and parts[3] == "counter":
        intake.declare_counter(parts[2])


def _sample(text: str, intake: _Intake) -> Iterator[_Samples]:
    found = _SAMPLE.match(text)
    if found is None:
        intake.drop("no line of metrics", text[:200])
        return
    name, labels, value, time = found.groups()
    pairs = {key: _unescape(label) for key, label in _LABEL.findall(labels or "")}
    yield {**pairs, "__name__": name}, [(time, value)]


def _unescape(label: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), label)


def _time_ns(time: Any) -> int:
    if time is None:
        raise fields.Unfit("a sample has no time")
    seconds = _float(time)
    if seconds is None or not 0 <= seconds < _SECONDS_MAX * 1000:
        raise fields.Unfit("a sample's time is none")
    if seconds >= _SECONDS_MAX:
        seconds /= 1000
    if seconds >= fields.INT64_MAX // _NS_PER_S:
        raise fields.Unfit("a sample's time is none")
    # Prometheus counts milliseconds; a float of seconds is not exact below them.
    return round(seconds * 1000) * 1_000_000


def _number(value: Any) -> float:
    number = _float(value)
    if number is None or not math.isfinite(number):
        raise fields.Unfit("a sample's value is no number")
    return number


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _series(name: str, labels: Mapping[str, Any]) -> str:
    """The study's series. What kube-state-metrics limits stands in a label."""
    series = series_of(name)
    if series == name and "resource" in labels:
        return series_of(f"{name}_{labels['resource']}")
    return series


def _places(labels: Mapping[str, Any]) -> dict[str, str | None]:
    found = {
        column: next((text for key in keys if (text := fields.text_of(labels.get(key)))), None)
        for column, keys in LABELS.items()
    }
    machine = found["machine"]
    # An instance is a host and a port.
    found["machine"] = re.sub(r":\d+$", "", machine) if machine else None
    return found
