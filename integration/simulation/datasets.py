"""Datasets over links of which some are stuck, as ``dray-sim experiment datasets`` has it.

``python -m integration.simulation.datasets`` runs it and writes docs/explanation/experiments anew:
``datasets.json`` (results) and ``datasets.md`` (the table).
"""

from __future__ import annotations

import json
import statistics

from integration.simulation import simulator

#: how the ways are called on the page
WORDS = {
    "fcfs": "first come, first served",
    "nearest": "nearest to complete first",
    "ours": "the same, and stuck links are given up",
}


def rows(text: str) -> list[list[str]]:
    """Give a row for each way: medians over the seeds."""
    runs = json.loads(text)["runs"]
    found = []
    base = 0.0
    for at, words in enumerate(WORDS.values()):
        ways = [run["ways"][at] for run in runs]
        mean, last, extra = (
            statistics.median(way[key] for way in ways)
            for key in ("mean_seconds", "last_seconds", "extra_percent")
        )
        base = base or mean
        cells = [f"{mean:.1f}", f"{mean / base - 1:+.0%}", f"{last:.1f}", f"{extra:.2f} %"]
        found.append([words, *cells])
    return found


def page(text: str) -> str:
    """Write the page."""
    value = json.loads(text)
    head = ["way", "mean completion, s", "against the first", "last, s", "sent twice"]
    line = f"{value['line_seconds'] * 1000:.0f} ms"
    read = f"{value['read_seconds'] * 1000:.0f} ms"
    begin, end = (f"{value[f'stuck_{word}_seconds']:.0f} s" for word in ("from", "until"))
    return f"""<!-- Written by `python -m integration.simulation.datasets`; edit that. -->

# Datasets and stuck links

{value["datasets"]} datasets of 20 to 580 files, {value["objects"]} objects in all, each dataset
worth something only when it is complete. Each file lies on one of {value["links"]} links (a storage
target with its way out) and has a copy on another. A link needs {read} for an object; all share a
line that takes one in {line}. {value["stuck_links"]} link, 2 % of them, lets nothing through from
{begin} to {end}. Medians of {len(value["runs"])} orders of submission:

{simulator.table(head, rows(text))}

First come, first served is a fair one: it walks around links that are busy, and waits for the stuck
one only with what lies there. But nearly every dataset has something there, so nearly all wait. To
send what is nearest to complete first helps those that have nothing there. To give the link up, as
soon as nothing has come of it for many times what is usual, helps all: what waits there is read
from its copy, which costs nothing; what was under way is read twice, within 2 % of all bytes.
How much is gained depends on how long the link is stuck; how much is sent twice does not.

The choice is the one that ships (`dray_sched::objects`, `dray_sched::congestion`). Links, line and
copies are modelled: a session has one copy of each file. Its datasets are the folders right beneath
the destination, [for real](datasets-real.md) too.
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    return {"datasets.json": text, "datasets.md": page(text)}


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("datasets")))
