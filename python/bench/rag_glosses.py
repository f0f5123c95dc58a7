"""A collection of 117,659 real texts: our index beside faiss, usearch, hnswlib and sqlite-vec, at one recall.

What is built is kept (see `rag_collections`) and opened from the disk. Whoever has a knob that trades time for
recall has it set on the first half of the questions, to the least that finds what is wanted, or all that it can
find; ours has none set, since it holds a target of its own. The other half is asked one question at a time, in
turns, from a question's embedding to ten passages, each by one thread; what is counted is processor time. Ours
also reads the passages' texts. Memory is what a process of its own has more when it has opened an index and been
asked.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import rag_collections
from bench.measured import cpu_seconds
from scotfree.rag import Index, OnnxEmbedder
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.settings import Keep

# Neighbours of a node in the graphs, and candidates when they are built: their libraries' usual ones.
_LINKS: Final = 16
_BUILT_WITH: Final = 200
_EFFORT_MAX: Final = 1024
# Of what a peer finds at the most it is asked for so much less where it does not reach what is wanted.
_BELOW_MOST: Final = 0.001
# Questions that a process is asked whose memory is measured, and whose passages are embedded again with a model.
_ASKED: Final = 100
_EMBEDDED: Final = 20
_QUESTIONS: Final = "questions.npz"
_TEXTS: Final = "passages.sqlite"
_FAISS: Final = "vectors.faiss"
_GRAPH: Final = "vectors.graph"
_DATABASE: Final = "vectors.sqlite"
# Of what a process has mapped, the line that begins a mapping.
_MAPPING: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+ ")

# Rows of what is near to a question.
Rows = list[int]


@dataclass
class Peer:
    """An index, open."""

    # A question's embedding, its text, and how much effort is made.
    search: Callable[[Vectors, str, int], Rows]
    # The most effort; nothing, where there is no choice.
    most: int | None = None


@dataclass(frozen=True)
class Beside:
    """What an index needs of others: what embeds, and which row a document is."""

    embedder: Embedder
    rows: dict[str, int]


@dataclass(frozen=True)
class Kind:
    """Of index: how it is built into a folder and opened from there."""

    build: Callable[[Prepared, Path], None]
    open: Callable[[Path, Beside], Peer]
    # The library that it is of; nothing, if it is ours.
    library: str | None = None


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection."""
    prepared = rag_collections.prepared(arm, settings["questions"])
    folders = built(prepared, list(KINDS))
    half = len(prepared.questions) // 2
    table = _Table(prepared.known)
    beside = Beside(table, {part.document: row for row, part in enumerate(prepared.parts)})
    peers = {name: KINDS[name].open(folder, beside) for name, folder in folders.items()}
    efforts = {name: _effort(peer, prepared, range(half), settings["recall"]) for name, peer in peers.items()}
    asked = range(half, len(prepared.questions))
    times = _in_turns(peers, efforts, prepared, (asked, settings["rounds"]))
    found: dict[str, float] = {"passages": len(prepared.parts), "questions": len(asked)}
    for name, peer in peers.items():
        found |= _numbers(name, times[name])
        found[f"{name}_effort"] = efforts[name]
        table.asked.clear()
        found[f"{name}_recall"] = _recall(peer, prepared, asked, efforts[name])
        found[f"{name}_embedded"] = len(table.asked) / len(asked)
        found |= _sizes(name, folders[name], len(prepared.parts), efforts[name])
    found["ours_smallest_embedding_ms"] = _embedding_ms(peers["ours_smallest"], table, prepared, asked[:_EMBEDDED])
    found["question_embedding_ms"] = _question_ms([_text(prepared, each) for each in asked[:_EMBEDDED]])
    found["ours_than_sq8_times"] = found["ours_cpu_us"] / found["sq8_cpu_us"]
    found["ours_than_flat_times"] = found["ours_cpu_us"] / found["flat_cpu_us"]
    found["ours_of_flat_percent"] = 100 * found["ours_disk_b"] / found["flat_disk_b"]
    found["ours_smallest_of_flat_percent"] = 100 * found["ours_smallest_disk_b"] / found["flat_disk_b"]
    return found


