"""What does not fit into memory: each process by itself, and nothing of killed ones stays."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from scotfree.study.engine import spill


def test_what_a_killed_process_spilled_is_removed_and_what_others_spill_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f"spill-{platform.node()}-{ended.pid}"
    others = [
        tmp_path / name
        for name in (
            f"spill-{platform.node()}-{os.getppid()}",
            f"spill-elsewhere-{ended.pid}",
            f"spill-{platform.node()}-x",
        )
    ]
    for path in (left, *others):
        path.mkdir()
        (path / "duckdb_temp_storage-0.tmp").write_bytes(b"")
    own = spill.folder(tmp_path)
    assert own.parent == tmp_path
    assert own.name.endswith(f"-{os.getpid()}")
    assert sorted(tmp_path.iterdir()) == sorted(others)
