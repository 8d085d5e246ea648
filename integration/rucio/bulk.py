"""``python -m integration.rucio.bulk``: the time of a rule of many small files.

The command starts a real Rucio and two endpoints on this host. It measures a rule, from the end of
the call that adds the rule until the destination endpoint has the last file. Rucio's submitters run
all the time. The command compares this time with ``dray cp -r`` of equal files between the same
endpoints. Each run uses new files. The endpoints' folders are in ``DRAY_TEST_DIR``, or in the
system's folder for temporary files.

With ``--split``, the command prints where each daemon of Rucio spends its time instead.
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
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.endpoint.raw import shipped_program
from integration.harness.services import start_postgresql
from integration.rucio.conftest import Scene
from integration.rucio.inside import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dray.client import Transfer

SECONDS_MAX = 900.0
#: Maximum number of files of the first run, which warms up the clients and the imports.
WARM = 20
#: Seconds after which a daemon looks for new requests.
CYCLE_SECONDS = 1
#: Seconds in which all daemons of a kind find each other, after the first of them has run.
MEET_SECONDS = 5
#: Seconds between two looks at a rule or at its transfers.
PAUSE_SECONDS = 0.2


def rule(
    scene: Scene, dataset: str, count: int, size: int, *, is_finished: bool = False
) -> dict[str, float]:
    """Run a rule. Return the seconds from the addition of the rule to some events.

    ``first`` and ``last``: the submitters have submitted the first and the last transfer.
    ``arrived``: the endpoint has all files. ``ok``: the rule is OK.

    :param is_finished: true if a poller and a finisher run all the time. Without them, the rule
        does not become OK.
    """
    _register(scene, dataset, count, size)
    os.sync()
    id = scene.do("add_rule", name=dataset, rse="B-DATA")
    start, added_at = time.monotonic(), datetime.now(timezone.utc)
    transfers = _await_arrived(scene, id, count)
    arrived = time.monotonic() - start
    times = [each.submitted_at for each in transfers if each.submitted_at is not None]
    first, last = (max(0.0, (at - added_at).total_seconds()) for at in (min(times), max(times)))
    found = {"first": first, "last": last, "arrived": arrived}
    if is_finished:
        while (state := scene.do("rule", id=id))["state"] != "OK":
            assert time.monotonic() - start < SECONDS_MAX, state
            time.sleep(PAUSE_SECONDS)
        found["ok"] = time.monotonic() - start
    return found


def _register(scene: Scene, dataset: str, count: int, size: int) -> None:
    root = str(scene.ends["a"].root("data"))
    scene.do("register", rse="A-DATA", dataset=dataset, root=root, count=count, size=size)


def split(scene: Scene, dataset: str, count: int, size: int) -> None:
    """Run a rule, and print the time and the SQL statements of the parts of each daemon."""
    _register(scene, dataset, count, size)
    id = scene.do("add_rule", name=dataset, rse="B-DATA")
    for daemon in ("submit", "poll", "finish"):
        found = scene.do("split", daemon=daemon, bulk=count)
        print(f"{daemon}: {sum(found['seconds'].values()):.1f} s; for each file:", end=" ")
        times = sorted(found["seconds"].items())
        print(", ".join(f"{part} {1000 * value / count:.2f} ms" for part, value in times), end="; ")
        counts = sorted(found["statements"].items())
        print(", ".join(f"{part} {value / count:.2f} statements" for part, value in counts))
        if daemon == "submit":
            _await_arrived(scene, id, count)
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


def _await_arrived(scene: Scene, rule: str, count: int) -> list[Transfer]:
    """Wait until the transfers of a rule have copied all files. Return the transfers."""
    until = time.monotonic() + SECONDS_MAX
    with scene.ends["b"].client() as client:
        while True:
            found = list(client.transfers(labels={"rucio.rule": rule}, limit=1000))
            for at, transfer in enumerate(found):
                left = max(until - time.monotonic(), 0.1)
                if not transfer.is_terminal:
                    found[at] = client.wait(transfer.id, timeout_seconds=left)
                assert found[at].state == "done", found[at]
            if sum(transfer.files.done for transfer in found) == count:
                return found
            assert time.monotonic() < until, f"{len(found)} transfers have fewer than {count} files"
            time.sleep(PAUSE_SECONDS)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m integration.rucio.bulk", description=__doc__)
    add = parser.add_argument
    add("--files", type=int, default=5000, help="files of the rule")
    add("--bytes", type=int, default=1_000_000, help="size of each file")
    add("--runs", type=int, default=3, help="pairs of runs; medians are printed")
    add("--rate", type=int, help="limit of the rate between the endpoints, in bytes per second")
    add("--alone", action="store_true", help="one transfer for each file")
    add("--split", action="store_true", help="print the time of the parts of each daemon instead")
    add("--submitters", type=int, default=1, help="processes; more than one needs --postgresql")
    add("--bulk", type=int, default=500, help="requests that a submitter takes at a time")
    add(
        "--finish",
        action="store_true",
        help="also run the poller and the finisher while files move; needs --postgresql",
    )
    add("--finishers", type=int, default=1, help="processes of the finisher, with --finish")
    add(
        "--set",
        action="append",
        type=_setting,
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="a setting for rucio.cfg; may be repeated",
    )
    add(
        "--postgresql",
        metavar="FOLDER",
        help="use PostgreSQL instead of SQLite; FOLDER is made by: "
        "pip install --target FOLDER 'psycopg[binary]==3.2.13'",
    )
    return parser


def _setting(word: str) -> tuple[str, str, str]:
    """Parse a setting for rucio.cfg."""
    name, sign, value = word.partition("=")
    section, _, key = name.partition(".")
    if not (section and key and sign):
        raise argparse.ArgumentTypeError(f"{word!r} is not SECTION.KEY=VALUE")
    return section, key, value


def _sections(settings: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for section, key, value in settings:
        found.setdefault(section, {})[key] = value
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the comparison, and print seconds."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if (given.submitters > 1 or given.finish) and given.postgresql is None:
        parser.error("SQLite has one writer at a time: for several daemons, use --postgresql")
    if given.split and (given.submitters > 1 or given.finish):
        parser.error("--split runs one daemon at a time: do not use --submitters or --finish")
    folder = Path(tempfile.mkdtemp(prefix="dray-bulk-", dir=os.environ.get("DRAY_TEST_DIR")))
    more = {"group_files": "1"} if given.alone else {}
    try:
        with database(folder, given.postgresql) as where, contextlib.ExitStack() as stack:
            inner = folder / "scene"
            inner.mkdir()
            scene = Scene(inner, more, _sections(given.set), **where)
            stack.callback(scene.close)
            if given.rate is not None:
                stack.enter_context(scene.slow(given.rate))
            scene.do("make_rses", rses=[scene.rse(site, "data") for site in ("a", "b")])
            if given.split:
                split(scene, "warm", min(given.files, WARM), given.bytes)
                split(scene, "split", given.files, given.bytes)
            else:
                _compare(scene, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _start_daemons(scene: Scene, given: argparse.Namespace) -> None:
    """Start the daemons of Rucio that run all the time."""
    assert scene.rucio is not None
    cycle = ("--sleep-time", str(CYCLE_SECONDS))
    words = ("rucio-conveyor-submitter", "--bulk", str(given.bulk), *cycle)
    for number in range(given.submitters):
        scene.rucio.daemon(f"submitter{number}", *words)
    if given.finish:
        scene.rucio.daemon("poller", "python", "-m", "integration.rucio.poll", "dray")
        for number in range(given.finishers):
            scene.rucio.daemon(f"finisher{number}", "rucio-conveyor-finisher", *cycle)
    rule(scene, "warm", min(given.files, WARM), given.bytes, is_finished=given.finish)
    time.sleep(MEET_SECONDS)


def _compare(scene: Scene, given: argparse.Namespace) -> None:
    """Run the pairs of runs, and print their times."""
    assert scene.rucio is not None
    _start_daemons(scene, given)
    copied, ruled = [], []
    for number in range(given.runs):
        copied.append(copy(scene, str(number), given.files, given.bytes))
        print(f"dray cp -r {copied[-1]:.1f} s", end="; ", flush=True)
        name = f"run{number}"
        ruled.append(rule(scene, name, given.files, given.bytes, is_finished=given.finish))
        _clear(scene)
        print("rule", end=" ")
        print("; ".join(f"{key} {value:.1f} s" for key, value in ruled[-1].items()), flush=True)
    assert not scene.rucio.ended(), scene.rucio.ended()
    base = statistics.median(copied)
    for event in ("arrived", "ok") if given.finish else ("arrived",):
        seconds = statistics.median(each[event] for each in ruled)
        print(f"medians: dray cp -r {base:.1f} s, {event} {seconds:.1f} s, {seconds / base:.2f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
