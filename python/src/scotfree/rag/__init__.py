"""Retrieval in little memory: documents in, the passages nearest to a question out.

```python
from pathlib import Path

from scotfree.rag import Document, Index, OnnxEmbedder

documents = [Document("cats", "Cats purr when they are content."), Document("dogs", "Dogs wag their tails.")]
with Index.build(Path("notes.index"), documents, OnnxEmbedder()) as index:
    print(index.search("Why does my cat hum?").hits[0].text)
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scotfree.rag.copies import Place
    from scotfree.rag.documents import Document
    from scotfree.rag.embed.embedder import Embedder
    from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
    from scotfree.rag.generate.answering import write_answer
    from scotfree.rag.generate.endpoint import Endpoint
    from scotfree.rag.generate.local import LocalModel
    from scotfree.rag.generate.model import LanguageModel
    from scotfree.rag.index import Index
    from scotfree.rag.outline import Heading, Outline
    from scotfree.rag.placement.budget import Budget
    from scotfree.rag.placement.kinds import Placement
    from scotfree.rag.placement.planner import Plan, Planner
    from scotfree.rag.rerank.cross_encoder import CrossEncoder
    from scotfree.rag.searching import Answer, Hit
    from scotfree.rag.trouble import RagError
    from scotfree.rag.updating import Changes

__all__ = [
    "Answer",
    "Budget",
    "Changes",
    "CrossEncoder",
    "Document",
    "Embedder",
    "Endpoint",
    "Heading",
    "Hit",
    "Index",
    "LanguageModel",
    "LocalModel",
    "OnnxEmbedder",
    "Outline",
    "Place",
    "Placement",
    "Plan",
    "Planner",
    "RagError",
    "write_answer",
]

# Imported when asked for: who wants one of them need not have, nor wait for, what the others stand on.
_WHERE: Final = {
    "Answer": "searching",
    "Budget": "placement.budget",
    "Changes": "updating",
    "CrossEncoder": "rerank.cross_encoder",
    "Document": "documents",
    "Embedder": "embed.embedder",
    "Endpoint": "generate.endpoint",
    "Heading": "outline",
    "Hit": "searching",
    "Index": "index",
    "LanguageModel": "generate.model",
    "LocalModel": "generate.local",
    "OnnxEmbedder": "embed.onnx_embedder",
    "Outline": "outline",
    "Place": "copies",
    "Placement": "placement.kinds",
    "Plan": "placement.planner",
    "Planner": "placement.planner",
    "RagError": "trouble",
    "write_answer": "generate.answering",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
