"""Data sets, samples and statistics of the measurement ``recovery``."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Size of an object in bytes. The objects of FT-LADS have 1 MiB; the counts are those of the paper.
OBJECT_BYTES = 64 << 10
#: Number of storage targets of each end, as in the paper's test bed (section VI-A-2).
TARGETS = 11
#: Files of the set *small* with separate blocks on each target; of the set *big*, one. The other
#: files of the target are hard links to them, so that the source needs little disk and page cache.
#: Each copied file has its own blocks.
DISTINCT = 8

#: Quantiles of Student's t distribution at 0.995 for 1 to 30 degrees of freedom, for two-sided
#: confidence intervals of 99 %.
T_995 = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
    *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
    *(2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750),
)


@dataclass(frozen=True)
class Set:
    """Files of one size, which alternate over the targets."""

    name: str
    files: int
    #: Number of objects of a file.
    objects: int

    @property
    def file_bytes(self) -> int:
        """Size of a file in bytes."""
        return self.objects * OBJECT_BYTES

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return self.files * self.file_bytes

    @property
    def objects_of_all(self) -> int:
        """Number of objects of all files."""
        return self.files * self.objects

    def scaled(self, scale: float) -> Set:
        """Return the set with this fraction of the files, but at least one for each target."""
        return replace(self, files=max(TARGETS, round(self.files * scale)))

    def target_rate(self, pace: float) -> int:
        """Return bytes per second at which the target with most files takes ``pace`` seconds."""
        return math.ceil(math.ceil(self.files / TARGETS) * self.file_bytes / pace)


#: The workloads of FT-LADS (section VI-A-3): 100 files of 1 GB and 10 000 of 1 MB, in objects of
#: 1 MB.
SETS = {one.name: one for one in (Set("big", 100, 1024), Set("small", 10_000, 1))}


def target_name(number: int) -> str:
    """Return the name of a target, and of the folder whose files are on this target."""
    return f"ost{number:02}"


def make(one: Set, top: Path) -> Path:
    """Make the files of a set below ``top/data``. Return this folder."""
    data = top / "data"
    made: dict[int, list[Path]] = {}
    for number in range(one.files):
        target = number % TARGETS
        path = data / target_name(target) / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        originals = made.setdefault(target, [])
        distinct = 1 if one.objects > 1 else DISTINCT
        if len(originals) < distinct:
            path.write_bytes(os.urandom(one.file_bytes))
            originals.append(path)
        else:
            path.hardlink_to(originals[number // TARGETS % distinct])
    return data


def difference(one: Set, sink: Path) -> str:
    """Return how the files below ``sink/data`` differ in number or size, or an empty text."""
    sizes = [
        entry.stat().st_size
        for number in range(TARGETS)
        for entry in _entries(sink / "data" / target_name(number))
        if not entry.name.startswith(".dray-")
    ]
    wrong = sum(size != one.file_bytes for size in sizes)
    if len(sizes) == one.files and not wrong:
        return ""
    return f"{len(sizes)} of {one.files} files, {wrong} of another size"


def arrived(sink: Path) -> int:
    """Return the bytes of the blocks of all files below a folder."""
    size = 0
    for folder, _, _ in os.walk(sink):
        for entry in _entries(folder):
            # A running program may have renamed or removed the file.
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    size += entry.stat().st_blocks * 512
    return size


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


# --- samples --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """Identity of a sample. A run that continues skips the samples that it has."""

    story: str
    set: str
    case: str
    round: int
    #: Seconds that a copy takes at the limited rate. 0 without a limit.
    pace: float
    #: Number of files of the set.
    files: int


@dataclass(frozen=True)
class Sample:
    """One run, with its results by name."""

    key: Key
    values: dict[str, float] = field(default_factory=dict)
    #: Reason for which the run does not count. Empty if it counts.
    error: str = ""


class Kept:
    """Samples in a file of JSON lines, which a run extends."""

    def __init__(self, path: Path) -> None:
        """Read the file. A last line that a killed run left incomplete is cut off."""
        self.path = path
        self.samples: list[Sample] = []
        #: Descriptions of the runs that wrote the file: machine and command.
        self.runs: list[dict[str, Any]] = []
        if not path.exists():
            return
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        for line in map(json.loads, whole.splitlines()):
            if "run" in line:
                self.runs.append(line["run"])
            else:
                self.samples.append(Sample(Key(**line["key"]), line["values"], line["error"]))

    def has(self, key: Key) -> bool:
        """Return whether a run with this identity counts already."""
        return any(each.key == key and not each.error for each in self.samples)

    def add(self, sample: Sample) -> None:
        """Append a sample. A crash after this call keeps it."""
        self.samples.append(sample)
        self._append(asdict(sample))

    def describe(self, run: dict[str, Any]) -> None:
        """Append the description of a run, unless the file has the same description."""
        if run not in self.runs:
            self.runs.append(run)
            self._append({"run": run})

    def _append(self, value: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def good(self, story: str, set_name: str = "", case: str = "") -> list[Sample]:
        """List the samples that count, by story, and by set and case if they are given."""
        return [
            each
            for each in self.samples
            if each.key.story == story
            and set_name in ("", each.key.set)
            and case in ("", each.key.case)
            and not each.error
        ]


# --- statistics -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Middle:
    """The median of some values, and the 99 % confidence interval of their mean."""

    median: float
    mean: float
    #: Half of the width of the interval. Infinite for a single value.
    half: float
    count: int

    def text(self, digits: int = 2) -> str:
        """Return the median, and the interval if there are at least three values.

        The interval of two values is too wide to say anything.
        """
        if self.count < 3:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.mean:.{digits}f} ± {self.half:.{digits}f})"


def middle(values: Sequence[float]) -> Middle:
    """Return the median, and the interval of the mean by Student's t distribution.

    :raises ValueError: if there are no values.
    """
    if not values:
        raise ValueError("no values")
    mean = statistics.fmean(values)
    count = len(values)
    if count < 2:
        return Middle(statistics.median(values), mean, math.inf, count)
    # Above 30 degrees of freedom, the quantile of 30 gives an interval that is slightly too wide.
    quantile = T_995[min(count - 1, len(T_995)) - 1]
    half = quantile * statistics.stdev(values) / math.sqrt(count)
    return Middle(statistics.median(values), mean, half, count)


def recovery_seconds(before: float, after: float, whole: float) -> float:
    """Return ER = TBF + TAF - TT (FT-LADS, equation 1)."""
    return before + after - whole


def by_round(samples: Sequence[Sample], name: str) -> dict[tuple[int, float, int], float]:
    """Return a value of each sample by round, pace and number of files."""
    return {
        (each.key.round, each.key.pace, each.key.files): each.values[name]
        for each in samples
        if name in each.values
    }


def differences(
    samples: Sequence[Sample], base: Sequence[Sample], name: str
) -> list[tuple[Key, float]]:
    """Return value minus value of the base, for each sample whose round has a base."""
    there = by_round(base, name)
    return [
        (each.key, each.values[name] - there[found])
        for each in samples
        if (found := (each.key.round, each.key.pace, each.key.files)) in there
        and name in each.values
    ]
