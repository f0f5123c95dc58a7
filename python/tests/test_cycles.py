"""F20 and the processor time of each service, on profiles whose shares are known."""

from pathlib import Path

import pytest
from profiles import profile_rows, study_of

from scotfree.study.analysis.cycles.services import cycles_by_service
from scotfree.study.figures import cycles
from scotfree.study.figures.result import Coverage
from scotfree.study.fleet import population, profiles
from scotfree.study.fleet.options import FleetOptions

CART = {"service": "cart", "stack": ["main", "grpc::Run", "deflate_fast"], "weight": 300.0}
ROWS = [
    CART,
    {"service": "cart", "stack": ["main", "work"], "weight": 500.0},
    {"service": "cart", "stack": ["main", "google::protobuf::Parse", "memcpy"], "weight": 100.0},
    {"service": "cart", "stack": ["qzx"], "modules": ["/lib/libqzx.so"], "weight": 100.0},
    {"service": "ship", "stack": ["main", "grpc::Run"], "weight": 600.0},
    {"service": "ship", "stack": ["do_syscall_64", "tcp_sendmsg"], "weight": 400.0},
    {"service": "ship", "stack": ["do_idle"], "weight": 9_000.0},
    {"service": "ship", "stack": ["main", "deflate_fast"], "weight": 7_000.0, "unit": "alloc_space"},
]


def test_shares_are_of_the_time_that_was_spent(tmp_path: Path) -> None:
    result = cycles.compute(study_of(tmp_path, profile_rows(ROWS)))
    fleet = {row["category"]: row["share"] for row in result.tables["fleet"].to_pylist()}
    assert fleet == pytest.approx(
        {
            "rpc_library": 0.3,
            "application": 0.25,
            "networking": 0.2,
            "compression": 0.15,
            "serialization": 0.05,
            "unclassified": 0.05,
        }
    )
    ship = {
        row["category"]: row["share"] for row in result.tables["services"].to_pylist() if row["service"] == "ship"
    }
    assert ship == pytest.approx({"rpc_library": 0.6, "networking": 0.4})


def test_a_fleet_has_the_shares_it_was_made_with(tmp_path: Path) -> None:
    fleet = profiles.table(population.draw(FleetOptions(methods=60)))
    result = cycles.compute(study_of(tmp_path, fleet))
    shares = {row["category"]: row["share"] for row in result.tables["fleet"].to_pylist()}
    assert shares == pytest.approx(profiles.SHARES)
    assert result.comparisons[0].measured == pytest.approx(0.071)
    assert all(beside.measured == pytest.approx(beside.published) for beside in result.comparisons)


def test_each_published_share_stands_beside_the_users(tmp_path: Path) -> None:
    result = cycles.compute(study_of(tmp_path, profile_rows(ROWS)))
    assert [(beside.published, round(beside.measured or 0, 6)) for beside in result.comparisons] == [
        (0.071, 0.7),
        (0.031, 0.15),
        (0.017, 0.2),
        (0.012, 0.05),
        (0.011, 0.3),
    ]
    assert "70 % of processor time is RPC cycle tax, most of it RPC library (30 %)" in result.findings[0]


def test_the_heaviest_of_what_has_no_rule_is_named(tmp_path: Path) -> None:
    result = cycles.compute(study_of(tmp_path, profile_rows(ROWS)))
    assert result.coverage == Coverage.COMPLETE
    assert result.tables["unclassified"].to_pylist() == [
        {"symbol": "qzx", "module": "/lib/libqzx.so", "weight": 100.0, "share": pytest.approx(0.05)}
    ]


def test_much_without_a_rule_makes_the_figure_partial_and_a_users_rule_mends_it(tmp_path: Path) -> None:
    rows = profile_rows([CART, {"service": "cart", "stack": ["qzx"], "weight": 700.0}])
    assert cycles.compute(study_of(tmp_path / "a", rows)).coverage == Coverage.PARTIAL
    mine = tmp_path / "mine.toml"
    mine.write_text("[[rule]]\nname = 'cart'\ncategory = 'application'\nsymbol = '^qzx$'\n")
    mended = cycles.compute(study_of(tmp_path / "b", rows, (mine,)))
    assert mended.coverage == Coverage.COMPLETE
    assert {row["rule"] for row in mended.tables["rules"].to_pylist()} == {"cart", "zlib"}


def test_units_that_do_not_add_up_are_not_added(tmp_path: Path) -> None:
    other = {"service": "cart", "stack": ["tcp_sendmsg"], "weight": 1e9, "unit": "cpu_samples"}
    result = cycles.compute(study_of(tmp_path, profile_rows([*ROWS, other])))
    assert result.comparisons[0].measured == pytest.approx(0.7)
    assert result.coverage == Coverage.PARTIAL
    assert "cpu_samples are left out" in result.missing[0]


def test_without_a_profile_of_processor_time_there_is_no_figure(tmp_path: Path) -> None:
    result = cycles.compute(study_of(tmp_path, profile_rows([ROWS[-1]])))
    assert result.coverage == Coverage.ABSENT


def test_services_share_what_was_spent(tmp_path: Path) -> None:
    rows = [*ROWS, {"stack": ["main"], "weight": 2_000.0}]
    shares = cycles_by_service(study_of(tmp_path, profile_rows(rows)))
    assert shares.to_pylist() == [
        {"service": "unknown", "weight": 2_000.0, "share": 0.5, "source": "profile"},
        {"service": "cart", "weight": 1_000.0, "share": 0.25, "source": "profile"},
        {"service": "ship", "weight": 1_000.0, "share": 0.25, "source": "profile"},
    ]
