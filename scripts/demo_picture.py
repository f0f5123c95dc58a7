"""Draws what `scot demo --json` has measured: the picture of README.

`demo_picture.py DEMO.json --machine TEXT` keeps of a run what the picture shows as docs/img/demo.json, and draws
docs/img/demo.svg of it. Without arguments it draws what is kept again. Only Python's own library is used.
"""

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[1] / "docs/img"
KEPT, DRAWN = IMAGES / "demo.json", IMAGES / "demo.svg"

WAYS = {
    "redis_everysec": ("Redis alone, everysec", "#777777"),
    "redis_always": ("Redis alone, always", "#777777"),
    "redis_wait2": ("Redis alone, 2 replicas, WAIT 2", "#777777"),
    "proxy": ("scot proxy, covered", "#3b5b92"),
    "covered": ("device, covered", "#006d5b"),
    "persist": ("device, early", "#006d5b"),
}
WIDTH, LEFT, RIGHT, TOP, ROW = 800, 240, 60, 66, 34
BAR_WIDTH = 400
LOSS_WIDTH = 300


def micros(nanos: float) -> str:
    """Microseconds, or milliseconds where they are many."""
    us = nanos / 1_000
    return f"{us:.0f} µs" if us < 1_000 else f"{us / 1_000:.1f} ms"


class Axis:
    """Decades from below the least to above the greatest time."""

    def __init__(self, times: list[float]) -> None:
        self.first = math.floor(math.log10(min(times)))
        self.last = math.ceil(math.log10(max(times)))

    def place(self, nanos: float) -> float:
        share = (math.log10(nanos) - self.first) / max(self.last - self.first, 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def latencies(seen: dict[str, Any]) -> tuple[list[str], float]:
    """A row for each way with one connection, and where the last one ends."""
    ways = {name: seen["one"]["ways"][name] for name in WAYS if name in seen["one"]["ways"]}
    axis = Axis([time for way in ways.values() for time in (way["p50_ns"], way["p99_ns"])])
    bottom = TOP + ROW * len(ways)
    parts = []
    for at in axis.decades():
        x = axis.place(at)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{bottom - 12}" stroke="#dddddd"/>')
        parts.append(text(x, bottom + 4, micros(at), 'text-anchor="middle" class="small"'))
    for row, (name, way) in enumerate(ways.items()):
        words, colour = WAYS[name]
        y, p50, p99 = TOP + ROW * row, axis.place(way["p50_ns"]), axis.place(way["p99_ns"])
        parts.append(text(LEFT - 14, y + 4, words, 'text-anchor="end"'))
        parts.append(f'<line x1="{p50:.1f}" y1="{y}" x2="{p99:.1f}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{p50:.1f}" cy="{y}" r="6" fill="{colour}"/>')
        parts.append(f'<circle cx="{p99:.1f}" cy="{y}" r="5" fill="white" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(p50, y - 10, micros(way["p50_ns"]), 'text-anchor="middle" class="small"'))
        parts.append(text(p99 + 10, y + 4, micros(way["p99_ns"]), 'class="small"'))
    return parts, bottom


def rates(seen: dict[str, Any], y: float) -> tuple[list[str], float]:
    """A bar for each way with many connections."""
    many = seen["many"]
    ways = {name: many["ways"][name] for name in WAYS if name in many["ways"]}
    most = max(way["per_s"] for way in ways.values())
    parts = [text(20, y, f"SETs per second of {many['connections']} connections, each with one at a time, and the median SET", 'class="title"')]
    for name, way in ways.items():
        words, colour = WAYS[name]
        y += 24
        width = BAR_WIDTH * way["per_s"] / most
        parts.append(text(LEFT - 14, y + 4, words, 'text-anchor="end"'))
        parts.append(f'<rect x="{LEFT}" y="{y - 7}" width="{width:.1f}" height="14" fill="{colour}"/>')
        parts.append(text(LEFT + width + 10, y + 4, f"{way['per_s']:,.0f}, {micros(way['p50_ns'])}", 'class="small"'))
    return parts, y


def losses(shown: dict[str, Any], y: float) -> tuple[list[str], float]:
    """What the power failure took, as shares of what was acknowledged."""
    control = shown["power_failure"]["redis_everysec"]
    rows = [
        ("Redis alone, everysec", control["acked"], control["lost"]),
        ("behind the device", shown["acked"], shown["lost"]),
    ]
    parts = [text(20, y, "Then the Redis host lost power (both append-only files cut back to their last sync):", 'class="title"')]
    for words, acked, lost in rows:
        y += 28
        parts.append(text(LEFT - 14, y + 4, words, 'text-anchor="end"'))
        parts.append(f'<rect x="{LEFT}" y="{y - 7}" width="{LOSS_WIDTH}" height="14" fill="#cfe5e0"/>')
        width = LOSS_WIDTH * lost / acked
        if lost:
            parts.append(f'<rect x="{LEFT + LOSS_WIDTH - width:.1f}" y="{y - 7}" width="{width:.1f}" height="14" fill="#b00020"/>')
        weight = ' font-weight="bold"' if lost else ""
        parts.append(text(LEFT + LOSS_WIDTH + 12, y + 4, f"{lost:,} of {acked:,} lost", weight.strip()))
    return parts, y


def draw(shown: dict[str, Any]) -> str:
    """The picture of one run."""
    title = "One SET at a time, as its client sees it: ● median, ○ 99 of 100 (logarithmic)"
    body, bottom = latencies(shown["seen"])
    bars, bottom = rates(shown["seen"], bottom + 44)
    more, bottom = losses(shown, bottom + 40)
    plane = {"xdp": "a device with its plane in the kernel", "user": "a device that is a process"}[shown["plane"]]
    notes = [
        f"One run of scot demo on {shown['machine']}.",
        f"In between {plane}, with its log in memory (ram:1).",
        "The replicas keep no files; the proxy's log is on the disk.",
        "All hosts are namespaces of that machine, and share its processors: trust the order, not the times.",
        "The device did not lose power.",
    ]
    for line in notes:
        bottom += 24 if line is notes[0] else 18
        more.append(text(20, bottom + 8, line, 'class="small"'))
    height = bottom + 24
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}">',
            "<style>text { font: 14px sans-serif; fill: #222222 } .small { font-size: 12px; fill: #555555 }",
            ".title { font-weight: bold }</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            text(20, 26, title, 'class="title"'),
            *body,
            *bars,
            *more,
            "</svg>\n",
        ]
    )


def kept_of(shown: dict[str, Any], machine: str) -> dict[str, Any]:
    """What the picture is made of."""
    keys = ("plane", "durability", "acked", "found", "lost", "doubled", "power_failure", "seen")
    return {"machine": machine} | {key: shown[key] for key in keys}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="what `scot demo --json` has printed")
    parser.add_argument("--machine", default="an unnamed machine", help="where that was, in words")
    flags = parser.parse_args(words)
    if flags.run:
        kept = kept_of(json.loads(flags.run.read_text()), flags.machine)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    DRAWN.write_text(draw(json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
