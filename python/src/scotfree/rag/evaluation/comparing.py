"""A collection is indexed as each mode has it, its questions are asked, and answers and costs compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from scotfree.rag.edge.index import EdgeIndex
from scotfree.rag.evaluation import judged
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.grading import Exam, Grader, Models, compared
from scotfree.rag.evaluation.measuring import Asked, Job, Measured, made, measure
from scotfree.rag.evaluation.modes import (
    Mode,
    Opening,
    Searcher,
    build_ours,
    build_theirs,
    disk,
    nearest_of,
    opened,
    passages,
)
from scotfree.rag.evaluation.prepared import Prepared, prepare
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.evaluation.rows import Evaluation, Grading, Row, Spread
from scotfree.rag.index import CACHE_BYTES
from scotfree.rag.trouble import RagError

EXACT: Final = "exact search"
ONNX: Final = "scotfree.rag.embed.onnx_embedder:OnnxEmbedder"


@dataclass(frozen=True)
class Settings:
    """What is compared, and how."""

    modes: tuple[Mode, ...] = (Mode.OURS,)
    # Of exact search's passages, as many as nprobe is to find.
    recall: float = 0.99
    # EdgeRAG stores clusters that take longer to embed.
    slo_ns: float = 1e9
    # Of each mode that has a cache.
    cache_bytes: int = CACHE_BYTES
    # What makes the embedder: `module:name`.
    embedder: str = ONNX

    @property
    def is_tuned(self) -> bool:
        """Whether some mode looks at as many clusters as it is told."""
        return any(mode.is_tuned for mode in self.modes)


@dataclass(frozen=True)
class _Setup:
    """What was found out before modes are measured."""

    prepared: Prepared
    settings: Settings
    opening: Opening
    # Of the modes that are tuned.
    clusters: int
    # Places of the questions that are asked.
    asked: range

    @property
    def questions(self) -> list[str]:
        """The texts of those that are asked."""
        texts = list(self.prepared.collection.questions.values())
        return [texts[place] for place in self.asked]


def evaluate(
    collection: Collection, folder: Path, settings: Settings, shown: Shown, models: Models | None = None
) -> Evaluation:
    """Evaluates; what is built stays in the folder for the next time. A `RagError` says what is in the way.

    With language models also what they make of the passages; if one of them fails after all was measured, the
    evaluation says so.
    """
    if collection.judgements:
        # Better now than after an hour.
        judged.library()
    if settings.is_tuned and len(collection.questions) < 2:
        raise RagError("set nprobe: there is one question", "give two, one to set it by and one to ask")
    if models:
        with shown.wait("trying the language models"):
            models.tried()
    prepared = prepare(collection, folder, made(settings.embedder), shown)
    grader = Grader(models, prepared.base) if models else None
    # Its file of texts is that of all.
    _build_ours(Mode.SMALLEST, prepared, shown)
    setup = _setup(prepared, settings, shown)
    measured = {mode: _measured(mode, setup, shown) for mode in settings.modes}
    found = _evaluation(setup, [_row(mode, setup, of, shown) for mode, of in measured.items()])
    return _graded(found, setup, measured, grader, shown) if grader else found


def _setup(prepared: Prepared, settings: Settings, shown: Shown) -> _Setup:
    with shown.wait("timing the model"):
        opening = Opening(settings.cache_bytes, None, settings.slo_ns, prepared.letter_ns())
    count = len(prepared.questions)
    if not settings.is_tuned:
        return _Setup(prepared, settings, opening, 0, range(count))
    tuned_on = range(count // 2)
    with shown.wait("setting nprobe"):
        index = _build_theirs(Mode.IVF, prepared, opening)
        probes = _probes(index, prepared, tuned_on, settings.recall)
    return _Setup(prepared, settings, replace(opening, probes=probes), index.clusters, range(len(tuned_on), count))


def _probes(index: EdgeIndex, prepared: Prepared, questions: Sequence[int], recall: float) -> int:
    """The fewest clusters in which so much is found: more of them never find less."""
    low, high = 1, index.clusters
    with passages(prepared.base) as store:
        while low < high:
            middle = (low + high) // 2
            shares = [
                prepared.share(
                    one, nearest_of(store, index.search(prepared.questions[one], COUNT, middle).nearest)
                )
                for one in questions
            ]
            low, high = (low, middle) if np.mean(shares) >= recall else (middle + 1, high)
    return low


def _build_ours(mode: Mode, prepared: Prepared, shown: Shown) -> None:
    documents = prepared.collection.documents
    with shown.bar(f"building {mode.value}", len(documents), "document") as progress:
        build_ours(mode, prepared.base, documents, prepared.known, progress)


def _build_theirs(mode: Mode, prepared: Prepared, opening: Opening) -> EdgeIndex:
    return build_theirs(mode, prepared.base, (prepared.parts, prepared.vectors), prepared.known, opening)


def _measured(mode: Mode, setup: _Setup, shown: Shown) -> Measured:
    prepared, opening = setup.prepared, setup.opening
    if mode.is_ours:
        _build_ours(mode, prepared, shown)
    else:
        with shown.wait(f"building {mode.value}"):
            _build_theirs(mode, prepared, opening)
    job = Job(mode, prepared.base, setup.settings.embedder, opening, setup.questions)
    with shown.bar(f"asking {mode.value}", len(setup.questions), "question") as progress:
        return measure(job, progress)


def _row(mode: Mode, setup: _Setup, measured: Measured, shown: Shown) -> Row:
    prepared, opening = setup.prepared, setup.opening
    on_disk = disk(mode, prepared.base)
    return Row(
        mode=mode.value,
        probes=opening.probes if mode.is_tuned else None,
        clusters=setup.clusters if mode.is_tuned else None,
        judged=_judged_mode(mode, setup, shown),
        recall=_mean(
            prepared.share(place, each.outcome.places)
            for place, each in zip(setup.asked, measured.asked, strict=True)
        ),
        estimated=_mean(each.outcome.estimated for each in measured.asked),
        loaded=_mean(each.outcome.loaded for each in measured.asked),
        cached=_mean(each.outcome.cached for each in measured.asked),
        regenerated=_mean(each.outcome.regenerated for each in measured.asked),
        latency_ms=_spread(each.latency_ns for each in measured.asked),
        stages_ms=_stages(measured.asked),
        cpu_ms=measured.cpu_ns / 1e6 / len(setup.asked),
        peak_bytes=measured.peak_bytes,
        disk=on_disk,
        codes_of_flat=on_disk.codes_bytes / prepared.vectors.nbytes,
    )


def _judged_mode(mode: Mode, setup: _Setup, shown: Shown) -> dict[str, float]:
    """By documents, of which an answer of ten passages may have fewer than ten: more passages are asked for."""
    if not setup.prepared.collection.judgements:
        return {}
    answers: dict[int, list[list[str]]] = {judged.FEW: [], judged.MANY: []}
    with (
        opened(mode, setup.prepared.base, setup.prepared.known, setup.opening) as searcher,
        shown.bar(f"judging {mode.value}", len(setup.asked), "question") as progress,
    ):
        for question in setup.questions:
            for count, of in answers.items():
                of.append(_documents(searcher, question, count))
            progress(1)
    return _judged(setup, answers[judged.FEW], answers[judged.MANY])


def _documents(searcher: Searcher, question: str, count: int) -> list[str]:
    """The nearest documents: a document is as near as the nearest of its passages."""
    asked = count
    while True:
        places = searcher.search(question, asked).places
        found = list(dict.fromkeys(document for document, _ in places))
        if len(found) >= count or len(places) < asked:
            return found[:count]
        asked *= 2


def _judged(setup: _Setup, few: Sequence[list[str]], many: Sequence[list[str]]) -> dict[str, float]:
    collection = setup.prepared.collection
    if not collection.judgements:
        return {}
    names = [list(collection.questions)[place] for place in setup.asked]
    answers = (dict(zip(names, of, strict=True)) for of in (few, many))
    return judged.measures(collection.judgements, *answers)


def _evaluation(setup: _Setup, rows: list[Row]) -> Evaluation:
    prepared, collection = setup.prepared, setup.prepared.collection
    there = {document.name for document in collection.documents}
    exact = [prepared.nearest[place].documents for place in setup.asked]
    return Evaluation(
        documents=len(there),
        passages=len(prepared.parts),
        dimensions=prepared.model.dimensions,
        model=prepared.model.name,
        model_bytes=getattr(prepared.model, "files_bytes", None),
        flat_bytes=prepared.vectors.nbytes,
        text_bytes=sum(len(part.text.encode()) for part in prepared.parts),
        questions=len(setup.asked),
        tuned_on=setup.asked.start,
        recall_wanted=setup.settings.recall,
        slo_ns=setup.opening.slo_ns,
        cache_bytes=setup.opening.cache_bytes,
        letter_ns=setup.opening.letter_ns,
        judged_absent=len({name for of in collection.judgements.values() for name in of} - there),
        exact=_judged(setup, [of[: judged.FEW] for of in exact], exact),
        modes=rows,
    )


def _graded(
    of: Evaluation, setup: _Setup, measured: Mapping[Mode, Measured], grader: Grader, shown: Shown
) -> Evaluation:
    """With grades of answers from what exact search finds and from what each mode does, as far as they come."""
    prepared = setup.prepared
    exact = [[prepared.parts[row].text for row in prepared.nearest[place].rows] for place in setup.asked]
    given: dict[str, list[float | None]] = {}
    broke_off = ""
    try:
        for name, texts in {
            EXACT: exact,
            **{mode.value: _texts(prepared, each) for mode, each in measured.items()},
        }.items():
            with shown.bar(f"grading {name}", len(texts), "answer") as progress:
                given[name] = grader.grades(_exams(setup, texts), progress)
    except RagError as error:
        broke_off = str(error)
    found, count = compared(given)
    models = grader.models
    grading = Grading(models.writer.name, models.judge.name, count, found.get(EXACT), broke_off)
    rows = [replace(row, grades=found.get(row.mode)) for row in of.modes]
    return replace(of, grading=grading, modes=rows)


def _texts(prepared: Prepared, measured: Measured) -> list[list[str]]:
    return [[prepared.text(place) for place in each.outcome.places] for each in measured.asked]


def _exams(setup: _Setup, found: Sequence[Sequence[str]]) -> Iterator[Exam]:
    """The questions with the passages that were found for them."""
    for place, question, texts in zip(setup.asked, setup.questions, found, strict=True):
        yield Exam(question, texts, setup.prepared.relevant(place))


def _stages(asked: Sequence[Asked]) -> dict[str, Spread]:
    """Of every stage; a question that has not had it spent nothing there."""
    names = dict.fromkeys(name for each in asked for name in each.outcome.stages_ns)
    return {name: _spread(each.outcome.stages_ns.get(name, 0) for each in asked) for name in names}


def _spread(values_ns: Iterable[int]) -> Spread:
    p50, p95 = np.percentile(np.array(list(values_ns)) / 1e6, (50, 95))
    return Spread(float(p50), float(p95))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
