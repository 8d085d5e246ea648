"""Object logs that are torn, flipped, replaced by an older copy, or read-only.

The sink is killed first. Then each damaged log is read by ``dray log show`` and by the independent
decoder. Both must agree, and no damage may add a range to the log. The transfer then continues with
one of the damaged logs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.fault_matrix.fault import FORMS, Fault
from integration.fault_matrix.scene import END_SECONDS
from integration.harness import host
from integration.log import decoder

if TYPE_CHECKING:
    from integration.fault_matrix.scene import Scene

GROUP = "log"
#: Maximum number of bytes of a tail. A log is torn at each of these bytes.
TAIL_BYTES = 128
#: Number of bits that are flipped, one at a time, in the logs of a cell.
FLIPS = 48
COMMAND_SECONDS = 120
#: Kinds of errors with which a sink refuses a log.
REFUSALS = {"log_damaged", "log_version"}
#: A sink that has accepted its log receives more than this number of bytes.
ACCEPTED_BYTES = 64 << 10
#: Seconds after which a log counts as accepted if its session is active and receives no data.
ACCEPTED_SECONDS = 10.0
Ranges = dict[str, list[tuple[int, int]]]


def log_files(top: Path) -> list[Path]:
    """Return the log of a destination and its part logs."""
    folder = top / ".dray-log"
    return sorted([*folder.glob("*.log"), *folder.glob("*.objects")])


def read(top: Path) -> Any:  # noqa: ANN401 - any JSON
    """Read the log by the independent decoder."""
    logs = list((top / ".dray-log").glob("*.log"))
    return decoder.describe(logs[0]) if logs else {"empty": True}


def ranges_of(log: dict[str, Any]) -> Ranges:
    """Return the recorded ranges of each unfinished file."""
    return {
        file["path"]: [(start, start + length) for start, length, *_ in file["done"]]
        for file in log.get("files", ())
    }


def total(ranges: Ranges) -> int:
    """Return the number of bytes in all ranges."""
    return sum(end - start for each in ranges.values() for start, end in each)


def common(one: Ranges, other: Ranges) -> Ranges:
    """Return the ranges that are in both."""
    return {
        path: [
            (max(a, c), min(b, d))
            for a, b in one[path]
            for c, d in other.get(path, ())
            if max(a, c) < min(b, d)
        ]
        for path in one
    }


def check_content(scene: Scene, log: dict[str, Any]) -> None:
    """Compare the recorded ranges in the partial files with the source."""
    for file in log.get("files", ()):
        partial = (scene.top / file["path"]).with_name(file["partial"]["name"])
        if not partial.exists():
            continue
        with partial.open("rb") as there, (scene.served / file["path"]).open("rb") as here:
            for start, length, *_ in file["done"]:
                if os.pread(there.fileno(), length, start) != os.pread(
                    here.fileno(), length, start
                ):
                    scene.seen.found.append(
                        f"the log names bytes {start} to {start + length} of {file['path']}, "
                        "and the partial file has other bytes"
                    )


class Damage:
    """Damages the logs of a killed sink, in copies and then in their place."""

    def __init__(self, scene: Scene) -> None:
        """Kill the client and the sink, and read the whole log."""
        scene.client.kill()
        scene.sink.kill()
        scene.look()
        self.scene = scene
        self.whole = read(scene.top)
        self.ranges = ranges_of(self.whole)
        self.kept = {path: path.read_bytes() for path in log_files(scene.top)}
        if not self.kept:
            scene.seen.found.append("there is no log to damage")
        self.folder = scene.folder / "damaged" / ".dray-log"
        self.folder.mkdir(parents=True)
        self.names: dict[str, str] = {}
        check_content(scene, self.whole)

    def try_with(self, name: str, changed: Path, data: bytes) -> None:
        """Make a copy of all logs in which one file has other bytes."""
        stem = f"{len(self.names):016x}"
        self.names[stem] = name
        for path, whole in self.kept.items():
            copied = self.folder / f"{stem}{path.name[16:]}"
            copied.write_bytes(data if path == changed else whole)

    def check(self) -> None:
        """Read all damaged copies by both readers, and note violations."""
        theirs = shown(self.scene, self.folder.parent)
        for stem, name in self.names.items():
            ours = decoder.describe(self.folder / f"{stem}.log") or {}
            read_by_us = None if "error" in ours else joined(ranges_of(ours))
            if read_by_us != theirs.get(stem):
                self.scene.seen.found.append(
                    f"{name}: the decoder read {read_by_us}, and dray {theirs.get(stem)}"
                )
            self._check_subset(name, read_by_us or {})

    def _check_subset(self, name: str, found: Ranges) -> None:
        known = {path: ranges for path, ranges in self.ranges.items() if ranges}
        for path, ranges in found.items():
            one = {path: ranges}
            if path in known and total(common(one, known)) != total(one):
                self.scene.seen.found.append(f"{name}: the damage has added ranges of {path}")

    def resume(self) -> None:
        """Start the sink with the logs as they are now."""
        left = ranges_of(read(self.scene.top))
        self.scene.seen.destroyed += total(self.ranges) - total(common(self.ranges, left))
        self.scene.sink.start()


def joined(ranges: Ranges) -> Ranges:
    """Join ranges that touch each other, and leave out files without ranges."""
    result: Ranges = {}
    for path, each in ranges.items():
        for start, end in sorted(each):
            runs = result.setdefault(path, [])
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((start, end))
    return result


def shown(scene: Scene, folder: Path) -> dict[str, Ranges | None]:
    """Read all logs of a folder by ``dray log show``. A log that it refuses is None."""
    words = [str(scene.program), "log", "show", "--json", str(folder)]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS
    )
    if "panicked" in done.stderr:
        scene.seen.found.append(f"dray log show has panicked: {done.stderr}")
    found = json.loads(done.stdout)
    result: dict[str, Ranges | None] = {
        Path(each["path"]).stem: None for each in found["unreadable"]
    }
    for log in found["logs"]:
        ranges = {
            file["path"]: [(run["offset"], run["offset"] + run["length"]) for run in file["safe"]]
            for file in log.get("files", ())
        }
        result[Path(log["path"]).stem] = joined(ranges)
    return result


def _newest(logs: dict[Path, bytes]) -> Path:
    """Return the log that was written last. A part log that was just created is empty."""
    return max((path for path in logs if logs[path]), key=lambda path: path.stat().st_mtime_ns)


def _tear(scene: Scene) -> None:
    damage = Damage(scene)
    log = _newest(damage.kept)
    whole = damage.kept[log]
    first = max(0, len(whole) - TAIL_BYTES)
    for length in range(first, len(whole)):
        name = f"{log.name} torn at byte {length} of {len(whole)}"
        damage.try_with(name, log, whole[:length])
    damage.check()
    os.truncate(log, random.Random(len(whole)).randrange(first, len(whole)))
    damage.resume()
    _remove_if_refused(scene)


def _flip(scene: Scene) -> None:
    damage = Damage(scene)
    chance = random.Random(sum(map(len, damage.kept.values())))
    bits = [(path, at) for path, data in damage.kept.items() for at in range(8 * len(data))]
    chosen = chance.sample(bits, min(FLIPS, len(bits)))
    flipped = [(path, bit, _with_flip(damage.kept[path], bit)) for path, bit in chosen]
    for path, bit, data in flipped:
        damage.try_with(f"bit {bit} of {path.name} flipped", path, data)
    damage.check()
    path, _, data = flipped[-1]
    path.write_bytes(data)
    damage.resume()
    _remove_if_refused(scene)


def _with_flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _await_verdict_on_log(scene: Scene) -> dict[str, Any]:
    """Start the client. Return its answer when the sink has accepted or refused the log.

    :raises AssertionError: after ``END_SECONDS``.
    """
    known, carried = len(scene.answers()), scene.carried()
    scene.start_client()
    began = inactive = time.monotonic()
    while True:
        answer = next(iter(scene.answers()[known:][-1:]), None)
        if answer is None or answer["state"] != "active":
            inactive = time.monotonic()
        if answer is not None and (
            answer["state"] in ("done", "failed")
            or REFUSALS & set(answer["kinds"])
            # A transfer is active for a moment before the sink reads its log.
            or scene.carried() - carried > ACCEPTED_BYTES
            or time.monotonic() - inactive > ACCEPTED_SECONDS
        ):
            return answer
        assert time.monotonic() - began < END_SECONDS, scene.words()
        time.sleep(0.05)


def _remove_if_refused(scene: Scene) -> None:
    """Remove the logs, as the message says, if the sink refuses to read the damaged log."""
    answer = _await_verdict_on_log(scene)
    if not REFUSALS & set(answer["kinds"]):
        return
    if not any("remove" in line for line in answer["words"]):
        scene.seen.found.append(f"the refusal names no remedy: {answer['words']}")
    scene.client.wait()
    for path in log_files(scene.top):
        path.unlink()


def _keep_older(scene: Scene) -> None:
    """Copy the logs now. The moment of the fault comes later."""
    scene.older = {path: path.read_bytes() for path in log_files(scene.top)}


def _put_back(scene: Scene) -> None:
    damage = Damage(scene)
    for path in damage.kept:
        if path not in scene.older:
            path.unlink()
    for path, data in scene.older.items():
        path.write_bytes(data)
    damage.resume()


def _less_power(scene: Scene) -> None:
    scene.sink_words = host.without_power()


def _read_only(scene: Scene) -> None:
    folder = scene.top / ".dray-log"
    files = sorted(folder.iterdir())
    for path in files:
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        scene.proxy.cut()
        scene.await_trouble()
        scene.look()
    finally:
        folder.chmod(0o700)
        for path in files:
            if path.exists():
                path.chmod(0o600)
    scene.mark()


FAULTS = (
    Fault(
        "log-torn",
        GROUP,
        f"the log is cut at each of its last {TAIL_BYTES} bytes; the transfer continues from one "
        "of these logs",
        _tear,
        forms=FORMS,
    ),
    Fault(
        "log-flipped",
        GROUP,
        f"{FLIPS} single bits of the log are flipped, one at a time; the transfer continues from "
        "one of these logs",
        _flip,
        forms=FORMS,
    ),
    Fault(
        "log-older",
        GROUP,
        "an older copy of the log replaces the log; the copy was made when half as many bytes were "
        "durable",
        _put_back,
        forms=FORMS,
        halfway=_keep_older,
    ),
    Fault(
        "log-read-only",
        GROUP,
        "the folder of the log becomes read-only, and the connections are cut",
        _read_only,
        prepare=_less_power,
    ),
)
