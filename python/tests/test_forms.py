"""Every form is recognised by one reader and by no other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import FIXTURES

from scotfree.study.ingest.forms import READERS
from scotfree.study.ingest.inputs import HEAD_BYTES
from scotfree.study.ingest.opening import head_of

OURS = {
    "jaeger.json": "jaeger",
    "zipkin.json": "zipkin",
    "alibaba-2021.csv": "alibaba",
    "alibaba-2022.csv": "alibaba",
    "prometheus.json": "prometheus",
    "openmetrics.txt": "prometheus",
}


def _claims(path: Path) -> list[str]:
    head = head_of(path, HEAD_BYTES)
    return [reader.form for reader in READERS if reader.recognises(path, head)]


@pytest.mark.parametrize("path", sorted(path for path in FIXTURES.rglob("*") if path.is_file()), ids=str)
def test_no_two_readers_claim_a_file(path: Path) -> None:
    claims = _claims(path)
    assert len(claims) <= 1
    assert claims == [OURS.get(path.name, claims[0] if claims else "")] or path.name not in OURS


@pytest.mark.parametrize("name", OURS)
def test_names_and_compression_do_not_matter(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(gzip.compress((FIXTURES / name).read_bytes()))
    assert _claims(path) == [OURS[name]]


def test_parquet_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    pq.write_table(pa.table({"x": [1]}), path)
    assert _claims(path) == ["parquet"]


@pytest.mark.parametrize("text", [b"", b"\n", b"{}", b"[]", b"hello world\n", b"a,b,c\n1,2,3\n", b"\x00\xff" * 50])
def test_what_is_no_data_is_claimed_by_none_of_these(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(text)
    assert not set(_claims(path)) & set(OURS.values()) | {"parquet"} & set(_claims(path))
