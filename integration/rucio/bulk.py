"""``python -m integration.rucio.bulk``: the time of a rule of many small files.

The command starts a real Rucio and two endpoints on this host. It measures a rule, from the start
of Rucio's submitter until the destination endpoint has the last file. It compares this time with
``dray cp -r`` of equal files between the same endpoints. Each run uses new files. The endpoints'
folders are in ``DRAY_TEST_DIR``, or in the system's folder for temporary files.

With ``--split``, the command also prints where each daemon of Rucio spends its time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.endpoint.raw import shipped_program
from integration.harness.services import start_postgresql
from integration.rucio.conftest import Scene
from integration.rucio.inside import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS_MAX = 900.0
#: Maximum number of files of the first run, which warms up the clients and the imports.
WARM = 20
#: Time in which several submitters find each other. Rucio's default.
WAIT_SECONDS = 10


def rule(
    scene: Scene,
    dataset: str,
    count: int,
    size: int,
    submitters: Sequence[Callable[..., Any]] = (),
) -> dict[str, float]:
    """Run a rule. Return the seconds from the start of the submitter to three events.

    :param submitters: the processes of several submitters. Their wait for each other does not
        count.

    ``submitted``: the submitter has submitted all files. ``arrived``: the endpoint has all files.
    ``ok``: the poller and the finisher have run, and the rule is OK.
    """
    root = str(scene.ends["a"].root("data"))
    scene.do("register", rse="A-DATA", dataset=dataset, root=root, count=count, size=size)
    id = scene.do("add_rule", name=dataset, rse="B-DATA")
    os.sync()
    start = time.monotonic()
    if submitters:
        wait = {"bulk": count, "wait_seconds": WAIT_SECONDS}
        with ThreadPoolExecutor(len(submitters)) as pool:
            list(pool.map(lambda do: do("submit", **wait), submitters))
        start += WAIT_SECONDS
    else:
        scene.do("submit", bulk=count)
    submitted = time.monotonic() - start
    _await_ended(scene, {"rucio.rule": id})
    arrived = time.monotonic() - start
    scene.do("poll", bulk=count)
    scene.do("finish", bulk=count)
    state = scene.do("rule", id=id)
    assert state["state"] == "OK", state
    return {"submitted": submitted, "arrived": arrived, "ok": time.monotonic() - start}


def split(scene: Scene, dataset: str, count: int, size: int) -> None:
    """Run a rule, and print the time and the SQL statements of the parts of each daemon."""
    root = str(scene.ends["a"].root("data"))
    scene.do("register", rse="A-DATA", dataset=dataset, root=root, count=count, size=size)
    id = scene.do("add_rule", name=dataset, rse="B-DATA")
    for daemon in ("submit", "poll", "finish"):
        found = scene.do("split", daemon=daemon, bulk=count)
        print(f"{daemon}: {sum(found['seconds'].values()):.1f} s; for each file:", end=" ")
        times = sorted(found["seconds"].items())
        print(", ".join(f"{part} {1000 * value / count:.2f} ms" for part, value in times), end="; ")
        counts = sorted(found["statements"].items())
        print(", ".join(f"{part} {value / count:.2f} statements" for part, value in counts))
        if daemon == "submit":
            _await_ended(scene, {"rucio.rule": id})
    state = scene.do("rule", id=id)
    assert state["state"] == "OK", state


@contextlib.contextmanager
def database(folder: Path, psycopg: str | None) -> Iterator[dict[str, Any]]:
    """Start a PostgreSQL. Yield the arguments of a scene that uses it.

    :param psycopg: folder of the Python package psycopg. Without it, the scene uses SQLite.
    """
    if psycopg is None:
        yield {}
        return
    # PostgreSQL does not run as root.
    folder.chmod(0o755)
    service = start_postgresql(folder / "postgresql", "rucio")
    try:
        url = f"postgresql+psycopg://postgres@127.0.0.1:{service.port}/rucio"
        yield {"database": url, "path": [Path(psycopg)]}
    finally:
        service.close()


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
    parser.add_argument(
        "--split", action="store_true", help="also print the time of the parts of each daemon"
    )
    parser.add_argument("--submitters", type=int, default=1, help="processes; needs --postgresql")
    parser.add_argument(
        "--postgresql",
        metavar="FOLDER",
        help="use PostgreSQL instead of SQLite; FOLDER is made by: "
        "pip install --target FOLDER 'psycopg[binary]==3.2.13'",
    )
    given = parser.parse_args(arguments)
    if given.submitters > 1 and given.postgresql is None:
        parser.error("SQLite has one writer at a time: with --submitters, use --postgresql")
    folder = Path(tempfile.mkdtemp(prefix="dray-bulk-", dir=os.environ.get("DRAY_TEST_DIR")))
    more = {"group_files": "1"} if given.alone else {}
    try:
        with database(folder, given.postgresql) as where:
            inner = folder / "scene"
            inner.mkdir()
            scene = Scene(inner, more, **where)
            try:
                _compare(scene, given)
            finally:
                scene.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _compare(scene: Scene, given: argparse.Namespace) -> None:
    """Run the pairs of runs, and print their times."""
    assert scene.rucio is not None
    scene.do("make_rses", rses=[scene.rse(site, "data") for site in ("a", "b")])
    names = [f"submitter{number}" for number in range(given.submitters)]
    submitters = [scene.rucio.another(name) for name in names] if given.submitters > 1 else []
    rule(scene, "warm", min(given.files, WARM), given.bytes, submitters)
    copied, ruled = [], []
    for number in range(given.runs):
        copied.append(copy(scene, str(number), given.files, given.bytes))
        print(f"dray cp -r {copied[-1]:.1f} s", end="; ", flush=True)
        ruled.append(rule(scene, f"run{number}", given.files, given.bytes, submitters))
        _clear(scene)
        print("rule", end=" ")
        print("; ".join(f"{key} {value:.1f} s" for key, value in ruled[-1].items()), flush=True)
    base = statistics.median(copied)
    arrived = statistics.median(each["arrived"] for each in ruled)
    print(f"medians: dray cp -r {base:.1f} s, rule {arrived:.1f} s, ratio {arrived / base:.2f}")
    if given.split:
        split(scene, "split", given.files, given.bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
