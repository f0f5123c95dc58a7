"""The text of `perf script` becomes stacks."""

import gzip
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import folded_of, rows_of

from scotfree.study.ingest.opening import ENDS_EARLY
from scotfree.study.ingest.perf_script import PerfScript
from scotfree.study.ingest.stacks import STACK_FRAMES_MAX, SYMBOL_CHARS_MAX
from scotfree.study.ingest.textlines import LINE_BYTES_MAX

LINES = [
    "# ========",
    "# hostname : node7",
    "# ========",
    "#",
    "cart 4242 81987.325814:    2004008 cpu-clock:u: ",
    "\tffffffff821c9cb2 mas_walk+0x2 ([kernel.kallsyms])",
    "\t           98565 ns::f(int, char (*)[2])+0x225 (/usr/bin/cart (deleted))",
    "\t    7f0000000000 [unknown] ([unknown])",
    "",
    "web server  77/78   [003]  81987.327822:    1000 cycles:P: ",
    "\t           11 work (/usr/lib/libwork.so.2)",
    "",
    "web server  77/78 81987.4: 3000 cycles:P:             11 work+0x9 (/usr/lib/libwork.so.2)",
    "cart 4242 81988.3: page-faults: ",
    "\t 12 touch+0x1 (/usr/bin/cart)",
]
TEXT = "\n".join([*LINES, ""])


def path_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "perf.txt"
    path.write_bytes(content)
    return path


def test_a_sample_is_its_stack_from_the_root_with_its_period(tmp_path: Path) -> None:
    rows, trouble, records = rows_of(PerfScript(), path_of(tmp_path, TEXT.encode()))
    assert (trouble, records) == ([], 4)
    assert rows.to_pylist() == [
        {
            "service": "cart",
            "machine": "node7",
            "ts_ns": None,
            "stack": ["[unknown]", "ns::f(int, char (*)[2])", "mas_walk"],
            "modules": [None, "/usr/bin/cart", "[kernel.kallsyms]"],
            "weight": 2_004_008.0,
            "unit": "cpu_ns",
        },
        {
            "service": "web server",
            "machine": "node7",
            "ts_ns": None,
            "stack": ["work"],
            "modules": ["/usr/lib/libwork.so.2"],
            "weight": 4_000.0,
            "unit": "cpu_cycles",
        },
        {
            "service": "cart",
            "machine": "node7",
            "ts_ns": None,
            "stack": ["touch"],
            "modules": ["/usr/bin/cart"],
            "weight": 1.0,
            "unit": "page-faults",
        },
    ]


def test_threads_belong_to_their_process_once_its_first_thread_was_seen(tmp_path: Path) -> None:
    text = "cart 7/7 1.0: 5 cpu-clock: \n\t1 f (/c)\n\nworker-1 7/9 1.1: 5 cpu-clock: \n\t1 f (/c)\n\n"
    rows, _, _ = rows_of(PerfScript(), path_of(tmp_path, text.encode()))
    assert [(row["service"], row["weight"]) for row in rows.to_pylist()] == [("cart", 10.0)]


def test_the_form_is_known_by_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert PerfScript().recognises(path, TEXT.encode())
    for other in (b"", b"main;work 12\n", b'{"resourceSpans":[]}', b"a b c: d\n", b"\x0a\x04\x08\x01\x10\x02"):
        assert not PerfScript().recognises(path, other)


def test_what_is_no_sample_is_counted_and_the_rest_kept(tmp_path: Path) -> None:
    text = "nonsense\n\tffff f (/c)\n" + TEXT + "more nonsense (\n"
    rows, trouble, records = rows_of(PerfScript(), path_of(tmp_path, text.encode()))
    assert (rows.num_rows, records) == (3, 4)
    assert [(entry["count"], entry["is_kept"]) for entry in trouble] == [(3, False)]


def test_stacks_and_lines_that_are_too_long_are_cut_and_told(tmp_path: Path) -> None:
    frames = "".join(f"\t1 f{number} (/c)\n" for number in range(STACK_FRAMES_MAX + 10))
    text = f"cart 1 1.0: 5 cpu-clock: \n\t1 {'g' * 5_000} (/c)\n{frames}\t1 {'h' * LINE_BYTES_MAX} (/c)\n\n"
    rows, trouble, _ = rows_of(PerfScript(), path_of(tmp_path, text.encode()))
    stack = rows.to_pylist()[0]["stack"]
    assert len(stack) == STACK_FRAMES_MAX
    assert stack[-1] == "g" * SYMBOL_CHARS_MAX
    assert [entry["count"] for entry in trouble] == [1, 1, 1]


def test_a_truncated_archive_keeps_what_came_before(tmp_path: Path) -> None:
    whole = gzip.compress(
        "".join(f"cart 1 {n}.0: 5 cpu-clock: \n\t{n:x} f{n} (/c)\n\n" for n in range(5_000)).encode()
    )
    rows, trouble, records = rows_of(PerfScript(), path_of(tmp_path, whole[: len(whole) // 2]))
    assert 0 < records < 5_000
    assert rows.num_rows == records
    assert ENDS_EARLY in {entry["reason"] for entry in trouble}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(LINES),
            st.text(max_size=80),
            st.from_regex(r"[ \t]*[0-9a-f]{1,20} [a-z(]{0,5}( \([a-z]*\)?)?", fullmatch=True),
        ),
        max_size=30,
    )
)
def test_any_text_gives_rows_or_trouble(tmp_path_factory, parts: list[str]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("any") / "perf.txt"
    path.write_text("\n".join(parts), errors="replace")
    rows, trouble, records = rows_of(PerfScript(), path)
    assert sum(folded_of(rows).values()) >= 0
    assert records >= rows.num_rows
    assert all(entry["count"] > 0 for entry in trouble)
