"""All figures, computed one after the other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from scotfree.study.analysis.study import Study
from scotfree.study.figures.result import Figure, Result


@dataclass(frozen=True)
class Computed:
    """A figure with what came out, and the time it took."""

    figure: Figure
    result: Result
    seconds: float

    @property
    def key(self) -> str:
        """The number as a name in files and links: `F8a`, `T1`, `S5-2`."""
        return key_of(self.figure.number)


def key_of(number: str) -> str:
    """A figure's number as a name in files and links."""
    return re.sub(r"[^A-Za-z0-9]+", "-", number).strip("-")


def compute(
    study: Study, chosen: Sequence[Figure], progress: Callable[[Figure], None] = lambda _: None
) -> Iterator[Computed]:
    """The figures' results; `progress` is told before each."""
    for figure in chosen:
        progress(figure)
        begin = time.perf_counter()
        result = figure.compute(study)
        yield Computed(figure, result, time.perf_counter() - begin)
