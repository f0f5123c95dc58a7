"""Draws Vega-Lite specifications as PNG, without network.

`plot.py FOLDER [NAME...]` draws FOLDER/NAME.png of each FOLDER/NAME.vl.json, of all if none is named.
A picture carries the mark of its specification, so that tidy sees when one is older than the other.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import vl_convert
from PIL import Image, PngImagePlugin

ENDING = ".vl.json"
# The renderer's newest version of the grammar's fifth edition, in which the specifications are written.
VEGA_LITE = "5.21"
BYTES_MAX = 60_000
# The picture's size over the specification's: the first that gives few enough bytes is taken.
SCALES = (1.5, 1.0)
COLOURS = 128


def small(png: bytes, mark: str) -> bytes:
    """The picture in few colours, with a mark in it."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # Rare colours are those of the bounds, so none may be lost to a common one.
    picture = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    information = PngImagePlugin.PngInfo()
    information.add_text("Specification", mark)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True, pnginfo=information)
    return out.getvalue()


def draw(specification: dict[str, Any]) -> bytes:
    """The picture of a specification, whose data must lie in it."""
    mark: str = specification["usermeta"]["mark"]
    for scale in SCALES:
        # No address is allowed: what is drawn is what the file holds.
        png = vl_convert.vegalite_to_png(
            specification, vl_version=VEGA_LITE, scale=scale, allowed_base_urls=[]
        )
        picture = small(png, mark)
        if len(picture) <= BYTES_MAX:
            return picture
    raise ValueError(f"{len(picture)} bytes; allowed are {BYTES_MAX}: draw fewer panels")


def draw_file(file: Path) -> Path:
    """Draws a file's picture beside it."""
    picture = file.with_name(file.name.removesuffix(ENDING) + ".png")
    picture.write_bytes(draw(json.loads(file.read_text())))
    return picture


def files(folder: Path, names: list[str]) -> list[Path]:
    """The specifications of these names, or all."""
    return [folder / (name + ENDING) for name in names] or sorted(folder.glob("*" + ENDING))


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    failed = 0
    for file in files(Path(arguments[0]), arguments[1:]):
        try:
            print(draw_file(file))
        except (OSError, ValueError, KeyError) as error:
            print(f"plot.py: {file}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
