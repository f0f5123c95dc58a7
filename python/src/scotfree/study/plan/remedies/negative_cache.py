"""negative caching: a caller remembers what was not found and does not ask again (section 4.4: 20 % of errors).

A call waits within its application for those it makes (R2). Those that ended in "not found" beyond the first of
their caller and method, in the time that an answer is kept, would be saved: at most, for traces do not tell the
key that was asked for. Calls made side by side are taken for made one behind the other.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import percent
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "negative caching"
IS_OURS: Final = False


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the callers of those calls would take."""
    waited = np.nan_to_num(calls.floats("not_found_ns"))
    if not waited.any():
        return Refused("none of its calls made one that was not found a second time")
    app = calls.ns("server_app")
    if np.isnan(app[waited > 0]).all():
        return Refused("server_app is not known of the calls that made calls which found nothing")
    saved = np.minimum(waited, np.nan_to_num(app))
    share = float(calls.weight[waited > 0].sum() / calls.weight.sum())
    note = (
        f"{percent(share)} of its calls asked again for what may have been not found before: at most this is "
        "saved, for keys are not in traces"
    )
    return Effect((calls.total - saved,), (note,))
