"""Tests of mutations.py: which text, who is asked, what is said."""

import contextlib
import io
import re
import unittest

import mutations

TABLE = [{"name": name, "breaks": "G1"} for name in ["first", "second", "third"]]


def no_mistake(one):
    """The second cannot be tried, the third is missed."""
    if one["name"] == "second":
        raise mutations.TableError("it does not compile:\nwhy")
    return "unit tests: fails" if one["name"] == "first" else None


class Mutations(unittest.TestCase):
    def test_a_mistake_is_made_where_its_text_stands_and_only_if_that_is_one_place(self):
        mutation = {"name": "n", "file": "f", "text": "a < b", "instead": "a <= b"}
        self.assertEqual(mutations.changed("if a < b {", mutation), "if a <= b {")
        for text in ["", "a < b || a < b"]:
            with self.assertRaises(mutations.TableError):
                mutations.changed(text, mutation)

    def test_each_mistake_of_the_table_can_be_made(self):
        table = mutations.read_table((mutations.ROOT / mutations.CRATE / "mutations.toml").read_text())
        for one in table:
            text = (mutations.ROOT / mutations.CRATE / one["file"]).read_text()
            self.assertNotEqual(mutations.changed(text, one), text)

    def test_a_protocol_is_asked_about_its_own_code(self):
        self.assertNotIn("hermes_keeps", mutations.world_tests("src/chain/log.rs"))
        self.assertEqual(mutations.world_tests("src/hermes.rs")[0], "hermes_keeps")
        self.assertEqual(len(mutations.world_tests("src/desk.rs")), 7)
        self.assertEqual(mutations.model_tests("src/hermes/keys.rs"), ["hermes_keeps_every_promise"])
        self.assertEqual(len(mutations.model_tests("src/chain.rs")), 2)
        self.assertEqual(len(mutations.model_tests("src/desk.rs")), 3)
        self.assertEqual(len(mutations.stages("membership/src/etcd/decide.rs")), 1)

    def test_whoever_is_asked_is_there(self):
        """A pattern that fits no test is passed without a word."""
        crate = mutations.ROOT / mutations.CRATE
        for tests, asked in [
            ("world/tests/simulation.rs", mutations.world_tests("src/desk.rs")),
            ("models/tests/models.rs", mutations.model_tests("src/desk.rs")),
        ]:
            names = re.findall(r"^fn (\w+)\(\) \{", (crate / tests).read_text(), re.MULTILINE)
            for pattern in asked:
                self.assertEqual(len([name for name in names if pattern in name]), 1, pattern)

    def test_a_mistake_that_does_not_compile_stops_nobody(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            missed, errors = mutations.try_all(TABLE, no_mistake)
        self.assertEqual((missed, errors), (["third"], ["second"]))
        self.assertIn("first (G1)\n    unit tests: fails [0 s]\n", said.getvalue())
        self.assertIn("second (G1)\n    ERROR of the table: it does not compile:\nwhy", said.getvalue())
        self.assertIn("third (G1)\n    MISSED", said.getvalue())

    def test_it_is_well_if_nearly_all_are_noticed_and_all_could_be_tried(self):
        self.assertEqual(mutations.summary(20, ["a"], []), ("19 of 20 mistakes are noticed (95 %)\nmissed: a", True))
        self.assertFalse(mutations.summary(19, ["a"], [])[1])
        told, is_well = mutations.summary(20, [], ["b"])
        self.assertEqual(told, "19 of 19 mistakes are noticed (100 %)\nan error of the table: b")
        self.assertFalse(is_well)

    def test_what_did_not_hold_is_said(self):
        self.assertEqual(mutations.reason(mutations.ENDLESS), "does not end")
        self.assertEqual(mutations.reason("seed 12 broke Alike in step 3: they differ"), "Alike, seed 12")
        self.assertEqual(mutations.reason("thread 'a' panicked at a-b/src/a.rs:3:5:\nno"), "panics at a-b/src/a.rs:3")
        self.assertEqual(mutations.reason("dies: not so: an answered write is here"), "an answered write is here")


if __name__ == "__main__":
    unittest.main()
