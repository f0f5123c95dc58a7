"""All figures, computed one after the other."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from scotfree.study import figures
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
        return re.sub(r"[^A-Za-z0-9]+", "-", self.figure.number).strip("-")


def catalogue() -> list[Figure]:
    """Every figure that a module of `figures` offers, as `FIGURE` or in `FIGURES`, in the paper's order."""
    found: list[Figure] = []
    for module in pkgutil.iter_modules(figures.__path__, figures.__name__ + "."):
        loaded = importlib.import_module(module.name)
        found += [loaded.FIGURE] if isinstance(getattr(loaded, "FIGURE", None), Figure) else []
        found += [each for each in getattr(loaded, "FIGURES", ()) if isinstance(each, Figure)]
    return sorted({figure.number: figure for figure in found}.values(), key=_order)


def _order(figure: Figure) -> tuple[int, int, str]:
    """Figures by their number, then tables, then what is only a paragraph."""
    kind, number, rest = re.fullmatch(r"(\D*)(\d*)(.*)", figure.number.strip()).groups()  # type: ignore[union-attr]
    return ({"F": 0, "T": 1}.get(kind.strip(), 2), int(number or 0), rest)


def compute(
    study: Study, chosen: list[Figure], progress: Callable[[Figure], None] = lambda _: None
) -> Iterator[Computed]:
    """The figures' results; `progress` is told before each."""
    for figure in chosen:
        progress(figure)
        begin = time.perf_counter()
        result = figure.compute(study)
        yield Computed(figure, result, time.perf_counter() - begin)
