"""The models of hardware that transforms messages: rules that hold for any design, and the thesis' numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.hardware import pipelines, published
from scotfree.study.hardware.classes import (
    CLASSES,
    FLAT,
    MIXED,
    NESTED,
    Number,
    Object,
    Text,
    depth,
    entries,
    read_bytes,
    wire_bytes,
)
from scotfree.study.hardware.offload import (
    DISPATCH_CYCLES,
    FULL_OVER_BOTH,
    HEADER_CYCLES,
    OPTIMIZED,
    PUBLISHED,
    UNIQUE_ID,
    WORK_NS_PER_BYTE,
    Design,
    Layer,
    layer_of,
)
from scotfree.study.hardware.pipelines import FAR, GHZ, NEAR, reader_cycles, run

# Of a number that the model was not made with; the furthest is Flat without prefetch.
DEVIATION_MAX = 0.21
FITTED_MAX = 0.05


@pytest.mark.parametrize(
    ("name", "read_for_a_byte", "deep", "size"),
    [("Flat", 2.6, 1, 485), ("Mixed", 2.75, 2, 297), ("Nested", 4.25, 2, 232)],
)
def test_the_classes_have_the_columns_that_are_published(
    name: str, read_for_a_byte: float, deep: int, size: int
) -> None:
    message = CLASSES[name]
    assert depth(message) == deep
    assert wire_bytes(message) == pytest.approx(size, rel=0.01)
    assert read_bytes(message) / wire_bytes(message) == pytest.approx(read_for_a_byte, rel=0.02)


def test_a_message_is_as_long_as_protobuf_makes_it() -> None:
    # Tag and number; tag, length and text; tag and length of an object; the sixteenth tag has two bytes.
    number = Number()
    assert wire_bytes(Object((number,))) == 6
    assert wire_bytes(Object((Text(3), Object((number,))))) == 5 + 8
    assert wire_bytes(Object((number,) * 16)) - wire_bytes(Object((number,) * 15)) == 7
    assert entries(Object((Text(3), Object((number,) * 2)))) == 4


def test_what_is_published_comes_out() -> None:
    rows = published.rows()
    assert len(rows) == 18 and sum(row.is_fitted for row in rows) == 3
    for row in rows:
        assert abs(row.deviation) <= (FITTED_MAX if row.is_fitted else DEVIATION_MAX), row
    # The column that the thesis compares designs by.
    throughputs = [row for row in rows if row.where == "t7.1" and row.what.endswith("Gbit/s")]
    assert len(throughputs) == 3
    for row in throughputs:
        assert abs(row.deviation) < 0.10, row


@pytest.mark.parametrize(
    ("name", "value"),
    [("FIELD_BUFFER_LINES", 1), ("FIELD_CYCLES", 4), ("BLOCK_CYCLES", 4.0), ("CHUNK_BYTES", 1)],
)
def test_another_pipeline_would_be_told(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    monkeypatch.setattr(pipelines, name, value)
    with pytest.raises(AssertionError):
        test_what_is_published_comes_out()


@pytest.mark.parametrize("message", CLASSES.values())
def test_prefetch_and_pipelining_each_pay(message: Object) -> None:
    both = run(message, pipelines.Design()).gbit_per_s
    # Where nearly all lies below the top level there is little to ask for ahead of time.
    without = run(message, pipelines.Design(has_prefetch=False)).gbit_per_s
    assert without < 0.95 * both
    assert run(message, pipelines.Design(is_pipelined=False)).gbit_per_s < 0.95 * both


def test_without_prefetch_what_is_flat_loses_most() -> None:
    left = [
        run(message, pipelines.Design(has_prefetch=False)).gbit_per_s / run(message, pipelines.Design()).gbit_per_s
        for message in (FLAT, MIXED, NESTED)
    ]
    assert left[0] < 0.3 and min(left[1:]) > 0.4 and max(left) < 0.6


@pytest.mark.parametrize("message", CLASSES.values())
def test_the_further_memory_is_the_less_a_pipeline_does(message: Object) -> None:
    found = [
        run(message, pipelines.Design(latency=cycles)) for cycles in (10.0, 20.0, NEAR, 35.0, FAR, 100.0, 200.0)
    ]
    rates = [one.gbit_per_s for one in found]
    assert rates == sorted(rates, reverse=True) and rates[0] > 4 * rates[-1]
    latencies = [one.latency for one in found]
    assert latencies == sorted(latencies)


def test_nothing_is_faster_than_its_reader_or_the_link() -> None:
    for message in CLASSES.values():
        alone = run(message, pipelines.Design(latency=pipelines.BLOCK_CYCLES)).gbit_per_s
        assert alone <= wire_bytes(message) * 8 / reader_cycles(message) * GHZ
    many = [run(MIXED, pipelines.Design(count)) for count in (8, 12, 16)]
    assert all(one.link_share == pytest.approx(1.0, abs=0.01) for one in many)
    # More of them only wait longer.
    assert many[2].gbit_per_s == pytest.approx(many[0].gbit_per_s, rel=0.01)
    assert many[0].latency < many[1].latency < many[2].latency


def test_contexts_are_as_good_as_pipelines_until_their_reader_is_busy() -> None:
    near = {shape: run(MIXED, pipelines.Design(*shape)).gbit_per_s for shape in ((6, 1), (3, 2), (3, 4))}
    assert near[3, 2] == pytest.approx(near[6, 1], rel=0.06)
    far = {shape: run(MIXED, pipelines.Design(*shape, FAR)).gbit_per_s for shape in ((12, 1), (3, 4), (3, 2))}
    assert far[3, 4] == pytest.approx(far[12, 1], rel=0.03)
    # Far from memory two do not suffice.
    assert far[3, 2] < 0.75 * far[3, 4]
    # One Reader is no faster for having many messages.
    busy = run(MIXED, pipelines.Design(1, 16, FAR)).gbit_per_s
    assert busy <= wire_bytes(MIXED) * 8 / reader_cycles(MIXED) * GHZ


@given(
    numbers=st.integers(0, 40),
    texts=st.lists(st.integers(0, 300), max_size=8),
    below=st.integers(0, 4),
    shape=st.sampled_from([(1, 1), (2, 2), (4, 1)]),
)
@settings(max_examples=25, deadline=None)
def test_any_message_passes_and_the_link_carries_what_it_can(
    numbers: int, texts: list[int], below: int, shape: tuple[int, int]
) -> None:
    inner = Object((Number(), Text(5)))
    message = Object((Number(), *[Number()] * numbers, *map(Text, texts), *[inner] * below))
    found = run(message, pipelines.Design(*shape))
    assert 0 < found.link_share <= 1.02 and found.gbit_per_s > 0
    assert found.latency >= 2 * NEAR


def test_the_report_says_what_was_fitted_and_what_is_not_known() -> None:
    found = published.text()
    assert found.count(" *\n") == 3 and "unpublished" in found
    for one in (*published.FITTED, *published.NOT_DERIVED):
        assert f"- {one}" in found


def test_the_five_bars() -> None:
    for design, times in PUBLISHED.items():
        assert UNIQUE_ID.times_less(design) == pytest.approx(times, rel=0.03), design
    both, full = UNIQUE_ID.with_(Design.BOTH), UNIQUE_ID.with_(Design.FULL)
    assert both / full == pytest.approx(FULL_OVER_BOTH, rel=0.03)
    # 1,600 cycles of ways and 90 of work.
    assert UNIQUE_ID.cost(Design.BOTH) == 1_690 and full == 90
    # The optimised interface is between both by one for all, and both by one's own.
    assert UNIQUE_ID.times_less(Design.BOTH) < OPTIMIZED.times_less(Design.BOTH)
    assert OPTIMIZED.times_less(Design.BOTH) < UNIQUE_ID.times_less(Design.PRIVATE)


def test_the_cycles_that_were_fitted_are_those_that_chapter_3_has() -> None:
    header = UNIQUE_ID.header * UNIQUE_ID.time / UNIQUE_ID.messages
    assert header == pytest.approx(HEADER_CYCLES, rel=0.15)
    assert UNIQUE_ID.dispatch * UNIQUE_ID.time == pytest.approx(DISPATCH_CYCLES, rel=0.15)
    # And the pipelines' work on four messages of less than 50 bytes and as many headers is about 90 cycles.
    work = 4 * (50 + 40) * WORK_NS_PER_BYTE * GHZ
    assert work == pytest.approx(90, rel=0.15)


def test_no_other_number_of_tasks_gives_the_bars() -> None:
    for other in (
        replace(UNIQUE_ID, messages=3),
        replace(UNIQUE_ID, traversal=50.0),
        replace(UNIQUE_ID, payload=0.5),
    ):
        assert (
            abs(other.times_less(Design.BOTH) / 2.3 - 1) > 0.03
            or abs(other.times_less(Design.PAYLOAD) / 1.7 - 1) > 0.03
        )


@given(
    time=st.floats(100, 1e6), messages=st.floats(2, 40), payload=st.floats(0.1, 0.6), header=st.floats(0.05, 0.3)
)
@settings(max_examples=50, deadline=None)
def test_from_a_traversal_on_what_the_core_asks_for_costs_more_than_it_saves(
    time: float, messages: float, payload: float, header: float
) -> None:
    layer = Layer(time, messages, 0.0, 0.0, payload, header)
    for design in (Design.PAYLOAD, Design.BOTH):
        most = layer.traversal_max(design)
        assert replace(layer, traversal=most).with_(design) == pytest.approx(time)
        assert (
            replace(layer, traversal=2 * most).with_(design)
            > time
            > replace(layer, traversal=most / 2).with_(design)
        )


def test_over_pcie_a_short_call_loses() -> None:
    # A layer of 2.2 us with four messages: on the chip 2.3 times less, over PCIe twenty microseconds more.
    on_chip, over_pcie = (layer_of(2_220.0, 4, 200.0, way) for way in (20.0, 1_000.0))
    assert on_chip.times_less(Design.BOTH) == pytest.approx(2.3, rel=0.05)
    assert over_pcie.with_(Design.PAYLOAD) > 20_000 and over_pcie.with_(Design.BOTH) > 40_000
    assert on_chip.with_(Design.FULL) == over_pcie.with_(Design.FULL)
    # Hardware that works longer than the core saves nothing whatever the way is.
    assert layer_of(10.0, 4, 1e6, 20.0).traversal_max(Design.BOTH) == 0
