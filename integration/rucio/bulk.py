"""``python -m integration.rucio.bulk``: the time of a rule of many small files.

The command starts a real Rucio and two endpoints on this host. It measures a rule, from the start
of Rucio's submitter until the destination endpoint has the last file. It compares this time with
``dray cp -r`` of equal files between the same endpoints. Each run uses new files. The endpoints'
folders are in ``DRAY_TEST_DIR``, or in the system's folder for temporary files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.endpoint.raw import shipped_program
from integration.rucio.conftest import Scene
from integration.rucio.inside import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS_MAX = 900.0
#: Maximum number of files of the first run, which warms up the clients and the imports.
WARM = 20


def rule(scene: Scene, dataset: str, count: int, size: int) -> dict[str, float]:
    """Run a rule. Return the seconds from the start of the submitter to three events.

    ``submitted``: the submitter has submitted all files. ``arrived``: the endpoint has all files.
    ``ok``: the poller and the finisher have run, and the rule is OK.
    """
    root = str(scene.ends["a"].root("data"))
    scene.do("register", rse="A-DATA", dataset=dataset, root=root, count=count, size=size)
    id = scene.do("add_rule", name=dataset, rse="B-DATA")
    os.sync()
    start = time.monotonic()
    scene.do("submit", bulk=count)
    submitted = time.monotonic() - start
    _await_ended(scene, {"rucio.rule": id})
    arrived = time.monotonic() - start
    scene.do("poll", bulk=count)
    scene.do("finish", bulk=count)
    state = scene.do("rule", id=id)
    assert state["state"] == "OK", state
    return {"submitted": submitted, "arrived": arrived, "ok": time.monotonic() - start}


def _await_ended(scene: Scene, labels: dict[str, str]) -> None:
    with scene.ends["b"].client() as client:
        until = time.monotonic() + SECONDS_MAX
        for transfer in list(client.transfers(labels=labels, limit=1000)):
            left = max(until - time.monotonic(), 0.1)
            ended = client.wait(transfer.id, timeout_seconds=left)
            assert ended.state == "done", ended


def copy(scene: Scene, name: str, count: int, size: int) -> float:
    """Run ``dray cp -r`` of new files between the endpoints. Return its seconds."""
    a, b = scene.ends["a"], scene.ends["b"]
    source = a.root(f"tree-{name}")
    seeds: list[Path] = []
    for number in range(count):
        path = source / f"{number % 256:02x}" / f"{number // 256:02x}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < CONTENTS:
            path.write_bytes(os.urandom(size))
            seeds.append(path)
        else:
            os.link(seeds[number % CONTENTS], path)
    os.sync()
    words: list[str | Path] = [shipped_program(), "cp", "-r", "--checksum-attributes"]
    for end in (a, b):
        token = scene.folder / f"token-{end.address.replace(':', '_')}"
        token.write_text(end.token())
        words += ["--token-file", f"{end.address}={token}"]
        words += ["--peer-key", f"{end.address}={end.key}"]
    words += [f"{a.place(f'tree-{name}')}/", f"{b.place(f'copy-{name}')}/"]
    start = time.monotonic()
    ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    seconds = time.monotonic() - start
    assert ran.returncode == 0, ran.stderr
    shutil.rmtree(source)
    shutil.rmtree(b.root(f"copy-{name}"))
    return seconds


def _clear(scene: Scene) -> None:
    for site in ("a", "b"):
        shutil.rmtree(scene.ends[site].root("data"))
        scene.ends[site].root("data").mkdir()


def main(arguments: Sequence[str]) -> int:
    """Run the comparison, and print seconds."""
    parser = argparse.ArgumentParser(prog="python -m integration.rucio.bulk", description=__doc__)
    parser.add_argument("--files", type=int, default=5000, help="files of the rule")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="size of each file")
    parser.add_argument("--runs", type=int, default=3, help="pairs of runs; medians are printed")
    parser.add_argument("--alone", action="store_true", help="one transfer for each file")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="dray-bulk-", dir=os.environ.get("DRAY_TEST_DIR")))
    more: dict[str, Any] = {"group_files": "1"} if given.alone else {}
    scene = Scene(folder, {key: str(value) for key, value in more.items()})
    try:
        scene.do("make_rses", rses=[scene.rse(site, "data") for site in ("a", "b")])
        rule(scene, "warm", min(given.files, WARM), given.bytes)
        copied, ruled = [], []
        for number in range(given.runs):
            copied.append(copy(scene, str(number), given.files, given.bytes))
            print(f"dray cp -r {copied[-1]:.1f} s", end="; ", flush=True)
            ruled.append(rule(scene, f"run{number}", given.files, given.bytes))
            _clear(scene)
            print("rule", end=" ")
            print("; ".join(f"{key} {value:.1f} s" for key, value in ruled[-1].items()), flush=True)
        base = statistics.median(copied)
        arrived = statistics.median(each["arrived"] for each in ruled)
        print(f"medians: dray cp -r {base:.1f} s, rule {arrived:.1f} s, ratio {arrived / base:.2f}")
    finally:
        scene.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
