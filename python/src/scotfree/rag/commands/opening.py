"""What all commands say of an index: where it lies, and what embeds its passages."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final, get_args

from scotfree.command_line import in_help
from scotfree.rag.embed.embedder import DEFAULT, Device, Embedder
from scotfree.rag.embed.made import Made
from scotfree.rag.embed.names import FORMS, by_name
from scotfree.rag.embed.prompts import Said
from scotfree.rag.index import Index, is_index, made_by
from scotfree.rag.trouble import RagError

# What is meant where no flag says it: of a new index, and of one that was made with just that.
VARIABLE: Final = "SCOTFREE_EMBEDDER"


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "--index", type=Path, metavar="FOLDER", help=f"where the index lies (default: {in_help(default())})"
    )
    parser.add_argument(
        "--embedder",
        metavar="NAME",
        help=f"what embeds: {FORMS} (default: the one that made the index; of a new one ${VARIABLE} or {DEFAULT})",
    )
    parser.add_argument(
        "--device", choices=get_args(Device), default="auto", help="where it runs (default: %(default)s)"
    )


def add_prompts(parser: ArgumentParser) -> None:
    """Says the flags of who makes an index."""
    for of, example in (("query", "query: "), ("passage", "passage: ")):
        parser.add_argument(
            f"--{of}-prompt",
            metavar="TEXT",
            help=f"of a new index: what stands before a {of} that is embedded, as {example!r} (default: what the "
            "model's folder says, or nothing); the index remembers it",
        )


def default() -> Path:
    """The user's one index, where nothing else is said."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "scotfree" / "rag"


def opened(flags: Namespace, *, mends: bool = False) -> Index:
    """The index that is there; one whose codes are damaged if it `mends` them."""
    folder = flags.index or default()
    if not is_index(folder):
        raise RagError(f"open the index {folder}: there is none", "make it: scot rag index FOLDER")
    return Index(folder, _embedder(flags, folder), mends=mends)


def begun(flags: Namespace) -> Index:
    """The index that is there, or a new one as the flags say; nothing else is written into."""
    folder: Path = flags.index or default()
    if folder.is_dir() and not is_index(folder) and any(folder.iterdir()):
        raise RagError(f"make an index in {folder}: it holds other files", "name another folder with --index")
    return Index(
        folder,
        _embedder(flags, folder),
        keep="codes" if flags.smallest else None,
        recall=flags.recall,
        passage_tokens=flags.passage_tokens,
        overlap=flags.overlap,
    )


def _embedder(flags: Namespace, folder: Path) -> Embedder:
    """What was said, else what made the index: but who has one from others did not choose whom it would ask."""
    said = flags.embedder or os.environ.get(VARIABLE)
    made = made_by(folder) if is_index(folder) else None
    if flags.embedder or made is None or made.name == said:
        name, is_local_only = said or DEFAULT, False
    else:
        name, is_local_only = made.name, True
    return by_name(name, device=flags.device, is_local_only=is_local_only, **_prompts(flags, made))


def _prompts(flags: Namespace, made: Made | None) -> Said:
    """What flags name, else what the index was made with; of a new one what its model says."""
    query, passage = (getattr(flags, name, None) for name in ("query_prompt", "passage_prompt"))
    if made is None:
        return Said(query_prompt=query, passage_prompt=passage)
    # A folder that says others by now is not asked: the passages that are there were embedded with these.
    known = made.prompts.replaced(query, passage)
    return Said(query_prompt=known.query, passage_prompt=known.passage)
