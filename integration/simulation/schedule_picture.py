"""Pictures of the order in which a real copy sends objects while one target is slow.

``python -m integration.simulation.schedule_picture`` copies files on four storage targets once in
the order ``layout``, and once in the order ``file``. It writes ``schedule.json``,
``schedule-layout.svg`` and ``schedule-file.svg`` into docs/explanation/experiments.
``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.harness import tree
from integration.simulation import plot, simulator

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
    """Draw a mark for each object, at its time (x) and in the row of its source target (y)."""
    rows = [
        plot.Marks(
            f"osd{target}",
            [at for at, found in sent if found == target],
            (SLOW_FROM, SLOW_TO) if target == SLOW else None,
        )
        for target in range(TARGETS)
    ]
    return plot.marks(title, rows, seconds)


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
