"""`scot plan DATA…`: prices every remedy on the user's own calls."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from scotfree.study.analysis.study import Study
from scotfree.study.commands import ingest
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.words import called, counted
from scotfree.study.plan import accesses, fit, registry, text
from scotfree.study.plan.calls import Name, methods, names, nested_calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.forecasts import Plan, make
from scotfree.study.plan.outcome import Outcome, outcomes
from scotfree.study.plan.pattern import matches
from scotfree.study.plan.remedies import REMEDIES, Remedy, offload
from scotfree.study.store import MANIFEST, Store
from scotfree.study.trouble import StudyError, printable
from scotfree.study.working import Working


def run(flags: Namespace) -> int:
    """Does it."""
    context, remedies = _context(flags), _remedies(flags.only)
    with tempfile.TemporaryDirectory(prefix="scot-plan-") as scratch, Working(quiet=flags.quiet) as at:
        study = open_study(flags, flags.data, Path(scratch) / "store")
        at.at("looking at all calls")
        check_patterns(context.updates, names(study))
        context = _known(study, context, remedies)
        plan = make(study, context, flags.methods, remedies, at.at)
        came = _outcomes(flags, plan, Path(scratch) / "measured", at) if flags.measured else []
    if flags.json:
        print(json.dumps(plan.to_json() | {"outcomes": [one.to_json() for one in came]}, indent=1))
    else:
        print(printable("\n\n".join([text.plan(plan), *([text.outcomes(came)] if came else [])])))
    return 0


def _outcomes(flags: Namespace, plan: Plan, scratch: Path, at: Working) -> list[Outcome]:
    """What came of the forecast. The store that was asked for is the first data's."""
    at.at("")
    study = open_study(Namespace(**(vars(flags) | {"store": None})), flags.measured, scratch)
    at.at("looking at what came of it")
    return outcomes(plan, flags.applied, list(methods(study, flags.methods)))


def open_study(flags: Namespace, data: list[Path], scratch: Path) -> Study:
    """A study of a store, or of data that are read into one."""
    if len(data) == 1 and (data[0] / MANIFEST).exists():
        store = Store.open(data[0])
    else:
        store = ingest.read(Namespace(**(vars(flags) | {"data": data})), getattr(flags, "store", None) or scratch)
    return Study(store, DuckEngine(store, memory=flags.memory, threads=flags.threads))


def _remedies(only: Sequence[str]) -> Sequence[Remedy]:
    known = {remedy.NAME: remedy for remedy in REMEDIES}
    for name in only:
        if name not in known:
            raise StudyError(f"plan --only {name}: there is no forecast of it", f"name one of: {', '.join(known)}")
    return [known[name] for name in only] or REMEDIES


def _known(study: Study, context: Context, remedies: Sequence[Remedy]) -> Context:
    """With what the data say of services and methods beside their calls."""
    rpc_library = _shares(study, "rpc_library")
    # Who calls whom is asked of all calls, for the one that wants it, where the rest of it is known.
    is_wanted = bool(rpc_library) and offload in remedies
    return replace(
        context,
        compression=_shares(study, "compression"),
        serialization=_shares(study, "serialization"),
        rpc_library=rpc_library,
        nested=nested_calls(study) if is_wanted else {},
        accesses=accesses.read(study, context),
    )


def _shares(study: Study, category: str) -> dict[str, float]:
    """Of the processor time of each service that has a profile."""
    tax = study.cycle_tax()
    if tax is None:
        return {}
    rows = tax.services.to_pylist()
    shares = dict.fromkeys((row["service"] for row in rows), 0.0)
    return shares | {row["service"]: row["share"] for row in rows if row["category"] == category}


def check_patterns(patterns: Sequence[str], among: Sequence[Name]) -> None:
    """A `StudyError` says which pattern of `--updates` is no method's: it would make all of them reads."""
    for pattern in patterns:
        if among and not any(matches(pattern, *name) for name in among):
            raise StudyError(
                f"plan with --updates {pattern}: none of {counted(len(among), 'method')} matches",
                f"match a method, service.method or 'service method', case counting, such as {called(*among[0])}",
            )


def _context(flags: Namespace) -> Context:
    context = Context(
        updates=tuple(flags.updates),
        is_one_machine=flags.one_machine,
        log_slots=flags.log_slots,
        stable_every_ns=flags.stable_every,
        cache_bytes=flags.cache_bytes,
        hedges_max=flags.hedges_max,
        replicas=flags.replicas,
        compression_ratio=flags.compression_ratio,
        compress_ns_per_byte=flags.compress_ns_per_byte,
        traversal_ns=flags.traversal,
    )
    fits, missing = {}, {}
    for name in registry.entries():
        try:
            fits[name] = fit.find(flags.fits, name, datetime.now(UTC))
        except StudyError as error:
            missing[name] = str(error)
    return replace(context, fits=fits, missing=missing)
