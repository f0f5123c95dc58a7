"""What a search found, as JSON says it: the same to programs, to the page, and by `scot rag ask --json`."""

from __future__ import annotations

from typing import Any

from scotfree.rag.copies import Place
from scotfree.rag.passages import Text
from scotfree.rag.rerank.ranked import Ranked
from scotfree.rag.searching import Answer, Hit


def found(question: str, answer: Answer) -> dict[str, Any]:
    """The question, what was found for it, and what that took: times in ns by stage, and counts of passages."""
    return {
        "question": question,
        "hits": hits(answer),
        "stages_ns": dict(answer.stages_ns),
        "estimated": answer.estimated,
        "cached": answer.cached,
        "loaded": answer.loaded,
        "regenerated": answer.regenerated,
    }


def hits(answer: Answer) -> list[dict[str, Any]]:
    """The passages that were found, the best first."""
    return [_hit(hit) for hit in answer.hits]


def _hit(hit: Hit) -> dict[str, Any]:
    score = {"score": hit.score} if isinstance(hit, Ranked) else {}
    return {
        "document": hit.document,
        "location": location(hit),
        "text": hit.text,
        "similarity": hit.similarity,
        **score,
        "metadata": metadata(hit),
        "copies": [{"document": at.document, "location": location(at)} for at in hit.copies],
    }


def location(passage: Hit | Text | Place) -> dict[str, Any]:
    """Where in its document a passage begins, and under which headings, where that is known."""
    section = "" if isinstance(passage, Place) else passage.section
    known = {"place": passage.location, "section": section}
    return {"letter": passage.start} | {name: said for name, said in known.items() if said}


def metadata(passage: Hit | Text) -> dict[str, Any]:
    """What is known of its document; what a library keeps for itself tells nobody anything."""
    return {key: value for key, value in passage.metadata.items() if not key.startswith("_")}
