"""Stacks to categories: which frame decides, and what a table of rules may not be."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.analysis.cycles import rules as rule_table
from scotfree.study.analysis.cycles.classify import classify, is_of_program
from scotfree.study.analysis.cycles.rules import PASS, SPLIT, TAX, UNCLASSIFIED, Rule, Rules, load
from scotfree.study.trouble import StudyError

OURS = load()

# Stacks with one answer each, root first.
STACKS = [
    # zlib called by an RPC library is compression, not RPC: from the root it would be RPC.
    ("grpc::Server::Run;grpc_core::Compress;deflate_fast", "compression"),
    ("google::protobuf::Message::Serialize;memcpy", "serialization"),
    ("main;handle;memcpy", "allocation_memcpy"),
    ("main;handle;__memmove_avx_unaligned_erms", "allocation_memcpy"),
    ("grpc_core::Chttp2::Write;sendmsg;do_syscall_64;__sys_sendmsg;tcp_sendmsg;_raw_spin_lock", "networking"),
    ("work;do_syscall_64;ksys_write;vfs_write;ext4_file_write_iter;_raw_spin_lock", "kernel"),
    ("start_secondary;cpu_startup_entry;do_idle;default_idle", "idle"),
    ("main.main;main.handle;encoding/json.Marshal;runtime.mallocgc", "serialization"),
    ("main.main;main.handle;strings.Repeat", "application"),
    ("runtime.goexit;net/http.(*conn).serve;net.(*conn).Write", "networking"),
    ("runtime.mcall;runtime.schedule;runtime.findRunnable", "runtime"),
    ("std::thread::spawn;scotfree_rpc::client::turn;scotfree_wire::packet::decode", "serialization"),
    ("std::thread::spawn;scotfree_rpc::client::turn;core::slice::sort", "rpc_library"),
    ("<tonic::transport::Server as Service>::call;serde_json::to_vec;alloc::raw_vec::grow", "serialization"),
    ("[unknown];<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", "allocation_memcpy"),
    ("scotfree_rpc::client::turn;core::ptr::drop_in_place<x::Y>", "rpc_library"),
    ("[unknown];__vfprintf_internal;_IO_default_xsputn", "serialization"),
    ("rustls::conn::write;ring_core_0_17_aes_gcm_enc", "encryption"),
    ("aeMain;aeProcessEvents;readQueryFromClient;processMultibulkBuffer;zmalloc", "serialization"),
    ("aeMain;aeProcessEvents;readQueryFromClient;processCommand;lookupKey;siphash", "application"),
    ("io/netty/channel/nio/NioEventLoop.run;io/grpc/internal/ServerImpl.run", "rpc_library"),
    ("_PyEval_EvalFrameDefault;scanner_call;scan_once_unicode", "serialization"),
    ("[unknown];[unknown]", UNCLASSIFIED),
    ("qzx;jjv", UNCLASSIFIED),
    ("", UNCLASSIFIED),
]


def categories(
    stacks: list[list[str]], rules: Rules = OURS, modules: list[list[str] | None] | None = None
) -> list[str]:
    kind = pa.list_(pa.string())
    found = classify(pa.array(stacks, kind), pa.array(modules or [None] * len(stacks), kind), rules)
    return list(found.category.to_pylist())


@pytest.mark.parametrize(("folded", "category"), STACKS)
def test_each_stack_is_what_its_first_ruled_frame_from_the_leaf_says(folded: str, category: str) -> None:
    assert categories([folded.split(";") if folded else []]) == [category]


def test_all_at_once_is_as_one_by_one() -> None:
    stacks = [folded.split(";") if folded else [] for folded, _ in STACKS]
    assert categories(stacks) == [category for _, category in STACKS]


def test_beginning_at_the_root_would_be_found() -> None:
    """The plant: reversed stacks, which is what a classifier from the root sees."""
    reversed_stacks = [list(reversed(folded.split(";"))) for folded, _ in STACKS]
    wrong = sum(a != b for a, (_, b) in zip(categories(reversed_stacks), STACKS, strict=True))
    assert wrong >= 8


def test_a_function_of_the_programs_own_file_is_application_and_one_of_a_library_is_not() -> None:
    assert categories([["work"], ["work"], ["work"]], modules=[["/usr/bin/cart"], ["/lib/libfoo.so.1"], None]) == [
        "application",
        UNCLASSIFIED,
        UNCLASSIFIED,
    ]


def test_a_file_is_known_by_its_name_with_and_without_its_folders() -> None:
    files = ["/usr/lib/libz.so.1", "libz.so.1.3.1", "/usr/bin/cart", "cart", "vmlinux", "libc.so.6"]
    found = categories([["qzx"]] * len(files), modules=[[file] for file in files])
    assert found == ["compression"] * 2 + ["application"] * 2 + [UNCLASSIFIED] * 2


def test_a_symbol_that_is_not_known_is_unclassified_in_whatever_file() -> None:
    assert categories([["[unknown]"]], modules=[["/usr/bin/cart"]]) == [UNCLASSIFIED]


def test_modules_that_do_not_fit_their_stack_are_not_believed() -> None:
    assert categories([["a", "work"], ["work"]], modules=[["/usr/bin/cart"], ["/usr/bin/cart"]]) == [
        UNCLASSIFIED,
        "application",
    ]


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return path


def test_a_users_rule_goes_before_ours(tmp_path: Path) -> None:
    path = _file(tmp_path, "[[rule]]\ncategory = 'application'\nsymbol = '^deflate_fast$'\n")
    assert categories([["main", "deflate_fast"]], load((path,))) == ["application"]


@pytest.mark.parametrize("pattern", [".*", "", "[a-z]", "^.", "(?s)."])
@pytest.mark.parametrize("key", ["symbol", "module"])
def test_a_rule_that_takes_everything_is_refused(tmp_path: Path, key: str, pattern: str) -> None:
    path = _file(tmp_path, f"[[rule]]\ncategory = 'application'\n{key} = '{pattern}'\n")
    with pytest.raises(StudyError, match="matches anything"):
        load((path,))


def test_no_rule_of_ours_takes_names_that_no_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["qzx_vwj", "Zqx::jjv", "wqz.xjk.Vzq", "vq::<Zk>::wj", "x9q3", "$zq", "(anonymous)"]
    assert categories([[name] for name in names]) == [UNCLASSIFIED] * len(names)
    # The plant: with the check off, a rule that swallows all shows here.
    swallowing = Rules(OURS.version, (*OURS.table, Rule("plant", "application", ".*", None)))
    assert categories([[name] for name in names], swallowing) != [UNCLASSIFIED] * len(names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]]\ncategory = 'taxes'\nsymbol = 'a'", "no category"),
        ("[[rule]]\ncategory = 'kernel'", "neither"),
        ("[[rule]]\ncategory = 'kernel'\nsymbol = '('", "rule 1"),
        ("[[rule]]\ncategory = 'kernel'\nsymbol = '(?=a)'", "rule 1"),
        ("[[rule]]\ncategory = 'kernel'\nsymbols = 'a'", "symbols"),
        ("[[rule]]\ncategory = 'kernel'\nsymbol = 3", "not understood"),
        ("rule = 3", "no list"),
        ("[[rule", "Expected"),
    ],
)
def test_a_rule_that_cannot_be_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        load((_file(tmp_path, text),))


def test_no_rules_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        load((tmp_path / "none.toml",))


def test_our_rules_have_names_of_their_own_and_every_category_of_the_tax() -> None:
    names = [rule.name for rule in OURS.table]
    assert len(set(names)) == len(names)
    assert set(TAX) <= {rule.category for rule in OURS.table} <= {*rule_table.CATEGORIES, PASS}


SMALL = Rules(
    0,
    (
        Rule("c", "compression", "^c", None),
        Rule("s", "serialization", "^s", None),
        Rule("p", PASS, "^p", None),
        Rule("a", "application", "^a", None),
        Rule("m", "allocation_memcpy", "^m", None),
    ),
)
_OF_LETTER = {"c": "compression", "s": "serialization", "a": "application", "m": "allocation_memcpy"}


def plainly(stack: list[str]) -> str:
    """One stack by the rule of study-spec 5.3, as a loop."""
    known = [_OF_LETTER[frame[0]] for frame in reversed(stack) if frame[0] in _OF_LETTER]
    if not known:
        return UNCLASSIFIED
    parents = [category for category in known if category not in SPLIT]
    return parents[0] if known[0] in SPLIT and parents and parents[0] in TAX else known[0]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.lists(st.sampled_from(["c1", "s1", "s2", "p1", "a1", "m1", "x1", "x2"]), max_size=8), max_size=12)
)
def test_columns_say_what_a_loop_says(stacks: list[list[str]]) -> None:
    assert categories(stacks, SMALL) == [plainly(stack) for stack in stacks]


@pytest.mark.parametrize(
    ("symbol", "module", "is_own"),
    [
        ("cart::db::get", "/app/cart", True),
        ("<&mut cart_db::Row as core::fmt::Debug>::fmt", "/app/cart", True),
        ("example.org/team/cart/db.(*Store).Get", "/app/cart", True),
        ("example.org/team/cart.Get", "/app/cart", True),
        ("web_shop::get", "/app/web-shop", True),
        ("cartography::get", "/app/cart", False),
        ("example.org/team/ship.Get", "/app/cart", False),
        ("serde_x::cart", "/app/cart", False),
        ("cart", "/app/cart", False),
        ("cart::get", "", False),
        ("go::get", "/app/go", False),
        ("", "", False),
    ],
)
def test_a_namespace_named_as_the_program_is_the_programs(symbol: str, module: str, is_own: bool) -> None:
    assert is_of_program(symbol, module) == is_own


def test_in_the_programs_own_file_a_crate_of_another_name_is_its_callers() -> None:
    stacks = [["tonic::serve", "cart::get", "unheard_of::sort"], ["unheard_of::sort"]]
    modules: list[list[str] | None] = [["/app/cart"] * 3, ["/app/cart"]]
    assert categories(stacks, modules=modules) == ["application", UNCLASSIFIED]


def test_the_rules_that_the_documentation_shows_are_rules(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cycle-tax.md").read_text()
    shown = load((_file(tmp_path, page.split("```toml\n")[1].split("```")[0]),))
    assert categories([["main", "cart_add"]], shown) == ["application"]
    assert categories([["pack"]], shown, [["/opt/libourwire.so"]]) == ["serialization"]
    assert all(category in page for category in (*rule_table.CATEGORIES, UNCLASSIFIED))
