"""Embedders: texts in, vectors of length one out."""

from scotfree.rag.embed.names import by_name

__all__ = ["by_name"]
