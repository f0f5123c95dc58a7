"""What an evaluation found, and how it is shown: a table of measures with a column for each mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from scotfree.rag.evaluation.exact import COUNT


@dataclass(frozen=True)
class Spread:
    """Over questions: median and 95th of a hundred."""

    p50: float
    p95: float


@dataclass(frozen=True)
class Disk:
    """What is where on the disk, the model apart; all modes but the index of four bits share one file of texts."""

    # What is searched: codes, or embeddings, with centroids and which passage is where.
    codes_bytes: int
    # Of the file of texts: documents' names and metadata, where passages begin, and what SQLite adds to all.
    places_bytes: int
    texts_bytes: int
    # The index of words.
    words_bytes: int
    # What that file has not given back.
    free_bytes: int


@dataclass(frozen=True)
class Grades:
    """What a judge gave the answers that a language model wrote, from 0 to 10."""

    # Over the questions that are graded for all modes and exact search; nothing, where none is.
    mean: float | None
    # The mean's standard error; nothing, of fewer than two.
    error: float | None
    # Of all questions those without: the writer said nothing or was cut, or the judge gave no grade.
    ungraded: int


@dataclass(frozen=True)
class Grading:
    """Who wrote and who judged, and what the answers from exact search's passages were given."""

    writer: str
    judge: str
    # Questions that are graded for all, over which the means are.
    questions: int
    exact: Grades | None = None
    # Why some modes have no grades; empty, if all have.
    broke_off: str = ""


@dataclass(frozen=True)
class Row:
    """What a mode was found to be; counts and times are of a question."""

    mode: str
    # Clusters that a question looks at, and how many there are; nothing where all are.
    probes: int | None
    clusters: int | None
    # Measures by their names; empty, if nothing is judged.
    judged: dict[str, float]
    # How many of exact search's ten passages are among its ten, from 0 to 1.
    recall: float
    # Passages: by their code; of which the embedding came from the disk, the cache, the model.
    estimated: float
    loaded: float
    cached: float
    regenerated: float
    latency_ms: Spread
    stages_ms: dict[str, Spread]
    cpu_ms: float
    # Of the process, its model and runtime included.
    peak_bytes: int
    disk: Disk
    # What is searched, of embeddings with four bytes a number.
    codes_of_flat: float
    # Of the answers from what it finds; nothing, if they are not graded.
    grades: Grades | None = None


@dataclass(frozen=True)
class Evaluation:
    """Of a collection."""

    documents: int
    passages: int
    dimensions: int
    model: str
    # Nothing, where it is no file.
    model_bytes: int | None
    flat_bytes: int
    text_bytes: int
    # Asked; and others, by which nprobe was set.
    questions: int
    tuned_on: int
    recall_wanted: float
    slo_ns: float
    cache_bytes: int
    # What a letter took to be embedded.
    letter_ns: float
    # Documents that were judged and are not there.
    judged_absent: int
    # Measures of exact search; empty, if nothing is judged.
    exact: dict[str, float]
    modes: list[Row]
    # Nothing, if no judge is named.
    grading: Grading | None = None


_NOTHING: Final = "-"
# Modes that store embeddings by what they cost.
_STORING: Final = ("ivf+gen+load", "edgerag")


def told(evaluation: Evaluation) -> str:
    """The evaluation as a text."""
    return "\n".join([*_head(evaluation), "", *_table(evaluation)])


def _head(of: Evaluation) -> Iterator[str]:
    model = "" if of.model_bytes is None else f", {_bytes(of.model_bytes)}"
    yield (
        f"{of.documents:,} documents, {of.passages:,} passages of {_bytes(of.text_bytes)}; "
        f"model {of.model}{model}; flat embeddings of {of.dimensions} dimensions: {_bytes(of.flat_bytes)}"
    )
    yield _questions(of)
    if of.exact:
        yield "judged are documents, each by the best of its passages; MAP and recall@100 of the first 100"
    else:
        yield "nothing is judged: answers are compared with those of exact search"
    yield _graded(of.grading)
    if any(row.mode in _STORING for row in of.modes):
        yield (
            f"a letter takes {of.letter_ns / 1e3:.1f} us to be embedded; stored are clusters that take longer "
            f"than {of.slo_ns / 1e9:g} s"
        )
    if of.judged_absent:
        yield f"{of.judged_absent:,} documents that were judged are not there; they count as not found"


