"""``python -m integration.bench``: run the tools, print tables, store the results."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

from integration.bench import (
    connections,
    datasets,
    growth,
    jobs,
    machine,
    million,
    ours,
    peers,
    report,
    runs,
    tpc,
    versions,
    wan,
)
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
from integration.bench.results import BASE, Results

TOOLS = (*peers.TOOLS, *ours.TOOLS)
#: Tools of `make bench`: dray, and copy tools that most hosts have.
SHORT = ("cp", "rsync", "dray-one", "dray", "dray-tls")
#: Other measurements by name. The first argument of the command is the name.
PARTS = {
    "wan": wan.main,
    "growth": growth.main,
    "jobs": jobs.main,
    "connections": connections.main,
    "tpc": tpc.main,
    "million": million.main,
    "versions": versions.main,
}


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench",
        description="Measure dray beside other movers: MB/s, CPU seconds per GB, peak memory.",
        epilog=f"Further parts have options of their own: {', '.join(PARTS)} as the first word.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = [tool.name for tool in TOOLS]
    words.add_argument(
        "--tools", type=names_of(names, "tool"), default=names, help="by commas", metavar="NAMES"
    )
    short = f"only {', '.join(SHORT)}"
    words.add_argument("--short", action="store_true", help=short)
    sets = list(datasets.USUAL)
    words.add_argument(
        "--sets",
        type=names_of(sets, "set"),
        default=sets,
        metavar="NAMES",
        help="a: one file of 4 GiB; b: 30 of 200 MiB; c: Linux's sources; d: 5000 files of 1 MiB",
    )
    words.add_argument(
        "--congestion",
        default="cubic,bbr",
        help="congestion control of the loopback, by commas; 'system' leaves it as it is",
    )
    words.add_argument(
        "--where",
        default="tmpfs",
        help="tmpfs, disk (the temporary folder) or a folder; by commas",
    )
    add_usual(words, "bench", limit=180.0)
    return words


def main(arguments: list[str]) -> int:
    """Run all tools, print the tables, and write the results."""
    if arguments and arguments[0] in PARTS:
        return PARTS[arguments[0]](arguments[1:])
    given = options().parse_args(arguments)
    refuse_niceness(given.nice)
    program = find_engine()
    catch_signals()
    wanted = SHORT if given.short else given.tools
    tools = [tool for tool in TOOLS if tool.name in wanted or tool.name == BASE]
    build_of(tools)
    with machine.network(named_congestions(given)) as network:
        sets = []
        for name in given.sets:
            why = datasets.missing(name, given.scale, machine.free_memory())
            if why:
                runs.say(f"bench: without set {name}: {why}")
            else:
                sets.append(name)
        results = Results(
            machine=dataclasses.asdict(machine.Machine.this()),
            rows=[row(tool, network, program) for tool in tools],
            command=command(given, options()),
            scale=given.scale,
        )
        kept = Kept(given, results, report)
        disk = Path(tempfile.gettempdir())
        places = {"tmpfs": TMPFS, "disk": disk}
        usual = asked(
            given,
            program,
            tools,
            sets,
            congestions_on(given, network),
            places=[places.get(word, Path(word)) for word in given.where.split(",")],
        )
        runs.run_all(usual, network, results, kept.keep)
    return kept.show()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
