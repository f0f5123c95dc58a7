"""Stores of few or odd calls: every figure is drawn or absent, and no number is none."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from small_store import spans, study_of

from scotfree.study.figures import all_figures
from scotfree.study.figures.result import Coverage
from scotfree.study.ingest.clean import DURATION_NS_MAX
from scotfree.study.report.catalogue import compute
from scotfree.study.report.charts import DRAW

ODD: dict[str, pa.Table] = {
    "one call": spans(stages=np.ones((1, 9), np.int64)),
    "too few calls of each method": spans(stages=np.ones((60, 9), np.int64), method=["Get", "Put"] * 30),
    "no call took any time": spans(stages=np.zeros((200, 9), np.int64)),
    "no call succeeded": spans(stages=np.ones((200, 9), np.int64), status=["UNAVAILABLE"] * 200),
    "all took as long as can be": spans(stages=np.full((200, 9), DURATION_NS_MAX // 9), req_bytes=[2**40] * 200),
    "each stage took as long as can be": spans(stages=np.full((200, 9), DURATION_NS_MAX)),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("odd", ODD)
def test_every_figure_is_drawn_or_absent(tmp_path: Path, odd: str) -> None:
    drawn = 0
    for each in compute(study_of(tmp_path, ODD[odd]), all_figures()):
        numbers = [comparison.measured for comparison in each.result.comparisons]
        assert all(math.isfinite(number) for number in numbers if number is not None), each.key
        assert not any("nan" in sentence.split() for sentence in each.result.findings), each.key
        if each.result.coverage != Coverage.ABSENT and each.key in DRAW:
            drawn += len(DRAW[each.key](each.result))
    assert drawn > 0
