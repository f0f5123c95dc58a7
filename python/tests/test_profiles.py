"""pprof and OTLP profiles become the stacks that were encoded."""

import gzip
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import rows_of

from bench.stack_encoders import Sample, inside, number, otlp, otlp_json, pprof, varint
from scotfree.study.ingest import symbols, wire
from scotfree.study.ingest.forms import READERS
from scotfree.study.ingest.otlp_profiles import OtlpProfiles
from scotfree.study.ingest.otlp_profiles_json import JsonDecoder
from scotfree.study.ingest.otlp_profiles_wire import WireDecoder
from scotfree.study.ingest.pprof import Pprof
from scotfree.study.ingest.reader import Reader
from scotfree.study.ingest.stacks import STACK_FRAMES_MAX

SAMPLES = [
    Sample("cart", ("main", "work", "memcpy"), ("/usr/bin/cart", "/usr/bin/cart", "/lib/libc.so.6"), 300),
    Sample("cart", ("main", "work", "memcpy"), ("/usr/bin/cart", "/usr/bin/cart", "/lib/libc.so.6"), 50),
    Sample("ship", ("main", "süß<T>::f", "tcp_sendmsg"), ("/usr/bin/ship", None, "[kernel.kallsyms]"), 2**40),
    Sample("ship", (), (), 7),
]
ENCODED: dict[str, tuple[Reader, Callable[[list[Sample]], bytes]]] = {
    "pprof": (Pprof(), pprof),
    "otlp": (OtlpProfiles(WireDecoder()), lambda samples: otlp(samples).SerializeToString()),
    "otlp, json": (OtlpProfiles(JsonDecoder()), otlp_json),
    "otlp, length before": (
        OtlpProfiles(WireDecoder()),
        lambda samples: (
            b"".join(
                len(part).to_bytes(4, "big") + part
                for part in [otlp(samples[:1]).SerializeToString()]
                for _ in "1"
            )
            + framed(otlp(samples[1:]).SerializeToString())
        ),
    ),
}


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def read(reader: Reader, folder: Path, content: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    path = folder / "input"
    path.write_bytes(content)
    rows, trouble, records = rows_of(reader, path)
    return rows.to_pylist(), trouble, records


def of_rows(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        key = (row["service"], tuple(row["stack"]), tuple(row["modules"]), row["unit"])
        found[key] = found.get(key, 0.0) + row["weight"]
    return found


def of_samples(samples: list[Sample]) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], float] = {}
    for sample in samples:
        key = (sample.service, sample.stack, sample.modules, "cpu_ns")
        found[key] = found.get(key, 0.0) + sample.weight
    return found


@pytest.mark.parametrize("form", ENCODED)
def test_stacks_come_back_as_they_were_encoded(tmp_path: Path, form: str) -> None:
    reader, encode = ENCODED[form]
    rows, trouble, records = read(reader, tmp_path, encode(SAMPLES))
    assert (of_rows(rows), trouble, records) == (of_samples(SAMPLES), [], len(SAMPLES))


@pytest.mark.parametrize("form", ENCODED)
def test_the_first_reader_that_knows_an_input_is_the_right_one(tmp_path: Path, form: str) -> None:
    reader, encode = ENCODED[form]
    many = SAMPLES * 2_000
    content = encode(many)
    head = (gzip.decompress(content) if form == "pprof" else content)[: 64 * 1024]
    known = next(each for each in READERS if each.recognises(tmp_path / "input", head))
    assert known.form == reader.form


def test_a_profile_in_the_order_of_another_writer_is_known(tmp_path: Path) -> None:
    """Go's runtime writes times first and tables where they come."""
    fields = [(tag, kind, value, inner) for tag, kind, value, inner in wire.fields(memoryview(plain_pprof()))]
    fields.sort(key=lambda field: -field[0])
    content = number(9, 1_700_000_000) + b"".join(inside(tag, bytes(inner)) for tag, _, _, inner in fields)
    assert Pprof().recognises(tmp_path, content)
    assert not WireDecoder().recognises(content)
    rows, trouble, _ = read(Pprof(), tmp_path, content)
    assert ({row["ts_ns"] for row in rows}, trouble) == ({1_700_000_000}, [])


