"""``python -m integration.bench tpc``: XRootD's third-party copies, with and without dray."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from integration.bench import datasets, machine, runs, tpc_report
from integration.bench.begin import (
    TMPFS,
    Kept,
    add_usual,
    asked,
    catch_signals,
    command,
    congestions_on,
    find_engine,
    named_congestions,
    names_of,
    refuse_niceness,
    row,
)
from integration.bench.examples import build_of
from integration.bench.path import path
from integration.bench.results import Results
from integration.bench.tpc_tools import BASE, BUILT, LIMITS, TOOLS
from integration.bench.wan import measure_path
from integration.xrootd.servers import copy_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.bench.path import WidePath
    from integration.bench.results import Row

#: The cases: the loopback, and paths of 50 ms. A rate of 1 Gbit/s limits all tools, and a rate of
#: 4 Gbit/s limits no tool.
CASES = "0:a,0:h,50@1000:w,50@4000:w,50@1000:h"


class Case(NamedTuple):
    """The data set of a copy, and the path between the servers."""

    #: Round-trip time in milliseconds. 0 means the loopback.
    round_trip: float
    #: Rate of the path in megabits per second.
    megabits: float
    set: str

    @staticmethod
    def read(word: str) -> Case:
        """Parse a case: ``MS:SET`` or ``MS@MEGABITS:SET``.

        :raises ValueError: for any other text.
        """
        way, _, name = word.partition(":")
        round_trip, _, megabits = way.partition("@")
        case = Case(float(round_trip), float(megabits or 1000), name)
        if name not in datasets.MAKERS or case.round_trip < 0 or case.megabits <= 0:
            raise ValueError(word)
        return case

    @property
    def label(self) -> str:
        """Name of the path in tables."""
        return f"{self.round_trip:g} ms {self.megabits / 1000:g} Gbit"


def _cases(text: str) -> list[str]:
    for word in text.split(","):
        try:
            Case.read(word)
        except ValueError:
            words = "is no round trip with a set, as 0:a, 50:w and 50@4000:w are"
            raise argparse.ArgumentTypeError(f"{word!r} {words}") from None
    return text.split(",")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench tpc",
        description="Measure third-party copies of XRootD's servers: their own, and dray's.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = [tool.name for tool in TOOLS]
    words.add_argument(
        "--tools", type=names_of(names, "tool"), default=names, help="by commas", metavar="NAMES"
    )
    words.add_argument(
        "--cases",
        type=_cases,
        default=_cases(CASES),
        metavar="MS[@MEGABITS]:SET,...",
        help="round trip (0: the loopback), line, and set; a: one file of 4 GiB; w: of 2 GiB;"
        " h: 100 files of 1 MiB",
    )
    words.add_argument(
        "--window",
        type=int,
        default=0,
        metavar="MIB",
        help="to which TCP's windows may grow at both ends of a path; 0: as on this host",
    )
    words.add_argument("--congestion", default="cubic", help="by commas; 'system': the host's")
    add_usual(words, "tpc", limit=300.0)
    return words


@contextlib.contextmanager
def programs(program: Path, rows: list[Row]) -> Iterator[tuple[Path, list[Row]]]:
    """Copy built programs to a folder of the servers' user. Note in ``rows`` the missing tools."""
    there = [name for name in BUILT if (program.parent / name).exists()]
    found = []
    for each in rows:
        lacks = [name for name, users in BUILT.items() if each.name in users and name not in there]
        if lacks and not each.missing:
            why = f"no {lacks[0]} beside {program.name}: make build-xrootd"
            found.append(dataclasses.replace(each, missing=why))
        else:
            found.append(each)
    with tempfile.TemporaryDirectory(prefix="dray-bench-programs-") as folder:
        Path(folder).chmod(0o755)
        copies = Path(folder) / "bin"
        copy_programs(copies, [program.name, *there], program.parent)
        yield copies / program.name, found


def keeps_attributes(place: Path) -> bool:
    """Return whether a file system keeps the attributes that XRootD's servers store."""
    with tempfile.NamedTemporaryFile(dir=place) as file:
        try:
            os.setxattr(file.name, "user.dray.bench", b"1")
        except OSError:
            return False
    return True


def main(arguments: list[str]) -> int:
    """Run all cases, print the tables, and write the results."""
    known = options()
    given = known.parse_args(arguments)
    refuse_niceness(given.nice)
    built = find_engine()
    catch_signals()
    cases = [Case.read(word) for word in given.cases]
    tools = [tool for tool in TOOLS if tool.name in (*given.tools, BASE, *LIMITS)]
    build_of(tools)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(machine.network(named_congestions(given)))
        results = Results(
            machine=dataclasses.asdict(machine.Machine.this()),
            rows=[],
            command=command(given, known, ("tpc",)),
            scale=given.scale,
            base=BASE,
        )
        rows = [row(tool, own, built) for tool in tools]
        program, results.rows = stack.enter_context(programs(built, rows))
        kept = Kept(given, results, tpc_report)
        if not keeps_attributes(TMPFS):
            results.facts.append(
                "No attributes are kept on the tmpfs here: the source's server sums each file anew"
                " for dray."
            )
        wide: WidePath | None = None
        if any(case.round_trip for case in cases):
            wide = stack.enter_context(path(own))
            if given.window:
                wide.widen(given.window << 20)
            given.megabits = max(case.megabits for case in cases)
            measure_path(wide, given, results)
            # Each case stores the rate of its path. A common rate in the results would prevent the
            # merge of runs with different cases.
            results.megabits = 0.0

        for case in cases:
            if why := datasets.missing(case.set, given.scale, machine.free_memory()):
                runs.say(f"bench: without set {case.set}: {why}")
                results.facts.append(f"Without set {case.set}: {why}.")
                continue
            over = wide if case.round_trip else None
            if over:
                over.set(case.round_trip, case.megabits)
                over.label = case.label
                runs.say(f"\npath of {case.label}")
            network = over or own
            there = [tool for tool in tools if tool.travels or not over]
            named = congestions_on(given, network)
            one = asked(given, program, there, [case.set], named, path=over)
            runs.run_all(one, network, results, kept.keep)
    return kept.show()
