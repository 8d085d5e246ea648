"""``python -m integration.bench``: run the tools, print tables, keep the results."""

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
    ours,
    peers,
    report,
    runs,
    wan,
)
from integration.bench.begin import (
    TMPFS,
    add_usual,
    catch_signals,
    command,
    find_engine,
    names_of,
    refuse_niceness,
    row,
    write,
)
from integration.bench.results import BASE, Results

TOOLS = (*peers.TOOLS, *ours.TOOLS)
#: beside dray itself what `make bench` compares with: what most hosts have
SHORT = ("cp", "rsync", "dray-one", "dray", "dray-tls")
#: what else can be measured, by the first word
PARTS = {
    "wan": wan.main,
    "growth": growth.main,
    "jobs": jobs.main,
    "connections": connections.main,
}


def options() -> argparse.ArgumentParser:
    """Describe the command line."""
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
    """Measure, print, write."""
    if arguments and arguments[0] in PARTS:
        return PARTS[arguments[0]](arguments[1:])
    given = options().parse_args(arguments)
    refuse_niceness(given.nice)
    program = find_engine()
    catch_signals()
    named = [word for word in given.congestion.split(",") if word]
    with machine.network([name for name in named if name != "system"]) as network:
        congestions = [network.congestion() if name == "system" else name for name in named]
        wanted = SHORT if given.short else given.tools
        tools = [tool for tool in TOOLS if tool.name in wanted or tool.name == BASE]
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
        for each in results.rows:
            runs.say(f"{each.name:15} {each.missing or each.version}")
        disk = Path(tempfile.gettempdir())
        places = {"tmpfs": TMPFS, "disk": disk}
        asked = runs.Asked(
            tools=tools,
            sets=sets,
            scale=given.scale,
            rounds=given.rounds,
            congestions=congestions,
            places=[places.get(word, Path(word)) for word in given.where.split(",")],
            memory=TMPFS,
            limit=given.limit,
            tries=given.tries,
            wait=given.wait,
            nice=given.nice,
            program=program,
        )

        given.out.mkdir(parents=True, exist_ok=True)

        def keep() -> None:
            text = results.text()
            for path in (given.out / "results.json", *([given.json] if given.json else [])):
                write(path, text)
            write(given.out / "tables.md", report.tables(results))
            for name, picture in report.pictures(results).items():
                write(given.out / name, picture)

        runs.run_all(asked, network, results, keep)
    runs.say("\n" + report.tables(results))
    runs.say(f"bench: results, tables and pictures are in {given.out}")
    if given.page:
        report.publish(results.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
