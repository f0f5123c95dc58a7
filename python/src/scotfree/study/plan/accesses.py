"""Which reads a cache of a size would answer: the calls of a service whose keys are known, played to one.

Keys are told by their hashes (`rpc.key.hash`), of one key in so many every call (`sampling.weight`): such a sample
sees of a cache what a cache as many times smaller sees of all (SHARDS, Waldspurger et al., FAST 2015; miniature
simulations, ATC 2017). What is played evicts what was not asked for longest (LRU); the caches of this project
(SIEVE) lose nothing against it on skewed keys.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from scotfree.study.analysis.study import Study
from scotfree.study.plan.calls import Calls, Floats, Integers, Truths
from scotfree.study.plan.context import Context

# What an entry takes beside its value, bytes.
ENTRY_BYTES: Final = 128
# A key is kept from so many reads on (`admit_reads`).
_ADMITTED: Final = 2
# Of a service with more such calls about as many are played: all calls of some of its keys.
CALLS_MAX: Final = 1_000_000
_COLUMNS: Final = ("trace_id", "span_id", "start_ns", "service", "method", "key_hash", "req_bytes", "resp_bytes")


@dataclass(frozen=True)
class Accesses:
    """A service's calls whose keys are known, in the order of time."""

    # Names each call.
    ids: Integers
    keys: Integers
    is_update: Truths
    # Updates that say the whole value: what is known of the key stays known.
    is_overwrite: Truths
    # Of the value, bytes.
    size: Floats
    # Of so many keys one is among them.
    one_in: float
    # By the bytes of a cache.
    _played: dict[float, Truths] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def update_share(self) -> float:
        """Of all of them."""
        return float(self.is_update.mean())

    def hits(self, bytes_max: float) -> Truths:
        """Which of them such a cache would answer: played once, however many methods the service has."""
        if bytes_max not in self._played:
            self._played[bytes_max] = self._play(bytes_max)
        return self._played[bytes_max]

    def _play(self, bytes_max: float) -> Truths:
        found = np.zeros(len(self.keys), np.bool_)
        room = bytes_max / self.one_in
        kept: OrderedDict[int, float] = OrderedDict()
        reads: Counter[int] = Counter()
        held = 0.0
        rows = zip(
            self.keys.tolist(),
            self.is_update.tolist(),
            self.is_overwrite.tolist(),
            self.size.tolist(),
            strict=True,
        )
        for place, (key, is_update, is_overwrite, size) in enumerate(rows):
            if is_update:
                known = kept.pop(key, None)
                if known is None:
                    continue
                held -= known
                if not is_overwrite:
                    continue
            elif key in kept:
                found[place] = True
                kept.move_to_end(key)
                continue
            else:
                reads[key] += 1
                if reads[key] < _ADMITTED:
                    continue
            kept[key] = size + ENTRY_BYTES
            held += kept[key]
            while held > room and kept:
                held -= kept.popitem(last=False)[1]
        return found

    def of(self, calls: Calls, hits: Truths) -> Truths:
        """Which calls of a method are among these hits."""
        return np.isin(_ids(calls.table), self.ids[hits])


def read(study: Study, context: Context) -> Mapping[str, Accesses]:
    """Of each service that has such calls."""
    span = study.span
    known = span.filter(span.key_hash.notnull() & span.start_ns.notnull())
    counts = study.engine.arrow(known.group_by("service").agg(calls=known.count())).to_pylist()
    return {row["service"]: _of(study, context, known, row["service"], row["calls"]) for row in counts}


def _of(study: Study, context: Context, known: Any, service: str, calls: int) -> Accesses:
    keep = -(-calls // CALLS_MAX)
    own = known.filter(known.service == service)
    if keep > 1:
        # The low bits chose which keys are recorded at all.
        own = own.filter((own.key_hash.cast("uint64") >> 24) % keep == 0)
    own = own.mutate(weight=own.sample_weight.fill_null(1.0))
    table = study.engine.arrow(own.order_by(["start_ns", "trace_id", "span_id"]).select(*_COLUMNS, "weight"))
    methods = np.array(table["method"].cast(pa.string()).to_pylist())
    names = {name: context.is_update(service, name) for name in set(methods.tolist())}
    is_update = np.array([names[name] for name in methods.tolist()], np.bool_)
    is_overwrite = np.array([is_overwriting(name) for name in methods.tolist()], np.bool_) & is_update
    sizes = [table[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("req_bytes", "resp_bytes")]
    weight = float(np.median(table["weight"].to_numpy())) if len(table) else 1.0
    return Accesses(
        _ids(table),
        table["key_hash"].to_numpy(),
        is_update,
        is_overwrite,
        np.nan_to_num(np.where(is_update, *sizes)),
        weight * keep,
    )


def is_overwriting(method: str) -> bool:
    """Whether an update of that name gives a key its whole value."""
    return method.rsplit("/", 1)[-1].lower() in ("set", "put", "write")


def _ids(table: pa.Table) -> Integers:
    """A number for each call: of its span and its trace, which alone may repeat."""
    traces = table["trace_id"].cast(pa.binary(16)).combine_chunks()
    words = np.frombuffer(b"".join(traces.to_pylist()), np.int64).reshape(-1, 2)
    found: Integers = words[:, 0] ^ (words[:, 1] * 31) ^ table["span_id"].to_numpy()
    return found