def test_spans_and_profiles_of_otlp_are_no_pprof(tmp_path: Path) -> None:
    spans = inside(1, inside(1, b"") + inside(2, inside(2, inside(1, bytes(16)) + inside(2, bytes(8)))))
    for other in (spans, otlp(SAMPLES).SerializeToString(), b"", b"main;work 12\n", b"{}", b"\x08\x01"):
        assert not Pprof().recognises(tmp_path, other)


def plain_pprof() -> bytes:
    return gzip.decompress(pprof(SAMPLES[:3]))


FRAMES = st.sampled_from(
    [("main", "/bin/a"), ("f", None), ("g(int, char)", "/lib/b.so"), ("", "/bin/a"), ("é", None)]
)
STACKS = st.lists(FRAMES, max_size=6).map(
    lambda frames: (tuple(name or "[unknown]" for name, _ in frames), tuple(file for _, file in frames))
)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), STACKS, st.integers(0, 2**50)), max_size=12))
def test_all_forms_say_the_same(tmp_path_factory, drawn: list[Any]) -> None:  # type: ignore[no-untyped-def]
    samples = [Sample(service, names, files, weight) for service, (names, files), weight in drawn]
    for reader, encode in list(ENCODED.values())[:3]:
        rows, trouble, records = read(reader, tmp_path_factory.mktemp("forms"), encode(samples))
        assert (of_rows(rows), trouble, records) == (of_samples(samples), [], len(samples))


