"""Inputs are opened plain and compressed, whole and broken."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.ingest.opening import BUFFER_BYTES, DAMAGED, ENDS_EARLY, head_of, opened
from scotfree.study.ingest.reader import Source
from scotfree.study.trouble import Ledger

TEXT = b"".join(b"line %d\n" % number for number in range(200_000))
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def read(path: Path) -> tuple[bytes, list[str]]:
    source = Source(path, 0, Ledger())
    with opened(source) as stream:
        content = b"".join(iter(lambda: stream.read(100_000), b""))
    return content, list(source.ledger.reasons())


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes_are_those_that_were_written(tmp_path: Path, compression: str) -> None:
    (tmp_path / "input").write_bytes(COMPRESSIONS[compression](TEXT))
    assert read(tmp_path / "input") == (TEXT, [])
    assert head_of(tmp_path / "input", 100) == TEXT[:100]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_mark_of_the_bytes_order_is_no_content(tmp_path: Path, compression: str) -> None:
    (tmp_path / "input").write_bytes(COMPRESSIONS[compression](b"\xef\xbb\xbf{}\n"))
    assert read(tmp_path / "input") == (b"{}\n", [])
    assert head_of(tmp_path / "input", 2) == b"{}"


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_several_frames_are_read_on(tmp_path: Path, compression: str) -> None:
    compress = COMPRESSIONS[compression]
    (tmp_path / "input").write_bytes(compress(TEXT) + compress(b"more") + compress(b"") + compress(b"end"))
    assert read(tmp_path / "input") == (TEXT + b"moreend", [])


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_what_comes_before_a_cut_is_kept(tmp_path: Path, compression: str) -> None:
    whole = COMPRESSIONS[compression](TEXT)
    (tmp_path / "input").write_bytes(whole[: len(whole) // 2])
    content, reasons = read(tmp_path / "input")
    assert reasons == [ENDS_EARLY]
    assert len(content) > len(TEXT) // 4
    assert TEXT.startswith(content)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_any_cut_and_any_wrong_byte_is_told(
    tmp_path_factory: pytest.TempPathFactory, compression: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "input"
    whole = COMPRESSIONS[compression](TEXT[:5000])
    cut = data.draw(st.integers(4, len(whole) - 1))
    path.write_bytes(whole[:cut])
    content, reasons = read(path)
    assert reasons == [ENDS_EARLY]
    assert TEXT.startswith(content)
    path.write_bytes(whole[:cut] + bytes([whole[cut] ^ 0xFF]) + whole[cut + 1 :])
    content, reasons = read(path)
    assert content == TEXT[:5000] or reasons


def test_what_stands_behind_a_frame_is_told(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(gzip.compress(b"abc") + b"no gzip")
    assert read(tmp_path / "input") == (b"abc", [DAMAGED])
    (tmp_path / "input").write_bytes(gzip.compress(b"abc") + bytes(512))
    assert read(tmp_path / "input") == (b"abc", [])


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_bytes_made_to_grow_come_in_pieces(tmp_path: Path, compression: str) -> None:
    (tmp_path / "input").write_bytes(COMPRESSIONS[compression](bytes(1 << 26)))
    source = Source(tmp_path / "input", 0, Ledger())
    with opened(source) as stream:
        pieces = [len(piece) for piece in iter(lambda: stream.read1(-1), b"")]
    assert sum(pieces) == 1 << 26
    assert max(pieces) <= BUFFER_BYTES


def test_progress_is_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(gzip.compress(TEXT))
    told: list[int] = []
    with opened(Source(tmp_path / "input", 0, Ledger(), told.append)) as stream:
        stream.read()
    assert told == sorted(told)
    assert told[-1] == (tmp_path / "input").stat().st_size
