"""Embedders by the names that users, and indexes, call them by."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scotfree.rag.embed.embedder import DEFAULT, Device, Embedder
from scotfree.rag.embed.prompts import Said
from scotfree.rag.trouble import RagError

FORMS: Final = (
    f"{DEFAULT}, onnx:FOLDER, int8:{DEFAULT}, int8:FOLDER, openvino:{DEFAULT}, openvino:FOLDER, "
    "sentence-transformers:NAME_OR_FOLDER, endpoint:URL#MODEL"
)


@dataclass(frozen=True)
class _Wanted:
    # What stands behind the kind.
    name: str
    device: Device
    is_local_only: bool
    query_prompt: str | None
    passage_prompt: str | None

    @property
    def prompts(self) -> Said:
        """As embedders take them."""
        return {"query_prompt": self.query_prompt, "passage_prompt": self.passage_prompt}


def by_name(
    name: str = DEFAULT,
    *,
    device: Device = "auto",
    is_local_only: bool = False,
    query_prompt: str | None = None,
    passage_prompt: str | None = None,
) -> Embedder:
    """The embedder of a name: one of `FORMS`.

    The prompts stand before questions and passages; of one that is not said the model's own is taken.
    `is_local_only`: one that would send texts to another machine, or fetch a model from one, is refused. A
    `RagError` says what is wrong, or what is to be installed.
    """
    kind, _, rest = (f"onnx:{DEFAULT}" if name == DEFAULT else name).partition(":")
    if kind not in _KINDS or not rest:
        raise RagError(f"embed with {name!r}: there is no such embedder", f"name one of: {FORMS}")
    make, install = _KINDS[kind]
    try:
        return make(_Wanted(rest, device, is_local_only, query_prompt, passage_prompt))
    except ModuleNotFoundError as error:
        raise RagError(f"embed with {name}: the package {error.name} is not installed", install) from None


# Each imports what it stands on: who wants one need not have the others'.
def _onnx(wanted: _Wanted) -> Embedder:
    from scotfree.rag.embed.onnx_embedder import OnnxEmbedder  # noqa: PLC0415

    return OnnxEmbedder(_folder(wanted.name), device=wanted.device, **wanted.prompts)


def _int8(wanted: _Wanted) -> Embedder:
    from scotfree.rag.embed.int8_embedder import Int8Embedder  # noqa: PLC0415

    if wanted.device == "cuda":
        raise RagError("embed in whole numbers on cuda: it runs on the processor", "leave out --device cuda")
    return Int8Embedder(_folder(wanted.name), device="cpu", **wanted.prompts)


def _openvino(wanted: _Wanted) -> Embedder:
    from scotfree.rag.embed.openvino_embedder import OpenVinoEmbedder  # noqa: PLC0415

    if wanted.device == "cuda":
        raise RagError("embed with OpenVINO on cuda: it runs on the processor", "leave out --device cuda")
    return OpenVinoEmbedder(_folder(wanted.name), **wanted.prompts)


def _torch(wanted: _Wanted) -> Embedder:
    from scotfree.rag.embed.torch_embedder import TorchEmbedder  # noqa: PLC0415

    return TorchEmbedder(wanted.name, device=wanted.device, is_local_only=wanted.is_local_only, **wanted.prompts)


def _endpoint(wanted: _Wanted) -> Embedder:
    from scotfree.rag.embed.asking import is_here  # noqa: PLC0415
    from scotfree.rag.embed.endpoint_embedder import EndpointEmbedder  # noqa: PLC0415

    url, _, model = wanted.name.partition("#")
    if wanted.is_local_only and not is_here(url):
        raise RagError(
            f"embed with endpoint:{wanted.name}: texts would be sent there, and nobody said so",
            f"say so: --embedder {shlex.quote(f'endpoint:{wanted.name}')}",
        )
    if wanted.device != "auto":
        raise RagError(
            f"embed with endpoint:{wanted.name} on {wanted.device}: where it runs is not decided here",
            "leave out --device",
        )
    return EndpointEmbedder(url, model, **wanted.prompts)


def _folder(name: str) -> Path | None:
    return None if name == DEFAULT else Path(name).expanduser()


_KINDS: Final[dict[str, tuple[Callable[[_Wanted], Embedder], str]]] = {
    "onnx": (_onnx, "install it: pip install 'scotfree[rag]'"),
    "int8": (_int8, "install it: pip install 'scotfree[rag]'"),
    "openvino": (
        _openvino,
        f"install it: pip install 'scotfree[openvino]', or, for the same vectors, say {DEFAULT} or onnx:FOLDER",
    ),
    "sentence-transformers": (_torch, "install it: pip install sentence-transformers"),
    "endpoint": (_endpoint, "install it: pip install 'scotfree[rag]'"),
}
