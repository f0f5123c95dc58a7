"""Where a search's time goes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Staged:
    """Something that is made in stages."""

    # Nanoseconds of each, in the order in which they first came.
    stages_ns: dict[str, int] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """Counts the time of what is within as that stage's."""
        return Stage(self.stages_ns, name)


class Stage:
    """The time of what is within; a generator's context manager would take as long as some stages."""

    __slots__ = ("_began_ns", "_name", "_stages_ns")

    def __init__(self, stages_ns: dict[str, int], name: str) -> None:
        self._stages_ns, self._name = stages_ns, name

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        took_ns = time.perf_counter_ns() - self._began_ns
        self._stages_ns[self._name] = self._stages_ns.get(self._name, 0) + took_ns
