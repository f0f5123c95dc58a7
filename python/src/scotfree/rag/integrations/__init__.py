"""The index as the vector store of frameworks, which bring texts already split and often the embedding model."""
