"""The commands of `scot rag`, a module each."""
