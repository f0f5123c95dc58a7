"""The process that makes stores: a line of JSON in, a store, a line of JSON out; until nobody asks any more."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from scotfree.study import outside
from scotfree.study.ingest.framing import Framing
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.run import ingest
from scotfree.study.without_pandas import without_pandas
from scotfree.trouble import UserError

_SEGMENTS: Final = OtlpProto(Framing.FIXED)


def main() -> None:
    """Answers every question."""
    without_pandas(())
    with suppress(BrokenPipeError):
        for line in sys.stdin:
            print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(asked: dict[str, Any]) -> dict[str, str]:
    limits = Limits(asked["memory"], asked["threads"])
    try:
        segments = [Path(path) for path in asked["segments"]]
        ingest(segments, Path(asked["store"]), Options(_SEGMENTS.form, limits=limits, readers=(_SEGMENTS,)))
    except UserError as error:
        return {"problem": error.problem, "advice": error.advice}
    except Exception as error:
        # A fault of ours ends one store, not what is received.
        told = outside.told(error) or UserError(f"make a store: {error!r}", "please report it")
        return {"problem": told.problem, "advice": told.advice}
    return {}


if __name__ == "__main__":
    main()
