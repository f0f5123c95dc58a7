"""Cycle tax on our own services: how much of it is classified, and whether three forms of a profile agree.

Arm `services`: one recording of perf, read as the text of `perf script`; and, by perf's own JSON of it and
encoders that the readers do not share, as pprof and as OTLP profiles. Arm `program`: a program in Go that profiles
itself while perf records it, two instruments that know nothing of each other.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from bench import recording
from bench.stack_encoders import Sample, otlp, pprof
from scotfree.study.analysis.cycles.rules import CATEGORIES, TAX, UNCLASSIFIED, load
from scotfree.study.analysis.cycles.tax import CycleTax, cycle_tax
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest.run import ingest
from scotfree.study.store import Store

_GENERIC_RULE = "own executable"


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """One recording."""
    with tempfile.TemporaryDirectory(prefix="scotfree-cycles-") as name:
        folder = Path(name)
        return {"services": _services, "program": _program}[arm](folder, settings)


def _services(folder: Path, settings: dict[str, Any]) -> dict[str, float]:
    recorded = recording.record_services(folder, int(settings["seconds"]))
    samples = samples_of(recording.as_json(recorded))
    texts = _tax(folder, recording.script(recorded))
    as_pprof = _tax(folder, _written(folder / "a.pprof", pprof(samples)))
    as_otlp = _tax(folder, _written(folder / "a.otlp", otlp(samples).SerializeToString()))
    return {
        "samples": float(len(samples)),
        "classified": 1.0 - texts.share(UNCLASSIFIED),
        "classified_of_worst_service": 1.0 - _worst(texts),
        "by_generic_rule": _of_rule(texts, _GENERIC_RULE),
        "tax": sum(map(texts.share, TAX)),
        "points_pprof": points(texts, as_pprof),
        "points_otlp": points(texts, as_otlp),
        **{f"share_{category}": texts.share(category) for category in CATEGORIES},
    }


def _program(folder: Path, settings: dict[str, Any]) -> dict[str, float]:
    program, own = folder / "program", folder / "own.pprof"
    _build(program)
    command = [str(program), str(settings["seconds"]), str(settings["samples-per-s"]), str(own)]
    recorded = recording.record_program(folder, command)
    outside = [_outside_kernel(sample) for sample in samples_of(recording.as_json(recorded))]
    theirs = _tax(folder, own)
    ours = _tax(folder, _written(folder / "perf.pprof", pprof(outside)))
    whole = _tax(folder, recording.script(recorded))
    return {
        "samples": float(len(outside)),
        "classified": 1.0 - theirs.share(UNCLASSIFIED),
        "points": points(ours, theirs),
        "points_of_tax": 100 * max(abs(ours.share(category) - theirs.share(category)) for category in TAX),
        # Go's own profile does not see into the kernel: what that alone moves.
        "points_of_kernel": points(whole, theirs),
        **{f"own_{category}": theirs.share(category) for category in CATEGORIES},
        **{f"perf_{category}": ours.share(category) for category in CATEGORIES},
    }


def samples_of(path: Path) -> list[Sample]:
    """The samples of perf's JSON: a nanosecond of weight each, since all have the same period."""
    names: dict[int, str] = {}
    samples = json.loads(path.read_bytes())["samples"]
    for sample in samples:
        if sample["pid"] == sample["tid"]:
            names.setdefault(sample["pid"], sample["comm"])
    return [_sample(sample, names) for sample in samples]


def _sample(sample: dict[str, Any], names: dict[int, str]) -> Sample:
    frames = list(reversed(sample["callchain"]))
    stack = tuple(frame.get("symbol") or "[unknown]" for frame in frames)
    modules = tuple(None if (file := frame.get("dso")) in (None, "[unknown]") else file for frame in frames)
    return Sample(names.get(sample["pid"], sample["comm"]), stack, modules, 1)


def _outside_kernel(sample: Sample) -> Sample:
    """What a profiler inside the process sees of it."""
    count = next((at for at, file in enumerate(sample.modules) if file and "kernel" in file), len(sample.stack))
    return replace(sample, stack=sample.stack[:count], modules=sample.modules[:count])


def points(one: CycleTax, other: CycleTax) -> float:
    """The largest difference of a category's shares, in percentage points."""
    return 100 * max(abs(one.share(each) - other.share(each)) for each in (*CATEGORIES, UNCLASSIFIED))


def _tax(folder: Path, profile: Path) -> CycleTax:
    with _store(folder, profile) as store:
        found = cycle_tax(DuckEngine(store), load())
    if found is None:
        raise AssertionError(f"{profile.name} holds no processor time")
    return found


@contextmanager
def _store(folder: Path, profile: Path) -> Iterator[Store]:
    """The store that an ingest of this file alone leaves; nothing of it may be lost."""
    store = ingest([profile], folder / f"{profile.name}.store")
    trouble = store.read("trouble")
    lost = trouble.filter(pc.invert(trouble["is_kept"]))
    if lost.num_rows:
        raise AssertionError(f"{profile.name} was not read whole: {lost.to_pylist()}")
    yield store


def _worst(tax: CycleTax) -> float:
    """The largest share of a service that has no category."""
    none = tax.services.filter(pc.equal(tax.services["category"], UNCLASSIFIED))
    return float(pc.max(none["share"]).as_py() or 0.0)


def _of_rule(tax: CycleTax, name: str) -> float:
    used = tax.rules_used.filter(pc.equal(tax.rules_used["rule"], name))
    return float(pc.sum(used["share"]).as_py() or 0.0)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _build(program: Path) -> None:
    source = Path(__file__).parent / "cycles_program" / "main.go"
    subprocess.run(
        [recording.tool("go"), "build", "-o", str(program), str(source)], check=True, capture_output=True
    )
