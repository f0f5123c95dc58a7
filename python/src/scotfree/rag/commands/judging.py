"""What `scot rag eval` says of language models: who writes answers, and who grades them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from scotfree.numbers import whole
from scotfree.rag.commands import modelling
from scotfree.rag.evaluation.grading import Models
from scotfree.rag.generate.answering import TOKENS_MAX
from scotfree.rag.generate.model import LanguageModel
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
    group.add_argument(
        "--tokens",
        type=whole(16, 1_000_000),
        default=TOKENS_MAX,
        help="of a reply of either model, at most, with what it thinks; one that is cut counts as none "
        "(default: %(default)s)",
    )


@contextmanager
def opened(flags: Namespace) -> Iterator[Models | None]:
    """Both models, if a judge is named."""
    url = os.environ.get(URL) or None if flags.judge is None else flags.judge
    if flags.no_llm or url is None:
        _check_use(flags)
        yield None
        return
    with modelling.opened(flags) as writer:
        if writer is None and flags.judge is not None:
            raise RagError("grade answers: it is not said who writes them", "name a model with --llm or --gguf")
        if writer is None:
            # Only the environment names a judge: nobody asked for answers, and the table says that there are none.
            yield None
            return
        with closing(_judge(flags, url)) as judge:
            yield Models(writer, judge, flags.letters, flags.tokens)


def _judge(flags: Namespace, url: str) -> LanguageModel:
    name = flags.judge_model or os.environ.get(NAME)
    if not name:
        raise RagError(
            f"grade answers by {url}: it is not said by which of its models", "name it with --judge-model"
        )
    return modelling.endpoint(url, name, flags.patience, KEY, f"{url} (the judge)")


def _check_use(flags: Namespace) -> None:
    """Whoever names a model wants answers."""
    if not flags.no_llm and (flags.llm or flags.gguf or flags.model or flags.judge_model):
        raise RagError("write answers to be graded: it is not said who grades them", "name a judge with --judge")
