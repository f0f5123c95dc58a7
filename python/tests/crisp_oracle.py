"""The critical path of one trace as CRISP counts it, in plain loops: spans in, times by stack out.

Written from the rules (docs/design/critical-path.md), span by span: a client's and its server's are two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# How much two callees may overlap, of their caller's time; how much longer a server may be than its client.
OVERLAP: Final = 0.01
LENGTHENING: Final = 1.01


@dataclass(frozen=True)
class Span:
    """A span of a trace."""

    id: int
    parent: int | None
    start: int
    duration: int
    name: str
    kind: str = ""
    host: str = ""

    @property
    def end(self) -> int:
        """When it is over."""
        return self.start + self.duration


@dataclass(frozen=True)
class OnPath:
    """A span on the path, cut to its caller, below the names of its callers."""

    span: Span
    stack: tuple[str, ...]
    own: int


def path(spans: list[Span], root: int) -> list[OnPath]:
    """What the root's end waited for; `spans` in the order of the document."""
    top = next(span for span in spans if span.id == root)
    return _below(spans, top, None, ())


def folded(found: list[OnPath]) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """Per stack: its own time, its time with that of its callees, and how often it is there."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for one in found:
        line = sums.setdefault(one.stack, [0, 0, 0])
        line[0] += one.own
        line[1] += one.span.duration
        line[2] += 1
    return {stack: (max(own, 0), whole, count) for stack, (own, whole, count) in sums.items()}


def _below(spans: list[Span], span: Span, above: Span | None, stack: tuple[str, ...]) -> list[OnPath]:
    mine = (*stack, span.name)
    children = [child for child in spans if child.parent == span.id and child.id != span.id]
    waited = _waited(span, [cut for child in children if (cut := _cut(span, above, child, len(children)))])
    found = [OnPath(span, mine, span.duration - sum(child.duration for child in waited))]
    for child in waited:
        found += _below(spans, child, span, mine)
    return found


def _cut(span: Span, above: Span | None, child: Span, children: int) -> Span | None:
    """A child within its parent; None if it is dropped."""
    if _is_server_of(span, above, child, children):
        return replace(child, duration=min(child.duration, span.duration))
    if child.start >= span.start and child.end <= span.end:
        return child
    if child.start < span.start < child.end <= span.end:
        return replace(child, start=span.start, duration=child.end - span.start)
    if span.start <= child.start < span.end < child.end:
        return replace(child, duration=span.end - child.start)
    return None


def _is_server_of(span: Span, above: Span | None, child: Span, children: int) -> bool:
    """Whether their clocks may differ, so that the child's times are left as they are."""
    if children != 1 or child.duration > LENGTHENING * span.duration:
        return False
    is_clean = span.kind == "client" and child.kind == "server"
    is_fuzzy = span.kind != "server" and child.kind == "server" and above is not None and above.kind == "server"
    return is_clean or is_fuzzy or bool(span.host and child.host and span.host != child.host)


def _waited(span: Span, children: list[Span]) -> list[Span]:
    """From the last to end backwards, each with the next that had ended before it began."""
    ordered = sorted(children, key=lambda child: child.end)[::-1]
    found: list[Span] = []
    for child in ordered:
        if not found or _is_before(span, ordered, child, found[-1]):
            found.append(child)
    return found


def _is_before(span: Span, children: list[Span], one: Span, later: Span) -> bool:
    if one.end < later.start:
        return True
    if one.end >= later.end or one.start >= later.start:
        return False
    if (one.end - later.start) / span.duration >= OVERLAP:
        return False
    moments = [moment for child in children for moment in (child.start, child.end)]
    return sum(later.start <= moment <= one.end for moment in moments) == 2
