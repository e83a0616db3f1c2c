"""Plots as SVG by hand: bars with their spread, latencies on a logarithmic axis, and how far the bars are held.

A plot has its own ground, and colours for light and dark pages, so that it can be read wherever it is shown.
"""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH = 820
MARGIN = 24
LABELS = 290  # width of the column of labels
ROW = 28
THICK = 14
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial, "DejaVu Sans", sans-serif; fill: #16201d; }
.ground { fill: #ffffff; stroke: #dfe4e0; }
.title { font-size: 17px; font-weight: 650; }
.soft { fill: #56625e; }
.small { font-size: 12px; }
.group { font-weight: 600; }
.ours { fill: #0a6a55; } .peer { fill: #a7b2ae; } .bad { fill: #a5252b; } .base { fill: #c9d1cd; }
.line { stroke: #dfe4e0; } .axis { stroke: #9aa8a3; } .spread { stroke: #16201d; stroke-opacity: 0.55; stroke-width: 1.5; }
.link.ours { stroke: #0a6a55; } .link.peer { stroke: #a7b2ae; } .link { stroke-width: 2; stroke-opacity: 0.45; }
.hollow { fill: #ffffff; stroke-width: 2; } .hollow.ours { stroke: #0a6a55; } .hollow.peer { stroke: #8a9792; }
.want { stroke: #835100; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #e7edea; } .ground { fill: #171d1c; stroke: #2a3331; } .soft { fill: #9aa8a3; }
.ours { fill: #52d0a6; } .peer { fill: #66736f; } .bad { fill: #ff8f8f; } .base { fill: #48524f; }
.line { stroke: #2a3331; } .axis { stroke: #66736f; } .spread { stroke: #e7edea; }
.link.ours { stroke: #52d0a6; } .link.peer { stroke: #66736f; }
.hollow { fill: #171d1c; } .hollow.ours { stroke: #52d0a6; } .hollow.peer { stroke: #8a9792; } .want { stroke: #e8b04f; }
}
"""


class BarRow(NamedTuple):
    """A bar with its lowest and highest round; `style` is ours, peer or base."""

    label: str
    value: float
    low: float
    high: float
    note: str
    style: str


class LatencyRow(NamedTuple):
    label: str
    points: Sequence[float]  # p50, p99 and perhaps p99.9, in milliseconds
    style: str


class BarMark(NamedTuple):
    """How far a bar is held: 1 is the least that is accepted, more is better."""

    label: str
    reached: float
    want: float
    note: str
    is_held: bool


def plot_rates(title: str, subtitle: str, groups: dict[str, list[BarRow]]) -> str:
    """Horizontal bars in groups; every group has its own scale, because it is compared with itself."""
    shapes, y = [], 90
    notes = 190
    for name, rows in groups.items():
        shapes.append(_text(MARGIN, y, name, "group"))
        y += 12
        full = max(row.high for row in rows)
        for row in rows:
            left, width = MARGIN + LABELS, WIDTH - 2 * MARGIN - LABELS - notes
            reach = [value / full * width for value in (row.value, row.low, row.high)]
            middle = y + ROW / 2
            shapes += [
                _text(left - 12, middle + 4, row.label, "soft" if row.style != "ours" else "", anchor="end"),
                _bar(left, middle - THICK / 2, reach[0], row.style),
                _line(left + reach[1], middle, left + reach[2], middle, "spread"),
                _text(left + max(reach) + 10, middle + 4, row.note, "small"),
            ]
            y += ROW
        y += 30
    return _frame(title, subtitle, shapes, y - 8)


def plot_latencies(title: str, subtitle: str, groups: dict[str, list[LatencyRow]]) -> str:
    """p50, p99 and p99.9 of each row on one logarithmic axis."""
    values = [point for rows in groups.values() for row in rows for point in row.points]
    first, last = floor(log10(min(values))), ceil(log10(max(values)))
    left, right = MARGIN + LABELS, WIDTH - MARGIN - 20

    def place(value: float) -> float:
        return left + (log10(value) - first) / max(last - first, 1) * (right - left)

    shapes, y = [], 106
    body: list[str] = []
    for name, rows in groups.items():
        body.append(_text(MARGIN, y + 4, name, "group"))
        y += 10
        for row in rows:
            middle = y + ROW / 2 - 2
            spots = [place(point) for point in row.points]
            body.append(_text(left - 12, middle + 4, row.label, "soft small", anchor="end"))
            body.append(_line(spots[0], middle, spots[-1], middle, f"link {row.style}"))
            for number, spot in enumerate(spots):
                size, style = (
                    (5, row.style) if number == 0 else (4.5, f"hollow {row.style}") if number == 1 else (3, row.style)
                )
                body.append(f'<circle cx="{spot:.1f}" cy="{middle:.1f}" r="{size}" class="{style}"/>')
            y += ROW - 8
        y += 22
    for power in range(first, last + 1):
        spot = place(10.0**power)
        shapes.append(_line(spot, 92, spot, y - 8, "line"))
        shapes.append(_text(spot, 86, f"{10.0**power:g} ms", "soft small", anchor="middle"))
    return _frame(title, subtitle, shapes + body, y)


def plot_bars(title: str, subtitle: str, marks: list[BarMark]) -> str:
    """Every bar on one scale, relative to the least that is accepted."""
    labels = 460
    left, width = MARGIN + labels, WIDTH - 2 * MARGIN - labels - 64
    full = max(2.0, *(min(max(mark.reached, mark.want), 4.0) for mark in marks)) if marks else 2.0
    shapes, y = [], 96
    bottom = y + ROW * len(marks)
    least = left + width / full
    shapes.append(_text(least, y - 8, "least", "soft small", anchor="middle"))
    for mark in marks:
        middle = y + ROW / 2
        reach = min(mark.reached, full) / full * width
        want = left + min(mark.want, full) / full * width
        shapes += [
            _text(left - 12, middle + 4, mark.label, "small", anchor="end"),
            _bar(left, middle - THICK / 2, reach, "ours" if mark.is_held else "bad"),
            _line(want, middle - 9, want, middle + 9, "want"),
            _text(left + width + 16, middle + 4, mark.note, "small"),
        ]
        y += ROW
    shapes.append(_line(least, 94, least, bottom, "axis"))
    return _frame(title, subtitle, shapes, y + 8)


def _frame(title: str, subtitle: str, shapes: Sequence[str], height: float) -> str:
    height = ceil(height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(MARGIN, 34, title, "title"),
        _text(MARGIN, 54, subtitle, "soft small"),
        *shapes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "start") -> str:
    extra = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def _bar(x: float, y: float, width: float, style: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{THICK}" rx="3" class="{style}"/>'