@pytest.mark.parametrize("form", ENCODED)
def test_wherever_an_input_is_cut_it_ends_in_a_row_of_the_ledger(tmp_path: Path, form: str) -> None:
    reader, encode = ENCODED[form]
    content = encode(SAMPLES)
    whole = of_samples(SAMPLES)
    for size in range(1, len(content) - 1, max(1, len(content) // 60)):
        rows, trouble, _ = read(reader, tmp_path, content[:size])
        assert trouble or of_rows(rows) != whole
        assert sum(row["weight"] for row in rows) <= sum(whole.values())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(list(ENCODED)), st.integers(0, 2**32), st.integers(1, 8))
def test_bytes_changed_at_random_never_crash(tmp_path_factory, form: str, seed: int, changes: int) -> None:  # type: ignore[no-untyped-def]
    reader, encode = ENCODED[form]
    chance = random.Random(seed)
    content = bytearray(gzip.decompress(encode(SAMPLES)) if form == "pprof" else encode(SAMPLES))
    for _ in range(changes):
        content[chance.randrange(len(content))] = chance.randrange(256)
    reader.recognises(Path("input"), bytes(content))
    rows, _, records = read(reader, tmp_path_factory.mktemp("changed"), bytes(content))
    assert records >= len(rows)


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_never_crash(tmp_path_factory, content: bytes) -> None:  # type: ignore[no-untyped-def]
    for reader, _ in ENCODED.values():
        reader.recognises(Path("input"), content)
        read(reader, tmp_path_factory.mktemp("any"), content)


def test_a_type_of_processor_time_is_chosen_among_several(tmp_path: Path) -> None:
    rows, _, _ = read(Pprof(), tmp_path, pprof(SAMPLES[:1], types=[("samples", "count"), ("cpu", "nanoseconds")]))
    assert [(row["weight"], row["unit"]) for row in rows] == [(300.0, "cpu_ns")]
    rows, _, _ = read(
        Pprof(), tmp_path, pprof(SAMPLES[:1], types=[("alloc_objects", "count"), ("alloc_space", "bytes")])
    )
    assert [row["unit"] for row in rows] == ["alloc_space"]


def test_samples_of_a_known_period_are_nanoseconds() -> None:
    cpu = symbols.ValueType("cpu", "nanoseconds")
    samples = [symbols.ValueType("samples", "count")]
    assert symbols.measure(samples, cpu, 10_000_000) == symbols.Measure(0, "cpu_ns", 1e7)
    assert symbols.measure(samples, symbols.ValueType("", ""), 0) == symbols.Measure(0, "cpu_samples", 1.0)


def test_what_was_inlined_stands_below_its_caller(tmp_path: Path) -> None:
    texts = ["", "cpu", "nanoseconds", "caller", "inlined"]
    content = inside(1, number(1, 1) + number(2, 2)) + inside(2, inside(1, varint(9)) + inside(2, varint(5)))
    content += inside(4, number(1, 9) + inside(4, number(1, 8)) + inside(4, number(1, 7)))
    content += inside(5, number(1, 7) + number(2, 3)) + inside(5, number(1, 8) + number(2, 4))
    content += b"".join(inside(6, text.encode()) for text in texts)
    rows, trouble, _ = read(Pprof(), tmp_path, content)
    assert (rows[0]["stack"], trouble) == (["caller", "inlined"], [])


def test_a_place_in_the_kernel_is_known_by_its_attribute(tmp_path: Path) -> None:
    data = otlp([Sample("a", ("f",), (None,), 1)])
    table = data.dictionary
    table.string_table.append("profile.frame.type")
    table.attribute_table.add()
    table.attribute_table.add(key_strindex=len(table.string_table) - 1).value.string_value = "kernel"
    table.location_table[1].attribute_indices.append(1)
    rows, _, _ = read(OtlpProfiles(WireDecoder()), tmp_path, data.SerializeToString())
    assert rows[0]["modules"] == ["[kernel.kallsyms]"]


def test_moments_without_values_count_one_each(tmp_path: Path) -> None:
    data = otlp([Sample("a", ("f",), (None,), 1)])
    sample = data.resource_profiles[0].scope_profiles[0].profiles[0].samples[0]
    sample.ClearField("values")
    sample.timestamps_unix_nano.extend([11, 12, 13])
    rows, _, _ = read(OtlpProfiles(WireDecoder()), tmp_path, data.SerializeToString())
    assert rows[0]["weight"] == 3.0


def test_a_damaged_line_of_json_ends_only_itself(tmp_path: Path) -> None:
    lines = [otlp_json(SAMPLES[:1]), b'{"resourceProfiles": 3}\n', b"[]\n", b"{broken\n", otlp_json(SAMPLES[2:3])]
    rows, trouble, _ = read(OtlpProfiles(JsonDecoder()), tmp_path, b"".join(lines))
    assert of_rows(rows) == of_samples([SAMPLES[0], SAMPLES[2]])
    assert sum(entry["count"] for entry in trouble) == 3


def test_a_negative_weight_is_told_and_left_out(tmp_path: Path) -> None:
    data = otlp([Sample("a", ("f",), (None,), -5), Sample("a", ("f",), (None,), 6)])
    rows, trouble, records = read(OtlpProfiles(WireDecoder()), tmp_path, data.SerializeToString())
    assert ([row["weight"] for row in rows], records) == ([6.0], 1)
    assert [entry["reason"] for entry in trouble] == ["weight is no amount"]


def test_a_stack_of_a_million_frames_keeps_its_leaf(tmp_path: Path) -> None:
    texts = ["", "cpu", "nanoseconds", "loop", "leaf"]
    places = b"\x02" + b"\x01" * 1_000_000
    content = inside(1, number(1, 1) + number(2, 2)) + inside(2, inside(1, places) + inside(2, varint(5)))
    for place in (1, 2):
        content += inside(4, number(1, place) + inside(4, number(1, place)))
        content += inside(5, number(1, place) + number(2, place + 2))
    content += b"".join(inside(6, text.encode()) for text in texts)
    rows, trouble, _ = read(Pprof(), tmp_path, content)
    assert (len(rows[0]["stack"]), rows[0]["stack"][-1]) == (STACK_FRAMES_MAX, "leaf")
    assert len(trouble) == 1


def test_an_archive_that_swells_is_refused_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_max = 8 << 20
    monkeypatch.setattr(symbols, "BYTES_MAX", bytes_max)
    bomb = gzip.compress(inside(1, number(1, 0)) + b"\x32\x00" * (8 * bytes_max), 1)
    tracemalloc.start()
    rows, trouble, _ = read(Pprof(), tmp_path, bomb)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (rows, [entry["reason"] for entry in trouble]) == ([], [f"more than {bytes_max} bytes"])
    assert peak_bytes < 4 * bytes_max


def test_tables_beyond_their_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "ENTRIES_MAX", 10)
    for reader, encode in list(ENCODED.values())[:3]:
        many = [Sample("a", (f"f{n}",), (f"/m{n}",), 1) for n in range(20)]
        rows, trouble, _ = read(reader, tmp_path, encode(many))
        assert (rows, [entry["reason"][:12] for entry in trouble]) == ([], ["more than 10"])
