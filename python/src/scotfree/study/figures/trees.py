"""F4, F5: how many calls a call causes, and how deep it stands below its root."""

from __future__ import annotations

from typing import Final

from scotfree.study.analysis.study import Study
from scotfree.study.figures import words
from scotfree.study.figures.per_method import Published, Quantity, with_finding
from scotfree.study.figures.result import Coverage, Figure, Result

_NEEDS: Final = "calls with the id of their parent"
_DESCENDANTS: Final = Quantity("descendants", "descendants", "calls", words.number, _NEEDS, with_errors=True)
_ANCESTORS: Final = Quantity("ancestors", "ancestors", "calls", words.number, _NEEDS, with_errors=True)
# Section 2.4.
_DESCENDANTS_PUBLISHED: Final = [
    Published(0.50, 0.50, 13, "<="),
    Published(0.90, 0.10, 105, ">="),
    Published(0.99, 0.10, 1155, ">="),
]
_ANCESTORS_PUBLISHED: Final = [Published(0.99, 0.50, 10, "<")]
_ELSEWHERE: Final = (
    "Elsewhere: at Meta traces are 5 to 6 deep at P99 and 9 to 19 at most, of 2 to 498 blocks in the median and"
    " some 1,000 to 10,000 at P99; DeathStarBench is 3 to 9 deep, with 21 to 41 services; Alibaba's traces are as"
    " deep as those of the paper, with fewer descendants (section 2.4)."
)


def descendants(study: Study) -> Result:
    """F4: calls below a call in its trace."""
    return _place(study, _DESCENDANTS, _DESCENDANTS_PUBLISHED)


def ancestors(study: Study) -> Result:
    """F5: calls between a call and its trace's root, the root counted."""
    return _place(study, _ANCESTORS, _ANCESTORS_PUBLISHED)


def _place(study: Study, quantity: Quantity, published: list[Published]) -> Result:
    made = with_finding(study, quantity, published)
    if made.coverage is not Coverage.ABSENT:
        made.notes += ["A call whose parent was not recorded counts as a root.", _ELSEWHERE]
        if cyclic := study.cyclic_calls():
            made.notes.append(f"{words.counted(cyclic, 'call')} on a ring of parents or below one left out.")
    return made


FIGURES = (
    Figure("F4", "Descendants per method", "2.4", descendants),
    Figure("F5", "Ancestors per method", "2.4", ancestors),
)
