"""Measures copies to and from a GlusterFS volume: dray beside other tools, and one slow brick.

``python -m integration.bench.gluster`` prints the tables of docs/explanation/measured-gluster.md.
It starts GlusterFS on this host. Each of the three bricks is a file system of its own on a loop
device, which blkio (cgroup v1) limits. It needs root.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench.begin import catch_signals
from integration.bench.beside import (
    MIB,
    TMPFS,
    Results,
    Way,
    command_of,
    drop_caches,
    find_engine,
    options,
    run_all,
    show,
    table,
)
from integration.harness.loop import Disk, disk, limits_reason
from integration.harness.program import Process
from integration.harness.tree import make_file
from integration.storage.gluster import Gluster, Volume, reason
from integration.xrootd.servers import HERE, Scene, compile_loopback, give

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Word

BRICKS = 3
SLOW = 1
BASE = "cp -r"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data, and rates of the bricks, in one measurement."""

    files: int = 48
    file_bytes: int = 4 * MIB
    #: Rate of each brick except the slow brick, in bytes per second.
    rate: int = 16 * MIB
    #: Rate of the slow brick in bytes per second.
    slow_rate: int = 4 * MIB
    pool: str = "32MiB"


@dataclass(frozen=True)
class Ended:
    """Seconds of one copy: until the last object of the fast bricks was sent, and until its end."""

    others: float
    whole: float


class Bench:
    """A GlusterFS volume with files, and equal files in memory."""

    def __init__(self, folder: Path, sizes: Sizes, volume: Volume, bricks: list[Disk]) -> None:
        """Make the files in memory and in the volume."""
        self.folder, self.sizes, self.volume, self.bricks = folder, sizes, volume, bricks
        self.data = folder / "data"
        self.data.mkdir()
        self.data.chmod(0o755)
        for number in range(sizes.files):
            make_file(self.data / f"{number:04}", sizes.file_bytes, seed=number)
        shutil.copytree(self.data, volume.folder / "data")

    def limit(self, rate: int, slow: int | None = None) -> None:
        """Limit all bricks to ``rate``, and the slow brick to ``slow``."""
        for number, one in enumerate(self.bricks):
            here = slow if slow is not None and number == SLOW else rate
            one.limit(here, here)

    def run(self, way: str, order: str, *, is_slow: bool) -> Ended:
        """Copy once, with the volume as ``source`` or as ``sink``."""
        source = self.volume.folder / "data" if way == "source" else self.data
        target = self.folder / "copy" if way == "source" else self.volume.folder / "copy"
        trace = self.folder / "trace"
        words: list[Word] = [find_engine(), "cp", "-r", f"{source}/", f"{target}/"]
        words += ["--order", order, "--pool", self.sizes.pool, "--trace", trace]
        words += ["--progress", "none", "--quiet", "--direct-io"]
        drop_caches()
        self.limit(self.sizes.rate, self.sizes.slow_rate if is_slow else None)
        try:
            whole = Process(words, self.folder, "dray").wait(600).expect(0).seconds
        finally:
            self.limit(0)
        below = "data" if way == "source" else "copy"
        top = self.volume.bricks[SLOW] / below
        slow = {path.name for path in top.iterdir() if path.stat().st_size}
        shutil.rmtree(target)
        return Ended(self._last(trace, slow), whole)

    def _last(self, trace: Path, slow: set[str]) -> float:
        """Return the second at which the last object of a file not in ``slow`` was sent."""
        names, last = {}, 0.0
        for line in map(json.loads, trace.read_text(encoding="utf-8").splitlines()):
            if "path" in line:
                names[line["file"]] = line["path"].rsplit("/", 1)[-1]
            for part in line.get("parts", []):
                if names[part["file"]] not in slow:
                    last = max(last, line["at_us"] / 1e6)
        return last

    def ways(self, server: str, pid: int) -> list[Way]:
        """Return the tools that copy all files into the volume; each makes its files durable."""
        top = self.volume.folder
        size = self.sizes.files * self.sizes.file_bytes

        def clear() -> None:
            shutil.rmtree(top / "copy", ignore_errors=True)
            drop_caches()

        def clear_for_server() -> None:
            clear()
            (top / "copy").mkdir()
            give(top / "copy")

        def way(name: str, *words: Word, servers: tuple[int, ...] = ()) -> Way:
            before = clear_for_server if servers else clear
            return Way(name, words, size, servers, before=before)

        def shell(text: str) -> list[Word]:
            return ["sh", "-c", f"{text} && sync -f {top}"]

        data = self.data
        dray = (find_engine(), "cp", "-r", f"{data}/", f"{top}/copy/")
        return [
            way(BASE, *shell(f"cp -r {data} {top}/copy")),
            way("rsync -r", *shell(f"rsync -r {data}/ {top}/copy/")),
            way(
                "xrdcp -r, server on the mount",
                *shell(f"xrdcp --nopbar --silent -r {data}/ {server}//copy/"),
                servers=(pid,),
            ),
            way("**dray**", *dray, "--progress", "none", "--quiet"),
        ]


