"""Tests of plot.py: what is drawn, what is refused, and that no network is needed."""

import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import plot
from PIL import Image


def specification(**changes: Any) -> dict[str, Any]:
    """A bar chart with two bars in it."""
    bars = {
        "background": "white",
        "usermeta": {"mark": "speed abc 1"},
        "data": {"values": [{"arm": "slow", "us": 30}, {"arm": "fast", "us": 10}]},
        "mark": {"type": "bar", "color": "#C00000"},
        "encoding": {
            "x": {"field": "arm", "type": "nominal"},
            "y": {"field": "us", "type": "quantitative"},
        },
    }
    return bars | changes


class Drawing(unittest.TestCase):
    def setUp(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.vl.json").write_text(text)

    def test_a_picture_shows_the_bars_and_carries_the_mark(self) -> None:
        picture = Image.open(io.BytesIO(plot.draw(specification())))
        self.assertEqual(picture.info["Specification"], "speed abc 1")
        colours = {colour for _, colour in picture.convert("RGB").getcolors() or []}
        self.assertIn((0xC0, 0, 0), colours)
        self.assertIn((255, 255, 255), colours)

    def test_each_file_gets_its_picture_and_a_bad_one_stops_no_other(self) -> None:
        self.write("good", json.dumps(specification()))
        self.write("bad", "{")
        self.write("unmarked", json.dumps(specification(usermeta={})))
        self.write("unknown", json.dumps(specification(mark="blob")))
        self.assertEqual(plot.main([str(self.folder)]), 1)
        self.assertEqual([file.name for file in self.folder.glob("*.png")], ["good.png"])

    def test_names_choose_files(self) -> None:
        self.write("one", json.dumps(specification()))
        self.write("two", json.dumps(specification()))
        self.assertEqual(plot.main([str(self.folder), "two"]), 0)
        self.assertEqual([file.name for file in self.folder.glob("*.png")], ["two.png"])
        self.assertEqual(plot.main([str(self.folder), "three"]), 1)

    def test_data_from_elsewhere_are_refused(self) -> None:
        elsewhere = specification(data={"url": "http://127.0.0.1:9/data.json"})
        with self.assertRaises(ValueError):
            plot.draw(elsewhere)

    def test_a_picture_that_is_too_large_is_refused(self) -> None:
        with mock.patch.object(plot, "BYTES_MAX", 100), self.assertRaisesRegex(ValueError, "fewer panels"):
            plot.draw(specification())


if __name__ == "__main__":
    unittest.main()
