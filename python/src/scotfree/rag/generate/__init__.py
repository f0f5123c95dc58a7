"""Answers in words: a language model is shown the passages that a search found, and writes from them."""
