"""What is asked of each call: a value from its row, null where it is not known.

A quantity has a name: one of `NAMED`; a stage; stages summed, as in `server_app+server_send_queue`; or what is
left of the total without stages, as in `total-server_recv_queue`. Written once: `value` takes an Ibis table as
well as columns in memory (`scotfree.study.analysis.columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import reduce
from operator import add, sub
from typing import Any

from scotfree.study import schema
from scotfree.study.trouble import StudyError

Value = Callable[[Any], Any]


def named(stages: Collection[str]) -> str:
    """The name of some stages' sum; the order in which they are given does not matter."""
    return "+".join(_in_order(stages))


def rest(stages: Collection[str]) -> str:
    """The name of what is left of the total without these stages."""
    return "-".join(["total", *_in_order(stages)])


def columns(quantity: str) -> list[str]:
    """The columns of `span` that a quantity needs."""
    asked = _Asked()
    value(quantity)(asked)
    return sorted(asked.names)


def value(quantity: str) -> Value:
    """From calls to the quantity's values."""
    if quantity in NAMED:
        return NAMED[quantity]
    if quantity.startswith("total-"):
        return _less(_checked(quantity.split("-")[1:], quantity))
    return _sum(_checked(quantity.split("+"), quantity))


def is_of_tree(quantity: str) -> bool:
    """Whether it is about a call's place in its trace, which no row tells."""
    return quantity in TREE


def _in_order(stages: Iterable[str]) -> list[str]:
    return sorted(set(stages), key=schema.STAGES.index)


def _checked(stages: Iterable[str], quantity: str) -> list[str]:
    listed = list(stages)
    unknown = [stage for stage in listed if stage not in schema.STAGES]
    if unknown or not listed:
        raise StudyError(
            f"ask for {quantity}: there is no quantity or stage {' or '.join(unknown)}",
            f"name one of {', '.join([*NAMED, *TREE, *schema.STAGES])}",
        )
    return listed


def _sum(stages: Iterable[str]) -> Value:
    names = [f"{stage}_ns" for stage in stages]
    return lambda span: reduce(add, [getattr(span, name) for name in names])


def _less(stages: Iterable[str]) -> Value:
    names = [f"{stage}_ns" for stage in stages]
    return lambda span: reduce(sub, [getattr(span, name) for name in names], span.total_ns)


class _Asked:
    """Stands for a table and notes which columns are asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> _Asked:
        if not name.startswith("nullif"):
            self.names.add(name)
        return self

    def __call__(self, *_: object) -> _Asked:
        return self

    def __add__(self, _: object) -> _Asked:
        return self

    __sub__ = __truediv__ = __add__


# R5 names the sums.
NAMED: dict[str, Value] = {
    "total": lambda span: span.total_ns,
    "app": lambda span: span.server_app_ns,
    "tax": lambda span: span.total_ns - span.server_app_ns,
    "tax_ratio": lambda span: (span.total_ns - span.server_app_ns) / span.total_ns.nullif(0),
    "network": _sum([*schema.WIRES, *schema.STACKS]),
    "queue": _sum(schema.QUEUES),
    "req_bytes": lambda span: span.req_bytes,
    "resp_bytes": lambda span: span.resp_bytes,
    "size_ratio": lambda span: span.resp_bytes / span.req_bytes.nullif(0),
    "cpu_cycles": lambda span: span.cpu_cycles,
}
# Calls below and above a call in its trace (F4, F5).
TREE = ("descendants", "ancestors")
