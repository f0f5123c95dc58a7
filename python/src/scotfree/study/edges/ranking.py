"""What is slower or fails more, by how much added time it explains, in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scotfree.study.edges.beside import WHOLE
from scotfree.study.edges.causes import Cause
from scotfree.study.edges.compare import Comparison
from scotfree.study.edges.evidence import Part, Summary
from scotfree.study.edges.read import ANY
from scotfree.study.edges.scopes import Kind, Scope
from scotfree.study.figures.words import UNNAMED, called, counted, duration, listed, percent

# Of a handler's time: a change that is less is none.
_SAME: Final = 0.02
_THINGS: Final = {
    Kind.CALLEE: "service",
    Kind.CALLER: "service",
    Kind.SERVER_MACHINE: "machine",
    Kind.CLIENT_MACHINE: "machine",
    Kind.METHOD: "method",
    Kind.LINK: "link",
    Kind.EDGE: "edge",
}
_WAYS: Final = {
    Kind.CALLEE: "into",
    Kind.CALLER: "from",
    Kind.CLIENT_MACHINE: "from",
}
_NAMED_MAX: Final = 3


@dataclass(frozen=True)
class Ranked:
    """Something at fault, with all that is worse about it."""

    thing: str
    names: tuple[str, ...]
    causes: tuple[Cause, ...]
    # Of all calls of B together.
    added_ns: float
    says: str


def ranking(found: Comparison) -> list[Ranked]:
    """The most added time first; what only fails, last."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Cause]] = {}
    for cause in found.causes:
        grouped.setdefault((_THINGS[cause.scope.kind], cause.scope.names), []).append(cause)
    ranked = [_ranked(found, *key, causes) for key, causes in grouped.items()]
    return sorted(ranked, key=lambda one: -one.added_ns)


def _ranked(found: Comparison, thing: str, names: tuple[str, ...], causes: Sequence[Cause]) -> Ranked:
    added = sum(_added_ns(found, cause) for cause in causes)
    return Ranked(thing, names, tuple(causes), added, "; ".join(_sentence(found, one, causes) for one in causes))


def _added_ns(found: Comparison, cause: Cause) -> float:
    if cause.part.is_share:
        return 0.0
    # Of frequent edges only some calls are read.
    read = sum(len(found.evidence[Part.ERRORS].known[place].b) for place in cause.scope.edges)
    return (
        cause.added * cause.summary.calls_b * sum(found.edges[place].b.calls for place in cause.scope.edges) / read
    )


def _sentence(found: Comparison, cause: Cause, beside: Sequence[Cause]) -> str:
    if cause.part is Part.OUTSIDE:
        return _outside(found, cause, beside)
    return _handler(found, cause) if cause.part is Part.HANDLER else _errors(found, cause)


def _outside(found: Comparison, cause: Cause, beside: Sequence[Cause]) -> str:
    calls, whose, suspect = _outside_words(found, cause.scope)
    where = "with what their handlers take, which no record says," if _is_whole_call(found, cause.scope) else whose
    text = f"{calls} wait {duration(cause.added)} more {where} {_measured(cause.summary)}"
    if any(one.part is Part.HANDLER for one in beside):
        return (
            f"{text}: starvation of {cause.scope.names[0]} rather than the network, for its own work is slower too"
        )
    handler = found.evidence[Part.HANDLER].summary(cause.scope, {})
    if handler is not None:
        change = handler.b - handler.a
        same = abs(change) < _SAME * max(handler.a, 1.0)
        text += "; the handler takes what it took" if same else f"; the handler {_more(change)}"
    return f"{text}: {suspect}"


def _outside_words(found: Comparison, scope: Scope) -> tuple[str, str, str]:
    """Which calls, outside of whose handler, and what may be at fault."""
    its, theirs = "outside its handler", "outside the handlers"
    suspect = f"network, or starvation of {scope.names[0] or UNNAMED}"
    match scope.kind:
        case Kind.CALLEE:
            return _calls(found, scope), its, f"network, or starvation of {_pods(found, scope)}"
        case Kind.CALLER:
            return _calls(found, scope), f"{theirs}, whoever serves them,", suspect
        case Kind.LINK:
            return _calls(found, scope), its, "the network between these two"
        case Kind.EDGE:
            return _calls(found, scope), its, "what this method sends, or the network between these two"
        case _:
            return _calls(found, scope), theirs, suspect


def _calls(found: Comparison, scope: Scope) -> str:
    """The scope's calls in words."""
    name = scope.names[0] or UNNAMED
    match scope.kind:
        case Kind.SERVER_MACHINE:
            return f"calls into {_machine(found, scope)}"
        case Kind.LINK:
            return f"calls of {name} to {scope.names[1]}"
        case Kind.METHOD:
            return f"calls of {called(*scope.names)}"
        case Kind.EDGE:
            return _edge(scope)
        case _:
            return f"calls {_WAYS[scope.kind]} {name}"


def _is_whole_call(found: Comparison, scope: Scope) -> bool:
    return any(
        one.part is Part.OUTSIDE and one.why == WHOLE for place in scope.edges for one in found.edges[place].parts
    )


def _pods(found: Comparison, scope: Scope) -> str:
    """The machines of a service, if they are few; else the service."""
    machines = sorted(
        {name for place in scope.edges for name, (_, b) in found.edges[place].server_machines.items() if b}
    )
    return listed(machines) if 0 < len(machines) <= _NAMED_MAX else scope.names[0]


def _machine(found: Comparison, scope: Scope) -> str:
    services = sorted({found.edges[place].edge.server for place in scope.edges} - {"", ANY})
    of = f" of {services[0]}" if len(services) == 1 else ""
    return f"{scope.names[0]}{of}"


def _edge(scope: Scope) -> str:
    client, server, method = scope.names
    what = method if server in ("", ANY) else called(server, method)
    return f"calls of {what}" + (f" by {client}" if client not in ("", ANY) else "")


def _more(change_ns: float) -> str:
    return f"{duration(abs(change_ns))} {'more' if change_ns >= 0 else 'less'}"


def _handler(found: Comparison, cause: Cause) -> str:
    whose, suspect = _handler_words(found, cause.scope)
    return (
        f"{whose} takes {duration(cause.added)} more {_measured(cause.summary)}, what it waits for its own calls "
        f"not counted: {suspect}"
    )


def _handler_words(found: Comparison, scope: Scope) -> tuple[str, str]:
    """Whose work, and what may be at fault."""
    match scope.kind:
        case Kind.CALLEE:
            return f"{scope.names[0]}'s own work", f"{scope.names[0]} itself"
        case Kind.SERVER_MACHINE:
            return f"own work at {_machine(found, scope)}", scope.names[0]
        case Kind.METHOD:
            return f"{called(*scope.names)}'s own work", "this method"
        case _:
            return f"the handlers' own work for {_calls(found, scope)}", "what this caller asks for"


def _errors(found: Comparison, cause: Cause) -> str:
    summary = cause.summary
    return (
        f"{percent(summary.b)} of {_calls(found, cause.scope)} fail though nothing below them does, "
        f"{percent(summary.a)} before ({counted(summary.calls_a, 'call')} beside {summary.calls_b:,})"
    )


def _measured(summary: Summary) -> str:
    return (
        f"({duration(summary.a)} to {duration(summary.b)}, {counted(summary.calls_a, 'call')} beside "
        f"{summary.calls_b:,})"
    )
