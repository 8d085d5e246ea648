"""A picture of the schedule around a slow OSD, from real copies out of a Ceph pool.

``python -m integration.bench.ceph_slow_picture`` starts a cluster in which one of the three OSDs is
slow, as :mod:`integration.bench.ceph_slow` does. It copies the same files with ``--order layout``
and with ``--order file``. It writes ``schedule.json``, ``schedule-layout.svg`` and
``schedule-file.svg`` into docs/explanation/measured-ceph.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from integration.bench.ceph_slow import OSDS, SLOW, Bench, Sizes, bench
from integration.harness.program import ROOT
from integration.simulation import plot
from integration.simulation.simulator import write
from integration.storage.ceph import find_missing

FOLDER = ROOT / "docs" / "explanation" / "measured-ceph"
ORDERS = ("layout", "file")


def copy(it: Bench, order: str) -> list[list[float]]:
    """Copy once; return the seconds since the first object and the OSD of each sent object."""
    it.run("source", order, SLOW)
    sent = sorted(it.sent("source"))
    first = sent[0][0]
    return [[round(at - first, 4), osds[0]] for at, osds in sent]


def picture(sent: list[list[float]], title: str, seconds: float) -> str:
    """Draw a mark for each object, at its time (x) and in the row of its OSD (y)."""
    rows = [
        plot.Marks(
            f"osd.{osd}",
            [at for at, found in sent if found == osd],
            (0, seconds) if osd == SLOW else None,
        )
        for osd in range(OSDS)
    ]
    return plot.marks(title, rows, seconds)


def files(text: str) -> dict[str, str]:
    """Give the results and both pictures, by name."""
    value: dict[str, Any] = json.loads(text)
    seconds = max(at for order in ORDERS for at, _ in value[order]) * 1.02
    drawn = {
        f"schedule-{order}.svg": picture(value[order], f"--order {order}", seconds)
        for order in ORDERS
    }
    return {"schedule.json": text, **drawn}


def main() -> None:
    """Copy in both orders, and draw the pictures."""
    parser = argparse.ArgumentParser(prog="python -m integration.bench.ceph_slow_picture")
    parser.add_argument("--folder", type=Path, help="folder for the cluster")
    given = parser.parse_args()
    if why := find_missing():
        raise SystemExit(why)
    sizes = Sizes()
    with bench(sizes, given.folder) as it:
        results: dict[str, Any] = {order: copy(it, order) for order in ORDERS}
    results["sizes"] = dataclasses.asdict(sizes)
    write(FOLDER, files(json.dumps(results) + "\n"))


if __name__ == "__main__":
    main()
