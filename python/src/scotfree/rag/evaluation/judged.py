"""What judges say of answers: measures of trec_eval, by pytrec_eval."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from scotfree.rag.trouble import RagError

# Documents of an answer: the measures at ten are of as many, the others of a longer answer.
FEW: Final = 10
MANY: Final = 100

Judgements = Mapping[str, Mapping[str, int]]
# Documents of each question, the nearest first.
Answers = Mapping[str, Sequence[str]]

# Ours, trec_eval's, and whether it is of the longer answer.
_MEASURES: Final = (
    (f"nDCG@{FEW}", f"ndcg_cut_{FEW}", False),
    (f"recall@{FEW}", f"recall_{FEW}", False),
    (f"MRR@{FEW}", "recip_rank", False),
    (f"recall@{MANY}", f"recall_{MANY}", True),
    (f"MAP@{MANY}", "map", True),
)


def library() -> Any:
    """pytrec_eval; a `RagError` says how to have it."""
    try:
        return importlib.import_module("pytrec_eval")
    except ModuleNotFoundError:
        raise RagError(
            "judge answers: the package pytrec-eval-terrier is not installed",
            "install it with: pip install 'scotfree[rag-eval]'; without the folder qrels recall and times are "
            "measured, and nothing is judged",
        ) from None


def measures(judgements: Judgements, few: Answers, many: Answers) -> dict[str, float]:
    """Means over the questions of answers of `FEW` and of `MANY` documents; a question without answer counts 0."""
    evaluator = library().RelevanceEvaluator(judgements, {theirs for _, theirs, _ in _MEASURES})
    found = {is_long: evaluator.evaluate(_run(many if is_long else few)) for is_long in (False, True)}
    return {
        ours: float(np.mean([found[is_long].get(question, {}).get(theirs, 0.0) for question in few]))
        for ours, theirs, is_long in _MEASURES
    }


def _run(answers: Answers) -> dict[str, dict[str, float]]:
    """As trec_eval wants it: it sorts by scores and, where they are equal, by names, so no two are equal here."""
    return {
        question: {document: float(len(of) - rank) for rank, document in enumerate(of)}
        for question, of in answers.items()
    }
