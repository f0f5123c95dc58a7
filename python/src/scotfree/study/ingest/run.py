"""The ingest: files into a store, in three steps. Each can be interrupted; the same command goes on.

1. `reading`: inputs to records by partition, in scratch files. 2. `partitions`: each partition's records to calls.
3. `finish`: calls to the store's Parquet. The manifest is written last; scratch files are removed then.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.ingest import clocks, disk, finish, inputs, lock, names, nearest, reading
from scotfree.study.ingest.inputs import Found
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.partitions import Partitions
from scotfree.study.ingest.scratch import Reading, Scratch, discard, is_over
from scotfree.study.store import (
    COMPRESSION,
    MANIFEST,
    VERSION,
    Input,
    Manifest,
    Store,
    partition_folder,
    write_manifest,
    write_table,
)
from scotfree.study.trouble import StudyError


def ingest(data: Sequence[Path], folder: Path, options: Options | None = None) -> Store:
    """Reads files and folders of them into a store; what the store has of them already is not read again."""
    options = options or Options()
    _check_folder(folder)
    found, unknown = _find(data, folder, options)
    with disk.told(folder, options.limits), lock.locked(folder):
        return _ingest(data, folder, options, found, unknown)


def _check_folder(folder: Path) -> None:
    """What is there is removed when a store is made anew: so it must be a store's."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StudyError(f"write {folder}: it is a file", "name a new folder with --store")
    # What an ingest has made before its first input is read.
    begun = {lock.NAME, inputs.SCRATCH}
    is_own = (folder / MANIFEST).exists() or (folder / inputs.SCRATCH / inputs.PLAN).exists()
    if not is_own and not {path.name for path in folder.iterdir()} <= begun:
        raise StudyError(
            f"write {folder}: it holds other things and is no store", "name a new folder with --store"
        )


def _ingest(
    data: Sequence[Path], folder: Path, options: Options, found: Sequence[Found], unknown: Sequence[Path]
) -> Store:
    before = _complete(folder)
    # One of an older version is made anew of the same data.
    is_current = before is not None and before.manifest.version == VERSION
    if before is not None and is_current and _is_of(before.manifest, found, options.digest()):
        if is_over(folder / inputs.SCRATCH, before.manifest.inputs):
            discard(folder / inputs.SCRATCH)
        return before
    if before is not None and not options.replaces:
        _check_data(before.manifest, data, folder)
    now_ns = options.now_ns or time.time_ns()
    scratch = Scratch(folder / inputs.SCRATCH, reading.buckets(found, options.limits))
    readings = reading.read(found, scratch, options=options, now_ns=now_ns)
    partitions = Partitions(scratch, readings, options.limits, now_ns)
    partitions.merge(quiet=options.quiet)
    _finish(folder, scratch, readings, partitions, unknown, options.methods_max)
    return Store.open(folder)


def _find(data: Sequence[Path], folder: Path, options: Options) -> tuple[list[Found], list[Path]]:
    """What is read, and what has no form that is known."""
    found: list[Found] = []
    unknown: list[Path] = []
    for path in inputs.files(data, folder):
        try:
            reader = inputs.choose(path, options.readers, options.form, options.mapping)
            if reader is None:
                unknown.append(path)
            else:
                found.append(Found(path, reader, inputs.fingerprint(path)))
        except OSError as error:
            raise inputs.unreadable(path, error) from error
    for path in unknown:
        problem, advice = nearest.unknown(path)
        if path in data or (not found and problem not in (nearest.UNKNOWN, nearest.EMPTY)):
            raise StudyError(f"read {path}: {problem}", advice)
    if not found:
        named = ", ".join(str(path) for path in data[:3])
        raise StudyError(
            f"read {named}: there is no file of a known form", "name files, or a folder that holds some"
        )
    return found, unknown


def _complete(folder: Path) -> Store | None:
    return Store.open(folder, older=True) if (folder / MANIFEST).exists() else None


