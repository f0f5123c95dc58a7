"""hedging budget: at most so large a share of calls may be repeated while under way (section 4.4 and 5).

Hedges cost: cancelled calls are 55 % of the cycles that errors waste. A budget saves the time of hedges beyond it;
what their callers lose cannot be told from their traces, so no percentile is promised.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import percent
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "hedging budget"
IS_OURS: Final = False


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What of the method's work is hedges beyond the budget."""
    hedged = calls.table["is_hedge"]
    if hedged.null_count == len(hedged):
        return Refused("which calls repeat another is not known (rpc.attempt.kind = hedge, or a span link)")
    is_hedge = hedged.fill_null(False).to_numpy()
    share = float(calls.weight[is_hedge].sum() / calls.weight.sum())
    if share == 0:
        return Refused("none of its successful calls is a hedge")
    cost = float(np.dot(calls.total[is_hedge], calls.weight[is_hedge]) / np.dot(calls.total, calls.weight))
    beyond = max(0.0, 1 - context.hedges_max / share)
    note = (
        f"{percent(share)} of its successful calls are hedges, {percent(cost)} of its time; a budget of "
        f"{percent(context.hedges_max)} saves {percent(cost * beyond)} of it. Percentiles are not forecast: "
        "what a call would have taken without its hedge is not in its trace"
    )
    return Effect((calls.total,), (note,), cost * beyond)
