"""``python -m integration.bench wan``: over a path with a delay, in user space, beside others."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
from typing import TYPE_CHECKING

from integration.bench import datasets, machine, ours, peers, runs, wan_report
from integration.bench.begin import (
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
from integration.bench.path import path
from integration.bench.results import Results

if TYPE_CHECKING:
    from pathlib import Path

    from integration.bench.path import WidePath
    from integration.bench.tools import Tool

TOOLS = [tool for tool in (*peers.TOOLS, *ours.TOOLS) if tool.travels]
#: Plain TCP over the same path. All tools are compared with it.
BOUND = "iperf3-4"
#: Cases: the round-trip time in milliseconds and the data set.
CASES = "50:w,50:c,100:w,100:c,95:l"
#: Number of bytes with which the rate of the path is measured, with and without its limit.
LOOK_BYTES = 1 << 30


def _cases(text: str) -> list[str]:
    for word in text.split(","):
        round_trip, _, name = word.partition(":")
        if name not in datasets.MAKERS or not round_trip.replace(".", "", 1).isdigit():
            raise argparse.ArgumentTypeError(f"{word!r} is no round trip with a set, as 50:w is")
    return text.split(",")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench wan",
        description="Measure dray and others over a path with a delay, emulated in user space.",
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
        metavar="MS:SET,...",
        help="round trip and set; w: one file of 2 GiB; c: Linux's sources; l: 50 000 of them",
    )
    words.add_argument("--megabits", type=float, default=1000.0, help="per second, each way")
    words.add_argument(
        "--window",
        type=int,
        default=64,
        metavar="MIB",
        help="to which TCP's windows may grow at both ends; 0: as on this host",
    )
    words.add_argument("--congestion", default="cubic", help="by commas; 'system': the host's")
    add_usual(words, "wan", limit=180.0)
    return words


def carried(wide: WidePath, size: int) -> float:
    """Return the rate of plain TCP over the path in MB per second, or 0 without iperf3."""
    if next(tool for tool in TOOLS if tool.name == BOUND).missing(wide):
        return 0.0
    port = machine.free_port()
    server = subprocess.Popen(
        [*wide.ends.far, "iperf3", "-s", "-1", "-B", wide.ends.there, "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        runs.await_true(lambda: machine.listens(port, wide.ends.far_process), 20)
        words = ["iperf3", "-c", wide.ends.there, "-p", str(port), "-n", str(size), "-J", "-P", "4"]
        output = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
    finally:
        server.kill()
        server.wait()
    return size / 1e6 / peers.iperf_seconds(output.stdout)


def main(arguments: list[str]) -> int:
    """Run all cases, print the tables, and write the results."""
    known = options()
    given = known.parse_args(arguments)
    refuse_niceness(given.nice)
    program = find_engine()
    catch_signals()
    tools = [tool for tool in TOOLS if tool.name in given.tools or tool.name == BOUND]
    with machine.network(named_congestions(given)) as own, path(own) as wide:
        if given.window:
            wide.widen(given.window << 20)
        results = Results(
            machine=dataclasses.asdict(machine.Machine.this()),
            rows=[row(tool, wide, program) for tool in tools],
            command=command(given, known, ("wan",)),
            scale=given.scale,
            base=BOUND,
        )
        kept = Kept(given, results, wan_report)
        measure_path(wide, given, results)
        run(given, wide, results, kept, program=program, tools=tools)
    return kept.show()


def measure_path(wide: WidePath, given: argparse.Namespace, results: Results) -> None:
    """Measure the rate of the path without and with its limit. Add it to the facts."""
    megabits = results.megabits = given.megabits
    size = round(LOOK_BYTES * min(1.0, given.scale))
    wide.set(0, 0)
    free = carried(wide, size) * 8
    wide.set(0, megabits)
    bound = carried(wide, size // 4) * 8
    results.facts.append(
        f"Plain TCP over the path without delay reached {free:.0f} Mbit/s without a rate limit,"
        f" and {bound:.0f} Mbit/s with a limit of {megabits:g} Mbit/s. The limit includes the"
        " headers of Ethernet."
    )
    runs.say(results.facts[-1])


def run(
    given: argparse.Namespace,
    wide: WidePath,
    results: Results,
    kept: Kept,
    *,
    program: Path,
    tools: list[Tool],
) -> None:
    """Run all cases, ordered by data set, so that each data set is made only once."""
    for case in given.cases:
        round_trip, _, name = case.partition(":")
        if why := datasets.missing(name, given.scale, machine.free_memory()):
            runs.say(f"bench: without set {name}: {why}")
            continue
        wide.set(float(round_trip), given.megabits)
        runs.say(f"\npath of {wide.label}, {given.megabits:g} Mbit/s")
        congestions = congestions_on(given, wide)
        one = asked(given, program, tools, [name], congestions, path=wide)
        runs.run_all(one, wide, results, kept.keep)
