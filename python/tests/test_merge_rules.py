"""Each rule of the merge and of what precedes it, by the smallest case (docs/study-merge.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from sides import NOW, START, by_id, client, merged, reasons, record, server

from scotfree.study import schema
from scotfree.study.ingest import clean, merge_sql
from scotfree.study.schema import Kind, Provenance
from scotfree.study.trouble import FAILED_INSIDE

DAY = 86_400 * 10**9


def test_client_and_server_are_one_call(tmp_path: Path) -> None:
    store = merged(
        tmp_path,
        [
            client(1, at=0, duration_ns=1000, cluster="a", machine="m1", name="POST"),
            server(2, 1, at=300, duration_ns=400, cluster="b", machine="m2", name="pkg.Cart/Get"),
        ],
    )
    (call,) = by_id(store).values()
    assert call["total_ns"] == 1000
    assert call["server_app_ns"] == 400
    assert (call["client_service"], call["service"], call["method"]) == ("shop", "cart", "pkg.Cart/Get")
    assert (call["client_cluster"], call["server_cluster"]) == ("a", "b")
    assert (call["client_machine"], call["server_machine"]) == ("m1", "m2")
    assert call["provenance"] == schema.provenance_bits(
        dict.fromkeys(schema.STAGES, Provenance.LUMPED) | {"server_app": Provenance.DERIVED}
    )
    manifest = store.manifest
    assert (manifest.records_in, manifest.merged, manifest.spans, manifest.dropped) == (2, 2, 1, 0)


def test_shared_ids_are_one_call_and_the_servers_children_hang_on_it(tmp_path: Path) -> None:
    rows = [client(1), server(1, is_shared=True), client(2, 1, service="cart"), server(9, 1, service="db")]
    calls = by_id(merged(tmp_path, rows))
    assert set(calls) == {1, 2, 9}
    assert calls[2]["parent_id"] == 1
    # Whose parent has a server of its own is no second attempt, but a call whose client's record is missing.
    assert (calls[9]["parent_id"], calls[9]["client_service"]) == (1, "cart")


def test_who_shares_an_id_with_a_client_is_not_its_parents_server(tmp_path: Path) -> None:
    calls = by_id(merged(tmp_path, [client(1), server(2, 1, is_shared=True)]))
    assert (calls[2]["parent_id"], calls[2]["client_service"]) == (1, "shop")


def test_work_inside_is_no_call_and_its_children_hang_on_the_call_above(tmp_path: Path) -> None:
    inner = [record(Kind.INTERNAL, 10 + n, 2 if n == 0 else 9 + n, service="cart") for n in range(5)]
    store = merged(tmp_path, [client(1), server(2, 1), *inner, client(3, 14, service="cart")])
    assert by_id(store)[3]["parent_id"] == 1
    assert store.manifest.internal == 5


def test_work_inside_that_failed_is_said_and_counts_as_no_failed_call(tmp_path: Path) -> None:
    inner = [
        record(Kind.INTERNAL, span, 2, service="cart", status=status) for span, status in ((3, "ERROR"), (4, "OK"))
    ]
    # In a partition of its own, where nothing has succeeded.
    alone = record(Kind.INTERNAL, 1, trace=2, status="ABORTED")
    store = merged(tmp_path, [client(1), server(2, 1), *inner, client(5, 2, status="ERROR"), alone])
    assert reasons(store, kept=True)[FAILED_INSIDE] == 2
    assert {call["status"] for call in by_id(store).values()} == {"OK", "ERROR"}
    fine = merged(tmp_path / "fine", [client(1), server(2, 1), inner[1]])
    assert FAILED_INSIDE not in reasons(fine)


def test_the_callee_of_a_client_alone_is_named_by_what_the_client_says(tmp_path: Path) -> None:
    calls = by_id(merged(tmp_path, [client(1, peer_service="redis"), client(2)]))
    assert calls[1]["service"] == "redis"
    assert calls[2]["service"] == "callee of shop"
    assert "server_app_ns" not in calls[1]
    assert calls[1]["provenance"] == 0


def test_nine_stages_are_measured_if_they_add_up(tmp_path: Path) -> None:
    stages = dict.fromkeys(schema.STAGE_COLUMNS, 100)
    rows = [client(1, duration_ns=1000, **stages), client(2, duration_ns=10**7, **stages)]
    store = merged(tmp_path, rows)
    good, bad = by_id(store).values()
    assert good["provenance"] == schema.ALL_MEASURED
    # 900 of 1000 ns: within a microsecond.
    assert (good["request_side_ns"], good["server_app_ns"], good["response_side_ns"]) == (400, 100, 400)
    assert bad["provenance"] == 0
    assert "request_wire_ns" not in bad
    assert reasons(store)["stages do not add up to the duration: not used"] == 1


def test_stages_that_were_not_passed_took_no_time_if_the_others_add_up(tmp_path: Path) -> None:
    passed = {"client_send_queue_ns": 2_000, "response_wire_ns": 30_000, "client_recv_queue_ns": 8_000}
    store = merged(tmp_path, [client(1, duration_ns=40_000, **passed), client(2, duration_ns=60_000, **passed)])
    whole, part = by_id(store).values()
    assert (whole["server_app_ns"], whole["request_wire_ns"], whole["provenance"]) == (0, 0, schema.ALL_MEASURED)
    assert "server_app_ns" not in part
    assert part["response_wire_ns"] == 30_000
    assert reasons(store)["no server's record of the call: its application's time is not known"] == 1


def test_stages_of_both_sides_come_together(tmp_path: Path) -> None:
    mine = {"client_send_queue_ns": 10, "client_recv_queue_ns": 20}
    theirs = {"server_recv_queue_ns": 30, "server_app_ns": 400}
    call = by_id(merged(tmp_path, [client(1, **mine), server(2, 1, duration_ns=500, **theirs)]))[1]
    assert {name: call[name] for name in (*mine, *theirs)} == mine | theirs
    measured = dict.fromkeys([name.removesuffix("_ns") for name in (*mine, *theirs)], Provenance.MEASURED)
    lumped = dict.fromkeys(schema.STAGES, Provenance.LUMPED)
    assert call["provenance"] == schema.provenance_bits(lumped | measured)


def test_of_several_answers_that_of_the_clients_status_and_the_first_to_end_is_its(tmp_path: Path) -> None:
    rows = [
        client(1, at=0, duration_ns=1000),
        server(2, 1, at=10, duration_ns=100, status="UNAVAILABLE", machine="m2"),
        server(3, 1, at=200, duration_ns=700, machine="m3"),
        server(4, 1, at=210, duration_ns=300, machine="m4"),
        server(5, 1, at=700, duration_ns=250, machine="m5"),
    ]
    store = merged(tmp_path, rows)
    calls = by_id(store)
    assert calls[1]["server_machine"] == "m4"
    assert {span: call.get("is_hedge") for span, call in calls.items()} == {1: None, 2: None, 3: True, 5: None}
    assert all("parent_id" not in call and "total_ns" not in call for span, call in calls.items() if span != 1)
    assert {calls[span]["client_service"] for span in (2, 3, 5)} == {"shop"}
    assert reasons(store)["a further server's record of one client's: a call of its own"] == 3


def test_a_further_attempt_hangs_where_the_first_does(tmp_path: Path) -> None:
    rows = [server(1), client(2, 1, service="cart"), server(3, 2), server(4, 2, at=9)]
    calls = by_id(merged(tmp_path, rows))
    assert {span: call.get("parent_id") for span, call in calls.items()} == {1: None, 2: 1, 4: 1}


def test_messages_have_no_completion_time(tmp_path: Path) -> None:
    rows = [record(Kind.PRODUCER, 1), record(Kind.CONSUMER, 2, 1, service="mail", at=9_000, duration_ns=70)]
    store = merged(tmp_path, rows)
    call = by_id(store)[1]
    assert "total_ns" not in call
    assert (call["service"], call["server_app_ns"]) == ("mail", 70)
    assert reasons(store) == {"a message, without response: no completion time": 1}


def test_missing_kinds_are_told_from_the_services(tmp_path: Path) -> None:
    def bare(span: int, parent: int | None, service: str) -> dict[str, object]:
        return record(Kind.UNKNOWN, span, parent, service=service, name=f"n{span}")

    rows = [bare(1, None, "web"), bare(2, 1, "web"), bare(3, 2, "web"), bare(4, 3, "shop"), bare(5, 4, "shop")]
    store = merged(tmp_path, rows)
    calls = by_id(store)
    # 1 is the request from outside, 2 and 5 are work inside, 3 the client's of 4.
    assert set(calls) == {1, 3}
    assert (calls[3]["parent_id"], calls[3]["service"], calls[3]["client_service"]) == (1, "shop", "web")
    assert {reason: count for reason, count in reasons(store).items() if "kind" in reason} == {
        "kind is missing: taken as a server's": 2,
        "kind is missing: taken as a client's": 1,
        "kind is missing: taken as internal": 2,
    }


@pytest.mark.parametrize("second", [{"name": "Put"}, {"duration_ns": 500}, {"service": "other"}])
def test_of_two_records_of_one_id_one_is_kept_and_one_counted(tmp_path: Path, second: dict[str, object]) -> None:
    store = merged(tmp_path, [client(1), client(1) | second])
    assert len(by_id(store)) == 1
    assert reasons(store, kept=False) == {merge_sql.SURPLUS_REASONS["id"]: 1}
    assert store.manifest.dropped == 1


def test_the_same_record_twice_is_one(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1), server(2, 1)], [server(2, 1), client(1)])
    assert len(by_id(store)) == 1
    assert reasons(store, kept=False) == {merge_sql.SURPLUS_REASONS["twice"]: 2}


def test_work_inside_with_the_id_of_a_call_is_dropped(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1), record(Kind.INTERNAL, 1)])
    assert store.manifest.spans == 1
    assert reasons(store, kept=False) == {merge_sql.SURPLUS_REASONS["id"]: 1}


def test_an_orphan_is_kept_without_parent(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, 77)])
    assert "parent_id" not in by_id(store)[1]
    assert reasons(store)["the parent is missing: taken as without"] == 1


def test_its_own_parent_is_none(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, 1), record(Kind.INTERNAL, 2, 2)])
    assert "parent_id" not in by_id(store)[1]
    assert reasons(store)["is its own parent: taken as without"] == 2


def test_cycles_are_cut_and_what_hangs_on_them_is_not(tmp_path: Path) -> None:
    rows = [
        client(1, 3),
        client(2, 1),
        client(3, 2),
        client(4, 3),
        record(Kind.INTERNAL, 5, 6),
        record(Kind.INTERNAL, 6, 5),
    ]
    store = merged(tmp_path, [*rows, client(7, 5)])
    assert {span: call.get("parent_id") for span, call in by_id(store).items()} == {
        1: None,
        2: None,
        3: None,
        4: 3,
        7: None,
    }
    assert reasons(store)["is its own ancestor: taken as without parent"] == 5


def test_a_record_that_ends_before_it_starts_counts_without_its_time(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, duration_ns=-5), server(2, 1, duration_ns=70)])
    call = by_id(store)[1]
    assert "total_ns" not in call
    assert call["server_app_ns"] == 70
    assert reasons(store)["ends before it starts: its duration is not used"] == 1


def test_a_server_that_outlives_its_client_gives_no_negative_tax(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, duration_ns=100), server(2, 1, duration_ns=700)])
    call = by_id(store)[1]
    assert call["total_ns"] == 100
    assert "server_app_ns" not in call
    assert reasons(store)["the server took longer than its client waited: the application's time is not used"] == 1


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (NOW + 2 * DAY, "starts more than a day from now"),
        (2**63 - 1, "starts more than a day from now"),
        (0, clean.EARLY),
        (-(2**63), clean.EARLY),
    ],
)
def test_impossible_clocks_leave_durations(tmp_path: Path, start: int, reason: str) -> None:
    store = merged(tmp_path, [client(1, start_ns=start, machine="a"), server(2, 1, duration_ns=10, machine="b")])
    call = by_id(store)[1]
    assert (call["total_ns"], call["server_app_ns"]) == (1000, 10)
    assert "request_side_ns" not in call
    assert reasons(store)[reason] == 1


def test_no_call_lasts_months(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, start_ns=0, duration_ns=START), client(2, duration_ns=2**63 - 1)])
    assert all("total_ns" not in call for call in by_id(store).values())
    assert reasons(store)["lasts more than 30 days: its duration is not used"] == 2


def test_ids_of_zero_are_none(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(0), client(1, trace=0), client(0, trace=0), client(5)])
    assert set(by_id(store)) == {5}
    assert reasons(store, kept=False) == {"trace id is zero": 2, "span id is zero": 1}
    assert (store.manifest.records_in, store.manifest.dropped) == (4, 3)


def test_numbers_that_are_none_are_not_used(tmp_path: Path) -> None:
    wrong = {"cpu_cycles": float("nan"), "sample_weight": float("inf"), "req_bytes": -1}
    store = merged(tmp_path, [client(1) | wrong, client(2, sample_weight=0.0, cpu_cycles=3.5)])
    first, second = by_id(store).values()
    assert not wrong.keys() & first.keys()
    assert second["cpu_cycles"] == 3.5
    assert "sample_weight" not in second
    assert reasons(store)["sample_weight is no such number: not used"] == 2
    assert reasons(store)["req_bytes is negative: not used"] == 1


def test_numbers_beyond_what_can_be_are_not_used(tmp_path: Path) -> None:
    """Sums of them would leave 64 bits: a report over them would end in an error or be wrong."""
    endless = {"request_wire_ns": 2**63 - 1, "server_app_ns": 2**63 - 1, "resp_bytes": 2**62, "cpu_cycles": 1e300}
    (only,) = by_id(store := merged(tmp_path, [client(1) | endless | {"req_bytes": 2**40}])).values()
    assert not {name for name, value in endless.items() if only.get(name) == value}
    assert only["req_bytes"] == 2**40
    assert reasons(store)["server_app_ns is more than 2592000000000000: not used"] == 1
    assert reasons(store)["cpu_cycles is no such number: not used"] == 1


def test_kinds_that_are_none_are_missing(tmp_path: Path) -> None:
    store = merged(tmp_path, [{**client(1), "kind": 77}, {**client(2), "kind": -1}])
    assert reasons(store)["kind is none that is known"] == 2
    assert store.manifest.internal == 2


def test_long_names_are_cut(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, name="ä" * 5000), client(2, name="b" * 1024)])
    assert [call["method"] for call in by_id(store).values()] == ["ä" * 1024, "b" * 1024]
    assert reasons(store)["name is longer than 1024 characters: cut"] == 1


def test_the_same_id_in_two_traces_is_two_calls(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, trace=1), server(2, 1, trace=2), client(1, trace=2)])
    assert (store.manifest.spans, store.manifest.merged) == (2, 3)


def test_the_first_place_of_a_trouble_is_told(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1)], [client(2), client(3, duration_ns=-1), client(4, duration_ns=-2)])
    rows = [row for row in store.read("trouble").to_pylist() if "ends before" in row["reason"]]
    assert [(row["input"], row["record"], row["count"]) for row in rows] == [(1, 1, 2)]