def _is_of(manifest: Manifest, found: Sequence[Found], options: str) -> bool:
    """Whether a store holds these inputs, as they are now."""
    have = [(one.path, one.form, one.bytes, one.mtime_ns, one.digest, one.options) for one in manifest.inputs]
    prints = [one.fingerprint for one in found]
    return have == [
        (str(one.path), one.reader.form, p.bytes, p.mtime_ns, p.digest, options)
        for one, p in zip(found, prints, strict=True)
    ]


def _check_data(manifest: Manifest, data: Sequence[Path], folder: Path) -> None:
    """What was read from elsewhere is not thrown away for new data; files of a folder may come and go."""
    named = [path.absolute() for path in data]
    for one in manifest.inputs:
        path = Path(one.path).absolute()
        if any(path == other or other in path.parents for other in named):
            return
    if manifest.inputs:
        raise StudyError(
            f"write {folder}: it holds what was read from {manifest.inputs[0].path}, and nothing of this data",
            "name another folder with --store, or say --replace",
        )


def _finish(
    folder: Path,
    scratch: Scratch,
    readings: Sequence[Reading],
    partitions: Partitions,
    unknown: Sequence[Path],
    methods_max: int,
) -> None:
    """What was there before goes now, and not before."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for relation in ("span", "metric", "profile"):
        shutil.rmtree(folder / relation, ignore_errors=True)
    ledger = partitions.ledger()
    for index, one in enumerate(readings):
        ledger.add_rows(one.trouble, index)
    texts = finish.Texts(partitions.texts)
    methods = finish.methods(partitions.methods(), texts, methods_max)
    finisher = finish.Finisher(texts, methods, clocks.offsets(partitions.gaps()), ledger)
    for index in range(partitions.count):
        finisher.write(partitions.calls(index), partition_folder(folder, index) / "part.parquet")
    for relation in ("metric", "profile"):
        _gather(relation, scratch, readings, folder)
    if methods.collapsed:
        ledger.note(
            -1,
            f"one of more than {methods_max:,} methods: among others",
            kept=True,
            count=methods.collapsed,
        )
    if partitions.names_twice:
        ledger.note(-1, names.TWICE, kept=True, count=partitions.names_twice)
    for path in unknown:
        reason = nearest.reason(path)
        ledger.note(-1, reason, kept=False, detail=str(path))
    write_table(methods.table, folder / "methods.parquet")
    write_table(ledger.table(), folder / "trouble.parquet")
    write_manifest(folder, _manifest(readings, partitions))
    discard(scratch.folder)


def _gather(relation: str, scratch: Scratch, readings: Sequence[Reading], folder: Path) -> None:
    """The rows of another relation, in the order of inputs."""
    files = [file for one in readings for file in scratch.files(relation, one.number)]
    if not files:
        return
    of = {"metric": schema.METRIC, "profile": schema.PROFILE}[relation]
    to = folder / relation / "part.parquet"
    to.parent.mkdir(parents=True, exist_ok=True)
    half = to.with_suffix(".half")
    with pq.ParquetWriter(half, of, compression=COMPRESSION) as writer:
        for file in files:
            writer.write_table(pq.read_table(file).cast(of))
    half.rename(to)


def _manifest(readings: Sequence[Reading], partitions: Partitions) -> Manifest:
    counts = partitions.counts()
    counts.check()
    if counts.records != sum(one.sides for one in readings):
        raise AssertionError(f"records were lost before the merge: {counts}")
    cleaned = sum(_dropped(one) for one in readings)
    return Manifest(
        partitions=partitions.count,
        inputs=[
            Input(one.path, one.form, one.bytes, sum(one.rows.values()), one.mtime_ns, one.digest, one.options)
            for one in readings
        ],
        records_in=counts.records + cleaned,
        merged=counts.merged,
        internal=counts.internal,
        dropped=counts.dropped + cleaned,
        spans=counts.calls,
    )


def _dropped(one: Reading) -> int:
    return sum(row["count"] for row in one.trouble if not row["is_kept"])
