"""transform and offload: each against calls of which the answer is known, their refusals, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned import one_method, paced, staged
from profiles import profile_rows
from small_store import spans, study_of

from scotfree.study.hardware.offload import PCIE_NS, UNIQUE_ID, WORK_NS_PER_BYTE
from scotfree.study.plan import cli, codec, text
from scotfree.study.plan.calls import Calls, nested_calls
from scotfree.study.plan.codec import Measured, Side
from scotfree.study.plan.commands import price as command
from scotfree.study.plan.context import Context
from scotfree.study.plan.forecasts import make
from scotfree.study.plan.price import Effect, Refused, price
from scotfree.study.plan.remedies import offload, transform

COUNT = 400
CPU_NS = 40_000


def carrying(request: Any, response: int, **columns: Any) -> Calls:
    """Calls of messages of this size, or these sizes, of 40 us of processor time each."""
    sizes = {"req_bytes": np.full(COUNT, request), "resp_bytes": np.full(COUNT, response)}
    named = sizes | {"cpu_ns": [CPU_NS] * COUNT} | columns
    return one_method(stages=staged(COUNT), start_ns=paced(COUNT), **named)


def effect_of(module: Any, calls: Calls, **known: Any) -> Effect:
    found = module.forecast(calls, Context(**known))
    assert isinstance(found, Effect), found
    return found


def why(module: Any, calls: Calls, **known: Any) -> str:
    found = module.forecast(calls, Context(**known))
    assert isinstance(found, Refused), found
    return found.reason


def half_of(name: str) -> Measured:
    """A codec that encodes twice as fast, and decodes four times."""
    return Measured(name, 100, 0.0, Side(50.0, 100.0), Side(75.0, 300.0))


def test_the_codec_takes_its_part_of_what_the_profile_has_in_serialization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "MEASURED", [half_of("dense")])
    shares = {"serialization": {"Cart": 0.25}}
    # Of a quarter of 40 us: requests alone are decoded, by four; responses alone encoded, by two.
    for calls, saved in ((carrying(9_000, 0), 7_500), (carrying(0, 9_000), 5_000)):
        (totals,) = effect_of(transform, calls, **shares).totals
        assert calls.total - totals == pytest.approx(saved)
    # Of both the same bytes: 100 and 300 ns become 50 and 75.
    calls = carrying(9_000, 9_000)
    (totals,) = effect_of(transform, calls, **shares).totals
    assert calls.total - totals == pytest.approx(10_000 * (1 - 125 / 400))


def test_each_class_that_was_measured_is_a_draw_of_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Measured("slow", 100, 0.9, Side(100.0, 100.0), Side(300.0, 300.0))
    monkeypatch.setattr(codec, "MEASURED", [half_of("dense"), slow])
    calls = carrying(9_000, 0)
    effect = effect_of(transform, calls, serialization={"Cart": 0.25})
    assert [float((calls.total - totals).max()) for totals in effect.totals] == pytest.approx([7_500, 0])
    # Where one class gains nothing, it is not certain that the calls do.
    found = price("transform", True, calls, effect)
    assert found.at(0.5).gain_ns > 0 and not found.pays
    assert "1.0 to 2.0 times as fast in encoding and 1.0 to 4.0 in decoding" in effect.notes[0]


def test_small_messages_gain_nothing_whatever_the_profile_says() -> None:
    # An echo of 64 bytes.
    calls = carrying(64, 64)
    effect = effect_of(transform, calls, serialization={"Cart": 0.5})
    assert all((totals == calls.total).all() for totals in effect.totals)
    assert "no gain" in effect.notes[0] and "128 B together" in effect.notes[0]
    # Of calls of both sizes only the large ones gain.
    sizes = np.where(np.arange(COUNT) % 4 == 0, transform.BYTES_MIN, transform.BYTES_MIN - 1)
    mixed = carrying(sizes, 0)
    effect = effect_of(transform, mixed, serialization={"Cart": 0.5})
    saved = mixed.total - effect.totals[0]
    assert (saved[::4] > 0).all() and (saved[np.arange(COUNT) % 4 > 0] == 0).all()
    assert "25 % of its calls have 1 kB or more" in effect.notes[0]


def test_the_table_says_where_it_comes_from_and_is_of_what_the_codec_was_measured_on() -> None:
    assert "lab/peers/codec" in codec.MEASURED_BY
    root = Path(__file__).resolve().parents[2]
    assert (root / "lab/peers/codec/src/main.rs").is_file()
    assert {one.name for one in codec.MEASURED} == {"Flat", "Mixed", "Nested"}
    for one in codec.MEASURED:
        assert 0 <= one.absent < 1 and one.encode.times > 1 and one.decode.times > 1
        assert 1 / one.encode.times == pytest.approx(one.left(1.0, 0.0))
        assert 1 / one.decode.times == pytest.approx(one.left(0.0, 1.0))
    # Of nothing nothing is left to be saved.
    assert codec.MEASURED[0].left(0.0, 0.0) == 1


@pytest.mark.parametrize("module", [transform, offload])
def test_what_is_not_known_is_named_and_not_guessed(module: Any) -> None:
    calls = carrying(9_000, 9_000)
    known = {"serialization": {"Cart": 0.25}, "rpc_library": {"Cart": 0.1}}
    others = {name: {"Other": 0.25} for name in known}
    assert "a profile of its server" in why(module, calls, **others)
    assert "there is nothing to" in why(module, calls, serialization={"Cart": 0.001}, rpc_library={"Cart": 0.0})
    assert "rpc.cpu.ns" in why(module, carrying(9_000, 9_000, cpu_ns=[None] * COUNT), **known)
    for way in ("req_bytes", "resp_bytes"):
        assert "rpc.request.size" in why(module, carrying(9_000, 9_000, **{way: [None] * COUNT}), **known)


def test_hardware_on_the_chip_takes_off_what_its_ways_do_not_cost() -> None:
    calls = carrying(500, 500)
    # Half of 40 us is the layer, four fifths of it payload; one call below: four messages.
    known = {
        "serialization": {"Cart": 0.4},
        "rpc_library": {"Cart": 0.1},
        "nested": {("Cart", "Get"): 1.0},
    }
    effect = effect_of(offload, calls, traversal_ns=20.0, **known)
    ways, work = 2 * 4 * 5 * 20.0, 2_000 * WORK_NS_PER_BYTE
    # Headers are seven eighths of the library's time, or half of it.
    for totals, of_headers in zip(effect.totals, (0.875, 0.5), strict=True):
        assert calls.total - totals == pytest.approx(CPU_NS * (0.4 + 0.1 * of_headers) - ways - work, abs=1)
    assert "4 messages" in effect.notes[0] and "hardware for payload and header" in effect.notes[0]
    assert price("offload", False, calls, effect).pays


def test_over_pcie_it_would_do_harm_and_that_is_said() -> None:
    calls = carrying(500, 500, cpu_ns=[10_000] * COUNT)
    known = {"serialization": {"Cart": 0.04}, "rpc_library": {"Cart": 0.01}, "nested": {("Cart", "Get"): 6.0}}
    effect = effect_of(offload, calls, traversal_ns=PCIE_NS, **known)
    # 14 messages, five ways each: payload alone is the lesser evil.
    assert "by hardware for the payload" in effect.notes[0]
    assert effect.totals[0] - calls.total == pytest.approx(14 * 5 * 1_000 - 400, rel=0.02)
    assert price("offload", False, calls, effect).harms
    assert "hardware in the NIC for all of it" in effect.notes[1]


def test_who_calls_whom_is_counted(tmp_path: Path) -> None:
    """Each page makes two calls, and half of the second ones one more."""
    pages, second = 200, 2
    rows: dict[str, list[Any]] = {"trace_id": [], "span_id": [], "parent_id": [], "service": [], "method": []}

    def add(trace: int, span: int, parent: int | None, service: str) -> None:
        of = (trace.to_bytes(16, "big"), span, parent, service, "Get")
        for column, value in zip(rows.values(), of, strict=True):
            column.append(value)

    for trace in range(pages):
        add(trace, 1, None, "Page")
        add(trace, 2, 1, "Cart")
        add(trace, 3, 1, "Cart")
        if trace % second:
            add(trace, 4, 3, "Store")
    study = study_of(tmp_path, spans(total_ns=np.full(len(rows["service"]), 1_000), **rows))
    expected = {("Page", "Get"): 2.0, ("Cart", "Get"): 0.25, ("Store", "Get"): 0.0}
    assert nested_calls(study) == pytest.approx(expected)


def test_shares_come_from_the_profile_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stacks = [
        {"service": "Cart", "stack": ["main", "work"], "weight": 500.0},
        {"service": "Cart", "stack": ["main", "google::protobuf::Parse"], "weight": 400.0},
        {"service": "Cart", "stack": ["main", "grpc::Run"], "weight": 100.0},
    ]
    table = spans(
        stages=staged(COUNT),
        start_ns=paced(COUNT),
        req_bytes=[4_000] * COUNT,
        resp_bytes=[4_000] * COUNT,
        cpu_ns=[CPU_NS] * COUNT,
    )
    study = study_of(tmp_path / "store", table, profile=profile_rows(stacks))
    context = command._known(study, Context(), [transform, offload])
    assert context.serialization == {"Cart": pytest.approx(0.4)}
    assert context.rpc_library == {"Cart": pytest.approx(0.1)}
    assert context.nested == {("Cart", "Get"): 0.0}
    # Who calls whom is not asked of all calls where nobody wants it.
    assert command._known(study, Context(), [transform]).nested == {}
    found = text.plan(make(study, context, 5, [transform, offload]))
    assert "transform takes the P" in found and "offload takes the P" in found
    # By the command, over PCIe: two messages, ten ways of a microsecond each.
    words = ["--only", "offload", "--traversal", "1us", "--json"]
    assert cli.main([str(tmp_path / "store"), *words]) == 0
    (one,) = json.loads(capsys.readouterr().out)["prices"]
    at = next(row for row in one["percentiles"] if row["p"] == 0.5)
    saved = 0.4 * CPU_NS - 10 * 1_000 - 8_000 * WORK_NS_PER_BYTE / 2
    assert one["remedy"] == "offload" and at["gain_ns"] == pytest.approx(saved, rel=0.02)


def test_the_command_says_the_five_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offload"]) == 0
    said = capsys.readouterr().out
    for times in ("1.69x", "2.32x", "14.2x", "49.1x"):
        assert f"({times} less)" in said
    assert "hardware for payload and header pays where a way takes less than 51.6 ns." in said
    assert cli.main(["offload", "--json", "--traversal", "333ns"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["traversal_ns"] for one in found["ways"]] == [10.0, 20.0, 100.0, 333.0, 1_000.0]
    assert found["layer_ns"] == UNIQUE_ID.time / 2
    rising = [one["both"] for one in found["ways"]]
    assert rising == sorted(rising) and len({one["full"] for one in found["ways"]}) == 1


def test_work_that_takes_longer_than_it_saves_never_pays(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offload", "--cycles", "100", "--bytes", "1e6"]) == 0
    assert capsys.readouterr().out.count("never pays") == 2


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--cycles", value) for value in ("0", "nan", "1e300")),
        *(("--messages", value) for value in ("0", "inf")),
        ("--payload", "1.5"),
        ("--header", "-1"),
        ("--ghz", "0"),
        ("--bytes", "0"),
        ("--traversal", "0ns"),
        ("--traversal", "20"),
    ],
)
def test_numbers_that_cannot_be_are_refused(capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["offload", f"{flag}={value}"])
    assert refused.value.code == 2 and f"argument {flag}: " in capsys.readouterr().err


def test_shares_of_more_than_all_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["offload", "--payload", "0.7", "--header", "0.4"]) == 2
    assert "more than all of it" in capsys.readouterr().err
    assert cli.main(["offload", "--payload", "0.7", "--header", "0.3"]) == 0
