"""Pictures of results as SVG: lines over time, marks at times, and groups of bars.

The same numbers always give the same bytes. A test draws each picture again from the stored
results, and compares it with the picture in the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

#: Colours of Okabe and Ito, which colour-blind people can distinguish.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
WIDTH = 860
HEIGHT = 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 46
TICKS = 5
#: Height of a horizontal bar, and the gap between the bars of two names. Both are in pixels.
ROW_BAR, ROW_GAP = 12, 8
#: Height of a row of marks
MARK_ROW = 30


@dataclass(frozen=True)
class Line:
    """A curve: its name, and its points (x, y)."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Bars:
    """Bars of one colour: their name, and one value for each group."""

    name: str
    values: list[float]


@dataclass(frozen=True)
class Marks:
    """Times of events in one row."""

    name: str
    times: list[float]
    #: Begin and end of the grey period of the row.
    slow: tuple[float, float] | None = None


@dataclass(frozen=True)
class Frame:
    """The title of a picture, and the labels of its axes."""

    title: str
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Scale:
    """A linear map from numbers (``low`` to ``high``) to pixels (``begins`` to ``ends``)."""

    low: float
    high: float
    begins: float
    ends: float

    def at(self, value: float) -> float:
        """Return the position of a number in pixels."""
        part = (value - self.low) / (self.high - self.low)
        return self.begins + part * (self.ends - self.begins)


def step(high: float) -> float:
    """Return a round distance of ticks, with at most ``TICKS`` steps from 0 to ``high``."""
    rough = max(high, 1e-9) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= rough)


def text(x: float, y: float, words: str, *more: str) -> str:
    """Return a text element. ``more`` are its further attributes."""
    return " ".join([f'<text x="{x:.1f}" y="{y:.1f}"', *more]) + f">{escape(words)}</text>"


def stroke(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    """Return a thin straight line."""
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="{colour}"/>'


def legend(names: list[str]) -> list[str]:
    """Return the legend in the upper right corner: each name with its colour."""
    parts = []
    x = float(WIDTH - RIGHT)
    for at, name in reversed(list(enumerate(names))):
        x -= 7.0 * len(name) + 24
        parts.append(f'<rect x="{x:.1f}" y="12" width="12" height="12" fill="{colour(at)}"/>')
        parts.append(text(x + 16, 22, name))
    return parts


def colour(at: int) -> str:
    """Return the colour of the series with the index ``at``."""
    return COLOURS[at % len(COLOURS)]


def up(frame: Frame, high: float) -> tuple[Scale, list[str]]:
    """Return the scale and the elements of the vertical axis, which starts at zero."""
    distance = step(high)
    top = distance * math.ceil(high / distance)
    scale = Scale(0, top, HEIGHT - BOTTOM, TOP)
    parts = []
    for count in range(round(top / distance) + 1):
        y = scale.at(count * distance)
        parts.append(stroke(LEFT, y, WIDTH - RIGHT, y, "#ddd"))
        parts.append(text(LEFT - 6, y + 4, f"{count * distance:g}", 'text-anchor="end"'))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 16 {middle:.1f})"'
    parts.append(text(16, middle, frame.y_label, turned))
    return scale, parts


def page(frame: Frame, parts: list[str], height: int = HEIGHT) -> str:
    """Return a complete picture: background, title, ``parts`` and the label of the x axis."""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="12"'
        ' font-family="sans-serif">',
        f"<title>{escape(frame.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = text(middle, height - 8, frame.x_label, 'text-anchor="middle"')
    return "\n".join([*head, *parts, label, "</svg>"]) + "\n"


def lines(frame: Frame, series: list[Line]) -> str:
    """Draw curves. Both axes start at zero.

    :raises ValueError: if the series have no point.
    """
    points = [point for line in series for point in line.points]
    if not points:
        raise ValueError(f"{frame.title}: nothing to draw")
    y_scale, parts = up(frame, max(y for _, y in points))
    most = max(x for x, _ in points)
    x_scale = Scale(0, most, LEFT, WIDTH - RIGHT)
    distance = step(most)
    for count in range(math.floor(most / distance) + 1):
        x = x_scale.at(count * distance)
        parts.append(stroke(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4, "#666"))
        label = text(x, HEIGHT - BOTTOM + 18, f"{count * distance:g}", 'text-anchor="middle"')
        parts.append(label)
    for at, line in enumerate(series):
        path = " ".join(f"{x_scale.at(x):.1f},{y_scale.at(y):.1f}" for x, y in line.points)
        style = f'fill="none" stroke="{colour(at)}" stroke-width="2"'
        parts.append(f'<polyline points="{path}" {style}/>')
    return page(frame, [*parts, *legend([line.name for line in series])])