def built(prepared: Prepared, names: Sequence[str]) -> dict[str, Path]:
    """The folders of indexes of these kinds, made where they are not there."""
    folders = {}
    for name in names:
        kind = KINDS[name]
        folder = prepared.base / f"compared-{name}"
        done = folder / _QUESTIONS
        if not done.exists():
            folder.mkdir(exist_ok=True)
            kind.build(prepared, folder)
            texts = [_text(prepared, each) for each in range(len(prepared.questions))]
            np.savez(done, vectors=prepared.questions, texts=np.array(texts))
        folders[name] = folder
    return folders


def _text(prepared: Prepared, question: int) -> str:
    return list(prepared.collection.questions.values())[question]


def _effort(peer: Peer, prepared: Prepared, questions: range, recall: float) -> int:
    if peer.most is None:
        return 0
    wanted = min(recall, _recall(peer, prepared, questions, peer.most) - _BELOW_MOST)
    return rag_collections.fewest(peer.most, lambda of: _recall(peer, prepared, questions, of) >= wanted)


def _recall(peer: Peer, prepared: Prepared, questions: range, effort: int) -> float:
    shares = []
    for each in questions:
        vector = prepared.questions[each]
        rows = peer.search(vector, _text(prepared, each), effort)
        shares.append(prepared.exact.share(vector, prepared.nearest[each], rows))
    return float(np.mean(shares))


def _in_turns(
    peers: dict[str, Peer], efforts: dict[str, int], prepared: Prepared, asked: tuple[range, int]
) -> dict[str, list[int]]:
    """Processor time of each search, in nanoseconds, all threads together."""
    questions, rounds = asked
    times: dict[str, list[int]] = {name: [] for name in peers}
    for _ in range(rounds):
        for each in questions:
            vector, text = prepared.questions[each], _text(prepared, each)
            for name, peer in peers.items():
                began = time.process_time_ns()
                peer.search(vector, text, efforts[name])
                times[name].append(time.process_time_ns() - began)
    return times


def _numbers(name: str, times: Sequence[int]) -> dict[str, float]:
    p50, p95 = np.percentile(times, (50, 95))
    return {
        f"{name}_cpu_us": float(np.mean(times)) / 1e3,
        f"{name}_p50_us": p50 / 1e3,
        f"{name}_p95_us": p95 / 1e3,
    }


# ---- what it takes


def _sizes(name: str, folder: Path, passages: int, effort: int) -> dict[str, float]:
    """Bytes a passage: on the disk without texts, and in the memory of a process that was asked."""
    memory = asked_apart(name, folder, effort)
    return {
        f"{name}_disk_b": disk_bytes(folder) / passages,
        f"{name}_memory_b": memory["resident"] / passages,
        f"{name}_anonymous_b": memory["anonymous"] / passages,
    }


def disk_bytes(folder: Path) -> int:
    """What an index has on the disk without texts."""
    return sum(path.stat().st_size for path in _vectors(folder))


def asked_apart(name: str, folder: Path, effort: int) -> dict[str, int]:
    """Bytes that a process of its own has more of memory when it was asked: resident, and of those anonymous."""
    words = [sys.executable, "-m", "bench.rag_glosses", name, str(folder), str(effort)]
    found: dict[str, int] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found


def _vectors(folder: Path) -> list[Path]:
    """Files that have something of embeddings: not texts, words, locks."""
    others = (_TEXTS, _QUESTIONS, "lock")
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(others)]


