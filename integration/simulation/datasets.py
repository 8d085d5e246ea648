"""Experiment ``datasets``: a copy of several datasets while a source link is stuck.

``python -m integration.simulation.datasets`` runs the experiment in the simulator, and writes
``datasets.json`` (results) and ``datasets.md`` (table) into docs/explanation/experiments.
"""

from __future__ import annotations

import json
import statistics

from integration.simulation import simulator

#: Names of the orders on the page.
WORDS = {
    "fcfs": "first come, first served",
    "nearest": "nearest to complete first",
    "ours": "the same, and stuck links are given up",
}


def rows(text: str) -> list[list[str]]:
    """Return the rows of the table, one for each order. The numbers are medians over the runs."""
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
    """Return the text of the page."""
    value = json.loads(text)
    head = ["order", "mean completion, s", "change", "last, s", "sent twice"]
    line = f"{value['line_seconds'] * 1000:.0f} ms"
    read = f"{value['read_seconds'] * 1000:.0f} ms"
    begin, end = (f"{value[f'stuck_{word}_seconds']:.0f} s" for word in ("from", "until"))
    return f"""<!-- Written by `python -m integration.simulation.datasets`; edit that. -->

# Datasets and stuck links

A transfer copies {value["datasets"]} datasets of 20 to 580 files. Each file is one object, and
there are {value["objects"]} objects in all. A dataset is useful only when it is complete. A *link*
is a storage target of the source together with its network path. Each file is on one of
{value["links"]} links, and a replica of the file is on another link. A link needs {read} to read an
object. All links share one line, which transfers one object in {line}. {value["stuck_links"]} link
(2 % of the links) is stuck: it passes no bytes from {begin} to {end}.

The table compares orders in which the source sends the objects. Each number is the median of
{len(value["runs"])} runs, in which the datasets are submitted in different orders.

- The column *mean completion* shows the time until a dataset is complete, as the mean over all
  datasets. The column *change* compares this time with the first row.
- The column *last* shows the time until the last dataset is complete.
- The column *sent twice* shows the part of the objects that the source sent twice.

{simulator.table(head, rows(text))}

Even in the first row, the source skips busy links, so a stuck link delays only the files on this
link. But nearly every dataset has files on the stuck link, so nearly all datasets wait for it. In
the second row, the source first sends the dataset that is nearest to complete. So the datasets
without files on the stuck link are complete earlier.

In the third row, the source also gives up a link from which nothing has arrived for many times the
usual time of an object. This helps all datasets. The source then reads the replicas of those
objects of the link that still wait to be read. It also reads the replicas of the objects that were
being read from the link. These objects may be sent twice, but not more than 2 % of all objects. If
the link is stuck for a longer time, the gain is larger, and the number of objects sent twice stays
the same.

The shipped code makes the decisions (`dray_sched::objects`, `dray_sched::congestion`). The links,
the line that they share and the replicas are simulated, because the scheduler of a real session
knows only one replica of each file. The datasets of a real session are the folders directly below
the destination, as in [the measured case](datasets-real.md).
"""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    return {"datasets.json": text, "datasets.md": page(text)}


if __name__ == "__main__":
    simulator.write(simulator.PAGES, files(simulator.run("datasets")))
