"""Pictures of the order in which a real copy sends objects while one target is slow.

``python -m integration.simulation.schedule_picture`` copies files on four storage targets once in
the order ``layout``, and once in the order ``file``. It writes ``schedule.json``,
``schedule-layout.svg`` and ``schedule-file.svg`` into docs/explanation/experiments.
``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.harness import tree
from integration.simulation import simulator

if TYPE_CHECKING:
    from integration.harness.program import Bench

TARGETS = 4
#: Number of files on each target. The files of the targets alternate in the list of files.
TURNS = 5
FILE_BYTES = 1 << 20
OBJECT_BYTES = 64 << 10
TARGET_RATE = 4 << 20
#: Index of the slow target. It has ``SLOW_RATE`` (bytes per second) from second ``SLOW_FROM`` to
#: ``SLOW_TO`` of the copy, and ``TARGET_RATE`` otherwise.
SLOW = 2
SLOW_RATE = 256 << 10
SLOW_FROM, SLOW_TO = 0.3, 1.0
FOLDERS = [f"{turn}osd{target}" for turn in range(TURNS) for target in range(TARGETS)]

WIDTH, ROW, LEFT, TOP = 860, 30, 70, 40
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#009e73")


def copy(bench: Bench, source: Path, order: str) -> list[list[float]]:
    """Copy all files. Return for each sent object the time in seconds, and its target."""
    sink = Path(tempfile.mkdtemp(dir=bench.folder))
    trace = bench.folder / f"{order}.jsonl"
    words: list[Any] = ["-r", *(source / name for name in FOLDERS), f"{sink}/", "--order", order]
    words += ["--object-size", str(OBJECT_BYTES), "--pool", "1MiB", "--durability", "none"]
    words += [f"--target={source / name}={name[1:]}" for name in FOLDERS]
    for target in range(TARGETS):
        rate = str(TARGET_RATE)
        if target == SLOW:
            rate += f",{SLOW_RATE}@{SLOW_FROM},{TARGET_RATE}@{SLOW_TO}"
        words += ["--limit-target", f"osd{target}={rate}"]
    bench.start_cp(*words, "--trace", trace).wait().expect(0)
    targets: dict[int, int] = {}
    sent: list[list[float]] = []
    for line in map(json.loads, trace.read_text().splitlines()):
        if "path" in line:
            targets[line["file"]] = int(line["path"].split("/")[0][-1])
        elif line["parts"]:
            sent.append([round(line["at_us"] / 1e6, 4), targets[line["parts"][0]["file"]]])
    first = min(at for at, _ in sent)
    return [[round(at - first, 4), target] for at, target in sent]


def run(bench: Bench) -> dict[str, Any]:
    """Copy in both orders, and return the results."""
    source = bench.folder / "source"
    for number, name in enumerate(FOLDERS):
        (source / name).mkdir(parents=True)
        tree.make_file(source / name / "data", FILE_BYTES, seed=number)
    return {order: copy(bench, source, order) for order in ("layout", "file")}


def picture(sent: list[list[float]], title: str, seconds: float) -> str:
    """Draw a mark for each object: x is the time, and the row is the target of the source."""
    height = TOP + ROW * TARGETS + 34

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * at / seconds

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        f'<rect x="{x(SLOW_FROM):.1f}" y="{TOP + ROW * SLOW}" '
        f'width="{x(SLOW_TO) - x(SLOW_FROM):.1f}" height="{ROW}" fill="#eeeeee"/>',
    ]
    for target in range(TARGETS):
        y = TOP + ROW * target
        parts.append(f'<text x="8" y="{y + 19}">osd{target}</text>')
        marks = "".join(f"M{x(at):.1f} {y + 5}v20" for at, found in sent if found == target)
        parts.append(f'<path d="{marks}" stroke="{COLOURS[target]}" stroke-width="2"/>')
    bottom = TOP + ROW * TARGETS
    parts.append(f'<path d="M{LEFT} {bottom}H{WIDTH - 16}" stroke="black"/>')
    tick = 0.0
    while tick <= seconds:
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 18}">{tick:g} s</text>')
        tick += 0.5
    return "\n".join([*parts, "</svg>", ""])


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    value = json.loads(text)
    seconds = max(at for sent in value.values() for at, _ in sent) * 1.02
    names = {"layout": "order layout: the other targets go on", "file": "order file: all wait"}
    drawn = {
        f"schedule-{order}.svg": picture(value[order], title, seconds)
        for order, title in names.items()
    }
    return {"schedule.json": text, **drawn}


if __name__ == "__main__":
    simulator.measure(run, files)
