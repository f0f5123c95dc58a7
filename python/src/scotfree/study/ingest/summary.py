"""What an ingest says at its end: inputs, records, calls, and what was kept or dropped in spite of trouble."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from scotfree.study.store import Manifest, Store

_FORMS_MAX = 20


def text(store: Store) -> str:
    """The table, as plain text."""
    manifest = store.manifest
    lines = ["inputs", *_columns(_inputs(manifest)), "records", *_columns(_records(manifest))]
    for kept, title in ((True, "kept in spite of"), (False, "dropped")):
        rows = _reasons(store, kept)
        if rows:
            lines += [title, *_columns(rows)]
    return "\n".join(lines)


def _inputs(manifest: Manifest) -> list[tuple[str, str]]:
    forms: dict[str, list[int]] = {}
    for one in manifest.inputs:
        forms.setdefault(one.form, []).append(one.bytes)
    return [
        (f"{len(sizes):,}", f"{form}, {sum(sizes) / 1e6:,.1f} MB")
        for form, sizes in sorted(forms.items())[:_FORMS_MAX]
    ]


def _records(manifest: Manifest) -> list[tuple[str, str]]:
    return [
        (f"{manifest.records_in:,}", "of sides of calls"),
        (f"{manifest.merged:,}", f"in {manifest.spans:,} call{'' if manifest.spans == 1 else 's'}"),
        (f"{manifest.internal:,}", "of work inside services"),
        (f"{manifest.dropped:,}", "dropped"),
    ]


def _reasons(store: Store, kept: bool) -> list[tuple[str, str]]:
    counts: dict[str, int] = {}
    places: dict[str, str] = {}
    for row in store.read("trouble").to_pylist():
        if row["is_kept"] == kept:
            reason = row["reason"]
            counts[reason] = counts.get(reason, 0) + row["count"]
            places.setdefault(reason, _place(store, row["input"], row["record"]))
    most = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return [(f"{counts[reason]:,}", f"{reason}{places[reason]}") for reason in most]


def _place(store: Store, input_: int, record: int | None) -> str:
    if input_ < 0 or record is None:
        return ""
    return f" (first: {Path(store.manifest.inputs[input_].path).name}, record {record})"


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {count:>15}  {what}" for count, what in rows]
