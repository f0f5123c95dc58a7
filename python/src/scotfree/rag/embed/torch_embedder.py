"""Embeddings by the package sentence-transformers, which runs any of its models with torch.

The package is not among those that scotfree installs: with torch it takes some 5 GB. It is tried by hand; what
tests see of it is an object with the few methods that are used here. On a GPU no run has been recorded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag.embed.embedder import Device, Vectors
from scotfree.rag.embed.prompts import Prompting, Prompts, tokens_left
from scotfree.rag.trouble import RagError

_BATCH_TEXTS: Final = 32
# Where a model does not say how much it reads.
_TOKENS_MAX: Final = 256


class TorchEmbedder(Prompting):
    """A model of sentence-transformers."""

    def __init__(
        self,
        name: str,
        *,
        device: Device = "auto",
        is_local_only: bool = False,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> None:
        """`name` is a folder's, or one that the package fetches a model by, unless `is_local_only`.

        The prompts stand before questions and passages; not said, they are the model's own.
        A `RagError` says what is missing.
        """
        folder = Path(name).expanduser()
        self._model = _loaded(str(folder) if folder.is_dir() else name, device, is_local_only)
        self.name = f"sentence-transformers:{folder.resolve() if folder.is_dir() else name}"
        # Its tokenizers are changed while they work.
        self._lock = threading.Lock()
        self.prompts = _prompts(self.name, self._model).replaced(query_prompt, passage_prompt)
        self.digest = self.prompts.digest(_digest(self._model))
        taken = self.count_tokens(self.prompts.passage) if self.prompts.passage else 0
        self.tokens_max = tokens_left(self.name, int(self._model.max_seq_length or _TOKENS_MAX), taken)
        self.dimensions = int(self._encoded([""], "").shape[1])

    @property
    def device(self) -> str:
        """Where it runs: `CPU`, `CUDA` or what else torch knows."""
        return str(self._model.device).partition(":")[0].upper()

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is, the markers of its ends aside."""
        with self._lock:
            return len(self._model.tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def _embedded(self, texts: Sequence[str], prompt: str) -> Vectors:
        return self._encoded(texts, prompt) if texts else np.empty((0, self.dimensions), np.float32)

    def _encoded(self, texts: Sequence[str], prompt: str) -> Vectors:
        # Where nothing is said the library takes the model's default, if it has one.
        has_default = getattr(self._model, "default_prompt_name", None) is not None
        how = {"prompt": prompt} if prompt or has_default else {}
        with self._lock:
            found = self._model.encode(
                list(texts),
                batch_size=_BATCH_TEXTS,
                normalize_embeddings=True,
                show_progress_bar=False,
                **how,
            )
        return np.asarray(found, np.float32)


def _prompts(name: str, model: Any) -> Prompts:
    """The model's own; older releases of the library know none."""
    try:
        named = getattr(model, "prompts", None) or {}
        return Prompts.named(named, getattr(model, "default_prompt_name", None))
    except ValueError as error:
        raise RagError(f"embed with {name}: {error}", "name another") from None


def _loaded(name: str, device: Device, is_local_only: bool) -> Any:
    try:
        library = importlib.import_module("sentence_transformers")
        where = None if device == "auto" else device
        return library.SentenceTransformer(name, device=where, local_files_only=is_local_only)
    except ModuleNotFoundError as error:
        raise RagError(
            f"embed with the model {name}: the package {error.name} is not installed",
            "install it: pip install sentence-transformers (with torch it takes some 5 GB)",
        ) from None
    except (OSError, ValueError, RuntimeError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise RagError(
            f"embed with the model {name}: {first}", "name another, or a folder that holds one"
        ) from error


def _digest(model: Any) -> bytes:
    """Of all weights, the tokenizer, what is done one after the other, and where texts are cut."""
    found = hashlib.sha256(f"sentence-transformers {model.max_seq_length}".encode())
    for part in model:
        said = part.get_config_dict() if hasattr(part, "get_config_dict") else {}
        found.update(json.dumps([type(part).__name__, said], sort_keys=True, default=str).encode())
    tokens = json.loads(model.tokenizer.backend_tokenizer.to_str())
    # How a batch is filled up changes from one to the next.
    rules = {name: value for name, value in tokens.items() if name not in ("padding", "truncation")}
    found.update(json.dumps(rules, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        numbers = tensor.float().numpy(force=True)
        found.update(f"{name} {numbers.shape}".encode())
        found.update(np.ascontiguousarray(numbers).data)
    return found.digest()
