"""The command: `python -m scotfree.rag`, also `scot rag`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scotfree import command_line
from scotfree.command_line import Commands
from scotfree.rag import trouble

COMMANDS = Commands(
    "scotfree.rag.commands",
    {
        "index": "index the files of a folder: text, Markdown, HTML, PDF, Word, EPUB, notebooks, source code",
        "ask": "find the passages nearest to a question, and let a language model answer from them",
        "edge": "search an index as EdgeRAG does: clusters of passages that are embedded again while it searches",
        "plan": "choose what to keep of embeddings, within memory, storage and latency",
        "check": "see whether an index is whole, and how much of the nearest its searches find",
        "serve": "search in a browser or from programs, and see which passages, which stages, how long",
        "mcp": "let an assistant search and read your documents, by the Model Context Protocol",
        "eval": "measure recall, judged quality, time and memory on a collection in BEIR's layout",
    },
)
DESCRIPTION = (
    "Answers questions from your own documents, in little memory; nothing leaves this machine unless you say so."
)
_REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (see `command_line`)."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return command_line.run("scot rag", DESCRIPTION, COMMANDS, words, trouble.told)
    except ModuleNotFoundError as error:
        # A wheel without its extra has not all that the commands stand on.
        print(
            f"scot rag: the package {error.name} is not installed; install what retrieval stands on: "
            "pip install 'scotfree[rag]'",
            file=sys.stderr,
        )
        return _REFUSED
