"""A tier with real file systems: three applications that write 1.0 to 2.1 S in a period.

``python -m integration.simulation.tier_real`` mounts a fast and a slow ext4 on loop devices, limits
them by blkio (cgroup v1), and starts an endpoint with a tier. It writes ``tier-real.json`` and
``tier-real.md`` into docs/explanation/experiments. It needs root, and takes eleven minutes. The
program is that of this tree, or ``DRAY_PROGRAM``.

Each load has two periods. In the first one, versions are written at even intervals. In the second
one, they are written in one burst without idle time. Each application declares its first version
with its period, so that the endpoint knows DWPP. It writes the others without a call.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import tempfile
import textwrap
import threading
import time
from dataclasses import dataclass, field
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
#: the paper's 2.2 TB, 80 GB checkpoints and bandwidths; sizes 1 : 8600, rates 1 : 127
CAPACITY = 256 * MIB
VERSION = CAPACITY // 12
WRITE_MAX = 26 * MIB + 700 * 1024
WRITE_MIN = 22 * MIB + 512 * 1024
READ_MAX = 12 * MIB
READ_MIN = 615 * 1024
#: the slow device: above the fastest demotion, which ends with a sync
SLOW_WRITE = 3 * READ_MAX
PERIOD = 60
LOADS = (1.0, 1.3, 1.6, 1.9, 2.1)
APPLICATIONS = ("ocean", "air", "ice")
MARKER = "COMPLETE"
CHUNK = MIB
#: longest time that one write of a chunk may take: the limit of the device, and a margin
BLOCKED_SECONDS = 3.0
AGAIN_SECONDS = 0.25
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


class Watch:
    """Samples the free space of the fast file system, and the state of the tier.

    It also limits the fast device as equation 5.1 does: writes are slower beside a demotion. blkio
    limits reads and writes separately.
    """

    def __init__(self, endpoint: Endpoint, fast: loop.Disk) -> None:
        """Start the thread."""
        self._endpoint = endpoint
        self._fast = fast
        self._free = shutil.disk_usage(fast.folder).free
        self._stop = threading.Event()
        self.peak = 0
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
                        is_demoting = any(each.state == "demoting" for each in tier.versions)
                        self._fast.limit(WRITE_MIN if is_demoting else WRITE_MAX)
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


def write_version(folder: Path, seed: int, written: Written) -> str:
    """Write a version as an application does; return its checksum."""
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    block = chance.randbytes(CHUNK)
    digest = hashlib.sha256()
    descriptor = os.open(folder / "state", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        done = 0
        while done < VERSION:
            data = (block[done % 4096 :] + block[: done % 4096])[: min(CHUNK, VERSION - done)]
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
    written.bytes += VERSION
    return digest.hexdigest()


def write_period(
    endpoint: Endpoint,
    fast: Path,
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
            wait = begun + index * (PERIOD - 5.0) / count - time.time()
            time.sleep(max(0.0, wait))
        application, number = APPLICATIONS[index % len(APPLICATIONS)], next(numbers)
        folder = fast / application / str(number)
        written.sums[application, number] = write_version(folder, number, written)
        if number <= len(APPLICATIONS):
            declare(endpoint, application, number, count)
    written.seconds = time.monotonic() - writing
    return written


def declare(endpoint: Endpoint, application: str, number: int, count: int) -> None:
    """Declare the version of an application, and the time between two of its versions."""
    every = round(PERIOD * len(APPLICATIONS) / count)
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


def await_period() -> float:
    """Wait until a period of the endpoint begins: they are counted from 1970."""
    begin = (time.time() // PERIOD + 1) * PERIOD
    time.sleep(begin - time.time())
    return begin


def digest(path: Path) -> str:
    """Return the checksum of a file; an empty text if it does not exist."""
    try:
        with path.open("rb") as file:
            found = hashlib.sha256()
            while data := file.read(CHUNK):
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


def one_more(endpoint: Endpoint) -> str:
    """Declare an application that writes S in each period; return the reason if it is refused."""
    request = StagingRequest(
        f"/slow/{APPLICATIONS[0]}/1",
        to="/fast/more/1",
        recursive=True,
        application="more",
        version=1,
        period_seconds=PERIOD * VERSION // CAPACITY,
        bytes_expected=VERSION,
    )
    try:
        with endpoint.client() as client:
            client.stage_in(request)
    except DrayError as error:
        return str(error)
    return ""


def run_load(load: float, folder: Path, program: Path) -> list[dict[str, Any]]:
    """Run both periods of a load on fresh file systems; return their results."""
    count = round(load * CAPACITY / VERSION)
    tier = {
        "name": "burst",
        "fast": ["fast"],
        "slow": "slow",
        "capacity": CAPACITY,
        "watermark": 0.75,
        "period": PERIOD,
        "write_max": WRITE_MAX,
        "write_min": WRITE_MIN,
        "read_max": READ_MAX,
        "read_min": READ_MIN,
        "versions": "{application}/{version}",
        "complete": f"marker:{MARKER}",
        "owner": "alice",
    }
    with contextlib.ExitStack() as stack:
        # The journal and the tables of ext4 need some space beside S.
        fast = stack.enter_context(loop.disk(folder / "fast", CAPACITY + 24 * MIB))
        slow = stack.enter_context(loop.disk(folder / "slow", 6 * CAPACITY))
        fast.limit(WRITE_MAX)
        slow.limit(SLOW_WRITE)
        roots = [
            Root(name, {"tier": name, "path": str(disk.folder)})
            for name, disk in (("fast", fast), ("slow", slow))
        ]
        endpoint = Endpoint(
            folder / "endpoint", "bb", roots=roots, config={"tier": [tier]}, program=program
        )
        stack.callback(endpoint.close)
        endpoint.start()
        watch = Watch(endpoint, fast)
        stack.callback(watch.close)
        numbers = itertools.count(1)
        results = []
        sums: Sums = {}
        for is_burst in (False, True):
            begun = await_period()
            watch.take_peak()
            watch.tiers.clear()
            written = write_period(endpoint, fast.folder, count, numbers, begun, is_burst=is_burst)
            time.sleep(max(0.0, begun + PERIOD - 2.0 - time.time()))
            sums.update(written.sums)
            older, newest = orders(watch.tiers)
            last = watch.tiers[-1]
            states = [each.state for each in last.versions]
            results.append(
                {
                    "load": load,
                    "burst": is_burst,
                    "written": written.bytes / CAPACITY,
                    "seconds": round(written.seconds, 1),
                    "bound": None if last.dwpp_max is None else last.dwpp_max / CAPACITY,
                    "expected": watch.tiers[-1].dwpp / CAPACITY,
                    "pattern": watch.tiers[-1].pattern,
                    "peak": watch.take_peak() / CAPACITY,
                    "refused": written.refused,
                    "longest_seconds": round(written.longest, 2),
                    "left": sum(state in ("written", "demoting") for state in states),
                    "older": older,
                    "newest": newest,
                    "wrong": check(endpoint, fast.folder, slow.folder, sums),
                }
            )
            print(json.dumps(results[-1]), flush=True)
        results[-1]["refusal"] = one_more(endpoint)
        print(results[-1]["refusal"], flush=True)
        return results


def run(loads: tuple[float, ...] = LOADS) -> dict[str, Any]:
    """Run all loads."""
    named = os.environ.get("DRAY_PROGRAM")
    program = Path(named) if named else find_program()
    results = []
    for load in loads:
        with tempfile.TemporaryDirectory(prefix="dray-tier-") as folder:
            results += run_load(load, Path(folder), program)
    return {
        "capacity_bytes": CAPACITY,
        "version_bytes": VERSION,
        "period_seconds": PERIOD,
        "write_max": WRITE_MAX,
        "write_min": WRITE_MIN,
        "read_max": READ_MAX,
        "read_min": READ_MIN,
        "slow_write": SLOW_WRITE,
        "periods": results,
    }


def rows_of(results: dict[str, Any]) -> str:
    """Return the table of the periods."""
    head = ["written", "writes", "expected", "pattern", "peak", "blocked", "slowest MiB, s"]
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


def page(results: dict[str, Any]) -> str:
    """Write the page."""
    rates = (results[name] / MIB for name in ("write_max", "write_min", "read_max", "read_min"))
    write_max, write_min, read_max, read_min = rates
    bound = 1.0 / (1.0 - results["read_max"] / results["write_min"])
    part = results["version_bytes"] / results["capacity_bytes"]
    lower = bound * (1.0 - part * results["read_max"] / results["write_min"])
    whole = sum(each["wrong"] for each in results["periods"])
    return f"""\
