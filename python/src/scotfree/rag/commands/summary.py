"""What `scot rag index` says when it has read: what changed, and what of the files is not in the index."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Final

from scotfree.rag.commands.reading import Reader
from scotfree.rag.index import Index
from scotfree.rag.updating import Changes

# Reasons that are said.
_REASONS_MAX: Final = 5
# By how much a share that is measured with 128 questions may be wrong (one standard error at .99).
_UNTOLD: Final = 0.003
# A digest of what was said the last time, among the index's settings.
_SAID: Final = "said"


def lines(index: Index, changes: Changes, removed: int, reader: Reader) -> list[str]:
    """All of it; what is as it was the last time, in one line."""
    moved = f"{changes.moved:,} renamed, " if changes.moved else ""
    added, embedded = counted(changes.added, "file"), counted(changes.embedded, "passage")
    found = [
        f"{index.folder}: {added} added, {changes.changed:,} changed, {moved}{removed:,} removed, "
        f"{changes.same:,} as {'it was' if changes.same == 1 else 'they were'}; {embedded} embedded, "
        f"{len(index):,} in all"
    ]
    if (bound := index.bound) and bound.recall < bound.target - _UNTOLD:
        found.append(
            f"  searches find {bound.recall:.3f} of the nearest where {bound.target} was asked for; nothing that "
            "is kept tells more apart (`scot rag check` measures it anew)"
        )
    kinds = [
        ("files that are no documents", reader.unread),
        ("files with front matter that is left as text", reader.doubts),
        ("links to folders that were not followed", reader.linked),
    ]
    there = [(what, reasons) for what, reasons in kinds if reasons]
    if _is_news(index, reader):
        return found + [line for what, reasons in there for line in _said(what, reasons, reader.first)]
    short = ", ".join(f"{what}: {reasons.total():,}" for what, reasons in there)
    return [*found, f"  as before: {short}"] if short else found


def counted(count: int, noun: str) -> str:
    """So many of them, as `1 file` or `2 files`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _is_news(index: Index, reader: Reader) -> bool:
    said = [
        sorted(map(str, reader.roots)),
        *(sorted(of.items()) for of in (reader.unread, reader.doubts, reader.linked)),
    ]
    digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=16).digest()
    if index.passages.setting(_SAID) == digest:
        return False
    index.passages.make_known(_SAID, digest)
    return True


def _said(what: str, reasons: Counter[str], first: dict[str, Path]) -> list[str]:
    # A last one takes the line that would say that there is one.
    most = len(reasons) if len(reasons) == _REASONS_MAX + 1 else _REASONS_MAX
    shown = reasons.most_common(most)
    rest = reasons.total() - sum(count for _, count in shown)
    more = [f"  {rest:,} for {len(reasons) - len(shown):,} other reasons"] if rest else []
    return [
        f"{what}: {reasons.total():,}",
        *(f"  {count:,}: {reason}, as {first[reason]}" for reason, count in shown),
        *more,
    ]
