"""What goes wrong, in two forms: an error that ends a command, and rows of a ledger that do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scotfree.trouble import UserError, printable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FAILED_INSIDE", "Ledger", "StudyError", "printable"]

# Errors are of calls, so one that is not would be seen nowhere else.
FAILED_INSIDE = "work inside a service failed: it is no call"


class StudyError(UserError):
    """Something about data, a store or flags that the user must change."""


@dataclass
class _Entry:
    record: int | None
    count: int
    detail: str | None


class Ledger:
    """Rows of `trouble`, one for each input and reason, so that a file of nonsense cannot fill the memory."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, str, bool], _Entry] = {}

    def note(
        self,
        input_: int,
        reason: str,
        *,
        record: int | None = None,
        kept: bool = False,
        count: int = 1,
        detail: str | None = None,
    ) -> None:
        """Counts one trouble. The place and detail of the lowest record are kept, whatever the order."""
        detail = printable(detail) if detail is not None else None
        entry = self._entries.setdefault((input_, reason, kept), _Entry(record, 0, detail))
        entry.count += count
        if record is not None and (entry.record is None or record < entry.record):
            entry.record, entry.detail = record, detail

    def add(self, rows: pa.Table) -> None:
        """Takes over rows of another ledger."""
        self.add_rows(rows.to_pylist())

    def add_rows(self, rows: Iterable[dict[str, Any]], input_: int | None = None) -> None:
        """Takes over rows in the columns of `trouble`, as of another number of the input if one is given."""
        for row in rows:
            self.note(
                row["input"] if input_ is None else input_,
                row["reason"],
                record=row["record"],
                kept=row["is_kept"],
                count=row["count"],
                detail=row["detail"],
            )

    def dropped(self, input_: int | None = None) -> int:
        """Records that are in no other relation."""
        return sum(
            entry.count for (of, _, kept), entry in self._entries.items() if not kept and input_ in (None, of)
        )

    def table(self) -> pa.Table:
        """The rows, in an order that does not depend on the order of reading."""
        # Flags raise errors of this module too, and are not to wait for Arrow.
        import pyarrow as pa  # noqa: PLC0415

        from scotfree.study import schema  # noqa: PLC0415

        rows = [
            {
                "input": input_,
                "record": entry.record,
                "reason": reason,
                "count": entry.count,
                "is_kept": kept,
                "detail": entry.detail,
            }
            for (input_, reason, kept), entry in sorted(self._entries.items(), key=lambda item: item[0])
        ]
        return pa.Table.from_pylist(rows, schema=schema.TROUBLE)

    def reasons(self) -> Iterable[str]:
        """Every reason noted."""
        return sorted({reason for _, reason, _ in self._entries})
