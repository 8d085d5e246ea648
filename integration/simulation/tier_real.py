"""A tier with real file systems: three applications that write 1.0 to 2.1 S in a period.

``python -m integration.simulation.tier_real`` mounts a fast and a slow ext4 on loop devices, limits
them by blkio (cgroup v1), and starts an endpoint with a tier. It writes ``tier-real.json`` and
``tier-real.md`` into docs/explanation/experiments. It needs root and 16 GB of disk space, and takes
18 minutes. The program is that of this tree, or ``DRAY_PROGRAM``.

Each load has two periods. In the first one, versions are written at even intervals. In the second
one, they are written in one burst without idle time. Each application declares its first version
with its period, so that the endpoint knows DWPP. It writes the others without a call.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import random
import shutil
import statistics
import tempfile
import textwrap
import threading
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray import DrayError
from dray.client import StagingRequest
from dray.testing.endpoints import Endpoint, Root
from integration.harness import loop
from integration.harness.program import find_program
from integration.simulation import simulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Tier

MIB = 1 << 20
MB = 1_000_000


@dataclass(frozen=True)
class Scale:
    """The sizes in bytes, the rates in bytes per second, and the period in seconds."""

    capacity: int
    version: int
    write_max: int
    write_min: int
    read_max: int
    read_min: int
    period: int
    #: seconds before the end of a period at which its versions are counted and checked
    margin: int
    #: space of the fast file system beside S, for its journal and its tables
    reserve: int
    #: bytes of one write of an application
    chunk: int

    @property
    def slow_write(self) -> int:
        """Return the limit of the slow device, which is above the fastest demotion."""
        return 3 * self.read_max


#: the paper's 2.2 TB, 80 GB checkpoints and bandwidths; sizes 1 : 1000, rates 1 : 25
PAPER = Scale(
    capacity=2200 * MB,
    version=80 * MB,
    write_max=142_400_000,
    write_min=120 * MB,
    read_max=64 * MB,
    read_min=3_200_000,
    period=88,
    margin=12,
    reserve=136 * MIB,
    chunk=4 * MIB,
)
#: for the tests: versions of a twelfth of S
SMALL = Scale(
    capacity=256 * MIB,
    version=256 * MIB // 12,
    write_max=26 * MIB + 700 * 1024,
    write_min=22 * MIB + 512 * 1024,
    read_max=12 * MIB,
    read_min=615 * 1024,
    period=60,
    margin=2,
    reserve=34 * MIB,
    chunk=MIB,
)
LOADS = (1.0, 1.3, 1.6, 1.9, 2.1)
APPLICATIONS = ("ocean", "air", "ice")
MARKER = "COMPLETE"
#: longest time that one write of a chunk may take: the limit of the device, and a margin
BLOCKED_SECONDS = 3.0
AGAIN_SECONDS = 0.25
#: demotions at Brmax from which their mean interval is measured
MEASURED = 4
Sums = dict[tuple[str, int], str]


@dataclass
class Written:
    """Counts of one application in a period."""

    versions: int = 0
    bytes: int = 0
    seconds: float = 0.0
    #: writes that failed because the file system was full, and were repeated
    refused: int = 0
    longest: float = 0.0
    sums: Sums = field(default_factory=dict)
    #: times at which the versions were complete
    complete: dict[tuple[str, int], float] = field(default_factory=dict)


class Watch:
    """Samples the free space of the fast file system, and the state of the tier.

    It also limits the fast device as equation 5.1 does: writes are slower beside a demotion. blkio
    limits reads and writes separately.
    """

    def __init__(self, endpoint: Endpoint, fast: loop.Disk, scale: Scale) -> None:
        """Start the thread."""
        self._endpoint = endpoint
        self._scale = scale
        self._fast = fast
        self._free = shutil.disk_usage(fast.folder).free
        self._stop = threading.Event()
        self.peak = 0
        #: the last time at which the tier wanted to demote at less than Brmax
        self.slower = 0.0
        self.tiers: list[Tier] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._endpoint.client() as client:
                for number in itertools.count():
                    used = self._free - shutil.disk_usage(self._fast.folder).free
                    self.peak = max(self.peak, used)
                    if number % 5 == 0:
                        tier = client.tier("burst")
                        self.tiers.append(tier)
                        if tier.demotion_rate < 0.99 * self._scale.read_max:
                            self.slower = time.time()
                        is_demoting = any(each.state == "demoting" for each in tier.versions)
                        scale = self._scale
                        self._fast.limit(scale.write_min if is_demoting else scale.write_max)
                    if self._stop.wait(0.1):
                        return
        except BaseException as error:
            self.error = error

    def take_peak(self) -> int:
        """Return the most bytes that were used since the last call."""
        peak, self.peak = self.peak, 0
        return peak

    def close(self) -> None:
        """Stop; raise the error of the thread."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def write_version(folder: Path, seed: int, scale: Scale, written: Written) -> str:
    """Write a version as an application does; return its checksum."""
    chunk, size = scale.chunk, scale.version
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    block = chance.randbytes(chunk)
    digest = hashlib.sha256()
    descriptor = os.open(folder / "state", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        done = 0
        while done < size:
            data = (block[done % 4096 :] + block[: done % 4096])[: min(chunk, size - done)]
            begun = time.monotonic()
            try:
                count = os.write(descriptor, data)
                os.fdatasync(descriptor)
            except OSError as error:
                if error.errno != 28:
                    raise
                written.refused += 1
                time.sleep(AGAIN_SECONDS)
                continue
            written.longest = max(written.longest, time.monotonic() - begun)
            digest.update(data[:count])
            done += count
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    while True:
        try:
            (folder / MARKER).write_bytes(b"")
            break
        except OSError:
            written.refused += 1
            time.sleep(AGAIN_SECONDS)
    written.versions += 1
    written.bytes += size
    return digest.hexdigest()


def write_period(
    endpoint: Endpoint,
    fast: Path,
    scale: Scale,
    count: int,
    numbers: Iterator[int],
    begun: float,
    *,
    is_burst: bool,
) -> Written:
    """Write the versions of a period, one application after the other."""
    written = Written()
    writing = time.monotonic()
    for index in range(count):
        if not is_burst:
            # Even intervals, with an end before that of the period.
            length = scale.period - scale.margin - 3.0
            wait = begun + index * length / count - time.time()
            time.sleep(max(0.0, wait))
        application, number = APPLICATIONS[index % len(APPLICATIONS)], next(numbers)
        folder = fast / application / str(number)
        written.sums[application, number] = write_version(folder, number, scale, written)
        written.complete[application, number] = time.time()
        if number <= len(APPLICATIONS):
            declare(endpoint, application, number, scale.period / count)
    written.seconds = time.monotonic() - writing
    return written


def declare(endpoint: Endpoint, application: str, number: int, interval: float) -> None:
    """Declare the version of an application. ``interval`` is that of all applications."""
    every = round(interval * len(APPLICATIONS))
    with endpoint.client() as client:
        client.stage_out(
            StagingRequest(
                f"/fast/{application}/{number}",
                recursive=True,
                application=application,
                version=number,
                period_seconds=every,
            )
        )


def await_period(scale: Scale) -> float:
    """Wait until a period of the endpoint begins: they are counted from 1970."""
    begin = (time.time() // scale.period + 1) * scale.period
    time.sleep(begin - time.time())
    return begin


def digest(path: Path) -> str:
    """Return the checksum of a file; an empty text if it does not exist."""
    try:
        with path.open("rb") as file:
            found = hashlib.sha256()
            while data := file.read(4 * MIB):
                found.update(data)
            return found.hexdigest()
    except FileNotFoundError:
        return ""


def wrong_versions(fast: Path, slow: Path, sums: Sums, tier: Tier) -> Sums:
    """Return the versions whose content is not whole where the catalog says that it is."""
    wrong = {}
    rows = {(each.application, each.version): each.state for each in tier.versions}
    for key, wanted in sums.items():
        below = Path(key[0]) / str(key[1]) / "state"
        state = rows.get(key, "written")
        # The fast copy of a version in the state `deleting` is not whole.
        on_fast = state not in ("slow", "deleting")
        on_slow = state in ("demoted", "deleting", "slow")
        is_whole = not on_fast or digest(fast / below) == wanted
        if not is_whole or (on_slow and digest(slow / below) != wanted):
            wrong[key] = wanted
    return wrong


def check(endpoint: Endpoint, fast: Path, slow: Path, sums: Sums) -> int:
    """Return the number of versions that are wrong in several looks: a state changes beside one."""
    wrong = sums
    with endpoint.client() as client:
        for _ in range(5):
            wrong = wrong_versions(fast, slow, wrong, client.tier("burst"))
            if not wrong:
                break
            time.sleep(1.0)
    return len(wrong)


def orders(tiers: list[Tier]) -> tuple[int, int]:
    """Count the demotions that took an older version (E-order), and those of a newest version."""
    older: set[tuple[str, int]] = set()
    newest: set[tuple[str, int]] = set()
    for tier in tiers:
        last: dict[str, int] = {}
        for each in tier.versions:
            last[each.application] = max(each.version, last.get(each.application, 0))
        for each in tier.versions:
            if each.state == "demoting":
                key = (each.application, each.version)
                (newest if each.version == last[each.application] else older).add(key)
    return len(older), len(newest - older)


@dataclass(frozen=True)
class Burst:
    """The measured numbers of a burst, and the bound that follows from them."""

    scale: Scale
    #: rate of the writes in bytes per second
    write: float
    #: seconds until a complete version was found
    found: float
    #: seconds from the end of a demotion to the end of the next one, if they were measured
    cycle: float | None = None

    def freed(self, count: int) -> int:
        """Return the number of versions demoted before the last of ``count`` is written."""
        last = (count - 1) * self.scale.version / self.write - self.found
        cycle = self.cycle or self.scale.version / self.scale.read_max
        return max(0, math.floor(last / cycle))

    def largest(self) -> int:
        """Return the largest number of versions of which a burst never fills the fast root."""
        most = self.scale.capacity // self.scale.version
        count = most
        while (count + 1 - self.freed(count + 1)) * self.scale.version <= self.scale.capacity:
            count += 1
            if count > 8 * most:
                break
        return count


def ideal(scale: Scale) -> Burst:
    """Return a burst without any delay."""
    return Burst(scale, scale.write_min, 0.0)


def measured(scale: Scale, written: Written, tier: Tier, since: float) -> Burst:
    """Return the numbers of a burst. Since this time, the tier has demoted at Brmax."""
    found, ends = [], []
    for each in tier.versions:
        complete = written.complete.get((each.application, each.version))
        if complete is None:
            continue
        if each.written_at is not None:
            found.append(each.written_at.timestamp() - complete)
        if each.demoted_at is not None:
            ends.append(each.demoted_at.timestamp())
    # Versions wait until the last one is demoted, so demotions follow each other.
    ends = sorted(end for end in ends if end > since)
    cycle = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > MEASURED else None
    return Burst(scale, written.bytes / written.seconds, statistics.median(found), cycle)


def one_more(endpoint: Endpoint, scale: Scale) -> str:
    """Declare an application that writes S in each period; return the reason if it is refused."""
    request = StagingRequest(
        f"/slow/{APPLICATIONS[0]}/1",
        to="/fast/more/1",
        recursive=True,
        application="more",
        version=1,
        period_seconds=scale.period * scale.version // scale.capacity,
        bytes_expected=scale.version,
    )
    try:
        with endpoint.client() as client:
            client.stage_in(request)
    except DrayError as error:
        return str(error)
    return ""


def tier_of(scale: Scale) -> dict[str, Any]:
    """Return the configuration of the tier."""
    return {
        "name": "burst",
        "fast": ["fast"],
        "slow": "slow",
        "capacity": scale.capacity,
        "watermark": 0.75,
        "period": scale.period,
        "write_max": scale.write_max,
        "write_min": scale.write_min,
        "read_max": scale.read_max,
        "read_min": scale.read_min,
        "versions": "{application}/{version}",
        "complete": f"marker:{MARKER}",
        "owner": "alice",
    }


def run_load(
    load: float, folder: Path, program: Path, scale: Scale = SMALL
) -> list[dict[str, Any]]:
    """Run both periods of a load on fresh file systems; return their results."""
    count = round(load * scale.capacity / scale.version)
    with contextlib.ExitStack() as stack:
        # The journal and the tables of ext4 need some space beside S.
        size = scale.capacity + scale.reserve
        fast = stack.enter_context(loop.disk(folder / "fast", size))
        slow = stack.enter_context(loop.disk(folder / "slow", 6 * scale.capacity))
        fast.limit(scale.write_max)
        slow.limit(scale.slow_write)
        roots = [
            Root(name, {"tier": name, "path": str(disk.folder)})
            for name, disk in (("fast", fast), ("slow", slow))
        ]
        config = {"tier": [tier_of(scale)]}
        endpoint = Endpoint(folder / "endpoint", "bb", roots=roots, config=config, program=program)
        stack.callback(endpoint.close)
        endpoint.start()
        watch = Watch(endpoint, fast, scale)
        stack.callback(watch.close)
        numbers = itertools.count(1)
        results = []
        sums: Sums = {}
        for is_burst in (False, True):
            begun = await_period(scale)
            watch.take_peak()
            watch.tiers.clear()
            written = write_period(
                endpoint, fast.folder, scale, count, numbers, begun, is_burst=is_burst
            )
            time.sleep(max(0.0, begun + scale.period - scale.margin - time.time()))
            sums.update(written.sums)
            older, newest = orders(watch.tiers)
            last = watch.tiers[-1]
            states = [each.state for each in last.versions]
            burst = measured(scale, written, last, watch.slower)
            capacity = scale.capacity
            results.append(
                {
                    "load": load,
                    "burst": is_burst,
                    "versions": count,
                    "written": written.bytes / capacity,
                    "seconds": round(written.seconds, 1),
                    "bound": None if last.dwpp_max is None else last.dwpp_max / capacity,
                    "expected": last.dwpp / capacity,
                    "pattern": last.pattern,
                    "peak": watch.take_peak() / capacity,
                    "refused": written.refused,
                    "longest_seconds": round(written.longest, 2),
                    "left": sum(state in ("written", "demoting") for state in states),
                    "older": older,
                    "newest": newest,
                    "write_rate": round(burst.write),
                    "found_seconds": round(burst.found, 3),
                    "cycle_seconds": burst.cycle and round(burst.cycle, 3),
                    "largest": burst.largest(),
                    "load_average": round(os.getloadavg()[0], 1),
                    "wrong": check(endpoint, fast.folder, slow.folder, sums),
                }
            )
            print(json.dumps(results[-1]), flush=True)
        results[-1]["refusal"] = one_more(endpoint, scale)
        print(results[-1]["refusal"], flush=True)
        return results


def run(loads: tuple[float, ...] = LOADS, scale: Scale = PAPER) -> dict[str, Any]:
    """Run all loads."""
    named = os.environ.get("DRAY_PROGRAM")
    program = Path(named) if named else find_program()
    results = []
    for load in loads:
        with tempfile.TemporaryDirectory(prefix="dray-tier-") as folder:
            results += run_load(load, Path(folder), program, scale)
    build = "debug" if "debug" in program.parts else "release"
    return {**asdict(scale), "slow_write": scale.slow_write, "build": build, "periods": results}


def rows_of(results: dict[str, Any]) -> str:
    """Return the table of the periods."""
    head = ["written", "writes", "expected", "pattern", "peak", "blocked", "slowest write, s"]
    head += ["all written, s", "E-order", "V-order", "left", "wrong"]
    rows = []
    for each in results["periods"]:
        pattern = {
            "when_idle": "1",
            "from_threshold": "2",
            "from_start": "3",
            None: "above the bound",
        }[each["pattern"]]
        rows.append(
            [
                f"{each['written']:.2f} S",
                "burst" if each["burst"] else "even",
                f"{each['expected']:.2f} S",
                pattern,
                f"{each['peak']:.2f} S",
                str(each["refused"]),
                f"{each['longest_seconds']:.2f}",
                f"{each['seconds']:.1f}",
                *(str(each[name]) for name in ("older", "newest", "left", "wrong")),
            ]
        )
    return simulator.table(head, rows)


def bursts_of(results: dict[str, Any]) -> str:
    """Return the table of the bursts, with the bound of each."""
    head = ["burst", "versions", "w, MB/s", "d, s", "v / Brmax + g, s", "g, s", "at most", "peak"]
    head += ["blocked"]
    least = results["version"] / results["read_max"]

    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    rows = [
        [
            f"{each['written']:.2f} S",
            str(each["versions"]),
            f"{each['write_rate'] / MB:.1f}",
            seconds(each["found_seconds"]),
            seconds(each["cycle_seconds"]),
            seconds(each["cycle_seconds"] and each["cycle_seconds"] - least),
            str(each["largest"]),
            f"{each['peak']:.2f} S",
            str(each["refused"]),
        ]
        for each in results["periods"]
        if each["burst"]
    ]
    return simulator.table(head, rows)


def page(results: dict[str, Any]) -> str:
    """Write the page."""
    scale = Scale(**{each.name: results[each.name] for each in fields(Scale)})
    bound = 1.0 / (1.0 - scale.read_max / scale.write_min)
    part = scale.version / scale.capacity
    lower = bound * (1.0 - part * scale.read_max / scale.write_min)
    whole = sum(each["wrong"] for each in results["periods"])
    most = ideal(scale).largest()
    averages = [each["load_average"] for each in results["periods"]]
    return f"""\
<!-- Written by `python -m integration.simulation.tier_real`; edit that. -->

# A tier with real file systems

Three applications write versions to a tier of a real endpoint, with 1.0 to 2.1 S in each of ten
periods. The page shows at which load the fast file system was full. [Tiers](../../design/tiers.md)
explains the terms, and [a burst buffer](bbos.md) has the same question in the simulator.

## Set-up

- The fast root is an ext4 on a loop device with S = {scale.capacity / MB:.0f} MB, and
  {scale.reserve / MIB:.0f} MiB beside S for its journal and its tables. The slow root is another
  ext4.
- Bwmax is {scale.write_max / MB:.1f} MB/s, Bwmin {scale.write_min / MB:.0f} MB/s, Brmax
  {scale.read_max / MB:.0f} MB/s and Brmin {scale.read_min / MB:.1f} MB/s: the paper's numbers,
  1 : 25. A version has v = {scale.version / MB:.0f} MB, so sizes are the paper's, 1 : 1000. A
  period has {scale.period} s.
- blkio (cgroup v1) limits writes to the fast device to Bwmax, and to Bwmin while a demotion runs.
  A disk has this relation (equation 5.1), but blkio limits reads and writes separately. It limits
  writes to the slow device to {scale.slow_write / MB:.0f} MB/s. The endpoint limits a demotion to
  Brmax.
- Each load begins with empty file systems and has two periods. Versions are written at even
  intervals in the first period, and in one burst without idle time in the second period.
- Applications write one after the other, and sync each {scale.chunk / MIB:.0f} MiB. Each one
  declares its first version with its period (`POST /v1/staging/out`), and writes the other versions
  without a call.
- The stored results are those of a {results["build"]} build on two cores that had other work: the
  load average was {min(averages):.1f} to {max(averages):.1f}.

The bound of the tier is {bound:.2f} S. A version of this size is demoted only after it is complete,
which lowers the bound to {lower:.2f} S.

## Results

{rows_of(results)}

- *Peak* is the most space that was used on the fast file system. *Blocked* is the number of writes
  that failed because the file system was full; the application repeated each one after a quarter of
  a second.
- *E-order* is the number of demotions that took an older version, and *V-order* the number that
  took the newest version of its application.
- *Left* is the number of versions without a slow copy {scale.margin} seconds before the end of the
  period.
- *Wrong* is the number of versions whose content differs (sha256) on a root that has the version
  according to the catalog. The sum is {whole}.

{conclusion(results)}

## The largest burst

The space of a version is free only at the end of its demotion. A burst of n versions that are
written at the rate w without idle time therefore fits only if

    n v - v ⌊((n - 1) v / w - d) / (v / Brmax + g)⌋ ≤ S

where d is the time until the endpoint has found a complete version, and g the pause between two
demotions. Without d and g, and at w = Bwmin, {most} versions fit, which are {most * part:.2f} S.
A larger burst is impossible at these bandwidths, whatever the endpoint does: it arrives faster than
Brmax drains. The bound of {bound:.2f} S assumes that space is free with each demoted byte. The
largest burst needs every byte of S, so a pause that is longer than the mean can fill it.

{bursts_of(results)}

The mean of v / Brmax + g counts the demotions from the moment at which the tier wants to demote at
Brmax; "-" means that it did not. *At most* is the largest n that fits with the measured w, d and g
of the burst, or with g = 0.

## Refused applications

At the end of each load, one more application declares S bytes in each period. The endpoint refuses
it from {refused_from(results):.1f} S:

    {refusal(results)}

`make tier-run` runs it as root, and writes this page.
"""


def refused_from(results: dict[str, Any]) -> float:
    """Return the smallest load at which one more application was refused."""
    return min(float(each["load"]) for each in results["periods"] if each.get("refusal"))


def refusal(results: dict[str, Any]) -> str:
    """Return the message of the refusal at the largest load, wrapped."""
    said = [each["refusal"] for each in results["periods"] if each.get("refusal")]
    return "\n    ".join(textwrap.wrap(said[-1], 90))


def conclusion(results: dict[str, Any]) -> str:
    """Return the paragraph that compares the loads with the bound."""
    even = [each for each in results["periods"] if not each["burst"]]
    burst = [each for each in results["periods"] if each["burst"]]
    free = {
        name: max((each["written"] for each in part if each["refused"] == 0), default=0.0)
        for name, part in (("even", even), ("burst", burst))
    }
    return f"""\
Without a blocked write, the tier took {free["even"]:.2f} S at even intervals and
{free["burst"]:.2f} S in a burst. An application whose write fails does not lose data: the tier
deletes a fast copy as soon as it has a slow copy, and a repeated write then succeeds."""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    return {"tier-real.json": text, "tier-real.md": page(json.loads(text))}


def main() -> None:
    """Run all loads, print the table, and write the page."""
    if loop.limits_reason():
        raise SystemExit(f"this experiment needs loop devices with limits: {loop.limits_reason()}")
    results = run()
    print(rows_of(results))
    simulator.write(simulator.PAGES, files(json.dumps(results, indent=1) + "\n"))


if __name__ == "__main__":
    main()
