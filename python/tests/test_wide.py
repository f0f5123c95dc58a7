"""Text in UTF-16 is not read, and how to convert it is said."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from reading import FIXTURES
from sides import options, reasons

from scotfree.study.cli import main
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.run import ingest
from scotfree.study.ingest.wide import encoding_of
from scotfree.study.trouble import StudyError

TEXTS = ("jaeger.json", "alibaba-2021.csv", "openmetrics.txt")


@pytest.mark.parametrize("form", [None, "jaeger"])
@pytest.mark.parametrize(
    ("encoding", "told"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"), ("utf-32", "UTF-32")],
)
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_named_is_refused_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, encoding: str, told: str, form: str | None
) -> None:
    path = tmp_path / name
    path.write_text((FIXTURES / name).read_text(), encoding=encoding)
    flags = ["--form", form] if form else []
    assert main(["ingest", str(path), "--store", str(tmp_path / "store"), *flags]) == 2
    said = capsys.readouterr().err
    assert f"{name}: it is text in {told}; convert it: iconv -f {told} -t UTF-8" in said


def test_in_a_folder_it_is_counted_and_does_not_end_it(tmp_path: Path) -> None:
    text = (FIXTURES / "jaeger.json").read_text()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wide.json.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    with pytest.raises(StudyError, match=r"UTF-16; decompress it, then convert it"):
        ingest([tmp_path / "data"], tmp_path / "store", options())
    (tmp_path / "data" / "plain.json").write_text(text)
    store = ingest([tmp_path / "data"], tmp_path / "store", Options())
    wanted = "text in UTF-16: not read; decompress it, then convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"
    assert reasons(store, kept=False)[wanted] == 1


def test_what_is_no_such_text_is_not_taken_for_it() -> None:
    for head in (b"", b"{", b'{"data": []}', b"\x00\x00\x00\x07", b"a\x00", b"\n\x05\x00\x01" * 20, b"\x00" * 64):
        assert encoding_of(head) is None
