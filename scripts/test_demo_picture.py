"""Tests of demo_picture.py: README's picture is of the run that is kept beside it, and shows what was lost."""

import copy
import json
import unittest
from typing import Any
from xml.etree import ElementTree

import demo_picture


def kept() -> dict[str, Any]:
    return json.loads(demo_picture.KEPT.read_text())


def words(drawn: str) -> list[str]:
    texts = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [text.text or "" for text in texts]


class Picture(unittest.TestCase):
    def test_what_is_committed_is_drawn_of_what_is_kept(self) -> None:
        self.assertEqual(demo_picture.draw(kept()), demo_picture.DRAWN.read_text(), "scripts/demo_picture.py")

    def test_redis_alone_comes_first_and_losses_are_counted(self) -> None:
        shown = words(demo_picture.draw(kept()))
        rows = [shown.index(title) for title, _ in demo_picture.WAYS.values()]
        self.assertEqual(rows, sorted(rows))
        self.assertTrue(all(shown.count(title) >= 2 for title, _ in demo_picture.WAYS.values()), "one and many connections")
        for way in kept()["seen"]["many"]["ways"].values():
            self.assertTrue(any(text.startswith(f"{way['per_s']:,.0f}, ") for text in shown))
        lost = kept()["power_failure"]["redis_everysec"]
        self.assertGreater(lost["lost"], 0)
        self.assertIn(f"{lost['lost']:,} of {lost['acked']:,} lost", shown)
        self.assertIn(f"{kept()['lost']:,} of {kept()['acked']:,} lost", shown)

    def test_a_run_without_a_redis_has_no_rows_of_one(self) -> None:
        run = copy.deepcopy(kept())
        for sets in (run["seen"]["one"], run["seen"]["many"]):
            sets["ways"] = {name: way for name, way in sets["ways"].items() if name in ("covered", "persist")}
        self.assertNotIn("Redis alone, always", words(demo_picture.draw(run)))

    def test_of_a_run_only_that_is_kept_which_is_shown(self) -> None:
        of = demo_picture.kept_of(kept() | {"stages": {}}, "a <machine>")
        self.assertNotIn("stages", of)
        self.assertTrue(any("a <machine>" in text for text in words(demo_picture.draw(of))))


if __name__ == "__main__":
    unittest.main()
