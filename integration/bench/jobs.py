"""``python -m integration.bench jobs``: several concurrent third-party transfers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses

from integration.bench import datasets, jobs_report, machine, ours, peers, runs
from integration.bench.begin import (
    Kept,
    add_usual,
    asked,
    catch_signals,
    command,
    congestions_on,
    find_engine,
    named_congestions,
    refuse_niceness,
    row,
)
from integration.bench.examples import build_of
from integration.bench.path import WidePath, path
from integration.bench.results import Results

#: Tools that show the machine's own limits for the same bytes: TCP without files, a copy without a
#: network, and the simplest transfer that computes checksums at both ends.
LIMITS = ("iperf3-4", "cp", "by-hand")
TOOLS = (
    *(dataclasses.replace(tool, sets="") for tool in peers.TOOLS if tool.name in LIMITS),
    *peers.JOBS,
    *ours.JOBS,
)


def _numbers(text: str) -> list[str]:
    known = [str(each) for each in datasets.JOBS]
    for word in text.split(","):
        if word not in known:
            raise argparse.ArgumentTypeError(f"no {word!r} jobs: {', '.join(known)}")
    return text.split(",")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench jobs",
        description="Measure several transfers between two endpoints at one time, and GridFTP's.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    words.add_argument(
        "--jobs", type=_numbers, default=_numbers("1,2,4,8"), help="by commas", metavar="NUMBERS"
    )
    words.add_argument(
        "--round-trip",
        type=float,
        default=0.0,
        metavar="MS",
        help="of a path between the endpoints; 0: the loopback",
    )
    words.add_argument("--megabits", type=float, default=1000.0, help="of the path, per second")
    words.add_argument(
        "--window", type=int, default=64, metavar="MIB", help="TCP's on the path; 0: the host's"
    )
    words.add_argument("--congestion", default="cubic", help="by commas; 'system': the host's")
    add_usual(words, "jobs", limit=300.0)
    return words


def main(arguments: list[str]) -> int:
    """Run all tools, print the tables, and write the results."""
    known = options()
    given = known.parse_args(arguments)
    refuse_niceness(given.nice)
    program = find_engine()
    catch_signals()
    build_of(TOOLS)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(machine.network(named_congestions(given)))
        wide: WidePath | None = None
        if given.round_trip:
            network = wide = stack.enter_context(path(network))
            wide.set(given.round_trip, given.megabits)
            if given.window:
                wide.widen(given.window << 20)
        results = Results(
            machine=dataclasses.asdict(machine.Machine.this()),
            rows=[row(tool, network, program) for tool in TOOLS],
            command=command(given, known, ("jobs",)),
            scale=given.scale,
            base=LIMITS[0],
            megabits=given.megabits if wide else 0.0,
        )
        kept = Kept(given, results, jobs_report)

        for number in given.jobs:
            name = f"j{number}"
            if why := datasets.missing(name, given.scale, machine.free_memory()):
                runs.say(f"bench: without {number} jobs: {why}")
                results.facts.append(f"Without {number} jobs: {why}.")
                continue
            runs.run_all(
                asked(
                    given, program, list(TOOLS), [name], congestions_on(given, network), path=wide
                ),
                network,
                results,
                kept.keep,
            )
    return kept.show()
