"""Text inputs as lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import Source

# A line of a profile is a frame or a stack; more is no text of ours.
LINE_BYTES_MAX = 1 << 20


def lines(source: Source) -> Iterator[str]:
    """The input's lines without their ends. Lines that are too long go to the ledger."""
    with opened(source) as stream:
        is_rest = False
        while piece := stream.readline(LINE_BYTES_MAX):
            is_whole = piece.endswith(b"\n") or len(piece) < LINE_BYTES_MAX
            if is_whole and not is_rest:
                yield piece.rstrip(b"\r\n").decode("utf-8", "replace")
                continue
            if not is_rest:
                source.ledger.note(source.number, f"line longer than {LINE_BYTES_MAX} bytes")
            is_rest = not piece.endswith(b"\n")
