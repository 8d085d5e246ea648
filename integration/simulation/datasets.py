"""Datasets over links some of which are stuck: ``dray-sim experiment datasets``.

``python -m integration.simulation.datasets`` runs it and writes ``datasets.json`` (results) and
``datasets.md`` (the table) into docs/explanation/experiments.
"""

from __future__ import annotations

import json
import statistics

from integration.simulation import simulator

#: names of the ways on the page
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

{value["datasets"]} datasets of 20 to 580 files, {value["objects"]} objects in all; a dataset is
useful only when it is complete. Each file is on one of {value["links"]} links (a storage target
with its path) and has a copy on another. A link needs {read} for an object; all share a line that
takes one in {line}. {value["stuck_links"]} link, 2 % of them, passes no bytes from {begin} to
{end}. Medians of {len(value["runs"])} orders of submission:

{simulator.table(head, rows(text))}

First come, first served is a fair comparison: it passes over busy links, and only files of the
stuck link wait for it. But nearly every dataset has files there, so nearly all wait. Sending the
dataset that is nearest to complete first helps the datasets without files there. Giving the link
up, when nothing has come from it for many times the usual time, helps all: waiting objects are read
from the copy without extra cost; objects under way are read twice, within 2 % of all bytes. The
gain depends on the time for which the link is stuck; the bytes sent twice do not.

The choice is that of the shipped code (`dray_sched::objects`, `dray_sched::congestion`). Links,
line and copies are modelled: a session has one copy of each file. Its datasets are the folders
directly beneath the destination, as in [the measured case](datasets-real.md).
"""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    return {"datasets.json": text, "datasets.md": page(text)}


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("datasets")))
