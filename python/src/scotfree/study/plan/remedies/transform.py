"""transform: messages are turned into bytes and back by this project's codec (docs/transform.md).

Of a call its server's processor time is saved by the share that the server's profile has in serialization, less
what the codec takes of it. How much that is depends on the messages, of which sizes alone are known: each class
that was measured (`plan/codec.py`) is a draw of the forecast. Of calls of small messages the codec is a small
part, and nothing is gained there. The caller's work is not in its trace, and left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import percent, size
from scotfree.study.plan import codec
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.known import PROFILE_NEEDED, SHARE_MIN, lacking
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "transform"
IS_OURS: Final = True
# Request and response together: below, nothing is gained. connect-rust's authors saw none at 64 bytes, and a third
# at 22 kB.
BYTES_MIN: Final = 1_000


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take with the codec at their server."""
    share = context.serialization.get(calls.service)
    if share is None:
        return Refused(PROFILE_NEEDED)
    if share < SHARE_MIN:
        return Refused(
            f"its server spends {percent(share)} of its processor time on serialization: there is nothing to gain"
        )
    reason = lacking(calls)
    if reason is not None:
        return Refused(reason)
    decoded, encoded = (np.nan_to_num(calls.floats(f"{way}_bytes")) for way in ("req", "resp"))
    is_large = decoded + encoded >= BYTES_MIN
    large = float(calls.weight[is_large].sum() / calls.weight.sum())
    if large == 0:
        middle = float(np.median(decoded + encoded))
        return Effect((calls.total,), (_small(middle),))
    work = np.where(is_large, share * np.nan_to_num(calls.floats("cpu_ns")), 0.0)
    # Its server encodes responses and decodes requests.
    bytes_of = [float(np.dot(sizes, calls.weight * is_large)) for sizes in (encoded, decoded)]
    totals = tuple(np.maximum(calls.total - work * (1 - one.left(*bytes_of)), 0.0) for one in codec.MEASURED)
    return Effect(totals, (_said(share, large), _assumed()))


def _small(middle: float) -> str:
    return (
        f"no gain: its requests and responses have {size(middle)} together in the middle, and never "
        f"{size(BYTES_MIN)}: of such a call the codec is a small part, whatever its server's profile has of others"
    )


def _said(share: float, large: float) -> str:
    times = [[getattr(one, way).times for one in codec.MEASURED] for way in ("encode", "decode")]
    encode, decode = (f"{min(each):.1f} to {max(each):.1f}" for each in times)
    return (
        f"its server spends {percent(share)} of its processor time on serialization, and {percent(large)} of its "
        f"calls have {size(BYTES_MIN)} or more in both messages, where it would be {encode} times as fast in "
        f"encoding and {decode} in decoding ({codec.MEASURED_BY})"
    )


def _assumed() -> str:
    return "its messages are taken for Protobuf, by a library as fast as prost; the codec is there for Rust alone"
