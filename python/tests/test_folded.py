"""Folded stacks become rows."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import folded_of, rows_of

from scotfree.study.ingest.folded import Folded

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters=";\n\r", exclude_categories=["Cs", "Cc", "Zl", "Zp"])
)


def path_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "stacks.folded"
    path.write_text(text)
    return path


def test_a_line_is_a_stack_and_equal_ones_add_up(tmp_path: Path) -> None:
    text = "main;work;tcp_sendmsg_[k] 3\nmain;a b(int, char) 2.5\n\nmain;work;tcp_sendmsg_[k] 4\n"
    rows, trouble, records = rows_of(Folded(), path_of(tmp_path, text))
    assert (trouble, records) == ([], 3)
    assert [(row["stack"], row["modules"], row["weight"], row["unit"]) for row in rows.to_pylist()] == [
        (["main", "work", "tcp_sendmsg"], [None, None, "[kernel.kallsyms]"], 7.0, "cpu_samples"),
        (["main", "a b(int, char)"], [None, None], 2.5, "cpu_samples"),
    ]


def test_a_line_without_a_count_is_counted(tmp_path: Path) -> None:
    rows, trouble, _ = rows_of(
        Folded(), path_of(tmp_path, "main;a\nmain;b -3\nmain;c nan\nmain;d 1e999\n12\nmain;e 1\n")
    )
    assert folded_of(rows) == {"main;e": 1.0}
    assert [(entry["count"], entry["record"]) for entry in trouble] == [(5, 0)]


def test_the_form_is_known_by_its_lines(tmp_path: Path) -> None:
    assert Folded().recognises(tmp_path, b"main;a 1\nmain;b 2\n")
    assert Folded().recognises(tmp_path, b"main;a 1\nmain;b")
    for other in (
        b"",
        b"a 1\nb 2\n",
        b"a;b;c\n1;2;3\n",
        b'{"a": 1}\n',
        b"cart 1 1.0: 5 cpu-clock: \n\t1 f (/c)\n",
    ):
        assert not Folded().recognises(tmp_path, other)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.lists(NAMES.map(str.strip).filter(bool), min_size=1, max_size=5), st.integers(0, 10**9)),
        max_size=20,
    )
)
def test_no_weight_is_lost(tmp_path_factory, stacks: list[tuple[list[str], int]]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("folded") / "stacks"
    path.write_text("".join(f"{';'.join(names)} {count}\n" for names, count in stacks), encoding="utf-8")
    rows, trouble, records = rows_of(Folded(), path)
    assert (trouble, records) == ([], len(stacks))
    assert sum(rows["weight"].to_pylist()) == sum(count for _, count in stacks)
