"""The calls of the selected methods within one cluster (R4), and what can be said where clusters are not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scotfree.study.analysis.calls import staged, within_cluster
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.selection import of_selected
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import part, volumes


@dataclass(frozen=True)
class Placed:
    """Calls, and whether they are known to stay within a cluster."""

    calls: Any
    # Of all calls the share whose two clusters are known, and of those the share that stays within one.
    located: float
    local: float

    @property
    def is_local(self) -> bool:
        """False where no call says its clusters: then all calls are taken."""
        return self.located > 0


@once
def local_calls(study: Study) -> Placed:
    """Successful calls of the selected methods with all nine stages, whose client is in the server's cluster."""
    calls, volume = of_selected(study, staged(study.span)), volumes(study)
    located = part(volume, "located")
    taken = within_cluster(calls) if located > 0 else calls
    return Placed(taken, located, part(volume, "local", "located"))
