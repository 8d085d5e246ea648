"""A tier with real file systems, to which three applications write 1.0 to 2.1 S in a period.

S is the capacity of the fast tier. ``python -m integration.simulation.tier_real`` mounts a fast and
a slow ext4 on loop devices, limits both by blkio (cgroup v1), and starts an endpoint with a tier.
It writes ``tier-real.json`` and ``tier-real.md`` into docs/explanation/experiments. It needs root
and 16 GB of disk space, and takes 23 minutes. ``DRAY_PROGRAM`` names the program dray, by default
the release build.

Each load has two periods. In the first period, the applications write at even intervals. In the
second, they write in one burst without idle time. Each application declares its first version and
its period in a call, and writes its other versions without a call.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray import DrayError
from dray.client import StagingRequest
from dray.testing.endpoints import Endpoint, Root
from integration.harness import loop
from integration.harness.program import find_program
from integration.simulation import simulator, tier_real_page
from integration.simulation.tier_scale import MIB, PAPER, SMALL, Burst, Scale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Tier

LOADS = (1.0, 1.3, 1.6, 1.9, 2.1)
APPLICATIONS = ("ocean", "air", "ice")
MARKER = "COMPLETE"
#: Maximum seconds for one write of a chunk on the limited device.
BLOCKED_SECONDS = 3.0
AGAIN_SECONDS = 0.25
#: The mean interval of demotions is measured only if more than this many end at Brmax.
MEASURED = 4
Sums = dict[tuple[str, int], str]


@dataclass
class Written:
    """Amount that the applications have written in one period."""

    versions: int = 0
    bytes: int = 0
    seconds: float = 0.0
    #: Number of writes that failed because the file system was full. Each was repeated.
    refused: int = 0
    longest: float = 0.0
    sums: Sums = field(default_factory=dict)
    #: Time at which each version was complete, in seconds since 1970.
    complete: dict[tuple[str, int], float] = field(default_factory=dict)


class Watch:
    """A thread that samples the fast file system and the tier, and limits the fast device.

    By equation 5.1 of BBOS, writes to the fast tier are slower while a demotion reads from it.
    blkio limits reads and writes separately, so the thread lowers the limit of writes during a
    demotion.
    """

    def __init__(self, endpoint: Endpoint, fast: loop.Disk, scale: Scale) -> None:
        """Start the thread."""
        self._endpoint = endpoint
        self._scale = scale
        self._fast = fast
        self._free = shutil.disk_usage(fast.folder).free
        self._stop = threading.Event()
        self.peak = 0
        #: Last time at which the tier demoted at less than Brmax, in seconds since 1970.
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
        """Return the most bytes that were used since the last call of this method."""
        peak, self.peak = self.peak, 0
        return peak

    def close(self) -> None:
        """Stop the thread, and raise its error."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def write_version(folder: Path, seed: int, scale: Scale, written: Written) -> str:
    """Write a version, and repeat writes that fail with a full disk. Return its SHA-256."""
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
    """Write ``count`` versions in one period, of each application in turn."""
    written = Written()
    writing = time.monotonic()
    for index in range(count):
        if not is_burst:
            # Write at even intervals, and end some seconds before the end of the period.
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
    """Declare a version. ``interval``: seconds between the versions of all applications."""
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
    """Wait for the start of the endpoint's next period. The first period began in 1970."""
    begin = (time.time() // scale.period + 1) * scale.period
    time.sleep(begin - time.time())
    return begin


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or an empty text if the file does not exist."""
    try:
        with path.open("rb") as file:
            found = hashlib.sha256()
            while data := file.read(4 * MIB):
                found.update(data)
            return found.hexdigest()
    except FileNotFoundError:
        return ""


def wrong_versions(fast: Path, slow: Path, sums: Sums, tier: Tier) -> Sums:
    """Return the versions of which a copy should be complete, but has a wrong content."""
    wrong = {}
    rows = {(each.application, each.version): each.state for each in tier.versions}
    for key, wanted in sums.items():
        below = Path(key[0]) / str(key[1]) / "state"
        state = rows.get(key, "written")
        # In the state `deleting`, the fast copy may be incomplete.
        on_fast = state not in ("slow", "deleting")
        on_slow = state in ("demoted", "deleting", "slow")
        is_whole = not on_fast or digest(fast / below) == wanted
        if not is_whole or (on_slow and digest(slow / below) != wanted):
            wrong[key] = wanted
    return wrong


def check(endpoint: Endpoint, fast: Path, slow: Path, sums: Sums) -> int:
    """Return the number of versions that have a wrong copy in all of five checks.

    A version may change its state during a check, and then only seems wrong.
    """
    wrong = sums
    with endpoint.client() as client:
        for _ in range(5):
            wrong = wrong_versions(fast, slow, wrong, client.tier("burst"))
            if not wrong:
                break
            time.sleep(1.0)
    return len(wrong)


def orders(tiers: list[Tier]) -> tuple[int, int]:
    """Count the demotions of versions that were not the newest, and of those that always were."""
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


def measured(scale: Scale, written: Written, tier: Tier, since: float) -> Burst:
    """Return the numbers of a burst. ``since``: the tier has demoted at Brmax after this time."""
    found, ends = [], []
    for each in tier.versions:
        complete = written.complete.get((each.application, each.version))
        if complete is None:
            continue
        if each.written_at is not None:
            found.append(each.written_at.timestamp() - complete)
        if each.demoted_at is not None:
            ends.append(each.demoted_at.timestamp())
    # A complete version always waits for its demotion, so the tier demotes continuously.
    ends = sorted(end for end in ends if end > since)
    cycle = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > MEASURED else None
    return Burst(scale, written.bytes / written.seconds, statistics.median(found), cycle)


def one_more(endpoint: Endpoint, scale: Scale) -> str:
    """Declare one more application, which writes S per period. Return the endpoint's refusal."""
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
    """Run the two periods of a load on new file systems, and return their results."""
    count = round(load * scale.capacity / scale.version)
    with contextlib.ExitStack() as stack:
        # Beside S, ext4 needs ``reserve`` bytes for its journal and its tables.
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
    """Run all loads, and return their results."""
    named = os.environ.get("DRAY_PROGRAM")
    program = Path(named) if named else find_program()
    results = []
    for load in loads:
        with tempfile.TemporaryDirectory(prefix="dray-tier-") as folder:
            results += run_load(load, Path(folder), program, scale)
    build = "debug" if "debug" in program.parts else "release"
    return {**asdict(scale), "slow_write": scale.slow_write, "build": build, "periods": results}


def main() -> None:
    """Run all loads, print the table, and write the page."""
    if loop.limits_reason():
        raise SystemExit(f"this experiment needs loop devices with limits: {loop.limits_reason()}")
    results = run()
    print(tier_real_page.rows_of(results))
    simulator.write(simulator.PAGES, tier_real_page.files(json.dumps(results, indent=1) + "\n"))


if __name__ == "__main__":
    main()
