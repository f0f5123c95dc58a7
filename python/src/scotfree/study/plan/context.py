"""What a forecast may know beside a method's own calls: what the user says, the fits, medians of all methods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scotfree.study.hardware.offload import ON_CHIP_NS
from scotfree.study.plan.pattern import matches

if TYPE_CHECKING:
    from scotfree.study.plan.accesses import Accesses
    from scotfree.study.plan.calls import Name
    from scotfree.study.plan.fit import Fit

# The first word of an update's name, where the user names none.
WRITES: Final = frozenset(
    (
        "add",
        "append",
        "commit",
        "create",
        "delete",
        "erase",
        "insert",
        "persist",
        "post",
        "publish",
        "put",
        "remove",
        "replace",
        "save",
        "set",
        "store",
        "submit",
        "update",
        "upsert",
        "write",
    )
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Context:
    """What is known of the user's services and of the remedies."""

    # Patterns of methods that are updates, as of shells; empty: by their names.
    updates: tuple[str, ...] = ()
    # What was measured of remedies, by name.
    fits: Mapping[str, Fit] = field(default_factory=dict)
    # Why there is no fit of one.
    missing: Mapping[str, str] = field(default_factory=dict)
    # Whether caller and server run on one machine; None: as the calls say.
    is_one_machine: bool | None = None
    # Of the device's log; None: as many as are needed.
    log_slots: int | None = None
    # How often a server's sidecar looks what is stable (Redis says it 20 times a second); 0: with each answer.
    stable_every_ns: float = 50e6
    # The largest share of calls that may be hedges.
    hedges_max: float = 0.02
    # How many servers a group would have.
    replicas: int = 3
    # Of services whose calls say their keys: which, in the order of time. And the bytes of a cache of reads.
    accesses: Mapping[str, Accesses] = field(default_factory=dict)
    cache_bytes: float = 64 << 20
    # Of services that have a profile: the shares of their processor time that are compression, serialization, and
    # the RPC library.
    compression: Mapping[str, float] = field(default_factory=dict)
    serialization: Mapping[str, float] = field(default_factory=dict)
    rpc_library: Mapping[str, float] = field(default_factory=dict)
    # Of methods: how many calls one of theirs makes, on average.
    nested: Mapping[Name, float] = field(default_factory=dict)
    # From the core to hardware that transforms its messages, one way.
    traversal_ns: float = ON_CHIP_NS
    # What compression is taken to do: bytes over compressed bytes, and the work of both sides.
    compression_ratio: float = 2.0
    compress_ns_per_byte: float = 3.0

    def fit(self, remedy: str) -> Fit | None:
        """What was measured of a remedy."""
        return self.fits.get(remedy)

    def why_missing(self, remedy: str) -> str:
        """Why there is no fit of it."""
        return self.missing.get(remedy, f"there is no fit of {remedy}")

    def is_update(self, service: str, method: str) -> bool:
        """Whether the user says so or, if nothing is said, whether its name does."""
        if self.updates:
            return any(matches(pattern, service, method) for pattern in self.updates)
        words = _WORD.findall(re.split(r"[./ ]", method)[-1])
        return bool(words) and words[0].lower() in WRITES
