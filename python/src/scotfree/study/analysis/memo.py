"""Aggregates that several figures ask for, computed once per study."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from scotfree.study.analysis.study import Study

T = TypeVar("T")


def once(compute: Callable[[Study], T]) -> Callable[[Study], T]:
    """The function, its result kept for as long as the study lives: figures ask as if each were alone."""
    kept: WeakKeyDictionary[Study, T] = WeakKeyDictionary()

    @wraps(compute)
    def ask(study: Study) -> T:
        if study not in kept:
            kept[study] = compute(study)
        return kept[study]

    return ask
