"""Tests of mutants.py: which crates, which sample, which text."""

import unittest

import mutants


def change(name: str, first: tuple[int, int], last: tuple[int, int], replacement: str) -> dict:
    """A change as cargo-mutants lists it."""
    start, end = ({"line": line, "column": column} for line, column in (first, last))
    return {"name": name, "span": {"start": start, "end": end}, "replacement": replacement}


class Samples(unittest.TestCase):
    def test_machines_are_tried_and_their_parts_and_shells_are_not(self) -> None:
        folders = ["scotfree-core", "scotfree-io", "remedy-persist", "remedy-persist/world", "remedy-cache"]
        manifests = [f"a/crates/{folder}/Cargo.toml" for folder in folders]
        self.assertEqual(mutants.machine_crates(manifests), ["remedy-cache", "remedy-persist", "scotfree-core"])

    def test_a_seed_is_a_sample(self) -> None:
        changes = [change(f"change {index}", (1, 1), (1, 2), "") for index in range(50)]
        names = [one["name"] for one in mutants.shuffled(changes, 7)]
        self.assertEqual(names, [one["name"] for one in mutants.shuffled(changes[::-1], 7)])
        self.assertNotEqual(names, [one["name"] for one in mutants.shuffled(changes, 8)])
        self.assertEqual(len(set(names)), 50)


class Texts(unittest.TestCase):
    TEXT = "fn f() -> bool {\n    let é = 1 + 2;\n    é > 3\n}\n"

    def test_an_operator_is_replaced_where_it_stands_counted_in_letters(self) -> None:
        lines = mutants.changed(self.TEXT, change("", (3, 7), (3, 8), ">=")).splitlines()
        self.assertEqual(lines[2], "    é >= 3")
        lines = mutants.changed(self.TEXT, change("", (2, 13), (2, 14), "")).splitlines()
        self.assertEqual(lines, ["fn f() -> bool {", "    let é =  + 2;", "    é > 3", "}"])

    def test_a_body_of_several_lines_is_replaced_whole(self) -> None:
        text = mutants.changed(self.TEXT, change("", (2, 5), (3, 10), "true"))
        self.assertEqual(text, "fn f() -> bool {\n    true\n}\n")


if __name__ == "__main__":
    unittest.main()
