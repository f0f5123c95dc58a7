"""A language model in a GGUF file, run in this process by llama.cpp (the binding xllamacpp)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from scotfree.rag.generate.endpoint import Endpoint, Limits
from scotfree.rag.generate.model import HangUp, Piece
from scotfree.rag.trouble import RagError

# A prompt of LETTERS_MAX letters of any language but the densest, and the answer to it.
CONTEXT_TOKENS: Final = 8192
_MAGIC: Final = b"GGUF"
_AUTO: Final = -1


class LocalModel:
    """A model on this machine, loaded once.

    The binding opens a port of its own on the loopback address, which is how it is asked here; other users of the
    machine and pages of the browser do not know its key, which is made anew each time.
    """

    def __init__(
        self,
        path: Path,
        *,
        context_tokens: int = CONTEXT_TOKENS,
        threads: int = _AUTO,
        limits: Limits | None = None,
    ) -> None:
        """Loads the file; a `RagError` says why it cannot be."""
        _check(path)
        key = secrets.token_urlsafe(32)
        self.name = path.name
        self.place = str(path.resolve())
        self._server = _server(path, key, context_tokens, threads)
        url = f"{self._server.listening_address}/v1"
        self._endpoint = Endpoint(url, self.name, key=key, limits=limits, place=self.place)

    def close(self) -> None:
        """Gives its memory back."""
        self._endpoint.close()
        self._server = None

    def stream(self, prompt: str, tokens_max: int, hang_up: HangUp | None = None) -> Generator[Piece, None, None]:
        """What the model writes, as it comes; a `RagError` says why there is no more."""
        return self._endpoint.stream(prompt, tokens_max, hang_up)


def _check(path: Path) -> None:
    """Whether it looks like a model, before a library in C++ reads it."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise RagError(f"read the model {path}: {os.strerror(error.errno or 0)}", "name a GGUF file") from None
    if magic != _MAGIC:
        raise RagError(f"read the model {path}: it is no GGUF file", "name one")


def _server(path: Path, key: str, context_tokens: int, threads: int) -> Any:
    try:
        import xllamacpp  # noqa: PLC0415 - who asks an endpoint need not have it
    except ModuleNotFoundError:
        raise RagError(
            f"run the model {path}: the package xllamacpp is not installed", "pip install 'scotfree[rag,gguf]'"
        ) from None
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context_tokens
    params.cpuparams.n_threads = threads
    # One prompt at a time, and none kept: by itself it keeps GBs of them.
    params.n_parallel, params.cache_ram_mib = 1, 0
    # No page of the browser is answered, even without the key.
    params.api_keys, params.cors_origins, params.ui = [key], "http://none.invalid", False
    params.verbosity, params.offline = 0, True
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise RagError(
            f"run the model {path}: llama.cpp cannot load it: it is cut short, of a kind that it does not know, "
            "or larger than the memory",
            "name another file",
        ) from None
