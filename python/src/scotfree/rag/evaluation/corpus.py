"""A corpus as what exact search looks through: passages, and their exact embeddings, made once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.passages import joined
from scotfree.rag.splitting import NEW, Splitter
from scotfree.rag.trouble import RagError

# Passages that are embedded at once; what a kill costs, too.
_BATCH: Final = 512
# By how much the length of an embedding is off one, at most: what was never written has none.
_LENGTH_OFF: Final = 1e-3

# Where a passage is: its document, and at which letter of it.
Place = tuple[str, int]
# Told how much more is done.
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Part:
    """A passage: of which document, at which letter, and its text."""

    document: str
    start: int
    text: str
    # Of what stands above it as much as is embedded with it.
    above: str = ""

    @property
    def embedded(self) -> str:
        """What an index embeds of it."""
        return joined(self.above, self.text)


def parts(documents: Iterable[Document], embedder: Embedder, progress: Progress = lambda _: None) -> list[Part]:
    """The passages of documents as a new index has them, in their order; progress is in documents."""
    splitter, letters, found = Splitter(embedder, NEW), NEW.above_letters(embedder), []
    for document in documents:
        for passage in splitter.split(document):
            above = document.outline.above(passage.start, letters)
            found.append(Part(document.name, passage.start, passage.text, above))
        progress(1)
    return found


def embeddings(
    folder: Path, embedder: Embedder, texts: Sequence[str], progress: Progress = lambda _: None
) -> Vectors:
    """A row for each text, mapped from a file of the folder, which is made if it is not there.

    The file's name is of model and texts, so that all who ask for the same share it. What a process has
    made of it that was killed is not made again. Progress is in texts.
    """
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"embeddings-{digest(embedder, texts)}.npy"
    if not path.exists():
        _make(path, embedder, texts, progress)
    found: Vectors = np.load(path, mmap_mode="r")
    return found


def digest(embedder: Embedder, texts: Iterable[str]) -> str:
    """Of a model and texts: 32 letters."""
    found = hashlib.blake2b(embedder.digest, digest_size=16)
    for text in texts:
        found.update(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest())
    return found.hexdigest()


def _make(path: Path, embedder: Embedder, texts: Sequence[str], progress: Progress) -> None:
    part = path.with_suffix(".part")
    with _alone(part) as file:
        # Whoever had the file to itself before may have finished it.
        if path.exists():
            return
        vectors = _begun(part, file, (len(texts), embedder.dimensions))
        for at in range(0, len(texts), _BATCH):
            rows = np.arange(at, min(at + _BATCH, len(texts)))
            missing = rows[np.abs(np.linalg.norm(vectors[rows], axis=1) - 1) > _LENGTH_OFF]
            if len(missing):
                vectors[missing] = embedder.embed([texts[row] for row in missing])
            progress(len(rows))
        vectors.flush()
        os.fsync(file.fileno())
        part.rename(path)


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    with part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RagError(f"embed into {part}: another process is at it", "wait for it to end") from None
        yield file


def _begun(part: Path, file: BinaryIO, shape: tuple[int, int]) -> np.memmap[tuple[int, ...], np.dtype[np.float32]]:
    """The file as far as it is there; all nothing where it is not."""
    try:
        found = np.lib.format.open_memmap(part, mode="r+")
        if found.shape == shape and found.dtype == np.float32:
            return found
    except (ValueError, EOFError):
        pass
    file.truncate(0)
    return np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
