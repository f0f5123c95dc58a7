"""What this project's codec takes beside prost: the one place that has it, and says where it was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEASURED_BY: Final = "lab/peers/codec, beside prost"


@dataclass(frozen=True)
class Side:
    """A message's time, in ns."""

    codec: float
    prost: float

    @property
    def times(self) -> float:
        """How many times as fast."""
        return self.prost / self.codec


@dataclass(frozen=True)
class Measured:
    """Of one class of messages."""

    name: str
    bytes: int
    # Of its fields.
    absent: float
    encode: Side
    decode: Side

    def left(self, encoded: float, decoded: float) -> float:
        """Of the time of a library like prost what is left, where so many bytes are encoded and decoded."""
        codec, prost = (
            encoded * getattr(self.encode, which) + decoded * getattr(self.decode, which)
            for which in ("codec", "prost")
        )
        return codec / prost if prost > 0 else 1.0


# Medians of lab/results/codec-classes.json and codec-half-sparse.json, with BMI2; one process is up
# to a fifth off.
# At 95 % absent (27 bytes and less) a call costs more than its fields; calls of such messages are not counted.
MEASURED: Final = (
    Measured("Flat", 483, 0.1, Side(115.6, 547.4), Side(261.5, 1366.8)),
    Measured("Mixed", 294, 0.1, Side(94.2, 418.5), Side(208.7, 914.0)),
    Measured("Nested", 226, 0.1, Side(81.8, 422.1), Side(206.5, 770.2)),
    Measured("Flat", 214, 0.6, Side(200.0, 801.5), Side(549.7, 1276.1)),
    Measured("Mixed", 85, 0.6, Side(102.9, 353.6), Side(274.0, 576.2)),
    Measured("Nested", 37, 0.6, Side(81.8, 283.9), Side(226.8, 367.7)),
)
