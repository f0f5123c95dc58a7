"""Tests of mutations.py: which text, who is asked, what is said."""

import unittest

import mutations


class Mutations(unittest.TestCase):
    def test_a_mistake_is_made_where_its_text_stands_and_only_if_that_is_one_place(self):
        mutation = {"name": "n", "file": "f", "text": "a < b", "instead": "a <= b"}
        self.assertEqual(mutations.changed("if a < b {", mutation), "if a <= b {")
        for text in ["", "a < b || a < b"]:
            with self.assertRaises(ValueError):
                mutations.changed(text, mutation)

    def test_each_mistake_of_the_table_can_be_made(self):
        table = mutations.read_table((mutations.ROOT / mutations.CRATE / "mutations.toml").read_text())
        for one in table:
            text = (mutations.ROOT / mutations.CRATE / one["file"]).read_text()
            self.assertNotEqual(mutations.changed(text, one), text)

    def test_a_protocol_is_asked_about_its_own_code(self):
        self.assertNotIn("hermes_keeps", mutations.world_tests("src/chain/log.rs"))
        self.assertEqual(mutations.world_tests("src/hermes.rs")[0], "hermes_keeps")
        self.assertEqual(len(mutations.world_tests("src/desk.rs")), 5)
        self.assertEqual(len(mutations.stages("membership/src/etcd/decide.rs")), 1)

    def test_what_did_not_hold_is_said(self):
        self.assertEqual(mutations.reason("seed 12 broke Alike in step 3: they differ"), "Alike, seed 12")
        self.assertEqual(mutations.reason("thread 'a' panicked at src/a.rs:3:5:\nno"), "panics at src/a.rs:3")
        self.assertEqual(mutations.reason("dies: not so: an answered write is here"), "an answered write is here")


if __name__ == "__main__":
    unittest.main()
