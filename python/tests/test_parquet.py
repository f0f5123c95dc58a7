"""Parquet by a mapping of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import INPUT, Read, read

from scotfree.study import schema
from scotfree.study.cli import main
from scotfree.study.ingest import parquet
from scotfree.study.ingest.mapping import Column, ColumnMap
from scotfree.study.ingest.parquet import Parquet
from scotfree.study.schema import Kind
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError

THEIRS: dict[str, Any] = {
    "traceId": ["463ac35c9f6413ad48485a3953bb6124", "48485a3953bb6124", "order-17", "", "ff"],
    "id": ["a2fb4a1d1a96d312", "1", "step-1", "2", "3"],
    "parent": [None, "0", "step-0", None, None],
    "began": pa.array([5, 6, 7, 8, None], pa.timestamp("us")),
    "took": [1.5, 2.0, float("nan"), 4.0, 5.0],
    "role": ["client", "SPAN_KIND_SERVER", "odd", None, None],
    "app": pa.array(["front", "cart", None, "x", "x"]).dictionary_encode(),
    "op": ["Get", "Get", None, "Get", "Get"],
    "sent": pa.array([10, -1, None, 3, 3], pa.int32()),
}
PAIRS = [
    "trace_id=traceId",
    "span_id=id",
    "parent_id=parent",
    "start_ns=began",
    "duration_ns=took:ms",
    "kind=role",
    "service=app",
    "name=op",
    "req_bytes=sent",
]


def _read(folder: Path, columns: dict[str, Any] | pa.Table, *pairs: str) -> Read:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    path = folder / "theirs.parquet"
    pq.write_table(table, path, row_group_size=2)
    return read(Parquet(), path, ColumnMap.parse(pairs))


def test_records_of_sides_in_their_names_and_units(tmp_path: Path) -> None:
    found = _read(tmp_path, THEIRS, *PAIRS)
    client, server = found.rows
    assert client == {
        "trace_id": bytes.fromhex("463ac35c9f6413ad48485a3953bb6124"),
        "span_id": 0xA2FB4A1D1A96D312 - 2**64,
        "kind": Kind.CLIENT,
        "is_shared": False,
        "start_ns": 5000,
        "duration_ns": 1_500_000,
        "service": "front",
        "name": "Get",
        "status": "OK",
        "req_bytes": 10,
        "input": INPUT,
        "record": 0,
    }
    assert (server["trace_id"], server["span_id"]) == (bytes(8) + bytes.fromhex("48485a3953bb6124"), 1)
    assert (server["kind"], server.get("parent_id"), server.get("req_bytes")) == (Kind.SERVER, None, None)
    assert found.troubles == {
        "trace_id is missing or impossible": 1,
        "start_ns is missing or impossible": 1,
        "duration_ns is missing or impossible": 1,
    }


def test_ids_that_are_texts_are_hashed_alike(tmp_path: Path) -> None:
    columns = {
        "trace_id": ["order 1", "order 1", "order 2"],
        "span_id": ["a!", "b!", "a!"],
        "parent_id": [None, "a!", None],
        "start_ns": [1, 2, 3],
        "end_ns": [11, 2, 2],
    }
    found = _read(tmp_path, columns)
    first, second = found.rows
    assert first["trace_id"] == second["trace_id"]
    assert second["parent_id"] == first["span_id"] != second["span_id"]
    assert (first["duration_ns"], second["duration_ns"]) == (10, 0)
    assert found.troubles == {"duration_ns is missing or impossible": 1}


def test_whole_calls_become_records_of_a_side(tmp_path: Path) -> None:
    columns = {
        "trace_id": pa.array([b"0123456789abcdef"] * 2, pa.binary(16)),
        "span_id": pa.array([1, 2**64 - 1], pa.uint64()),
        "start_ns": [1, 2],
        "service": ["cart", "cart"],
        "method": ["Get", "Put"],
        "client_service": ["front", None],
        "total_ns": [100, None],
        "server_app_ns": [60, 70],
        "server_cluster": ["east", "east"],
    }
    client, server = _read(tmp_path, columns).rows
    assert (client["kind"], client["service"], client["peer_service"]) == (Kind.CLIENT, "front", "cart")
    assert (client["duration_ns"], client["server_app_ns"], client["peer_cluster"]) == (100, 60, "east")
    assert (server["kind"], server["service"], server["duration_ns"]) == (Kind.SERVER, "cart", 70)
    assert (server["span_id"], server["name"], server["cluster"]) == (-1, "Put", "east")


def test_series_and_stacks_in_our_own_columns(tmp_path: Path) -> None:
    series = {"series": ["rps", None], "ts_ns": [5, 6], "value": [1.5, 2.0], "service": ["cart", "cart"]}
    found = _read(tmp_path, series)
    assert found.rows == [{"series": "rps", "ts_ns": 5, "value": 1.5, "service": "cart"}]
    stacks = _read(tmp_path, {"stack": [["main", "read"]], "weight": [2]})
    assert stacks.table.schema == schema.PROFILE
    assert stacks.rows == [{"stack": ["main", "read"], "weight": 2.0, "unit": "cpu"}]


@pytest.mark.parametrize(
    ("pairs", "problem", "advice"),
    [
        (["start_ns=begin"], "column begin", "the nearest is began"),
        (["duratiom=took"], "map to duratiom", "perhaps duration_ns"),
        (["duration_ns=took:min"], "read duration_ns in 'min'", "units are ns, us, ms, s"),
        (["xyz=took"], "map to xyz", "of spans there are trace_id, span_id"),
        (["service=app:ms"], "no time", "leave the unit out"),
        (["duration_ns"], "it has no =", "write OURS=THEIRS"),
        (["trace_id=traceId"], "no column start_ns", "--map start_ns=began --map duration_ns=took:us"),
        (
            ["trace_id=traceId", "span_id=id", "start_ns=began"],
            "no column duration_ns",
            "--map duration_ns=took:us",
        ),
        ([*PAIRS[:3], "start_ns=op", PAIRS[4]], "start_ns from the column op", "--map start_ns=THEIRS"),
    ],
)
def test_a_wrong_mapping_is_explained(tmp_path: Path, pairs: list[str], problem: str, advice: str) -> None:
    with pytest.raises(StudyError) as error:
        _read(tmp_path, THEIRS, *pairs)
    assert problem in error.value.problem
    assert advice in error.value.advice


def test_a_mapping_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text('[columns]\ntrace_id = "traceId"\nduration_ns = { from = "took", unit = "us" }\n')
    assert ColumnMap.load(path) == ColumnMap.parse(["trace_id=traceId", "duration_ns=took:us"])
    path.write_text("columns = 3")
    with pytest.raises(StudyError, match=r"no table \[columns\]"):
        ColumnMap.load(path)


def test_pairs_and_files_are_given_together_and_another_mapping_reads_anew(tmp_path: Path) -> None:
    pq.write_table(pa.table(THEIRS), tmp_path / "theirs.parquet")
    (tmp_path / "map.toml").write_text('[columns]\nduration_ns = "nothing"\nservice = "app"\n')
    pairs = [*PAIRS[:4], "duration_ns=took:us", PAIRS[5], *PAIRS[7:]]
    words = [str(tmp_path / "theirs.parquet"), "--store", str(tmp_path / "store"), "--quiet", "--map"]
    words += [str(tmp_path / "map.toml"), *(word for pair in pairs for word in ("--map", pair))]
    assert main(["ingest", *words]) == 0
    first = Store.open(tmp_path / "store")
    assert main(["ingest", *words, "--map", "duration_ns=took:ms"]) == 0
    second = Store.open(tmp_path / "store")
    assert first.manifest.spans == second.manifest.spans > 0
    assert first.manifest.inputs[0].options != second.manifest.inputs[0].options


def test_a_mapping_that_is_no_file_is_told_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(Path(__file__)), "--store", str(tmp_path / "store")]
    assert main(["ingest", *words, "--map", "nowhere.toml"]) == 2
    assert "read the mapping nowhere.toml: No such file" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_row_groups_continue_the_count_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS_MAX", 3)
    columns = {name: [1] * 8 for name in ("span_id", "start_ns", "duration_ns")} | {"trace_id": ["1"] * 8}
    assert [row["record"] for row in _read(tmp_path, columns).rows] == list(range(8))


def test_a_damaged_file_is_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    path.write_bytes(b"PAR1 and nothing more")
    assert read(Parquet(), path).troubles == {"the file is damaged; nothing more was read": 1}


_NUMBER = st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1).map(float))


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.text(max_size=40)),
            st.one_of(st.none(), st.text("0aF", max_size=20)),
            _NUMBER,
            _NUMBER,
        ),
        min_size=1,
        max_size=8,
    ),
    unit=st.sampled_from(["ns", "us", "ms", "s"]),
)
def test_any_values_end_in_rows_and_ledger(
    rows: list[tuple[Any, ...]], unit: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kinds = (pa.string(), pa.string(), pa.float64(), pa.float64())
    names = ("trace_id", "span_id", "start_ns", "duration_ns")
    columns = {
        name: pa.array(values, kind)
        for name, kind, values in zip(names, kinds, zip(*rows, strict=True), strict=True)
    }
    found = _read(tmp_path_factory.mktemp("p"), columns, f"duration_ns=duration_ns:{unit}")
    assert found.records == len(rows)
    assert all(row["start_ns"] >= 0 and row["duration_ns"] >= 0 for row in found.rows)


def test_the_mapping_in_the_documents_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "study-inputs.md").read_text()
    path = tmp_path / "map.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0])
    assert ColumnMap.load(path).of("duration_ns") == Column("took", "us")
