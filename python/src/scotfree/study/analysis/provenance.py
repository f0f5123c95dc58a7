"""How the stages of the calls are known: measured, derived, lumped, missing (F9)."""

from __future__ import annotations

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.calls import weight
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study


@once
def by_stage(study: Study) -> pa.Table:
    """stage, how, calls (weighted) and share of all calls: four rows for each stage, in their order."""
    span = study.span
    found = study.engine.arrow(span.group_by("provenance").agg(calls=weight(span).sum()))
    counted = list(zip(found["provenance"].to_pylist(), found["calls"].to_pylist(), strict=True))
    everything = sum(calls for _, calls in counted)
    rows = []
    for place, stage in enumerate(schema.STAGES):
        for how in schema.Provenance:
            calls = sum(count for bits, count in counted if (bits >> (2 * place)) & 3 == how)
            rows.append(
                {
                    "stage": stage,
                    "how": how.name.lower(),
                    "calls": calls,
                    "share": calls / everything if everything else 0.0,
                }
            )
    kinds = [("stage", pa.string()), ("how", pa.string()), ("calls", pa.float64()), ("share", pa.float64())]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))
