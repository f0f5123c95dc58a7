"""Writes a fleet as a store: calls by partition, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.fleet import metrics, population, profiles, shapes
from scotfree.study.fleet.calls import DAY_NS, DAY_START_NS, Drawer, Traces
from scotfree.study.fleet.draws import Array, stream, uniforms, words
from scotfree.study.fleet.options import CELLS, FleetOptions
from scotfree.study.store import (
    SPAN_LAYOUT,
    Input,
    Manifest,
    partition_folder,
    partitions_of,
    write_manifest,
    write_table,
)
from scotfree.study.trouble import StudyError

# Calls drawn at a time, and to a row group; their columns, some 400 bytes a call, are 50 MB.
_BATCH_ROWS = 1 << 17
_TRACES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Fleet:
    """All that a description determines before any call is drawn."""

    options: FleetOptions
    population: population.Population
    shapes: shapes.Shapes
    # Per trace, by number.
    shape_of: Array
    cell_of: Array

    @property
    def spans(self) -> int:
        """How many calls there are."""
        return int(self.shapes.size[self.shape_of].sum())

    def traces(self, numbers: Array) -> Traces:
        """Traces by number."""
        seed = self.options.seed
        start = DAY_START_NS + (uniforms(seed, 3, numbers) * DAY_NS).astype(np.int64)
        return Traces(trace_ids(seed, numbers), self.shape_of[numbers], start)

    def batches(self, cell: int) -> Iterator[Array]:
        """Numbers of a cell's traces, some _BATCH_ROWS calls at a time."""
        numbers = np.flatnonzero(self.cell_of == cell)
        if len(numbers) == 0:
            return
        ends = np.cumsum(self.shapes.size[self.shape_of[numbers]])
        cuts = np.searchsorted(ends, np.arange(_BATCH_ROWS, ends[-1], _BATCH_ROWS))
        yield from (part for part in np.split(numbers, np.unique(cuts)) if len(part))

    def drawn(self, cells: Iterable[int] = range(CELLS)) -> Iterator[Drawn]:
        """Calls of cells, in batches; drawn again they are the same."""
        drawer = Drawer(self.options, self.population, self.shapes)
        for cell in cells:
            rng = stream(self.options.seed, 7, cell)
            for numbers in self.batches(cell):
                traces = self.traces(numbers)
                yield Drawn(numbers, traces, drawer.columns(traces, rng))


@dataclass(frozen=True)
class Drawn:
    """A batch of whole traces: their numbers, what they are, and the columns of their calls."""

    numbers: Array
    traces: Traces
    columns: dict[str, Array]


def trace_ids(seed: int, numbers: Array) -> Array:
    """Two words each."""
    return np.stack([words(seed, 4, numbers), words(seed, 5, numbers)], axis=1)


def plan(options: FleetOptions) -> Fleet:
    """Draws who there is, and which traces."""
    kinds = shapes.draw(options.seed, options.depth, options.sampling)
    parts, cells, spans, first = [], [], 0, 0
    while spans < options.spans:
        numbers = np.arange(first, first + _TRACES_AT_ONCE)
        shape = (uniforms(options.seed, 6, numbers) * len(kinds.size)).astype(np.int32)
        ends = spans + np.cumsum(kinds.size[shape])
        taken = int(np.searchsorted(ends, options.spans)) + 1
        parts.append(shape[:taken])
        cells.append(partitions_of(trace_ids(options.seed, numbers[:taken]), CELLS).astype(np.int8))
        first, spans = first + _TRACES_AT_ONCE, int(ends[-1])
    return Fleet(options, population.draw(options), kinds, np.concatenate(parts), np.concatenate(cells))


def write(folder: Path, fleet: Fleet, threads: int) -> int:
    """Writes all of the store but its manifest; the number of calls."""
    refuse_used(folder)
    with ThreadPoolExecutor(threads) as pool:
        written = pool.map(lambda index: _write_partition(folder, fleet, index), range(fleet.options.partitions))
        spans = sum(written)
    write_table(fleet.population.method_table(), folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    if fleet.options.metrics:
        for index, table in enumerate(metrics.tables(fleet.options.seed, fleet.population)):
            write_table(table, folder / "metric" / f"part-{index}.parquet")
    if fleet.options.profiles:
        write_table(profiles.table(fleet.population), folder / "profile" / "part.parquet")
    return spans


def refuse_used(folder: Path) -> None:
    """Nothing is overwritten or mixed."""
    if folder.exists() and any(folder.iterdir()):
        raise StudyError(f"generate a fleet into {folder}: there is something already", "name a new folder")


def finish(folder: Path, fleet: Fleet, spans: int) -> None:
    """Writes the manifest: the store is complete."""
    source = Input(f"fleet of seed {fleet.options.seed}", "fleet", 0, spans)
    write_manifest(folder, Manifest(partitions=fleet.options.partitions, inputs=[source], spans=spans))


def _write_partition(folder: Path, fleet: Fleet, index: int) -> int:
    path = partition_folder(folder, index) / "part.parquet"
    path.parent.mkdir(parents=True)
    names = Names.of(fleet.population)
    spans = 0
    with pq.ParquetWriter(path, schema.SPAN, **SPAN_LAYOUT) as writer:
        for drawn in fleet.drawn(range(index, CELLS, fleet.options.partitions)):
            table = span_table(drawn, names)
            writer.write_table(table, row_group_size=table.num_rows)
            spans += table.num_rows
    return spans


@dataclass(frozen=True)
class Names:
    """What codes stand for, as Arrow has it."""

    values: dict[str, pa.Array]

    @classmethod
    def of(cls, who: population.Population) -> Names:
        """The names of a population."""
        clusters, machines, services = pa.array(who.clusters), pa.array(who.machines), pa.array(who.services)
        return cls(
            {
                "service": services,
                "client_service": services,
                "method": pa.array([name for _, name in who.methods]),
                "server_cluster": clusters,
                "client_cluster": clusters,
                "server_machine": machines,
                "client_machine": machines,
                "status": pa.array([schema.STATUS_OK, *population.STATUSES]),
            }
        )


def span_table(drawn: Drawn, names: Names) -> pa.Table:
    """Columns as `schema.SPAN`."""
    columns, traces = drawn.columns, drawn.traces
    count = len(columns["trace"])
    root = columns["level"] == 0
    nulls = {"parent_id": root, "client_service": root, "cpu_cycles": columns["no_cycles"]}
    columns = {
        **columns,
        "method": columns["method_id"],
        "provenance": np.full(count, schema.ALL_MEASURED, np.int32),
    }

    def array(field: pa.Field) -> pa.Array:
        if field.name == "trace_id":
            ids = np.ascontiguousarray(traces.ids[columns["trace"]])
            return pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(ids)])
        if field.name not in columns:
            return pa.nulls(count, field.type)
        mask = nulls.get(field.name)
        if field.name in names.values:
            codes = pa.array(columns[field.name].astype(np.int32, copy=False), mask=mask)
            return pa.DictionaryArray.from_arrays(codes, names.values[field.name], safe=False)
        return pa.array(columns[field.name], field.type, mask=mask)

    return pa.Table.from_arrays([array(field) for field in schema.SPAN], schema=schema.SPAN)
