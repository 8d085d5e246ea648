"""Measures copies from and to a Ceph cluster while one of its three OSDs is slow.

``python -m integration.bench.ceph_slow`` prints the tables of docs/explanation/measured-ceph.md.
Each OSD delays its requests (``osd_debug_inject_dispatch_delay``). The delay makes each OSD so slow
that the processors, which all OSDs of this host share, do not limit its rate. The slow OSD delays
its requests longer than the other two OSDs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import statistics
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench.begin import catch_signals
from integration.bench.beside import TMPFS, Results, command_of, find_engine, options, show
from integration.bench.ceph import OBJECT, cluster
from integration.harness.program import Process
from integration.harness.tree import make_file
from integration.storage.ceph import find_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Word
    from integration.storage.ceph import Cluster

#: Number of placement groups of each pool.
GROUPS = 32
WAYS = ("source", "sink", "both")
SLOW = 1
OSDS = 3
NOBODY = -1
#: Choices of the slow OSD: OSD ``SLOW``, the OSD with the object log, or another OSD.
CHOICES = ("fixed", "log", "other")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data, and delays of the OSDs, in one measurement."""

    files: int = 6
    file_bytes: int = 16 * OBJECT
    #: Seconds by which each OSD except the slow OSD delays a message.
    delay: float = 0.004
    #: Seconds by which the slow OSD delays a message.
    slow_delay: float = 0.02
    #: Seconds after which another OSD becomes the slow OSD.
    turn: float = 2.0
    pool: str = "32MiB"


@dataclass(frozen=True)
class Ended:
    """Times of one finished copy, in seconds."""

    #: From the first sent object to the last sent object that is not on the slow OSD. In runs
    #: without a slow OSD, the objects of the same OSD are left out, so that the times can be
    #: compared.
    others: float
    #: From the start of the copy to the first sent object.
    before: float
    #: Duration of the whole command.
    whole: float


