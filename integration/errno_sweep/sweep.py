"""Run cases, and check the files and the output of each run without the code of dray."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from integration.errno_sweep import cases
from integration.errno_sweep.catalog import scene
from integration.errno_sweep.scenes import RUN_SECONDS, Data, Ran, Scene
from integration.harness import tree

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from integration.errno_sweep.cases import Case
    from integration.harness.program import Bench
    from integration.harness.supervise import Key

SHIM = Path(__file__).parents[1] / "harness" / "stepped_clock.c"
#: Offset of the clock for ``dray log sweep``, which removes no file of the last hour.
LATER_SECONDS = 2 * 86400
BASELINES = 2
#: Command that a run names if it leaves resumable data.
SAID_LEFT = "dray log sweep"


@dataclass
class Outcome:
    """The result of a case, after both runs."""

    case: str
    #: True if the call happened in this run.
    is_hit: bool
    path: str
    #: Exit code and kind of error of the run with the fault.
    first: str
    #: Exit code and kind of error of the run without the fault.
    second: str
    #: dray's own files that remain after the second run, and that ``dray log sweep`` removes once
    #: the files are old.
    swept: list[str] = field(default_factory=list)
    #: Violations that were found.
    faults: list[str] = field(default_factory=list)
    words: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome as one line of JSON."""
        return json.dumps(asdict(self))


class Later:
    """Runs ``dray log sweep`` with a clock that is two days ahead."""

    def __init__(self, bench: Bench) -> None:
        """Build the library that moves the clock of one program."""
        self.bench = bench
        library = bench.folder / "stepped_clock.so"
        flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
        subprocess.run(["cc", *flags, "-o", library, SHIM, "-ldl"], check=True)
        sign = bench.folder / "clock-has-stepped"
        sign.touch()
        self.env = {
            "LD_PRELOAD": str(library),
            "STEPPED_CLOCK_FILE": str(sign),
            "STEPPED_CLOCK_SECONDS": str(LATER_SECONDS),
        }

    def sweeps(self, top: Path) -> list[str]:
        """Return the leftovers below ``top`` that a sweep does not remove."""
        words: list[str | Path] = ["log", "sweep", top, "--older-than", "1d", "--json"]
        self.bench.start(*words, name="sweep", env=self.env).wait(RUN_SECONDS)
        return tree.leftovers(top)


def judge(ran: Ran, data: Data, top: Path, copied: Path, *, is_last: bool) -> list[str]:
    """Compare the files under final names with the source; return the violations."""
    faults = list(ran.faults)
    entries = tree.describe(copied) if copied.exists() else {}
    for path, entry in entries.items():
        if entry.kind in ("file", "link"):
            allowed = data.allowed.get(path)
            if allowed is None or (entry.size, entry.content) not in allowed:
                faults.append(f"wrong content under the final name {os.fsdecode(path)!r}")
    others = [name for name in os.listdir(top) if not name.startswith((".dray-", copied.name))]
    faults += [f"{name!r} was not asked for" for name in others]
    if is_last and ran.code != 0:
        faults.append(f"the second run ended with {ran.code} {ran.kind}: {ran.words}")
    if ran.code == 0:
        said = "the second run said done" if is_last else "it said done"
        faults += [f"{said}, but {each}" for each in tree.differences(data.wanted, entries)]
    return faults


def run(made: Scene, case: Case, data: Data, later: Later) -> Outcome:
    """Run a copy with the fault of the case, run the copy again without it, and judge both."""
    made.begin()
    try:
        made.supervisor.arm(case.fault)
        first = made.run()
        made.supervisor.disarm()
        is_hit, path = made.supervisor.is_hit, made.supervisor.hit_path
        faults = judge(first, data, made.top(), made.copied(), is_last=False)
        second = made.rerun()
        faults += judge(second, data, made.top(), made.copied(), is_last=True)
        left = tree.leftovers(made.top())
        unswept = later.sweeps(made.top()) if left else []
        faults += [f"left for ever: {Path(each).name}" for each in unswept]
        is_reported = SAID_LEFT in first.words + second.words or case.says_removed
        if left and second.code == 0 and not is_reported:
            faults.append(f"left, and no run told: {Path(left[0]).name}")
        swept = [Path(each).name for each in left if each not in unswept]
    finally:
        made.end()
    return Outcome(
        str(case),
        is_hit,
        path.removeprefix(str(made.top().parent)),
        f"{first.code} {first.kind}",
        f"{second.code} {second.kind}",
        swept,
        faults,
        first.words,
        round(first.seconds + second.seconds, 3),
    )


def baseline(made: Scene, data: Data) -> Counter[Key]:
    """Count the calls of a copy. Return the minimum of several runs, so that all calls happen."""
    least: Counter[Key] | None = None
    for _ in range(BASELINES):
        made.begin()
        try:
            made.supervisor.arm(None)
            ran = made.run()
            counts = made.supervisor.disarm()
            faults = judge(ran, data, made.top(), made.copied(), is_last=True)
            assert not faults, f"{made.name} without a fault: {faults}"
        finally:
            made.end()
        least = counts if least is None else least & counts
    assert least, f"{made.name}: no call was seen"
    return least


def sweep(
    names: Sequence[str],
    bench: Bench,
    choose: Callable[[Iterable[Case]], Sequence[Case]],
    *,
    kills: bool = True,
) -> Iterator[Outcome]:
    """Run the chosen cases of these scenes, one scene after the other."""
    data = Data(bench.folder / "data")
    later = Later(bench)
    for name in names:
        with scene(name, bench, data) as made:
            counts = baseline(made, made.data)
            for case in choose(cases.of_scene(name, counts, kills=kills)):
                outcome = run(made, case, made.data, later)
                if outcome.faults:
                    made.renew()
                yield outcome
