"""What the thesis publishes of its pipelines (figures 7.4 to 7.6, table 7.1), beside what the model makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scotfree.study.hardware.classes import CLASSES
from scotfree.study.hardware.pipelines import FAR, NEAR, Design, Result, run

# What was chosen with published numbers in view, and which.
FITTED: Final = (
    "a Reader holds four lines of a schema: by Flat's 33 Gbit/s",
    "Mixed has three sub-objects: by its 15 Gbit/s on the near mesh",
    "Nested has seven: by its 11 Gbit/s",
    "a block has a header of 16 bytes on the link, and requests are not counted: by Mixed's 73 Gbit/s",
    "contexts begin 37 cycles apart: in one cycle, {12,1} had 63 Gbit/s of 73",
    "a block takes 27 cycles, which the thesis says of a field (of a traversal it says 40), and each text lies in "
    "a block of its own: of the combinations looked at this one was nearest to all numbers",
)
NOT_DERIVED: Final = (
    "the classes' fields are unpublished: they are reconstructed from table 6.2 (size, bytes read, depth), and a "
    "number that rests on them is no better than that",
    "deserialization, and the latency of a message (figure 7.6b), are drawn and not printed",
    "what a core does by itself (1.3 to 1.7 Gbit/s), power and area come from elsewhere; performance per watt is "
    "the model's throughput by the published power",
)
_LINE_RATE: Final = 40.0
# The core's throughput, and "about 5 times" that, which the text says of the unpipelined design.
_CORE: Final = 1.7
_BASE: Final = 5 * _CORE
# mW and Gbit/s of table 7.1.
_CORE_POWER: Final = (5400.0, 1.3)


@dataclass(frozen=True)
class Row:
    """One published number."""

    where: str
    what: str
    published: float
    model: float
    # The model was made with it in view.
    is_fitted: bool = False
    # It is only said that so much is reached.
    is_least: bool = False

    @property
    def deviation(self) -> float:
        """By which share the model is above; where so much or more is meant, only what it is below."""
        off = self.model / self.published - 1
        return min(off, 0.0) if self.is_least else off


def rows() -> list[Row]:
    """All of them."""
    return [*_alone(), *_parallel(), *_shared(), *_table()]


def _of(name: str, pipelines: int = 1, contexts: int = 1, *, is_far: bool = False) -> Result:
    return run(CLASSES[name], Design(pipelines, contexts, FAR if is_far else NEAR))


def _alone() -> Iterator[Row]:
    for name, published in (("Flat", 33.0), ("Mixed", 15.0), ("Nested", 11.0)):
        yield Row("7.4", f"{name} {{1,1}}, Gbit/s", published, _of(name).gbit_per_s, is_fitted=True)
    base = run(CLASSES["Flat"], Design(has_prefetch=False, is_pipelined=False))
    yield Row("7.4", "Flat, no prefetch, no pipelining, Gbit/s", _BASE, base.gbit_per_s)


def _parallel() -> Iterator[Row]:
    for name, pipelines in (("Flat", 2), ("Mixed", 3), ("Nested", 4)):
        found = _of(name, pipelines).gbit_per_s
        yield Row("7.5", f"{name} {{{pipelines},1}}, Gbit/s or more", _LINE_RATE, found, is_least=True)
    yield Row("7.5", "Nested at saturation, Gbit/s", 50.0, _of("Nested", 12).gbit_per_s)


def _shared() -> Iterator[Row]:
    near, far = _of("Mixed"), _of("Mixed", is_far=True)
    yield Row("7.6", "Mixed {1,1}, the far mesh over the near one", 0.5, far.gbit_per_s / near.gbit_per_s)
    six, shared = _of("Mixed", 6), _of("Mixed", 3, 2)
    yield Row("7.6", "Mixed {6,1} near, of the link", 1.0, six.link_share)
    yield Row("7.6", "Mixed {3,2} near over {6,1}", 1.0, shared.gbit_per_s / six.gbit_per_s)
    yield Row("7.6", "Mixed {12,1} far, of the link", 1.0, _of("Mixed", 12, is_far=True).link_share)


def _table() -> Iterator[Row]:
    core_mw, core = _CORE_POWER
    for pipelines, contexts, power_mw, published, per_watt in (
        (1, 1, 58.0, 8.8, 655.0),
        (12, 1, 532.0, 73.0, 593.0),
        (3, 4, 152.0, 73.0, 2075.0),
    ):
        design, found = f"Mixed {{{pipelines},{contexts}}} far", _of("Mixed", pipelines, contexts, is_far=True)
        yield Row("t7.1", f"{design}, Gbit/s", published, found.gbit_per_s)
        model = (found.gbit_per_s / power_mw) / (core / core_mw)
        yield Row("t7.1", f"{design}, per watt over a core", per_watt, model)


def text() -> str:
    """All of it for a terminal."""
    head = f"{'':6}{'':46}{'published':>10}{'model':>10}{'deviation':>11}"
    lines = [head, "-" * len(head), *(_line(row) for row in rows())]
    fitted = [f"- {one}" for one in FITTED]
    return "\n".join(
        [*lines, "", "fitted (*):", *fitted, "", "not derived:", *(f"- {one}" for one in NOT_DERIVED)]
    )


def _line(row: Row) -> str:
    mark = " *" if row.is_fitted else ""
    return (
        f"{row.where:6}{row.what:46}{row.published:>10.4g}{row.model:>10.4g}{row.deviation * 100:>+9.0f} %{mark}"
    )