def _questions(of: Evaluation) -> str:
    if not of.tuned_on:
        return f"{of.questions:,} questions"
    return (
        f"{of.questions:,} questions; nprobe was set by {of.tuned_on:,} others before them, so that it finds "
        f"{of.recall_wanted:g} of exact search's {COUNT} passages"
    )


def _graded(of: Grading | None) -> str:
    if of is None:
        return "answers in words: not run; name who writes them with --llm, and who judges them with --judge"
    broke_off = f"; it broke off: {of.broke_off}" if of.broke_off else ""
    return (
        f"{of.writer} writes an answer from the passages found, and {of.judge} grades it: for {of.questions:,} "
        f"questions in all modes{broke_off}"
    )


def _table(of: Evaluation) -> Iterator[str]:
    lines = [["", "exact", *(row.mode for row in of.modes)], *_lines(of)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def _lines(of: Evaluation) -> Iterator[list[str]]:
    for name, value in of.exact.items():
        yield [name, f"{value:.3f}", *(f"{row.judged[name]:.3f}" for row in of.modes)]

    def line(name: str, cell: Callable[[Row], str], exact: str = _NOTHING) -> list[str]:
        return [name, exact, *map(cell, of.modes)]

    if of.grading:
        yield line("answers' grade, 0 to 10", lambda row: _grade(row.grades), _grade(of.grading.exact))
        yield line("  not graded", lambda row: _ungraded(row.grades), _ungraded(of.grading.exact))
    yield line(f"recall@{COUNT} of exact search", lambda row: f"{row.recall:.3f}", f"{1:.3f}")
    if of.tuned_on:
        yield line(
            "nprobe, of clusters", lambda row: f"{row.probes} of {row.clusters}" if row.probes else _NOTHING
        )
    yield line("passages estimated", lambda row: f"{row.estimated:,.1f}")
    yield line("passages loaded", lambda row: f"{row.loaded:,.1f}")
    yield line("passages cached", lambda row: f"{row.cached:,.1f}")
    yield line("passages regenerated", lambda row: f"{row.regenerated:,.1f}")
    yield line("a question, ms: median / P95", lambda row: _spread(row.latency_ms))
    for stage in dict.fromkeys(stage for row in of.modes for stage in row.stages_ms):
        yield line(f"  {stage}", _of_stage(stage))
    yield line("processor time, ms", lambda row: f"{row.cpu_ms:,.1f}")
    yield line("peak resident memory", lambda row: _bytes(row.peak_bytes))
    yield line("on disk: what is searched", lambda row: _bytes(row.disk.codes_bytes), _bytes(of.flat_bytes))
    yield line("  of flat embeddings", lambda row: f"{row.codes_of_flat:.1%}", f"{1:.1%}")
    yield line("  documents and places", lambda row: _bytes(row.disk.places_bytes))
    yield line("  texts", lambda row: _bytes(row.disk.texts_bytes))
    yield line("  words", lambda row: _bytes(row.disk.words_bytes))
    yield line("  free pages", lambda row: _bytes(row.disk.free_bytes))


def _grade(of: Grades | None) -> str:
    if of is None or of.mean is None:
        return _NOTHING
    return f"{of.mean:.2f}" if of.error is None else f"{of.mean:.2f} +- {of.error:.2f}"


def _ungraded(of: Grades | None) -> str:
    return f"{of.ungraded:,}" if of else _NOTHING


def _of_stage(name: str) -> Callable[[Row], str]:
    return lambda row: _spread(row.stages_ms.get(name))


def _spread(of: Spread | None) -> str:
    return f"{of.p50:,.1f} / {of.p95:,.1f}" if of else _NOTHING


def _bytes(count: int) -> str:
    if count < 1_000_000:
        return f"{count / 1e3:,.1f} kB"
    return f"{count / 1e6:,.1f} MB"