class Bench:
    """A Ceph cluster, and equal files in one of its pools and in memory."""

    def __init__(self, on: Cluster, folder: Path, sizes: Sizes) -> None:
        """Make the files in memory, and copy them into the pool ``from``."""
        self.on, self.folder, self.sizes = on, folder, sizes
        self.data = folder / "data"
        self.data.mkdir()
        for number in range(sizes.files):
            make_file(self.data / f"{number:04}", sizes.file_bytes, seed=number)
        for pool in ("from", "to"):
            on.make_pool(pool, GROUPS)
            on.await_groups(pool)
        self._copy(f"{self.data}/", self.url("from", "data/"), "layout")

    def url(self, pool: str, path: str) -> str:
        """Return the URL of a path in a pool."""
        return f"rados://{pool}//{path}?conf={self.on.configuration}"

    def _copy(self, source: str, target: str, order: str) -> float:
        words: list[Word] = [find_engine(), "cp", "-r", source, target, "--order", order]
        words += ["--pool", self.sizes.pool, "--progress", "none", "--quiet"]
        words += ["--trace", self.folder / "trace"]
        return Process(words, self.folder, "dray").wait(600).expect(0).seconds

    def _ends(self, way: str) -> tuple[str, str]:
        source = f"{self.data}/" if way == "sink" else self.url("from", "data/")
        target = f"{self.folder}/copy/" if way == "source" else self.url("to", "copy/")
        return source, target

    def _places(self, way: str) -> dict[str, list[tuple[int, ...]]]:
        """Return, by file and object, the OSD of the object in each pool of the finished copy."""
        found: dict[str, list[tuple[int, ...]]] = {}
        pools = {"source": ["from"], "sink": ["to"], "both": ["from", "to"]}[way]
        folders = {"from": "/data", "to": "/copy"}
        count = self.sizes.file_bytes // OBJECT
        for name in (path.name for path in self.data.iterdir()):
            each = []
            for pool in pools:
                objects = [f"{folders[pool]}/{name}.{number:016x}" for number in range(count)]
                each.append([one["acting_primary"] for one in self.on.map(pool, objects)])
            found[name] = list(zip(*each, strict=True))
        return found

    def log_osd(self, way: str) -> int:
        """Copy once into the pool ``to``, and return the OSD that holds the object log.

        The name of the log depends on the source and on the target. So all copies of one way have
        their logs on the same OSD, and copies of another way can have them on another OSD.
        """
        found: list[int] = []
        is_over = threading.Event()

        def watch() -> None:
            while not found and not is_over.wait(0.05):
                logs = [name for name in self.on.names("to", ".dray") if name.endswith(".log")]
                found.extend(one["acting_primary"] for one in self.on.map("to", logs, ".dray"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self._copy(*self._ends(way), "layout")
        finally:
            is_over.set()
            watcher.join()
            self._clear()
        if len(found) != 1:
            raise RuntimeError(f"the copy has {len(found)} object logs in the pool, not 1")
        return found[0]

    def run(self, way: str, order: str, slow: int, left_out: int = SLOW) -> Ended:
        """Copy once, with ``slow`` as the slow OSD, or ``NOBODY``.

        :param left_out: OSD whose objects ``others`` of the result leaves out.
        """
        for osd in range(OSDS):
            self.on.slow(osd, self.sizes.slow_delay if osd == slow else self.sizes.delay)
        try:
            whole = self._copy(*self._ends(way), order)
        finally:
            self._calm()
        return self._ended(way, left_out, whole)

    def run_moving(self, way: str, order: str) -> Ended:
        """Copy once while the slow OSD changes. ``others`` of the result covers all objects."""
        is_over = threading.Event()

        def move() -> None:
            for number in range(1 << 20):
                for osd in range(OSDS):
                    is_slow = osd == (number + SLOW) % OSDS
                    self.on.slow(osd, self.sizes.slow_delay if is_slow else self.sizes.delay)
                if is_over.wait(self.sizes.turn):
                    return

        mover = threading.Thread(target=move)
        mover.start()
        try:
            whole = self._copy(*self._ends(way), order)
        finally:
            is_over.set()
            mover.join()
            self._calm()
        return self._ended(way, NOBODY, whole)

    def sent(self, way: str) -> list[tuple[float, tuple[int, ...]]]:
        """Return when each object of the last copy was sent, and the OSDs of its bytes."""
        names: dict[int, str] = {}
        found = []
        places = self._places(way)
        text = (self.folder / "trace").read_text(encoding="utf-8")
        for line in map(json.loads, text.splitlines()):
            if "path" in line:
                names[line["file"]] = line["path"].rsplit("/", 1)[-1]
            for part in line.get("parts", []):
                # A sink writes the first object of a file under another name, to another OSD.
                if way != "source" and part["offset"] < OBJECT:
                    continue
                osds = places[names[part["file"]]][part["offset"] // OBJECT]
                found.append((line["at_us"] / 1e6, osds))
        return found

    def _ended(self, way: str, slow: int, whole: float) -> Ended:
        sent = self.sent(way)
        first = min(at for at, _ in sent)
        last = max(at for at, osds in sent if slow not in osds)
        self._clear()
        return Ended(round(last - first, 3), round(first, 3), round(whole, 3))

    def _calm(self) -> None:
        for osd in range(OSDS):
            self.on.slow(osd, 0)

    def _clear(self) -> None:
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        for namespace in ("", ".dray"):
            for name in self.on.names("to", namespace):
                self.on.remove("to", name, namespace)


@contextlib.contextmanager
def bench(sizes: Sizes, folder: Path | None = None) -> Iterator[Bench]:
    """Start a cluster, and make the files to copy."""
    with cluster(folder) as on, tempfile.TemporaryDirectory(dir=TMPFS) as made:
        yield Bench(on, Path(made), sizes)


@dataclass(frozen=True)
class Row:
    """The runs of one round: no slow OSD, layout order, file order."""

    way: str
    #: The slow OSD, or ``NOBODY`` if the slow OSD changes.
    slow: int
    calm: Ended
    layout: Ended
    file: Ended


def congestion(it: Bench, way: str, slow: int = SLOW) -> Row:
    """Run one round with a slow OSD."""
    row = Row(
        way,
        slow,
        it.run(way, "layout", NOBODY, slow),
        it.run(way, "layout", slow, slow),
        it.run(way, "file", slow, slow),
    )
    print(f"# {row}", flush=True)
    return row


def moving(it: Bench, way: str) -> Row:
    """Run one round: no slow OSD, then twice a slow OSD that changes."""
    row = Row(
        way,
        NOBODY,
        it.run(way, "layout", NOBODY),
        it.run_moving(way, "layout"),
        it.run_moving(way, "file"),
    )
    print(f"# moving: {row}", flush=True)
    return row


def table(rows: list[Row]) -> list[str]:
    """Return the table of the runs with one slow OSD."""
    lines = [
        "| ends on Ceph | undisturbed, s | layout, s | file, s | layout / undisturbed "
        "| file / layout | whole copy: layout, s | file, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in dict.fromkeys(row.way for row in rows):
        ours = [row for row in rows if row.way == way]
        calm, layout, file = (
            statistics.median(getattr(row, name).others for row in ours)
            for name in ("calm", "layout", "file")
        )
        delay = statistics.median(row.layout.others / row.calm.others for row in ours)
        gain = statistics.median(row.file.others / row.layout.others for row in ours)
        wholes = [
            statistics.median(getattr(row, name).whole for row in ours)
            for name in ("layout", "file")
        ]
        lines.append(
            f"| {way} | {calm:.2f} | {layout:.2f} | {file:.2f} | {delay:.2f} | {gain:.2f} "
            f"| {wholes[0]:.1f} | {wholes[1]:.1f} |"
        )
    return lines


def main() -> None:
    """Run the measurement, and print the tables."""
    known = options("ceph_slow", "Measure copies while an OSD of a Ceph cluster is slow.")
    known.add_argument("--files", type=int, default=Sizes.files)
    known.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    text = "the slow OSD: number 1, the OSD with the object log, or an OSD without the log"
    known.add_argument("--slow", nargs="*", choices=CHOICES, default=["fixed"], help=text)
    given = known.parse_args()
    if "source" in given.ways and given.slow != ["fixed"]:
        known.error("--slow log and --slow other need --ways sink or both")
    if why := find_missing():
        raise SystemExit(why)
    sizes = Sizes(files=given.files)
    catch_signals()
    results = Results(command_of(known, given))
    results.facts["sizes"] = dataclasses.asdict(sizes)
    rows: dict[str, list[Row]] = {f"one slow OSD: {choice}": [] for choice in given.slow}
    rows["the slow OSD changes"] = []
    with bench(sizes, given.folder) as it:
        logs = {way: it.log_osd(way) for way in given.ways if way != "source"}
        results.facts["OSD of the object log"] = logs
        for _ in range(given.rounds):
            for way in given.ways:
                log = logs.get(way, SLOW)
                osds = {"fixed": SLOW, "log": log, "other": (log + 1) % OSDS}
                for choice in given.slow:
                    rows[f"one slow OSD: {choice}"].append(congestion(it, way, osds[choice]))
                if "fixed" in given.slow:
                    rows["the slow OSD changes"].append(moving(it, way))
                results.tables = {
                    name: [dataclasses.asdict(row) for row in found] for name, found in rows.items()
                }
                results.write(given.json)
    for way, log in logs.items():
        print(f"\nThe object log of the copies {way} is on osd.{log}.")
    for name, found in rows.items():
        if found:
            print(f"\n{name}")
            show(table(found))


if __name__ == "__main__":
    main()
