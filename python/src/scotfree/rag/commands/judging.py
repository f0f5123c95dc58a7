"""What `scot rag eval` says of language models: who writes answers, and who grades them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from scotfree.rag.commands import modelling
from scotfree.rag.evaluation.grading import Models
from scotfree.rag.trouble import RagError

# Where there are no flags.
URL: Final = "SCOTFREE_JUDGE"
NAME: Final = "SCOTFREE_JUDGE_MODEL"
KEY: Final = "SCOTFREE_JUDGE_KEY"


def add(parser: ArgumentParser) -> None:
    """Says the flags, also those of the model that writes."""
    modelling.add(parser)
    group = parser.add_argument_group(
        "judge",
        "A language model that grades what the other one writes from the passages found; without one nothing is "
        f"written or sent. Also by the environment: {URL}, {NAME}; its key only by {KEY}.",
    )
    group.add_argument(
        "--judge",
        metavar="URL",
        help="an OpenAI-compatible endpoint, which is sent questions, answers and relevant passages",
    )
    group.add_argument("--judge-model", metavar="NAME", help="of the models of that endpoint")


@contextmanager
def opened(flags: Namespace) -> Iterator[Models | None]:
    """Both models, if a judge is named."""
    url = flags.judge or os.environ.get(URL)
    if flags.no_llm or not url:
        _unused(flags)
        yield None
        return
    name = flags.judge_model or os.environ.get(NAME)
    if not name:
        raise RagError(
            f"grade answers by {url}: it is not said by which of its models", "name it with --judge-model"
        )
    judge = modelling.endpoint(url, name, flags.patience, KEY)
    with closing(judge), modelling.opened(flags) as writer:
        if writer is None:
            raise RagError("grade answers: it is not said who writes them", "name a model with --llm or --gguf")
        yield Models(writer, judge, flags.letters)


def _unused(flags: Namespace) -> None:
    """Whoever names a model wants answers."""
    if flags.llm or flags.gguf or flags.model or (flags.judge_model and not flags.no_llm):
        raise RagError("write answers to be graded: it is not said who grades them", "name a judge with --judge")
