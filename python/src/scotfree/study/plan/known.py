"""What a forecast of a server's work needs of a method: a profile, its calls' processor time, their sizes."""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.plan.calls import Calls

PROFILE_NEEDED: Final = "a profile of its server's processor time is needed (pprof, perf script, folded stacks)"
# Of the samples of a profile: below it a share is noise.
SHARE_MIN: Final = 0.002
KNOWN_MIN: Final = 0.9


def lacking(calls: Calls) -> str | None:
    """Why the calls do not say what was worked on which bytes; None if they do."""
    reason = lacking_time(calls)
    if reason is not None:
        return reason
    has_sizes = ~np.isnan(calls.floats("req_bytes")) & ~np.isnan(calls.floats("resp_bytes"))
    if np.mean(has_sizes) < KNOWN_MIN:
        return "the sizes of requests and responses are needed (rpc.request.size, rpc.response.size)"
    return None


def lacking_time(calls: Calls) -> str | None:
    """Why they do not say how long was worked; None if they do."""
    if np.mean(~np.isnan(calls.floats("cpu_ns"))) < KNOWN_MIN:
        return "the processor time of each call is needed (rpc.cpu.ns)"
    return None
