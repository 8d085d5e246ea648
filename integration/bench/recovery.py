"""Redoes figures 5 to 10 of FT-LADS: the cost of a log, its size, and the time of a recovery.

``python -m integration.bench.recovery`` measures, and appends each run to a file of JSON lines. The
same command continues after an interruption, and skips the runs that the file has. With
``--report``, it writes the tables and pictures of docs/explanation/measured-recovery.md anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import machine, recovery_faults, recovery_report
from integration.bench.begin import catch_signals, find_engine
from integration.bench.beside import command_of
from integration.bench.recovery_data import SETS, Kept, Key, Sample, Set, make
from integration.bench.recovery_movers import Mover, Push, Scene, dray_movers
from integration.bench.recovery_pair import NO_LOG, Ways, copy, forms
from integration.bench.recovery_peers import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STORIES = ("overhead", "space", "recovery", "threads")
#: Threads of each target, or of the only target (FT-LADS section VI-A-4 refers to this experiment
#: of LADS).
THREADS = (1, 2, 4, 8, 16)
#: Seconds that each target needs for a read or a write, besides the work of its thread.
DELAY_SECONDS = 0.02
#: Files for the measurement of threads, one on each target.
THREADS_SET = Set("threads", 11, 64)
#: Fault point at which all forms of the log are compared (figure 10), in percent.
FORMS_POINT = 80


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    known = argparse.ArgumentParser(
        prog="python -m integration.bench.recovery",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    known.add_argument("--only", nargs="+", choices=STORIES, default=list(STORIES))
    known.add_argument(
        "--pace",
        type=float,
        default=60.0,
        help="seconds that a copy takes at the limited rate; 0 without a limit (not for recovery)",
    )
    known.add_argument("--rounds", type=int, default=3)
    known.add_argument(
        "--first-round",
        type=int,
        default=0,
        help="number of the first round, for concurrent runs that measure different rounds",
    )
    known.add_argument("--forms", nargs="+", default=None, metavar="FORM")
    known.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    known.add_argument("--movers", nargs="+", default=None, metavar="NAME")
    known.add_argument("--scale", type=float, default=1.0, help="part of the files of each set")
    known.add_argument(
        "--settle",
        type=float,
        default=machine.SETTLE_SECONDS,
        metavar="SECONDS",
        help="longest wait for idle processors before each copy; concurrent runs need a short one",
    )
    known.add_argument("--results", type=Path, default=recovery_report.RESULTS)
    known.add_argument("--folder", type=Path, default=None, help="folder for the copied files")
    known.add_argument("--report", action="store_true", help="write the page from the results")
    return known


class Session:
    """One run of this program: what was asked for, the results, and the files to copy."""

    def __init__(self, given: argparse.Namespace, top: Path, command: str) -> None:
        """Read the results of earlier runs."""
        self.given, self.top = given, top
        self.kept = Kept(given.results)
        self.program = find_engine()
        self.command = command
        self.network = machine.Network()
        self._made: dict[str, Path] = {}
        self._is_described = False

    def sets(self) -> list[Set]:
        """Return the scaled data sets."""
        return [SETS[name].scaled(self.given.scale) for name in self.given.sets]

    def data(self, one: Set) -> Path:
        """Make the files of a set once. Return their folder."""
        if one.name not in self._made:
            self._made[one.name] = make(one, self.top / one.name)
        return self._made[one.name]

    def rounds(self) -> range:
        """Return the numbers of the rounds of this run."""
        return range(self.given.first_round, self.given.first_round + self.given.rounds)

    def forms(self, usual: Sequence[str]) -> list[str]:
        """Return the forms of the command line, or ``usual``."""
        return list(self.given.forms or usual)

    def take(self, key: Key, measure: Callable[[], Sample]) -> None:
        """Measure a sample and keep it, unless the results have it."""
        if self.kept.has(key):
            return
        if not self._is_described:
            run = {"machine": dataclasses.asdict(machine.Machine.this()), "command": self.command}
            self.kept.describe(run)
            self._is_described = True
        machine.settle(self.given.settle)
        sample = measure()
        self.kept.add(sample)
        shown = {name: round(value, 3) for name, value in sample.values.items()}
        print(f"{key.story} {key.set} {key.case} #{key.round}: {sample.error or shown}", flush=True)


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """Return the names, beginning with another one in each round."""
    first = turn * 7 % len(names)
    return [*names[first:], *names[:first]]


def copies(session: Session, story: str, usual: Sequence[str]) -> None:
    """Copy the sets with each form of the log, in interleaved rounds."""
    given = session.given
    names = session.forms(usual)
    for turn in session.rounds():
        for one in session.sets():
            rate = one.target_rate(given.pace) if given.pace else 0
            for form in rotated(names, turn):
                key = Key(story, one.name, form, turn, given.pace, one.files)
                ways = Ways(form=form, rate=rate)
                session.take(key, lambda k=key, o=one, w=ways: copied(session, k, o, w))  # type: ignore[misc]


def copied(session: Session, key: Key, one: Set, ways: Ways) -> Sample:
    """Copy a set once. A failure is a sample with an error."""
    try:
        values = copy(session.top, session.program, one, session.data(one), ways, key.pace)
    except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
        return Sample(key, error=str(error)[:400])
    return Sample(key, values)


def overhead(session: Session) -> None:
    """Measure time, CPU and memory with each form, and without a log (figures 5 and 6)."""
    copies(session, "overhead", [NO_LOG, *forms()])


def space(session: Session) -> None:
    """Measure the size of the logs, with sums and without (figure 7)."""
    copies(session, "space", forms(("", ":nosums")))


def threads(session: Session) -> None:
    """Measure copies whose targets need some time for each object, by the number of threads."""
    one = THREADS_SET
    for turn in session.rounds():
        for is_one in (True, False):
            for count in THREADS:
                case = f"{'one' if is_one else 'eleven'}/{count}"
                key = Key("threads", one.name, case, turn, 0.0, one.files)
                ways = Ways(delay=DELAY_SECONDS, threads=count, is_one_target=is_one)
                session.take(key, lambda k=key, w=ways: copied(session, k, one, w))  # type: ignore[misc]


def movers_of(given: argparse.Namespace) -> list[Mover]:
    """Return all movers, or those of the command line."""
    found = [*dray_movers(), *peers()]
    return [each for each in found if given.movers is None or each.name in given.movers]


def recovery(session: Session) -> None:
    """Kill each mover on each side at each point, and all forms of the log at one point."""
    given = session.given
    if not session.network.is_own or not given.pace or shutil.which("tc") is None:
        print("recovery: needs root, the program tc and a pace, to limit a private network")
        return
    movers = movers_of(given)
    for mover in movers:
        if why := mover.missing():
            print(f"{mover.name}: {why}")
    present = [mover for mover in movers if not mover.missing()]
    compared: list[Mover] = [
        Push(f"push@{form}", f"dray, log {form}", Ways(form=form))
        for form in session.forms(forms(("",)))
        if given.movers is None or "forms" in given.movers
    ]
    for turn in session.rounds():
        for one in session.sets():
            scene = Scene(session.top / "scene", session.program, one, session.data(one))
            asked = recovery_faults.cases(present)
            # The forms of the log do not change the time of a whole copy (story overhead), so the
            # reference of all forms are the copies of the mover "push".
            asked += [(mover, "source", FORMS_POINT) for mover in compared]
            for mover, side, point in asked:
                case = recovery_faults.case_of(mover, side, point)
                key = Key("recovery", one.name, case, turn, given.pace, one.files)

                def measure(
                    key: Key = key, mover: Mover = mover, side: str = side, point: int = point
                ) -> Sample:
                    return recovery_faults.sample(session.kept, mover, scene, key, side, point)  # noqa: B023

                session.take(key, measure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, or write the page."""
    known = options()
    given = known.parse_args(arguments)
    if given.report:
        recovery_report.publish(Kept(given.results))
        return 0
    catch_signals()
    with (
        tempfile.TemporaryDirectory(prefix="dray-recovery-", dir=given.folder) as name,
        machine.network([]) as network,
    ):
        top = Path(name)
        # Servers of other tools run as another user.
        top.chmod(0o755)
        without_places = argparse.Namespace(**{**vars(given), "results": recovery_report.RESULTS})
        session = Session(given, top, command_of(known, without_places))
        session.network = network
        os.environ["DRAY_PROGRAM"] = str(session.program)
        for story in given.only:
            {"overhead": overhead, "space": space, "recovery": recovery, "threads": threads}[story](
                session
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
