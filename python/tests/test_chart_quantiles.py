"""The charts of quantiles over methods, where methods are few or many."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.report.charts import quantiles

TIME = quantiles.Quantity("x", "completion time", "ns")


def table(methods: int) -> pa.Table:
    """Quantiles that rise with their place."""
    names = [column(p) for p in schema.QUANTILES]
    return pa.table(
        {name: [1e6 * (place + 1 + row) for row in range(methods)] for place, name in enumerate(names)}
    )


def test_a_single_method_has_bands_and_steps_that_are_seen() -> None:
    bands, steps = quantiles.charts(table(1), TIME)
    ((_, drawn),) = bands.data.items()
    assert drawn["rank"].to_pylist() == [0.5, 1.5]
    assert len(set(drawn["p99"].to_pylist())) == 1
    ((_, curves),) = steps.data.items()
    p99 = [row for row in curves.to_pylist() if row["quantile"] == "P99"]
    assert [row["share"] for row in p99] == [0, 1]
    assert p99[0]["value"] == p99[1]["value"] == 8e6


@pytest.mark.parametrize(("methods", "said"), [(300, False), (458, True)])
def test_columns_of_several_methods_are_said_to_be_so(methods: int, said: bool) -> None:
    about = quantiles.bands(table(methods), TIME).about
    assert ("458 methods in 300 columns" in about) == said
