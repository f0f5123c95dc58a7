"""Embedders: texts in, vectors of length one out."""