def bars(frame: Frame, groups: list[str], series: list[Bars]) -> str:
    """Draw groups of vertical bars, with the value of each bar above it.

    :raises ValueError: if a series does not have one value for each group.
    """
    if not groups or any(len(one.values) != len(groups) for one in series):
        raise ValueError(f"{frame.title}: one value for each group")
    y_scale, parts = up(frame, max(value for one in series for value in one.values))
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = room * 0.8 / len(series)
    for nth, group in enumerate(groups):
        begins = LEFT + nth * room
        for at, one in enumerate(series):
            x = begins + room * 0.1 + at * width
            y = y_scale.at(one.values[nth])
            size = f'width="{width - 2:.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
            parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour(at)}"/>')
            label = f"{one.values[nth]:.0f}"
            style = 'text-anchor="middle" font-size="9"'
            parts.append(text(x + width / 2 - 1, y - 3, label, style))
        middle = begins + room / 2
        style = 'text-anchor="middle" font-size="11"'
        parts.append(text(middle, HEIGHT - BOTTOM + 16, group, style))
    return page(frame, [*parts, *legend([one.name for one in series])])


def across(frame: Frame, names: list[str], series: list[Bars]) -> str:
    """Draw horizontal bars, grouped by name, with the value of each bar at its end.

    Use this function instead of :func:`bars` for many names or for long names.

    :raises ValueError: if a series does not have one value for each name.
    """
    if not names or any(len(one.values) != len(names) for one in series):
        raise ValueError(f"{frame.title}: one value for each name")
    left = 20 + 6.5 * max(map(len, names))
    room = ROW_GAP + ROW_BAR * len(series)
    height = TOP + room * len(names) + BOTTOM
    high = max(value for one in series for value in one.values)
    distance = step(high)
    top = distance * math.ceil(high / distance)
    # Leave 40 pixels for the value behind the longest bar.
    scale = Scale(0, top, left, WIDTH - RIGHT - 40)
    parts = []
    for count in range(round(top / distance) + 1):
        x = scale.at(count * distance)
        parts.append(stroke(x, TOP, x, height - BOTTOM, "#ddd"))
        style = 'text-anchor="middle"'
        parts.append(text(x, height - BOTTOM + 16, f"{count * distance:g}", style))
    for nth, name in enumerate(names):
        y = float(TOP + ROW_GAP / 2 + room * nth)
        middle = y + ROW_BAR * len(series) / 2 + 4
        parts.append(text(left - 6, middle, name, 'text-anchor="end" font-size="11"'))
        for at, one in enumerate(series):
            end = scale.at(one.values[nth])
            size = f'width="{end - left:.1f}" height="{ROW_BAR - 1}"'
            place = f'x="{left:.1f}" y="{y + at * ROW_BAR:.1f}"'
            parts.append(f'<rect {place} {size} fill="{colour(at)}"/>')
            label = f"{one.values[nth]:.0f}" if one.values[nth] else "did not run"
            parts.append(text(end + 4, y + at * ROW_BAR + 9, label, 'font-size="9"'))
    return page(frame, [*parts, *legend([one.name for one in series])], height)


def marks(title: str, rows: list[Marks], seconds: float) -> str:
    """Draw a row for each series, with a mark at each of its times."""
    bottom = TOP + MARK_ROW * len(rows)
    height = bottom + BOTTOM
    x_scale = Scale(0, seconds, LEFT, WIDTH - RIGHT)
    parts = [text(LEFT, 22, title, 'font-size="14"')]
    for at, row in enumerate(rows):
        y = TOP + MARK_ROW * at
        if row.slow is not None:
            begins, ends = (x_scale.at(value) for value in row.slow)
            size = f'width="{ends - begins:.1f}" height="{MARK_ROW}"'
            parts.append(f'<rect x="{begins:.1f}" y="{y}" {size} fill="#eee"/>')
        parts.append(text(8, y + 19, row.name))
        path = "".join(f"M{x_scale.at(time):.1f} {y + 5}v20" for time in row.times)
        parts.append(f'<path d="{path}" stroke="{colour(at)}" stroke-width="2"/>')
    parts.append(stroke(LEFT, bottom, WIDTH - RIGHT, bottom, "#666"))
    distance = step(seconds)
    for count in range(math.floor(seconds / distance) + 1):
        x = x_scale.at(count * distance)
        parts.append(stroke(x, bottom, x, bottom + 4, "#666"))
        parts.append(text(x, bottom + 18, f"{count * distance:g}", 'text-anchor="middle"'))
    return page(Frame(title, "seconds", ""), parts, height)
