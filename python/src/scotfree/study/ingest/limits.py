"""What an ingest may hold at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of memory. They change how fast an ingest is, and nothing of what it gives."""

    # Of DuckDB's joins; beyond, they spill to disk. The rest of the process takes about as much again.
    memory: str = "1GB"
    threads: int = 2
    # Records held before they are written as a segment: some 150 MB.
    segment_rows: int = 400_000
    # Records that are merged at once; a trace is never parted, so that a long one may be more.
    partition_rows: int = 2_000_000

    @property
    def bucket_rows(self) -> int:
        """Records in what partitions are made of: small, since their number is a guess."""
        return max(1, self.partition_rows // 4)