def main(name: str, folder: str, effort: str) -> int:
    """Opens one, asks it, and prints how much more memory the process has than before."""
    with np.load(Path(folder) / _QUESTIONS) as kept:
        asked = list(zip(kept["vectors"][-_ASKED:], kept["texts"][-_ASKED:].tolist(), strict=True))
    # Libraries and the model are there before: a program has them whatever its index is.
    if library := KINDS[name].library:
        importlib.import_module(library)
    model = OnnxEmbedder(threads=1)
    model.embed([text for _, text in asked])
    before = _memory(Path(folder))
    peer = KINDS[name].open(Path(folder), Beside(model, {}))
    for vector, text in asked:
        peer.search(vector, text, int(effort))
    print(json.dumps({key: value - before[key] for key, value in _memory(Path(folder)).items()}))
    return 0


def _memory(folder: Path) -> dict[str, int]:
    """Of this process, in bytes: what the kernel cannot drop, and with it what is resident of an index's files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anonymous, mapped, is_of_index = int(lines["RssAnon"].split()[0]) * 1024, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if _MAPPING.match(line):
            # The texts' file has a page that processes share, however many texts there are.
            is_of_index = str(folder.resolve()) in line and _TEXTS not in line
        elif is_of_index and line.startswith("Rss:"):
            mapped += int(line.split()[1]) * 1024
    return {"resident": anonymous + mapped, "anonymous": anonymous}


def _embedding_ms(peer: Peer, table: _Table, prepared: Prepared, questions: range) -> float:
    """Processor time, on one thread, of embedding the passages that questions ask for."""
    model, asked = OnnxEmbedder(threads=1), []
    for each in questions:
        table.asked.clear()
        peer.search(prepared.questions[each], _text(prepared, each), 0)
        asked.append(list(table.asked))
    model.embed(["a text"])
    return 1e3 * cpu_seconds(lambda: [model.embed(texts) for texts in asked])[1] / len(asked)


def _question_ms(texts: Sequence[str]) -> float:
    model = OnnxEmbedder(threads=1)
    model.embed(texts[:1])
    return 1e3 * cpu_seconds(lambda: [model.embed([text]) for text in texts])[1] / len(texts)


# ---- ours


class _Table:
    """An embedder that looks up what it embeds, and writes it down."""

    def __init__(self, known: Embedder) -> None:
        self.name, self.digest, self.dimensions = known.name, known.digest, known.dimensions
        self.tokens_max, self.count_tokens = known.tokens_max, known.count_tokens
        self._known = known
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text."""
        self.asked += texts
        return self._known.embed(texts)


def _build_ours(keep: Keep) -> Callable[[Prepared, Path], None]:
    def build(prepared: Prepared, folder: Path) -> None:
        Index.build(folder, prepared.collection.documents, prepared.known, keep=keep).close()

    return build


def _open_ours(folder: Path, beside: Beside) -> Peer:
    # No cache: a question that nobody asked before.
    index = Index(folder, beside.embedder, cache_bytes=0)

    def search(vector: Vectors, text: str, _: int) -> Rows:
        return [beside.rows.get(hit.document, -1) for hit in index.search(text, COUNT, vector=vector).hits]

    return Peer(search)


# ---- faiss


def _faiss() -> Any:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(1)
    return faiss


def _build_flat(prepared: Prepared, folder: Path) -> None:
    faiss, vectors = _faiss(), np.ascontiguousarray(prepared.vectors)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(folder / _FAISS))


def _build_sq8(prepared: Prepared, folder: Path) -> None:
    faiss, vectors = _faiss(), np.ascontiguousarray(prepared.vectors)
    dimensions, lists = vectors.shape[1], round(len(vectors) ** 0.5)
    kind, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dimensions), dimensions, lists, kind, metric)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(folder / _FAISS))


def _open_faiss(folder: Path, _: Beside) -> Peer:
    index = _faiss().read_index(str(folder / _FAISS))
    lists = getattr(index, "nlist", None)

    def search(vector: Vectors, _: str, effort: int) -> Rows:
        if lists:
            index.nprobe = effort
        found: Rows = index.search(vector[None], COUNT)[1][0].tolist()
        return found

    return Peer(search, lists)


