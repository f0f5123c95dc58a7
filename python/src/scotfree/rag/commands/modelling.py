"""What commands say of a language model: which one, if any."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from scotfree.numbers import duration_ns, whole
from scotfree.rag.generate.model import LanguageModel
from scotfree.rag.generate.prompt import LETTERS_MAX
from scotfree.rag.trouble import RagError

# Where there are no flags.
URL: Final = "SCOTFREE_LLM"
NAME: Final = "SCOTFREE_LLM_MODEL"


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    group = parser.add_argument_group(
        "language model",
        f"Without one nothing is sent anywhere. Also by the environment: {URL}, {NAME}; its key only by "
        "SCOTFREE_LLM_KEY.",
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument("--llm", metavar="URL", help="an OpenAI-compatible endpoint, which is sent the passages")
    which.add_argument("--gguf", type=Path, metavar="FILE", help="a model on this machine, run by llama.cpp")
    which.add_argument("--no-llm", action="store_true", help="none, whatever the environment says")
    group.add_argument("--model", metavar="NAME", help="of the models of the endpoint")
    group.add_argument(
        "--letters",
        type=whole(100, 10_000_000),
        default=LETTERS_MAX,
        help="of passages that it is shown, at most (default: %(default)s)",
    )
    group.add_argument(
        "--patience",
        type=duration_ns,
        default="300s",
        metavar="TIME",
        help="how long it may say nothing (default: %(default)s)",
    )


@contextmanager
def opened(flags: Namespace) -> Iterator[LanguageModel | None]:
    """The model that is asked for, if one is."""
    model = _model(flags)
    if model is None:
        yield None
        return
    with closing(model):
        yield model


def _model(flags: Namespace) -> LanguageModel | None:
    url = flags.llm or os.environ.get(URL)
    if flags.no_llm:
        return None
    if not (flags.gguf or url):
        if flags.model:
            raise RagError(
                f"ask the language model {flags.model}: it is not said where it is", "say it with --llm"
            )
        return None
    if flags.gguf:
        return _local(flags)
    name = flags.model or os.environ.get(NAME)
    if not name:
        raise RagError(
            f"ask the language model at {url}: it is not said which of its models", "name it with --model"
        )
    return endpoint(str(url), name, flags.patience)


def endpoint(url: str, name: str, patience_ns: float, key_name: str = "", place: str = "") -> LanguageModel:
    """A model of a server; its key is in the environment, by the name that is said or as usual.

    `place` is what errors call it, if not by its address.
    """
    with _speaking():
        from scotfree.rag.generate.endpoint import KEY, Endpoint, Limits  # noqa: PLC0415
    limits = Limits(read_s=patience_ns / 1e9)
    return Endpoint(url, name, key_name=key_name or KEY, limits=limits, place=place)


def _local(flags: Namespace) -> LanguageModel:
    with _speaking():
        from scotfree.rag.generate.endpoint import Limits  # noqa: PLC0415
        from scotfree.rag.generate.local import LocalModel  # noqa: PLC0415
    return LocalModel(flags.gguf, limits=Limits(read_s=flags.patience / 1e9))


@contextmanager
def _speaking() -> Iterator[None]:
    """To load what speaks HTTP, which takes longer than many a search: not before it is needed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise RagError(
            f"ask a language model: the package {error.name} is not installed", "pip install 'scotfree[rag]'"
        ) from None
