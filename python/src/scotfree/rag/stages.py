"""Where a search's time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Staged:
    """Something that is made in stages."""

    # Nanoseconds of each, in the order in which they first came.
    stages_ns: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time of what is within as that stage's."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.stages_ns[name] = self.stages_ns.get(name, 0) + time.perf_counter_ns() - began
