"""The first step: inputs to scratch files, by partition. An input that was read to its end is not read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scotfree.study.ingest import inputs, progress
from scotfree.study.ingest.clean import Cleaner
from scotfree.study.ingest.inputs import Found
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.scratch import Reading, Scratch, Writer
from scotfree.study.outside import is_full
from scotfree.study.trouble import Ledger, StudyError

_COMPRESSED = (".gz", ".zst")
# A guess of how many bytes a record takes, low: more buckets than needed are joined later, fewer cannot be parted.
_RECORD_BYTES = 100
_GROWTH = 10
_BUCKETS_MAX = 1024


def buckets(found: Sequence[Found], limits: Limits) -> int:
    """In how many buckets records are kept, a power of two: one holds some `bucket_rows` at most."""
    size = sum(one.fingerprint.bytes * (_GROWTH if one.path.suffix in _COMPRESSED else 1) for one in found)
    wanted = max(1, size // _RECORD_BYTES // limits.bucket_rows)
    return min(_BUCKETS_MAX, 1 << (wanted - 1).bit_length())


def read(
    found: Sequence[Found],
    scratch: Scratch,
    *,
    options: Options,
    now_ns: int,
) -> list[Reading]:
    """The reading of each input, in their order; what was read before as it is."""
    known = {_key(reading): reading for reading in scratch.readings}
    digest = options.digest()
    wanted = [_key_of(one, digest) for one in found]
    missing = [(one, key) for one, key in zip(found, wanted, strict=True) if key not in known]
    writer = Writer(scratch, options.limits.segment_rows)
    number = scratch.next_reading()
    total = sum(one.fingerprint.bytes for one, _ in missing)
    with progress.bar("read", total, "B", quiet=options.quiet) as bar:
        try:
            for one, key in missing:
                source = Source(one.path, number, Ledger(), mapping=options.mapping)
                cleaner = Cleaner(number, source.ledger, now_ns, options.epoch_ns)
                known[key] = _read_one(source, one, writer, digest, cleaner, bar)
                writer.done(known[key])
                number += 1
        finally:
            # Also when it is interrupted: what is done need not be read again.
            writer.flush()
    return [known[key] for key in wanted]


def _read_one(source: Source, one: Found, writer: Writer, options: str, cleaner: Cleaner, bar: Any) -> Reading:
    before = bar.n
    source.progress = lambda done: bar.update(max(0, before + done - bar.n))
    reading = Reading(source.number, str(one.path), one.reader.form, **asdict(one.fingerprint), options=options)
    try:
        for batch in one.reader.read(source):
            reading.rows[batch.relation] = reading.rows.get(batch.relation, 0) + batch.rows.num_rows
            reading.sides += _keep(batch, source.number, cleaner, writer)
    except OSError as error:
        if is_full(error):
            raise
        raise inputs.unreadable(one.path, error) from error
    if inputs.fingerprint(one.path) != one.fingerprint:
        raise StudyError(
            f"read {one.path}: it was written to meanwhile", "run the same command again when it is at rest"
        )
    reading.trouble = source.ledger.table().to_pylist()
    return reading


def _keep(batch: Batch, number: int, cleaner: Cleaner, writer: Writer) -> int:
    """How many records of side."""
    if batch.rows.num_rows == 0:
        return 0
    if batch.relation != "side":
        writer.add_other(batch.relation, batch.rows, number)
        return 0
    rows = cleaner.clean(batch.rows)
    writer.add(rows)
    return int(rows.num_rows)


def _key(reading: Reading) -> tuple[Any, ...]:
    return (reading.path, reading.form, reading.bytes, reading.mtime_ns, reading.digest, reading.options)


def _key_of(one: Found, options: str) -> tuple[Any, ...]:
    print_ = one.fingerprint
    return (str(one.path), one.reader.form, print_.bytes, print_.mtime_ns, print_.digest, options)
