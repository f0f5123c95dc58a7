"""What a page draws with: made once, kept whole, and neither made nor imported where nothing is drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scotfree.study import schema
from scotfree.study.report import library
from scotfree.study.store import Manifest, write_manifest, write_table

BUNDLE = "window.vegaEmbed = () => {}; // " + "x" * 500
DRAWING = ("altair", "vl_convert")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was bundled since, with a cache folder of the test's own."""
    found: list[str] = []

    def bundled() -> str:
        found.append(BUNDLE)
        return BUNDLE

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "bundled", bundled)
    return found


def again() -> str:
    """As another process has it."""
    library.script.cache_clear()
    return library.script()


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    library.script.cache_clear()


def kept(tmp_path: Path) -> Path:
    [file] = (tmp_path / "cache/scotfree/charts").iterdir()
    return file


def test_it_is_bundled_once(made: list[str]) -> None:
    assert again() == again() == BUNDLE
    assert len(made) == 1


def test_of_other_versions_it_is_another(made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again()
    first = kept(tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0")
    assert again() == BUNDLE
    assert len(made) == 2
    assert len(list(first.parent.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [lambda kept: kept[:-7], lambda kept: kept.replace(b"xx", b"xy", 1), lambda _: b"", lambda _: b"\xff\n"],
)
def test_what_is_damaged_is_made_anew(made: list[str], tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    again()
    file = kept(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert again() == BUNDLE
    assert len(made) == 2
    assert kept(tmp_path).read_bytes() == whole
    again()
    assert len(made) == 2


def test_a_folder_that_cannot_be_written_is_no_error(made: list[str], tmp_path: Path) -> None:
    # Whoever may write anywhere may not make a folder of a file either.
    (tmp_path / "cache").write_text("no folder")
    assert again() == again() == BUNDLE
    assert len(made) == 2


def test_nothing_half_is_left_where_the_disk_is_full(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    assert again() == BUNDLE
    assert list((tmp_path / "cache/scotfree/charts").iterdir()) == []


def test_whoever_has_no_home_gets_it(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def expanduser(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", expanduser)
    assert again() == again() == BUNDLE
    assert len(made) == 2


def test_a_page_without_charts_neither_imports_nor_bundles_what_draws(tmp_path: Path) -> None:
    store = tmp_path / "empty.store"
    for name, relation in (("methods", schema.METHOD), ("trouble", schema.TROUBLE)):
        write_table(relation.empty_table(), store / f"{name}.parquet")
    write_manifest(store, Manifest())
    page = tmp_path / "page.html"
    asked = f"""
import sys
from scotfree.study.cli import main
assert main(["report", {str(store)!r}, "-o", {str(page)!r}]) == 0
loaded = [name for name in {DRAWING!r} if name in sys.modules]
assert not loaded, loaded
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 'class="chart"' not in page.read_text()
    assert "vegaEmbed =" not in page.read_text()
    assert not (tmp_path / "cache").exists()
