"""The kernels in Rust (crates/scotfree-python): columns in as buffers, columns out as bytes."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Buffer

Column = Buffer | np.ndarray[Any, Any]

def tree(trace_ids: Column, span_ids: Column, parent_ids: Column, has_parent: Column) -> list[bytes]:
    """Descendants, ancestors (u32) and whether a call is on a ring (u8)."""

Pairs = list[tuple[str, str]]
# Name, values, validity if not all are valid, and a dictionary's offsets and text if the values are its codes.
Columns = list[tuple[str, bytes, bytes | None, tuple[bytes, bytes] | None]]

def signal(head: bytes) -> str | None:
    """What an OTLP message carries, told by its beginning: "traces", "metrics" or nothing that is read."""

def from_json(text: bytes, signal: str) -> tuple[bytes, int, tuple[str, bool] | None]:
    """OTLP's JSON as protobuf.

    The message of the text's whole records, how many values were of a wrong kind, and why it could not be read on,
    with whether that is because it ends early.
    """

class SpanDecoder:
    """OTLP's trace messages of one input to columns of `side`."""

    records: int
    rows: int
    def __init__(
        self,
        integers: Pairs,
        floats: Pairs,
        texts: Pairs,
        hedges: Pairs,
        errors: list[list[str]],
        grpc: list[str],
        http: list[tuple[int, str]],
    ) -> None: ...
    def start(self, message: bytes) -> None:
        """Begins a message."""
    def decode(self, message: bytes, rows_max: int) -> bool:
        """Reads on in it until there are so many rows. True at its end."""
    def skip_record(self) -> None:
        """A record that cannot even be read has its number, too."""
    def troubles(self) -> list[tuple[str, int, int, bool]]:
        """Reason, first record, count, whether kept: of what was wrong since the last time."""
    def take(self) -> tuple[int, Columns]:
        """The rows since the last time."""

class ByMethod:
    """The calls of a partition by their method: bins of one quantity after the other."""

    def __init__(self, methods: Column, is_wanted: Column) -> None: ...
    def bins(self, values: Column, weights: Column) -> list[bytes]:
        """Method (u32), bin (i32), samples (u64), weight and squares of weights (f64), by method and bin."""

class Histogram:
    """The sum of histograms."""

    def add(self, part: tuple[Column, ...]) -> None:
        """Adds bins in the order of method and bin, the columns those of `ByMethod.bins`."""
    def take(self) -> list[bytes]:
        """All so far, by method and bin; nothing is left."""

def bin_values(bins: Column) -> bytes:
    """The middle of each bin (f64)."""

def value_bins(values: Column) -> bytes:
    """The bin of each value (i32)."""

def ranked(methods: Column, values: Column, weights: Column, parts: Column, asked: int) -> list[bytes]:
    """Of each method with a value: method (u32), samples (u64), weight, squares (f64), `asked` quantiles (f64).

    `parts` (u32): so many for each method, in ten-thousandths.
    """

class MetricDecoder:
    """OTLP's metric messages of one input to columns of `metric`, counters as rates per second."""

    records: int
    rows: int
    def __init__(self, texts: Pairs) -> None: ...
    def read(self, message: bytes) -> None:
        """Reads a message."""
    def skip_record(self) -> None:
        """A record that cannot even be read has its number, too."""
    def troubles(self) -> list[tuple[str, int, int, bool]]:
        """Reason, first record, count, whether kept: of what was wrong since the last time."""
    def take(self) -> tuple[int, int, Columns]:
        """The rows since the last time, and how many points only began a counter."""

class Axes:
    """Along what an index codes residuals.

    `directions` (f32, axes x dimensions), of each axis the length of a step, the mean square of the error that is
    left of residuals of length one (f32) and how many bits it has (u32); `rest` is their mean square along each
    direction across all axes. `ValueError` says what are none.
    """

    def __new__(
        cls,
        directions: Column,
        steps: Column,
        errors: Column,
        depths: Column,
        *,
        rest: float,
        dimensions: int,
    ) -> Axes: ...

class SnapshotWriter:
    """An index that is being written, cluster by cluster, as codes along axes."""

    def __new__(cls, axes: Axes, centroids: Column, *, model: bytes) -> SnapshotWriter:
        """For clusters of these centroids (f32); `model` is the 32-byte digest of what embeds its passages."""
    def add(self, embeddings: Column, passages: Column, clusters: Column) -> None:
        """Passages (u32), their embeddings (f32, of length one, behind each other) and their clusters (u32).

        A cluster is that of the one before, or a later one. `ValueError` says what is no index.
        """
    def finish(self, path: Path) -> None:
        """Writes the file."""

def merge_snapshot(
    path: Path,
    old: Snapshot,
    gone: set[int],
    embeddings: Column,
    passages: Column,
    *,
    bare: AbstractSet[int],
) -> None:
    """Writes an index of what `old` has but for `gone`, and of embeddings (f32, of length one) of others.

    Clusters of `bare` have no codes; of those that had none and are to, the embeddings are among these, too.
    """

