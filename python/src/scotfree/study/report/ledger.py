"""What was read, and what could not be taken as it was: the page's last section."""

from __future__ import annotations

from dataclasses import dataclass

from scotfree.study.store import Store


@dataclass(frozen=True)
class Line:
    """A kind of trouble of one input."""

    input: str
    reason: str
    count: int
    is_kept: bool
    first: int | None
    detail: str


@dataclass(frozen=True)
class Ledger:
    """The sums, and where they lie."""

    # Of sides of calls: each is merged into a call, of work inside a service, or dropped.
    records: int
    merged: int
    internal: int
    dropped: int
    spans: int
    # Troubles of what was kept; a record may have several.
    kept: int
    lines: list[Line]
    more: int

    @property
    def is_detailed(self) -> bool:
        """Whether any line says more than its reason."""
        return any(line.detail for line in self.lines)


# Lines in the page; the Parquet beside it has all.
LINES_MAX = 200


def read(store: Store) -> Ledger:
    """The ledger of a store, the most frequent trouble first."""
    inputs = [input_.path for input_ in store.manifest.inputs]
    rows = sorted(store.read("trouble").to_pylist(), key=lambda row: (-row["count"], row["reason"], row["input"]))
    lines = [
        Line(
            input=inputs[row["input"]] if 0 <= row["input"] < len(inputs) else "all inputs",
            reason=row["reason"],
            count=row["count"],
            is_kept=row["is_kept"],
            first=row["record"],
            detail=row["detail"] or "",
        )
        for row in rows[:LINES_MAX]
    ]
    return Ledger(
        records=store.manifest.records_in,
        merged=store.manifest.merged,
        internal=store.manifest.internal,
        dropped=store.manifest.dropped,
        spans=store.manifest.spans,
        kept=sum(row["count"] for row in rows if row["is_kept"]),
        lines=lines,
        more=max(0, len(rows) - LINES_MAX),
    )
