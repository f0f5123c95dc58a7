"""offload: hardware transforms messages, asked by the core for each of them (figure 7.7 of the thesis, 7.5).

Of a call its server's processor time is split by the server's profile: serialization is payload, the RPC library
is headers and dispatch. What hardware takes off it is saved; the ways to it and its work come instead
(`hardware/offload.py`). Of the two designs that leave the core in charge the better one is forecast; what hardware
in the NIC, or beside each core, would leave is said. The caller's work is left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, number, percent
from scotfree.study.hardware.offload import HEADER, PAYLOAD, Design, Layer, layer_of
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.known import PROFILE_NEEDED, SHARE_MIN, lacking
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "offload"
IS_OURS: Final = False
# Of the library's time what is headers, and not dispatch: a profile does not tell. As published, and half of it.
_OF_HEADERS: Final = (HEADER / (1 - PAYLOAD), 0.5)
_ASKED: Final = (Design.PAYLOAD, Design.BOTH)


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take."""
    payload, library = (of.get(calls.service) for of in (context.serialization, context.rpc_library))
    if payload is None or library is None:
        return Refused(PROFILE_NEEDED)
    share = payload + library
    if share < SHARE_MIN:
        return Refused(
            f"its server spends {percent(share)} of its processor time on serialization and its RPC library: "
            "there is nothing to take off it"
        )
    reason = lacking(calls)
    if reason is not None:
        return Refused(reason)
    work = share * np.nan_to_num(calls.floats("cpu_ns"))
    layers = [
        _layer(calls, context, float(np.average(work, weights=calls.weight)), payload, library, of)
        for of in _OF_HEADERS
    ]
    chosen = min(_ASKED, key=layers[0].with_)
    totals = tuple(
        np.maximum(calls.total - (1 - layer.kept(chosen)) * work + layer.cost(chosen), 0.0) for layer in layers
    )
    return Effect(totals, (_said(layers[0], chosen, share), _others(layers[0])))


def _layer(
    calls: Calls, context: Context, layer_ns: float, payload: float, library: float, of_headers: float
) -> Layer:
    """The method's mean call: its own request and response, and two messages more for each call it makes."""
    messages = 2 * (1 + context.nested.get((calls.service, calls.method), 0.0))
    sizes = [np.nan_to_num(calls.floats(f"{way}_bytes")) for way in ("req", "resp")]
    message_bytes = float(np.average(np.sum(sizes, axis=0), weights=calls.weight)) / 2 * messages
    return layer_of(
        layer_ns,
        messages,
        message_bytes,
        context.traversal_ns,
        payload=payload / (payload + library),
        header=library * of_headers / (payload + library),
    )


def _said(layer: Layer, chosen: Design, share: float) -> str:
    most = layer.traversal_max(chosen)
    until = (
        f"ways of more than {duration(most)} cost more than that saves"
        if most > 0
        else "its own work costs more than that saves"
    )
    return (
        f"its RPC layer takes {duration(layer.time)} of a call, {percent(share)} of its server's processor time, "
        f"with {number(layer.messages)} messages; by {chosen}, over ways of {duration(layer.traversal)} "
        f"(--traversal), it would take {duration(layer.with_(chosen))}; {until}"
    )


def _others(layer: Layer) -> str:
    return (
        f"by {Design.PRIVATE} it would take {duration(layer.with_(Design.PRIVATE))}, by {Design.FULL} "
        f"{duration(layer.with_(Design.FULL))}; all of it by the thesis' model of hardware that it simulated"
    )
