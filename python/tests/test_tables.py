"""CSV and JSON of any shape: read by usual names, by a mapping, and by what the message says to paste."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Read, read

from scotfree.study import schema
from scotfree.study.cli import main
from scotfree.study.ingest import clean, csv_text, nearest
from scotfree.study.ingest.csv_table import CsvTable
from scotfree.study.ingest.json_table import JsonTable
from scotfree.study.ingest.mapping import TARGETS, ColumnMap
from scotfree.study.ingest.reader import Reader
from scotfree.study.ingest.said import floats
from scotfree.study.schema import Kind
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError

USUAL = """\
trace_id,span_id,parent_id,service,operation,start,duration,kind,status,rpc.request.size
t1,a,,front,GET /,1700000000000,12.5,client,OK,100
t1,b,a,cart,GET /,1700000000001,10,server,Unset,
t2,c,,front,GET /,1700000001000.25,9,client,500,7
t2,d,c,cart,GET /,1700000001001,8,server,true,
"""
# Of the same calls in other words.
STRANGE = """\
request_key,step,called_by,began,took_ms,component,what,result
t1,a,,1700000000000,12.5,front,GET /,200
t1,b,a,1700000000001,10,cart,GET /,200
t2,c,,1700000001000.25,9,front,GET /,500
t2,d,c,1700000001001,8,cart,GET /,500
"""
ODD = """\
"id of the trace";"span key:s";"caller it had";"it began";"how long it took";"app's name"
"o;1";1;;2026-01-01 00:00:00.000001;3;front
"o;1";2;1;2026-01-01 00:00:00.000002;1;cart
"""


def _read(folder: Path, text: str | bytes, *pairs: str, reader: Reader | None = None) -> Read:
    path = folder / "spans"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(reader or CsvTable(), path, ColumnMap.parse(pairs))


def _spans(store: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.concat_tables(
        pq.read_table(file, partitioning=None) for file in Store.open(store).files("span")
    ).to_pylist()
    return sorted(rows, key=lambda row: int(row["start_ns"]))


def _objects(text: str) -> list[dict[str, str]]:
    names, *rows = [line.split(",") for line in text.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_usual_names_need_no_mapping(tmp_path: Path) -> None:
    client, server, failed, other = _read(tmp_path, USUAL).rows
    assert (client["kind"], client["service"], client["name"]) == (Kind.CLIENT, "front", "GET /")
    assert (client["start_ns"], client["duration_ns"]) == (1_700_000_000_000_000_000, 12_500_000)
    assert (client["status"], client["req_bytes"]) == ("OK", 100)
    assert server["parent_id"] == client["span_id"]
    assert server["trace_id"] == client["trace_id"] != failed["trace_id"]
    assert (server["status"], failed["status"], other["status"]) == ("OK", "INTERNAL", "ERROR")
    assert failed["start_ns"] == 1_700_000_001_000_250_000


def test_a_unit_that_is_not_named_is_that_of_the_start_and_said(tmp_path: Path) -> None:
    notes = _read(tmp_path, USUAL).notes
    assert notes == {"the unit of duration is not named: taken as that of the start, ms": 1}
    assert _read(tmp_path, USUAL.replace("duration,", "duration_ms,")).notes == {}


@pytest.mark.parametrize(
    ("header", "start", "duration", "expected"),
    [
        ("start_us,duration_s", "5", "0.25", (5_000, 250_000_000)),
        ("startTimeUnixNano,durationNano", "1700000000123456789", "7", (1_700_000_000_123_456_789, 7)),
        ("Timestamp,Duration (ms)", "2024-02-03T04:05:06.5+02:00", "2", (1_706_925_906_500_000_000, 2_000_000)),
        ("time,latency", "2024-02-03 04:05:06", "3.5 us", (1_706_933_106_000_000_000, 3_500)),
        ("start,end", "1700000000", "1700000000.5", (1_700_000_000_000_000_000, 500_000_000)),
        ("start_ns,end_ns", "5", "9", (5, 4)),
    ],
)
def test_times_in_any_unit(
    header: str, start: str, duration: str, expected: tuple[int, int], tmp_path: Path
) -> None:
    (row,) = _read(tmp_path, f"TraceID,SpanID,{header}\n1,2,{start},{duration}\n").rows
    assert (row["start_ns"], row["duration_ns"]) == expected


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_mapping_reads_any_names_however_compressed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "spans.csv"
    path.write_bytes(compress(STRANGE.encode()))
    pairs = ["trace_id=request_key", "span_id=step", "parent_id=called_by", "start_ns=began:ms"]
    pairs += ["duration_ns=took_ms:ms", "service=component", "name=what", "status=result"]
    words = [word for pair in pairs for word in ("--map", pair)]
    assert main(["ingest", str(path), "--store", str(tmp_path / "store"), "--quiet", *words]) == 0
    first, second = _spans(tmp_path / "store")
    assert (first["client_service"], first["service"], first["method"]) == ("front", "cart", "GET /")
    assert (first["total_ns"], first["server_app_ns"]) == (12_500_000, 10_000_000)
    assert (first["status"], second["status"]) == ("OK", "INTERNAL")


def _lines_of(text: str) -> str:
    return "\n".join(json.dumps(row) for row in _objects(text))


def _array_of(text: str) -> str:
    return json.dumps(_objects(text), indent=1)


@pytest.mark.parametrize("written", [str, _lines_of, _array_of])
def test_what_the_message_says_to_paste_reads_the_file(
    written: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "calls.txt", tmp_path / "store"
    path.write_text(written(STRANGE))
    words = ["ingest", str(path), "--store", str(store), "--quiet"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "it has no known form; it looks like" in said
    assert "1 of 9 columns known (duration_ns)" in said
    assert main([*words, *shlex.split(said[said.index("--map") :])]) == 0
    first, second = _spans(store)
    assert (first["client_service"], first["service"], first["total_ns"]) == ("front", "cart", 12_500_000)
    assert (first["status"], second["status"]) == ("OK", "INTERNAL")


def test_a_guess_of_odd_names_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, store = tmp_path / "odd.csv", tmp_path / "store"
    path.write_text(ODD)
    words = ["ingest", str(path), "--store", str(store), "--quiet"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert main([*words, *shlex.split(said[said.index("--map") :])]) == 0
    (call,) = _spans(store)
    assert (call["client_service"], call["service"]) == ("front", "cart")
    # As fine as the dates are.
    assert call["total_ns"] == 3_000


def test_a_table_beside_data_is_a_row_of_the_ledger_with_the_guess(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "good.csv").write_text(USUAL)
    (folder / "strange.csv").write_text(STRANGE)
    assert main(["ingest", str(folder), "--store", str(tmp_path / "store"), "--quiet"]) == 0
    reasons = [row["reason"] for row in Store.open(tmp_path / "store").read("trouble").to_pylist()]
    assert any(
        "no known form: not read" in reason and "--map trace_id=request_key" in reason for reason in reasons
    )


def test_a_column_for_which_nothing_is_left_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("trace_id,span_id,start,service\n1,2,1700000000000,front\n")
    problem, advice = nearest.unknown(path)
    assert "4 of 9 columns known" in problem
    assert "no column is left that could be duration_ns" in advice


def test_a_duration_whose_unit_nothing_says_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "dated.csv"
    path.write_text("trace_id,span_id,start,duration\n1,2,2026-01-01T00:00:00Z,12.5\n")
    assert not CsvTable().recognises(path, path.read_bytes())
    assert "--map duration_ns=duration:ms" in nearest.unknown(path)[1]


def test_another_form_in_json_is_named_by_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"operationName": "GET /", "references": [], "startTime": 5, "spanID": "1"}')
    problem, advice = nearest.unknown(path)
    assert "looks like Jaeger's JSON: 4 of 6 keys known" in problem
    assert "lacks traceID, processID" in advice


@pytest.mark.parametrize(
    "text", ["\n", "a,b,c\n1,2,3\n", "hello, world, again\nand, so on, and on\n", "{}", "[1]"]
)
def test_what_is_no_table_of_spans_gets_no_guess(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert nearest.unknown(path) == (nearest.UNKNOWN, "name its form with --form, or leave it out")


def test_a_mapped_column_that_is_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'GET /' is no time"):
        _read(tmp_path, USUAL, "duration_ns=operation")


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("parent_span_id", "parent_id"),
        ("operation", "name"),
        ("host", "machine"),
        ("timestamp", "start_ns"),
        ("Duration", "duration_ns"),
        ("end", "end_ns"),
        ("rpc.request.size", "req_bytes"),
        # What is a column of ours is that one.
        ("method", "method"),
    ],
)
def test_a_usual_name_stands_on_the_left_of_a_mapping_as_well(given: str, ours: str, tmp_path: Path) -> None:
    assert ColumnMap.parse([f"{given}=x"]) == ColumnMap.parse([f"{ours}=x"])
    (tmp_path / "map.toml").write_text(f"[columns]\n{json.dumps(given)} = 'x'\n")
    assert ColumnMap.load(tmp_path / "map.toml").of(ours).name == "x"


def test_the_docs_list_every_name_that_may_stand_on_the_left() -> None:
    said = (Path(__file__).parents[2] / "docs" / "study-inputs.md").read_text()
    missing = {name for name in TARGETS if f"`{name}`" not in said} - set(schema.STAGE_COLUMNS)
    assert not missing and "`STAGE_ns`" in said


FRACTIONS = """\
trace_id,span_id,service,began,took
t1,a,front,1700000000000,9.03
t1,b,front,1700000000001,10
"""


def test_fractions_of_a_nanosecond_are_told(tmp_path: Path) -> None:
    found = _read(tmp_path, FRACTIONS, "start_ns=began:ms", "duration_ns=took")
    assert found.notes == {"took is read in ns and has fractions: is it in ms? then say duration_ns=took:ms": 1}
    assert _read(tmp_path, FRACTIONS, "start_ns=began:ms", "duration_ns=took:ms").notes == {}
    whole = FRACTIONS.replace("9.03", "9.0")
    assert _read(tmp_path, whole, "start_ns=began:ms", "duration_ns=took").notes == {}
    # A start says by its size what it is in.
    seconds = "trace_id,span_id,began,took\nt1,a,1700000000.25,9\n"
    notes = _read(tmp_path, seconds, "start_ns=began", "duration_ns=took:us").notes
    assert "began is read in ns and has fractions: is it in s? then say start_ns=began:s" in notes


def test_a_decimal_comma_is_named(tmp_path: Path) -> None:
    text = "trace_id;span_id;start_ms;took\nt1;a;1700000000000;61,922314\n"
    with pytest.raises(StudyError, match="'61,922314' is no time") as error:
        _read(tmp_path, text, "duration_ns=took:ms")
    assert error.value.advice == "its comma is read as no decimal point: write 61.922314"


def test_quotes_and_damaged_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 90)
    lines = USUAL.splitlines()
    lines[1] = lines[1].replace("GET /", '"a, ""quoted""\nname"')
    lines[3] += ",too,many"
    found = _read(tmp_path, "\r\n".join(lines) + "\r\n")
    assert [row["name"] for row in found.rows] == ['a, "quoted"\nname', "GET /", "GET /"]
    assert found.troubles == {"a row has 12 columns, not 10": 1}


def test_members_of_objects_inside_are_columns(tmp_path: Path) -> None:
    span = {"trace": {"id": "t"}, "spanId": 7, "start_ns": 1, "took": 2, "attributes": {"service.name": "cart"}}
    text = json.dumps(span) + "\n17\n" + json.dumps(span | {"error": True}) + "\n{broken\n"
    found = _read(tmp_path, text, "trace_id=trace.id", "duration_ns=took:us", reader=JsonTable())
    assert [(row["service"], row["status"], row["duration_ns"]) for row in found.rows] == [
        ("cart", "OK", 2_000),
        ("cart", "ERROR", 2_000),
    ]
    assert found.troubles == {"the record is no object": 1, "not JSON": 1}


_CELL = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(
        ["", "NaN", "-1", "1e400", "9" * 25, "2026-02-30T00:00:00Z", '"', "0", "1700000000000", "5 ms"]
    ),
)


@pytest.mark.parametrize("space", [" ", "\t", "\r", "\n", "\f", "\r\n"])
def test_a_number_with_space_about_it_is_that_number(space: str) -> None:
    numbers = floats(pa.array([f"{space}1.5{space}", f"0{space}", "x"]))
    assert numbers.to_pylist() == [1.5, 0.0, None]


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(st.lists(_CELL, min_size=10, max_size=10), max_size=6), is_json=st.booleans())
def test_any_cells_end_in_rows_and_ledger(
    rows: list[list[str]], is_json: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    head, first = USUAL.splitlines()[:2]
    # As many as say in which unit the times are.
    whole = [first.split(",")] * 8
    objects = [dict(zip(head.split(","), row, strict=True)) for row in [*whole, *rows]]
    text = "\n".join(
        [json.dumps(row) for row in objects] if is_json else [head, *(",".join(row) for row in (*whole, *rows))]
    )
    found = _read(tmp_path_factory.mktemp("t"), text.encode(), reader=JsonTable() if is_json else None)
    assert found.rows[0]["duration_ns"] == 12_500_000
    assert all(row["start_ns"] >= 0 and row["duration_ns"] >= 0 and row["service"] for row in found.rows)
    if is_json:
        assert found.records == len(objects)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), is_json=st.booleans())
def test_any_bytes_end_in_rows_ledger_or_a_clear_error(
    data: st.DataObject, is_json: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = bytearray((_array_of(STRANGE) if is_json else USUAL).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b'"', b"\n", b",", b";", b"{", b"]", b"\r", b"\0"]))
        )
    path = tmp_path_factory.mktemp("b") / "x"
    path.write_bytes(text)
    problem, advice = nearest.unknown(path)
    assert problem
    assert advice
    try:
        found = read(JsonTable() if is_json else CsvTable(), path)
    except StudyError as error:
        assert error.advice
    else:
        assert all(row["start_ns"] >= 0 for row in found.rows)


RELATIVE = """\
trace_id,span_id,parent_id,service,name,start_us,duration_us,kind,host
1,1,,front,Get,0,50,client,a
1,2,1,cart,Get,10,20,server,b
2,3,,front,Get,1700000000000000,50,client,a
"""


def test_times_that_count_from_a_start_are_told_and_taken_by_one_flag(tmp_path: Path) -> None:
    path = tmp_path / "relative.csv"
    path.write_text(RELATIVE)
    words = ["ingest", str(path), "--store", str(tmp_path / "store"), "--quiet"]
    assert main(words) == 0
    assert _spans(tmp_path / "store")[0]["start_ns"] == 0
    reasons = [row["reason"] for row in Store.open(tmp_path / "store").read("trouble").to_pylist()]
    assert any("say when that was: --epoch 2026-01-31T12:00:00Z" in reason for reason in reasons)
    # The same command with the flag reads anew; what counts from 1970 stays where it is.
    assert main([*words, "--epoch", "2026-01-31T12:00:00.5+00:00"]) == 0
    other, first = _spans(tmp_path / "store")
    assert (first["start_ns"], other["start_ns"]) == (1_769_860_800_500_000_000, 1_700_000_000_000_000_000)
    troubles = {row["reason"]: row["count"] for row in Store.open(tmp_path / "store").read("trouble").to_pylist()}
    assert troubles[clean.MOVED] == 2
    assert clean.EARLY not in troubles


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-01-31T12:00:00", "1980-01-01T00:00:00Z", "9999-01-01T00:00:00Z"]
)
def test_an_epoch_that_cannot_be_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["ingest", str(tmp_path), "--store", str(tmp_path / "store"), "--epoch", text])
    assert "is no time with a zone from 1990 on" in capsys.readouterr().err
