"""Real copies of folders of different sizes over a limited link.

``python -m integration.simulation.datasets_real`` takes two minutes. It copies the same files in
two ways: as several datasets, or as one dataset whose objects are sent first come, first served. It
writes ``datasets-real.json`` and ``datasets-real.md`` into docs/explanation/experiments.
``DRAY_PROGRAM`` names the program dray, by default the release build.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any

from integration.harness import tree
from integration.simulation import simulator

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench

#: Number of files in each dataset, in the order of the datasets' names.
FILES = (28, 48, 8, 40, 4, 32, 16, 24)
FILE_BYTES = 512 << 10
OBJECT_BYTES = 256 << 10
#: Rate of the link in bytes per second.
LINK = 16 << 20
ROUNDS = 3
#: The two ways to copy, and their names on the page.
WORDS = {
    "one": "as one dataset: first come, first served",
    "several": "each folder a dataset: nearest to complete first",
}


def make(folder: Path) -> None:
    """Make the files of all datasets."""
    for number, files in enumerate(FILES):
        dataset = folder / f"dataset{number}"
        dataset.mkdir(parents=True)
        for file in range(files):
            tree.make_file(dataset / f"{file:02}", FILE_BYTES, seed=100 * number + file)


def copy(bench: Bench, source: Path, sink: Path, way: str) -> list[float]:
    """Copy all datasets. Return the seconds from the first byte of the copy to the end of each."""
    # If the source is named without a slash at its end, the whole source is one dataset. With a
    # slash, each subfolder of the source is a dataset.
    named = f"{source}/" if way == "several" else source
    below = sink if way == "several" else sink / source.name
    words = ["-r", named, f"{sink}/", "--rate", str(LINK), "--pool", "4MiB"]
    words += ["--object-size", str(OBJECT_BYTES), "--durability", "none"]
    sink.mkdir()
    client = bench.start_cp(*words)
    seconds: dict[int, float] = {}
    began, running = 0.0, True
    while running:
        # Ask whether the client runs before looking at the files. The last look is then after the
        # end of the client.
        running = client.is_running()
        now = time.monotonic()
        for number, files in enumerate(FILES):
            if number not in seconds:
                names = [path.name for path in (below / f"dataset{number}").glob("*")]
                began = began or (now if names else 0.0)
                if sum(not name.startswith(".dray-") for name in names) == files:
                    seconds[number] = now - began
        time.sleep(0.01)
    client.wait().expect(0)
    # A copy of a folder's contents does not set the mode and time of the folder itself.
    differences = tree.differences(tree.describe(source), tree.describe(below))
    assert [line for line in differences if "b''" not in line] == []
    return [seconds[number] for number in range(len(FILES))]


def run(bench: Bench, rounds: int = ROUNDS) -> dict[str, Any]:
    """Copy ``rounds`` times in each way, in turns. Return the results."""
    source = bench.folder / "datasets"
    make(source)
    runs: list[dict[str, Any]] = []
    for turn in range(rounds):
        for way in WORDS:
            sink = bench.folder / f"{way}{turn}"
            runs.append({"way": way, "seconds": copy(bench, source, sink, way)})
            print(json.dumps(runs[-1]), flush=True)
    return {
        "files": FILES,
        "file_bytes": FILE_BYTES,
        "object_bytes": OBJECT_BYTES,
        "link_bytes_per_second": LINK,
        "runs": [
            {**each, "seconds": [round(second, 2) for second in each["seconds"]]} for each in runs
        ],
    }


def means(value: dict[str, Any], way: str) -> list[float]:
    """Return the mean completion of the datasets in seconds, for each run."""
    return [statistics.mean(each["seconds"]) for each in value["runs"] if each["way"] == way]


def bounds(value: dict[str, Any]) -> dict[str, float]:
    """Return the mean completion time of the datasets if only the link took time, in seconds.

    ``one``: the datasets are sent in the order of their names. ``several``: the smallest first, the
    order with the lowest mean.
    """
    seconds = [files * value["file_bytes"] / value["link_bytes_per_second"] for files in FILES]

    def mean(of: list[float]) -> float:
        return statistics.mean(sum(of[: place + 1]) for place in range(len(of)))

    return {"one": mean(seconds), "several": mean(sorted(seconds))}


def page(text: str) -> str:
    """Return the text of the page."""
    value = json.loads(text)
    base = statistics.median(means(value, "one"))
    least = bounds(value)
    rows = []
    for way, words in WORDS.items():
        mean = statistics.median(means(value, way))
        last = statistics.median(max(e["seconds"]) for e in value["runs"] if e["way"] == way)
        cells = [f"{mean:.2f}", f"{mean / base - 1:+.0%}", f"{last:.2f}", f"{least[way]:.2f}"]
        rows.append([words, *cells])
    head = ["order", "mean completion, s", "change", "last, s", "link only, s"]
    sizes = ", ".join(str(files) for files in value["files"])
    rate = f"{value['link_bytes_per_second'] >> 20} MiB/s"
    return f"""<!-- Written by `python -m integration.simulation.datasets_real`; edit that. -->

# Datasets, measured

A folder contains {len(value["files"])} subfolders with {sizes} files. Each file has
{value["file_bytes"] >> 10} KiB, in two objects. dray copies the folder with a rate of {rate}, in
two ways. In the first way, the command names the folder itself, so dray treats the whole folder as
one dataset, and sends the objects first come, first served. In the second way, the command names
the contents of the folder, so dray treats each subfolder as a dataset, and first sends the dataset
that is nearest to complete. The two ways took turns. Each number is the median of
{len(value["runs"]) // 2} runs.

- The column *mean completion* shows the time until a subfolder is complete, as the mean over all
  subfolders. The column *change* compares this time with the first row.
- The column *last* shows the time until the last subfolder is complete.
- The column *link only* shows the computed mean completion if only the transfer over the link took
  time. In the first row, the subfolders are sent in the order of their names. In the second row,
  the smallest subfolder is sent first.

{simulator.table(head, rows)}

With subfolders as datasets, the whole copy is not faster, but a subfolder is complete sooner on
average.

`python -m integration.simulation.datasets_real` runs the experiment and writes this page. [The
model](datasets.md) shows the effect of stuck links.
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    return {"datasets-real.json": text, "datasets-real.md": page(text)}


if __name__ == "__main__":
    simulator.measure(run, files)