@contextlib.contextmanager
def bench(sizes: Sizes, folder: Path | None = None) -> Iterator[Bench]:
    """Start a volume whose bricks are limited disks."""
    size = 2 * sizes.files * sizes.file_bytes + 512 * MIB
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=TMPFS)))
        for each in (top, made):
            each.chmod(0o755)
        disks = [stack.enter_context(disk(top / f"disk{at}", size)) for at in range(BRICKS)]
        (top / "gluster").mkdir()
        gluster = Gluster(top / "gluster")
        stack.callback(gluster.close)
        gluster.start()
        volume = gluster.volume("bench", [one.folder / "brick" for one in disks])
        give(volume.folder)
        yield Bench(made, sizes, volume, disks)


def congestion(it: Bench, rounds: int, results: Results) -> list[str]:
    """Measure with a slow brick, and return the table."""
    lines = [
        "| volume is | undisturbed, s | layout, s | file, s | layout / undisturbed "
        "| file / layout | whole copy: layout, s | file, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in ("source", "sink"):
        runs = [
            (
                it.run(way, "layout", is_slow=False),
                it.run(way, "layout", is_slow=True),
                it.run(way, "file", is_slow=True),
            )
            for _ in range(rounds)
        ]
        results.tables[way] = [[dataclasses.asdict(ended) for ended in each] for each in runs]
        print(f"# {way}: {runs}", flush=True)
        calm, layout, file = (statistics.median(r[i].others for r in runs) for i in range(3))
        wholes = [statistics.median(r[i].whole for r in runs) for i in (1, 2)]
        lines.append(
            f"| {way} | {calm:.2f} | {layout:.2f} | {file:.2f} | {layout / calm:.2f} "
            f"| {file / layout:.2f} | {wholes[0]:.1f} | {wholes[1]:.1f} |"
        )
    return lines


def speed(it: Bench, rounds: int, results: Results) -> list[str]:
    """Measure beside other tools, without limits, and return the table."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        folder.chmod(0o755)
        scene = Scene(folder, compile_loopback(folder), folder)
        server = scene.server("mount", tpc=None, start=False)
        server.data = it.volume.folder
        server.start()
        try:
            assert server.process
            ways = it.ways(f"root://{HERE}:{server.port}", server.process.pid)
            run_all(results, "into Gluster", ways, rounds)
        finally:
            scene.close()
    return table(results.samples, "into Gluster", BASE)


def main() -> None:
    """Run the measurement, and print the tables."""
    known = options("gluster", "Measure copies to and from GlusterFS.")
    known.add_argument("--only", choices=["congestion", "speed"])
    given = known.parse_args()
    if why := reason() or limits_reason():
        raise SystemExit(why)
    catch_signals()
    results = Results(command_of(known, given))
    with bench(Sizes(), given.folder) as it:
        for name, measure in (("speed", speed), ("congestion", congestion)):
            if given.only in (None, name):
                show(measure(it, given.rounds, results))
                results.write(given.json)


if __name__ == "__main__":
    main()
