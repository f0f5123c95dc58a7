"""What all commands say of an index: where it lies."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
from scotfree.rag.index import Index, is_index
from scotfree.rag.trouble import RagError


def add(parser: ArgumentParser) -> None:
    """Says the flag."""
    parser.add_argument(
        "--index", type=Path, metavar="FOLDER", help=f"where the index lies (default: {default()})"
    )


def default() -> Path:
    """The user's one index, where nothing else is said."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "scotfree" / "rag"


def opened(flags: Namespace) -> Index:
    """The index that is there."""
    folder = flags.index or default()
    if not is_index(folder):
        raise RagError(f"open the index {folder}: there is none", "make it: scot rag index FOLDER")
    return Index(folder, OnnxEmbedder())


def begun(flags: Namespace) -> Index:
    """The index that is there, or a new one; nothing else is written into."""
    folder: Path = flags.index or default()
    if folder.is_dir() and not is_index(folder) and any(folder.iterdir()):
        raise RagError(f"make an index in {folder}: it holds other files", "name another folder with --index")
    return Index(folder, OnnxEmbedder())
