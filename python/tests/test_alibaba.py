"""Alibaba's call graphs, in the columns of 2021 and of 2022."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, read, read_bytes

from scotfree.study.ingest import csv_text
from scotfree.study.ingest.alibaba import Alibaba
from scotfree.study.schema import Kind

HEADER = "timestamp,traceid,rpcid,um,rpctype,dm,interface,rt\n"


@pytest.mark.parametrize("text", [b"no, such columns\n1,2\n", b"a\rb\n", b"x" * 200_000 + b"\n", b"\xff\n"])
def test_another_file_is_none_of_this_form(tmp_path: Path, text: bytes) -> None:
    found = read_bytes(Alibaba(), tmp_path, text)
    assert not Alibaba().recognises(tmp_path / "x", text)
    assert (found.rows, found.troubles) == ([], {"columns are missing: not read": 1})


def test_of_2021() -> None:
    found = read(Alibaba(), FIXTURES / "alibaba-2021.csv")
    root, client, server, cache, message = found.rows
    assert [row["kind"] for row in found.rows] == [
        Kind.CLIENT,
        Kind.CLIENT,
        Kind.SERVER,
        Kind.CLIENT,
        Kind.CONSUMER,
    ]
    assert len({row["trace_id"] for row in found.rows}) == 1
    assert "parent_id" not in root
    assert client["parent_id"] == root["span_id"]
    assert server["span_id"] == client["span_id"] != cache["span_id"]
    assert cache["parent_id"] == message["parent_id"] == client["span_id"]
    assert (client["is_shared"], server["is_shared"]) == (False, True)
    assert (client["service"], client["peer_service"], client["name"]) == ("front", "cart", "get")
    assert (server["service"], server["peer_service"]) == ("cart", "front")
    assert (client["start_ns"], client["duration_ns"]) == (16397577_000_000, 13_000_000)
    assert (server["start_ns"], server["duration_ns"]) == (16397579_000_000, 9_000_000)
    assert (cache["name"], message["peer_service"], message["service"]) == ("mc", "cart", "unknown")
    assert found.notes == {"no service is named": 2}
    assert found.troubles == {
        "rt is no time": 1,
        "traceid is missing": 1,
        "timestamp is no time": 1,
        "a row has 11 columns, not 9": 1,
    }


def test_of_2022() -> None:
    client, server = read(Alibaba(), FIXTURES / "alibaba-2022.csv").rows
    assert (client["machine"], client["peer_machine"]) == ("MS_58845_POD_0", "MS_71712_POD_244")
    assert (server["machine"], server["peer_machine"]) == ("MS_71712_POD_244", "MS_58845_POD_0")
    assert (server["start_ns"], server["duration_ns"]) == (115352_250_000, 1_500_000)


@settings(deadline=None, max_examples=40)
@given(milliseconds=st.integers(0, 10**12 - 1), micros=st.integers(0, 999_999))
def test_times_are_exact(milliseconds: int, micros: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    line = f"{milliseconds}.{micros:06},T,0,a,rpc,b,i,-{milliseconds}.{micros:06}\n"
    (row,) = read_bytes(Alibaba(), tmp_path_factory.mktemp("a"), (HEADER + line).encode()).rows
    assert row["start_ns"] == row["duration_ns"] == milliseconds * 1_000_000 + micros


_FIELD = st.one_of(
    st.sampled_from(["", "0", "0.1", "-5", "NaN", "1e400", '"', "rpc", "mq", "(?)", "\x00", "é", "9" * 40]),
    st.text(max_size=5),
)


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(st.lists(_FIELD, min_size=7, max_size=9), max_size=6), tail=st.binary(max_size=8))
def test_any_table_ends_in_rows_and_ledger(
    rows: list[list[str]], tail: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = HEADER + "".join(",".join(row) + "\n" for row in rows)
    found = read_bytes(Alibaba(), tmp_path_factory.mktemp("a"), text.encode() + tail)
    # A field may hold line breaks, so that there are more lines than rows were made.
    assert len(found.rows) + found.ledger.dropped() <= len((text.encode() + tail).splitlines())


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(st.sampled_from([",,,,,,,", "1,T,0,a,rpc,b,i,1", "1,T,0.1,a,rpc,b,i,x", "1,2", "1,T,0,,mq,,,3"]))
)
def test_every_record_is_a_row_or_in_the_ledger(rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    text = HEADER + "".join(row + "\n" for row in rows)
    found = read_bytes(Alibaba(), tmp_path_factory.mktemp("a"), text.encode())
    assert len(found.rows) + found.ledger.dropped() == len(rows)


def test_blocks_continue_the_count_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 100)
    rows = "".join(f"{at},T,0.{at},a,rpc,b,i,1\n" for at in range(100))
    found = read_bytes(Alibaba(), tmp_path, (HEADER + rows).encode())
    assert [row["record"] for row in found.rows] == list(range(100))