# ---- graphs


def _build_usearch(prepared: Prepared, folder: Path) -> None:
    vectors = np.ascontiguousarray(prepared.vectors)
    index = _usearch(vectors.shape[1])
    index.add(np.arange(len(vectors)), vectors, threads=1)
    index.save(folder / _GRAPH)


def _usearch(dimensions: int) -> Any:
    of = importlib.import_module("usearch.index")
    return of.Index(ndim=dimensions, metric="ip", dtype="f16", connectivity=_LINKS, expansion_add=_BUILT_WITH)


def _open_usearch(folder: Path, beside: Beside) -> Peer:
    index = _usearch(beside.embedder.dimensions)
    index.load(folder / _GRAPH)

    def search(vector: Vectors, _: str, effort: int) -> Rows:
        index.expansion_search = effort
        found: Rows = index.search(vector, COUNT, threads=1).keys.tolist()
        return found

    return Peer(search, _EFFORT_MAX)


def _hnswlib(dimensions: int) -> Any:
    return importlib.import_module("hnswlib").Index(space="ip", dim=dimensions)


def _build_hnswlib(prepared: Prepared, folder: Path) -> None:
    vectors = np.ascontiguousarray(prepared.vectors)
    index = _hnswlib(vectors.shape[1])
    index.init_index(max_elements=len(vectors), M=_LINKS, ef_construction=_BUILT_WITH)
    index.add_items(vectors, num_threads=1)
    index.save_index(str(folder / _GRAPH))


def _open_hnswlib(folder: Path, beside: Beside) -> Peer:
    index = _hnswlib(beside.embedder.dimensions)
    index.load_index(str(folder / _GRAPH))

    def search(vector: Vectors, _: str, effort: int) -> Rows:
        index.set_ef(max(effort, COUNT))
        found: Rows = index.knn_query(vector, k=COUNT, num_threads=1)[0][0].tolist()
        return found

    return Peer(search, _EFFORT_MAX)


# ---- SQLite


def _sqlite(path: Path) -> Any:
    """By apsw: not every Python's own module can load extensions."""
    database = importlib.import_module("apsw").Connection(str(path))
    database.enable_load_extension(True)
    database.load_extension(importlib.import_module("sqlite_vec").loadable_path())
    return database


def _build_sqlite(prepared: Prepared, folder: Path) -> None:
    dimensions = prepared.vectors.shape[1]
    database = _sqlite(folder / _DATABASE)
    with database:
        database.execute(
            f"create virtual table near using vec0 (embedding float[{dimensions}] distance_metric=cosine)"
        )
        rows = ((row, np.asarray(vector).tobytes()) for row, vector in enumerate(prepared.vectors))
        database.executemany("insert into near (rowid, embedding) values (?, ?)", rows)
    database.close()


def _open_sqlite(folder: Path, _: Beside) -> Peer:
    database = _sqlite(folder / _DATABASE)
    asked = "select rowid from near where embedding match ? and k = ?"

    def search(vector: Vectors, _: str, __: int) -> Rows:
        return [row[0] for row in database.execute(asked, [vector.tobytes(), COUNT])]

    return Peer(search)


KINDS: Final = {
    "ours": Kind(_build_ours("rows"), _open_ours),
    "ours_smallest": Kind(_build_ours("codes"), _open_ours),
    "sq8": Kind(_build_sq8, _open_faiss, "faiss"),
    "flat": Kind(_build_flat, _open_faiss, "faiss"),
    "usearch": Kind(_build_usearch, _open_usearch, "usearch.index"),
    "hnswlib": Kind(_build_hnswlib, _open_hnswlib, "hnswlib"),
    "sqlite_vec": Kind(_build_sqlite, _open_sqlite, "apsw"),
}

if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
