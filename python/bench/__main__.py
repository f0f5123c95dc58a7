"""`python -m bench EXPERIMENT ARM SETTINGS_JSON`: one repetition of one arm; prints one JSON object of numbers.

The module `bench.EXPERIMENT`, with `_` for `-`, has `measure(arm, settings)`. What an arm makes once for all its
repetitions it keeps in the folder SCOT_BENCH_FOLDER, which the caller removes.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(experiment: str, arm: str, settings: str) -> int:
    """Measures and prints."""
    module = importlib.import_module(f"bench.{experiment.replace('-', '_')}")
    print(json.dumps(module.measure(arm, json.loads(settings))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