class Snapshot:
    """An index that is mapped."""

    dimensions: int
    bits: int
    # Of a passage's code with its factors.
    code_bytes: int
    model: bytes
    clusters: int
    # How many passages.
    rows: int
    def __init__(self, path: Path) -> None:
        """Opens it; `ValueError` says what is wrong with the file."""
    def passages(self) -> list[int]:
        """Its passages, in the order of rows."""
    def starts(self) -> list[int]:
        """The first row of each cluster and, last, how many rows there are."""
    def bare(self) -> list[int]:
        """The clusters that have passages, and no codes."""
    def along(self, embedding: Column, count: int) -> list[int]:
        """The clusters whose centroids lie most in an embedding's direction (f32), the first one most."""
    def search(
        self,
        question: Column,
        count: int,
        probes: int,
        deviations: float,
        gone: PassageSet,
        *,
        bare_probes: int,
    ) -> Search:
        """Begins a search for a question's embedding (f32, of length one), without passages of `gone`.

        Looks through the `probes` nearest clusters; of bare ones only through the first `bare_probes` of `along`.
        """

class PassageSet:
    """A set of passages, by their numbers: some bits for each, up to the highest."""

    def __new__(cls, passages: Sequence[int] = ()) -> PassageSet:
        """Of these."""
    @staticmethod
    def of_runs(documents: str, most: int) -> PassageSet | None:
        """Of documents, each with runs of passages up to `most`, as JSON: `[[1,2]],[[3,4]]`; `None`: no such."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, passage: int) -> bool: ...
    def __or__(self, other: PassageSet) -> PassageSet: ...
    def has(self, passages: Column) -> bytes:
        """Of passages (u32) whether each is one of them: a byte for each, 1 or 0."""

class Search:
    """A search that is under way."""

    # Passages that have codes; those that have none, whose exact values are asked for first.
    estimated: int
    certain: int
    probed: int
    def ask(self, most: int) -> list[int]:
        """At most so many passages whose exact values may matter, the likeliest first; none: it is over."""
    def give(self, exact: list[tuple[int, float]]) -> None:
        """Exact similarities of passages."""
    def refine(self, rows: Rows, question: Column, most: int) -> tuple[list[int], list[int]]:
        """Gives exact values out of rows, to `most` passages each time, until no other can be among the nearest.

        Or until some of them have no row: returned are the passages that rows gave, and those. `ValueError` says
        which row is damaged, `OSError` why none can be read.
        """
    def found(self) -> list[tuple[int, float]]:
        """The nearest by exact values, with their similarities."""
    def guessed(self) -> list[tuple[int, float]]:
        """The nearest by their bounds, and by exact values where they are known.

        A bound is an estimate where the search was begun with no standard errors.
        """

class Rows:
    """Rows of a file of exact values (see scotfree.rag.placement.rows) that was opened and checked."""

    def __new__(cls, path: Path, start: int, dimensions: int, numbers: Column, memory: Column) -> Rows:
        """Those that begin at byte `start`.

        `numbers` (u32) say which passage a row is: of the rows in `memory` (u8) first, then of the others, both in
        order.
        """
    def products(self, passages: Sequence[int], vector: Column) -> tuple[list[int], list[float]]:
        """Of passages those that have a row, and its inner product with a vector (f32); errors as of `refine`."""

class SchemaError(ValueError):
    """Bytes that are no set of descriptors."""

class DecodeError(ValueError):
    """Bytes that are no message of the type: the field that they are in, and the byte."""

    path: str
    at: int | None

class FieldTypeError(TypeError):
    """A value of a type that a field does not take."""

    path: str
    given: str
    expected: str

class FieldValueError(ValueError):
    """A value that a field does not take."""

    path: str
    given: str
    expected: str

class Schema:
    """The types of a set of descriptors; it may be used by any number of threads at once."""

    def __init__(
        self,
        descriptors: bytes | bytearray,
        *,
        depth_max: int = 100,
        message_bytes_max: int = 67108864,
        slots_bytes_max: int = 268435456,
        unknown_fields_max: int = 1048576,
    ) -> None: ...
    def types(self) -> list[str]:
        """The full names of its messages."""
    def decode(
        self,
        name: str,
        data: bytes | bytearray,
        *,
        with_defaults: bool = False,
        enum_numbers: bool = False,
        unknown_fields: bool = True,
    ) -> dict[str, Any]:
        """A message's bytes as a dict; `with_defaults` has fields whose absence says nothing be there, too."""
    def decode_many(
        self,
        name: str,
        data: Sequence[bytes | bytearray],
        *,
        with_defaults: bool = False,
        enum_numbers: bool = False,
        unknown_fields: bool = True,
    ) -> list[dict[str, Any]]:
        """The same of many messages."""
    def encode(self, name: str, message: dict[str, Any]) -> bytes:
        """A dict as a message's bytes, fields by ascending number."""
    def encode_many(self, name: str, messages: Sequence[dict[str, Any]]) -> list[bytes]:
        """The same of many messages."""
