"""Real copies while each of eight storage targets in turn has a tenth of its usual speed.

``python -m integration.simulation.slow_target_real`` takes four minutes. The options
``--limit-target`` and ``--rate`` of ``dray cp`` limit the targets and the link. The module writes
``slow-target-real.json`` and ``slow-target-real.md`` into docs/explanation/experiments.
``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.harness import tree
from integration.simulation import simulator

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

TARGETS = 8
#: Number of files on each target. The files of the targets alternate in the list of files.
TURNS = 6
FILE_BYTES = 768 << 10
OBJECT_BYTES = 16 << 10
#: Rate of a target, and rate of the link, in bytes per second. The link has three quarters of the
#: rate of all targets together.
TARGET_RATE = 1 << 20
LINK = TARGET_RATE * TARGETS * 3 // 4
#: Seconds for which each target is slow.
PERIOD_SECONDS = 0.75
ROUNDS = 3
FOLDERS = [f"{turn}target{target}" for turn in range(TURNS) for target in range(TARGETS)]


def limits(*, is_moving: bool) -> list[Word]:
    """Return the options that limit the targets. ``is_moving``: each in turn is slow."""
    words: list[Word] = []
    for target in range(TARGETS):
        rate = str(TARGET_RATE)
        if is_moving:
            begin, slow = target * PERIOD_SECONDS, TARGET_RATE // 10
            changes = [f"{slow}@{begin}", f"{TARGET_RATE}@{begin + PERIOD_SECONDS}"]
            rate = ",".join([rate, *changes])
        words += ["--limit-target", f"target{target}={rate}"]
    return words


def copy(bench: Bench, source: Path, end: str, order: str, *, is_moving: bool) -> float:
    """Copy all files. Return the seconds from the first byte to the last complete file."""
    sink = Path(tempfile.mkdtemp(dir=bench.folder))
    at = sink if end == "sink" else source
    ends: list[Word] = [f"--target={at / name}={name[1:]}" for name in FOLDERS]
    ends += [*limits(is_moving=is_moving), "--pool", "256KiB"]
    words: list[Word] = ["-r", *(source / name for name in FOLDERS)]
    how: list[Word] = ["--order", order, "--object-size", str(OBJECT_BYTES)]
    how += ["--durability", "none", "--rate", str(LINK)]
    if end == "sink":
        server = bench.serve(sink, *ends)
        words += [f"dray://{server.address}/", *how, "--pool", "256KiB", *bench.peer(server)]
    else:
        words += [f"{sink}/", *how, *ends]
    client = bench.start_cp(*words)
    began, done, running = 0.0, 0.0, True
    while running:
        # Ask before looking at the files. The last look is then after the end of the client.
        running = client.is_running()
        now = time.monotonic()
        there = [path for name in FOLDERS for path in (sink / name).glob("*")]
        began = began or (now if there else 0.0)
        if not done and sum(path.name == "data" for path in there) == len(FOLDERS):
            done = now
        time.sleep(0.01)
    client.wait().expect(0)
    if end == "sink":
        server.stop()
    differences = tree.differences(tree.describe(source), tree.describe(sink))
    assert [line for line in differences if "b''" not in line] == []
    return done - began


def run(bench: Bench, rounds: int = ROUNDS) -> dict[str, Any]:
    """Copy with and without slow targets, in turns. Return the results."""
    source = bench.folder / "source"
    for number, name in enumerate(FOLDERS):
        (source / name).mkdir(parents=True)
        tree.make_file(source / name / "data", FILE_BYTES, seed=number)
    runs: list[dict[str, Any]] = []
    for end in ("source", "sink"):
        free, moving = [], []
        for _ in range(rounds):
            free.append(copy(bench, source, end, "layout", is_moving=False))
            moving.append(copy(bench, source, end, "layout", is_moving=True))
        by_file = copy(bench, source, end, "file", is_moving=True)
        runs.append(
            {
                "end": end,
                "free_seconds": [round(each, 2) for each in free],
                "moving_seconds": [round(each, 2) for each in moving],
                "by_file_seconds": round(by_file, 2),
            }
        )
        print(json.dumps(runs[-1]), flush=True)
    return {
        "targets": TARGETS,
        "bytes": len(FOLDERS) * FILE_BYTES,
        "target_bytes_per_second": TARGET_RATE,
        "link_bytes_per_second": LINK,
        "period_seconds": PERIOD_SECONDS,
        "runs": runs,
    }


def times(each: dict[str, Any]) -> float:
    """Return the duration with slow targets, divided by the duration without."""
    free, moving = (statistics.median(each[f"{word}_seconds"]) for word in ("free", "moving"))
    return float(moving / free)


def page(text: str) -> str:
    """Return the text of the page."""
    value = json.loads(text)
    head = ["slow targets", "by layout, s", "no slow target, s", "quotient", "file order, s"]
    rows = []
    for each in value["runs"]:
        cells = [statistics.median(each[f"{word}_seconds"]) for word in ("moving", "free")]
        row = [each["end"], *(f"{cell:.2f}" for cell in cells), f"{times(each):.2f}"]
        rows.append([*row, f"{each['by_file_seconds']:.1f}"])
    rounds = len(value["runs"][0]["free_seconds"])
    alone = value["bytes"] / value["link_bytes_per_second"]
    return f"""<!-- Written by `python -m integration.simulation.slow_target_real`; edit that. -->

# A slow target that changes, measured

The real program copies {value["bytes"] / (1 << 20):.0f} MiB. At one end, the source or the sink,
the data is on {value["targets"]} storage targets. Each target has
{value["target_bytes_per_second"] / (1 << 20):.0f} MiB/s. The link has
{value["link_bytes_per_second"] / (1 << 20):.0f} MiB/s, so the copy takes at least {alone:.1f} s.
Each target in turn has a tenth of its speed for {value["period_seconds"] * 1000:.0f} ms. The option
`--limit-target`, whose value may change with time, sets these speeds. The
table shows the median of all copies of a kind (number of copies: {rounds}). The first column shows
the end at which targets were slow.

- The column *by layout* shows the time of a copy with slow targets that sends the objects by
  storage target, so that no target waits for a slow target.
- The column *no slow target* shows the time of the same copy if no target is slow.
- The column *quotient* shows the time by layout, divided by the time without a slow target.
- The column *file order* shows the time of a copy with slow targets that sends one file after the
  other.

{simulator.table(head, rows)}

In [the model](slow-target.md), the quotient is about 1.0 if the link limits the rate, as in this
experiment. The machine had other work during the run, so a difference of a tenth between two times
has no meaning. The copy in file order takes several times as long as the copy by layout.

`python -m integration.simulation.slow_target_real` runs the experiment and writes this page.
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    return {"slow-target-real.json": text, "slow-target-real.md": page(text)}


if __name__ == "__main__":
    simulator.measure(run, files)