<!-- Written by `python -m integration.simulation.tier_real`; edit that. -->

# A tier with real file systems

Three applications write versions to a tier of a real endpoint, with 1.0 to 2.1 S in each period.
The page shows at which load the fast file system was full. [Tiers](../../design/tiers.md) explains
the terms, and [a burst buffer](bbos.md) has the same question in the simulator.

## Set-up

- The fast root is an ext4 on a loop device, with 24 MiB beside S for its journal. S is
  {results["capacity_bytes"] / MIB:.0f} MiB. The slow root is another ext4.
- Bwmax is {write_max:.1f} MiB/s, Bwmin {write_min:.1f} MiB/s, Brmax {read_max:.1f} MiB/s and Brmin
  {read_min:.1f} MiB/s: the paper's numbers, 1 : 127. A version has
  {results["version_bytes"] / MIB:.1f} MiB, and a period {results["period_seconds"]} s.
- blkio (cgroup v1) limits writes to the fast device to Bwmax, and to Bwmin while a demotion runs.
  A disk has this relation (equation 5.1), but blkio limits reads and writes separately. It limits
  writes to the slow device to {results["slow_write"] / MIB:.0f} MiB/s. The endpoint limits a
  demotion to Brmax.
- Each load begins with empty file systems and has two periods. Versions are written at even
  intervals in the first period, and in one burst without idle time in the second period.
- Applications write one after the other. Each one declares its first version with its period
  (`POST /v1/staging/out`), and writes the other versions without a call.
- The stored results are those of a debug build on two cores that had other work. A full file system
  shows a peak of 0.97 S, because the journal and the tables of ext4 take the rest.

The bound of the tier is {bound:.2f} S. A version of this size is demoted only after it is complete,
which lowers the bound to {lower:.2f} S.

## Results

{rows_of(results)}

- *Peak* is the most space that was used on the fast file system. *Blocked* is the number of writes
  that failed because the file system was full; the application repeated each one after a quarter of
  a second.
- *E-order* is the number of demotions that took an older version, and *V-order* the number that
  took the newest version of its application.
- *Left* is the number of versions without a slow copy two seconds before the end of the period.
- *Wrong* is the number of versions whose content differs (sha256) on a root that has the version
  according to the catalog. The sum is {whole}.

{conclusion(results)}

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
{free["burst"]:.2f} S in a burst. The bound assumes that demotions follow each other without a
pause. Each demotion is a transfer of its own: it starts in the first round after the end of the one
before, and ends with a sync. This time has no transferred bytes, so the mean rate of demotions is
below Brmax. An application whose write fails does not lose data: the tier deletes a fast copy as
soon as it has a slow copy, and a repeated write then succeeds."""


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
