"""A program that ends without being taken apart ends as any other does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """A program of these lines, and how it ended."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_what_was_printed_arrives_and_the_code_is_told() -> None:
    done = ended(
        "import sys\nfrom scotfree import short_lived\nshort_lived.begin()\n"
        "print('a result'); print('a word', file=sys.stderr); short_lived.leave(3)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "a result\n", "a word\n")


def test_threads_end_and_what_waits_for_the_end_is_done(tmp_path: Path) -> None:
    done = ended(
        "import atexit, pathlib, tempfile, threading\nfrom scotfree import short_lived\n"
        f"folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})\n"
        "begun = threading.Event()\n"
        "def late():\n    begun.wait(); print('the thread', pathlib.Path(folder.name).is_dir())\n"
        "threading.Thread(target=late).start(); atexit.register(lambda: print('the end'))\n"
        "begun.set(); short_lived.leave(0)"
    )
    assert (done.returncode, done.stdout) == (0, "the thread True\nthe end\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nobody_who_reads_is_no_fault() -> None:
    done = ended("import sys\nfrom scotfree import short_lived\nsys.stdout = None\nshort_lived.leave(0)")
    assert (done.returncode, done.stderr) == (0, "")
