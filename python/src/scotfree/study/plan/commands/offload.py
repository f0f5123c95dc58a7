"""`scot plan offload`: what hardware that transforms messages would leave of a call's RPC layer."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from scotfree.study.figures.words import duration, number
from scotfree.study.hardware.offload import ON_CHIP_NS, PCIE_NS, Design, Layer, layer_of
from scotfree.study.plan.text import table
from scotfree.study.trouble import StudyError

# Told beside what was asked for.
_WAYS_NS: Final = (10.0, ON_CHIP_NS, 100.0, PCIE_NS)
_ASKED: Final = (Design.PAYLOAD, Design.BOTH)
# Of shares that come to all.
_ROUNDING: Final = 1e-9


def run(flags: Namespace) -> int:
    """Does it."""
    layer = _layer(flags)
    ways = sorted({layer.traversal, *_WAYS_NS})
    if flags.json:
        print(json.dumps(_json(layer, ways), indent=1))
    else:
        print("\n".join([*table(_rows(layer, ways)), "", *(_until(layer, design) for design in _ASKED)]))
    return 0


def _layer(flags: Namespace) -> Layer:
    if flags.payload + flags.header > 1 + _ROUNDING:
        raise StudyError(
            f"plan offload: {number(flags.payload)} for the payload and {number(flags.header)} for headers are "
            "more than all of it",
            "give shares of the RPC layer's cycles; what is left of 1 is dispatch",
        )
    time_ns = flags.cycles / flags.ghz
    message_bytes = flags.messages * flags.bytes
    return layer_of(time_ns, flags.messages, message_bytes, flags.traversal, flags.payload, flags.header)


def _rows(layer: Layer, ways: Sequence[float]) -> list[tuple[str, ...]]:
    head = ("RPC layer of a call", *(f"{duration(way)} a way" for way in ways))
    rows = [(str(design), *(_cell(replace(layer, traversal=way), design) for way in ways)) for design in Design]
    return [head, *rows]


def _cell(layer: Layer, design: Design) -> str:
    times = layer.times_less(design)
    return f"{duration(layer.with_(design))} ({times:.3g}x less)" if times > 1 else duration(layer.with_(design))


def _until(layer: Layer, design: Design) -> str:
    most = layer.traversal_max(design)
    if most == 0:
        return f"{design} never pays: it works longer than it saves."
    return f"{design} pays where a way takes less than {duration(most)}."


def _json(layer: Layer, ways: Sequence[float]) -> dict[str, Any]:
    return {
        "layer_ns": layer.time,
        "messages": layer.messages,
        "work_ns": layer.work,
        "ways": [
            {"traversal_ns": way}
            | {design.name.lower(): replace(layer, traversal=way).with_(design) for design in Design}
            for way in ways
        ],
        "traversal_ns_max": {design.name.lower(): layer.traversal_max(design) for design in _ASKED},
    }
