"""What a command does not do: it says why in one line, exits with 2, and leaves the user's files alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scotfree.study.cli import main
from scotfree.study.store import INDEX, MANIFEST, Store

TRACES = Path(__file__).parent / "fixtures" / "jaeger.json"
Prepare = Callable[[Path], list[str]]


def _report(folder: Path, output: str) -> list[str]:
    return ["report", str(TRACES), "--quiet", "-o", str(folder / output)]


def _over_a_folder(folder: Path) -> list[str]:
    (folder / "traces").mkdir()
    return _report(folder, "traces")


def _named_as_its_aggregates(folder: Path) -> list[str]:
    return _report(folder, "report.parquet")


def _beside_the_user_s_parquet(folder: Path) -> list[str]:
    """A report of calls.html would put its aggregates where the user's own calls are."""
    (folder / "calls.parquet").mkdir()
    (folder / "calls.parquet" / "part-0.parquet").write_bytes(b"the only copy")
    return _report(folder, "calls.html")


def _over_a_device(folder: Path) -> list[str]:
    os.mkfifo(folder / "device")
    return _report(folder, "device")


def _store_in_a_file(folder: Path) -> list[str]:
    (folder / "store").write_text("mine")
    return ["ingest", str(TRACES), "--store", str(folder / "store")]


def _store_in_a_folder_in_use(folder: Path) -> list[str]:
    """Names that a store uses, too, make no store."""
    for name in ("scratch", "span", "lock"):
        (folder / "work" / name).mkdir(parents=True)
    return ["ingest", str(TRACES), "--store", str(folder / "work")]


def _store_below_a_file(folder: Path) -> list[str]:
    (folder / "file").write_text("mine")
    return ["ingest", str(TRACES), "--store", str(folder / "file" / "store")]


def _a_pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe")
    return ["ingest", str(folder / "pipe"), "--store", str(folder / "store")]


def _a_manifest(content: str) -> Prepare:
    def prepare(folder: Path) -> list[str]:
        (folder / "old").mkdir()
        (folder / "old" / MANIFEST).write_text(content)
        return ["report", str(folder / "old"), "-o", str(folder / "report.html")]

    return prepare


REFUSED: dict[str, tuple[Prepare, str]] = {
    "over a folder": (_over_a_folder, "it is a folder"),
    "over a device": (_over_a_device, "it is a pipe or a device"),
    "named as its aggregates": (_named_as_its_aggregates, "would have the same name"),
    "beside the user's Parquet": (_beside_the_user_s_parquet, "something else than a report's aggregates"),
    "a store in a file": (_store_in_a_file, "it is a file"),
    "a store in a folder in use": (_store_in_a_folder_in_use, "it holds other things"),
    "a store below a file": (_store_below_a_file, "Not a directory"),
    "a pipe": (_a_pipe, "it is a pipe or a device"),
    "a manifest that is a list": (_a_manifest("[]"), "it is of version None"),
    "a manifest of nothing else": (_a_manifest('{"version": 2}'), "is damaged"),
    "a manifest of more": (_a_manifest('{"version": 2, "inputs": [], "more": 1}'), "is damaged"),
    "a manifest without calls": (_a_manifest('{"version": 2, "inputs": []}'), "methods.parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    prepare, why = REFUSED[case]
    arguments = prepare(tmp_path)
    before = _content(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.startswith("scot study: ")
    assert len(said.splitlines()) == 1
    assert before.items() <= _content(tmp_path).items()


@pytest.mark.parametrize(
    "wrong", [["--memory", "much"], ["--memory", "1"], ["--threads", "0"], ["--threads", "99999999999"]]
)
def test_limits_that_are_none_are_refused_at_once(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["ingest", str(TRACES), "--store", str(tmp_path / "store"), *wrong])
    assert refused.value.code == 2
    assert not (tmp_path / "store").exists()


def test_a_report_in_the_folder_of_its_data_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "traces.json").write_bytes(TRACES.read_bytes())
    for _ in range(2):
        assert main(["report", str(tmp_path), "--quiet", "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.parquet" / INDEX).is_file()
    inputs = Store.open(tmp_path / "report.store").manifest.inputs
    assert [Path(one.path).name for one in inputs] == ["traces.json"]


def test_names_of_files_may_be_any_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / os.fsdecode(b"traces\xff<b>\n.json")).write_bytes(TRACES.read_bytes())
    (data / os.fsdecode(b"other\xfe")).write_bytes(b"no form")
    assert main(["report", str(data), "-o", str(tmp_path / "report.html")]) == 0
    assert "no known form: not read" in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "traces\\udcff&lt;b&gt;" in page
    assert "other\\udcfe" in page


def _content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
