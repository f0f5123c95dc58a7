"""Of a file that no reader takes: to which form it is nearest, and what to say so that it is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scotfree.study.ingest import csv_table, json_table, usual, wide
from scotfree.study.ingest.inputs import HEAD_BYTES
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.opening import head_of
from scotfree.study.ingest.spellings import END
from scotfree.trouble import printable

UNKNOWN: Final = "it has no known form"
EMPTY: Final = "it is empty"
_ADVICE: Final = "name its form with --form, or leave it out"
# Fewer keys than that are chance.
_KEYS_MIN: Final = 2
# Of each form in JSON: how it is called, and the keys that its records have.
_KEYS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "otlp-json": (
        "OTLP in JSON",
        ("resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "startTimeUnixNano", "endTimeUnixNano"),
    ),
    "jaeger": ("Jaeger's JSON", ("traceID", "spanID", "operationName", "references", "startTime", "processID")),
    "zipkin": ("Zipkin's JSON", ("traceId", "id", "parentId", "timestamp", "duration", "localEndpoint")),
    "skywalking": (
        "SkyWalking's JSON",
        ("traceId", "segmentId", "spanId", "parentSpanId", "refs", "serviceCode", "startTime", "endTime"),
    ),
}
_NAMES_SHOWN: Final = 12


def unknown(path: Path) -> tuple[str, str]:
    """What the file is, and what to do."""
    if path.stat().st_size == 0:
        return EMPTY, "see whether what should have written it did"
    head = head_of(path, HEAD_BYTES)
    encoding = wide.encoding_of(head)
    if encoding is not None:
        return f"it is text in {encoding}", wide.advice(path, encoding)
    table = csv_table.beginning(head)
    if table is not None:
        return _of_table("a CSV of spans", table.names, table.sample)
    return _of_json(head)


def reason(path: Path) -> str:
    """The same for the ledger."""
    problem, advice = unknown(path)
    start = UNKNOWN.removeprefix("it has ")
    if problem.startswith(UNKNOWN):
        return f"{start}: not read" + (f"; {advice}" if problem != UNKNOWN else "")
    return f"{problem.removeprefix('it is ')}: not read; {advice}"


def _of_table(what: str, names: Sequence[str], sample: usual.Sample) -> tuple[str, str]:
    found = usual.guess(names, sample, ColumnMap())
    known = [ours for ours in usual.WANTED if found.has(ours)]
    if not found.is_near:
        return UNKNOWN, _ADVICE
    problem = f"{UNKNOWN}; it looks like {what}: {len(known)} of {len(usual.WANTED)} columns known"
    problem += f" ({', '.join(known)})" if known else ""
    lacking = [ours for ours in found.lacking if not _is_guessed(ours, found)]
    if lacking:
        return problem, f"{_lacking(found)}: add it, or say which it is: --map {lacking[0]}=THEIRS"
    return problem, f"say which the others are, if this guess is right: {found.flags()}"


def _is_guessed(ours: str, found: usual.Guess) -> bool:
    return ours in found.likely or (ours == "duration_ns" and END in found.likely)


def _lacking(found: usual.Guess) -> str:
    missing = [ours for ours in found.lacking if not _is_guessed(ours, found)]
    names = found.theirs
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    return printable(f"no column is left that could be {' or '.join(missing)} (there are {shown})")


def _of_json(head: bytes) -> tuple[str, str]:
    """The form in JSON of whose keys most are there, or a table of objects."""
    keys = {key.decode() for key in re.findall(rb'"([A-Za-z_]{1,40})"\s*:', head)}
    there = {form: [key for key in of if key in keys] for form, (_, of) in _KEYS.items()}
    form = max(there, key=lambda one: len(there[one]) / len(_KEYS[one][1]))
    name, wanted = _KEYS[form]
    table = json_table.beginning(head)
    if table is not None and len(there[form]) < len(wanted) / 2:
        return _of_table("objects in JSON, a span each", table.names, table.sample)
    if head.lstrip()[:1] not in (b"{", b"[") or len(there[form]) < _KEYS_MIN:
        return UNKNOWN, _ADVICE
    missing = [key for key in wanted if key not in keys]
    problem = f"{UNKNOWN}; it looks like {name}: {len(there[form])} of {len(wanted)} keys known"
    return problem, f"it lacks {', '.join(missing)}; --form {form} reads what can be read of it"
