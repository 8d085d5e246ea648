"""``python -m integration.bench growth``: the cost of more files, and of larger files."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import datasets, growth_report, machine, ours, peers, runs
from integration.bench.begin import (
    TMPFS,
    Kept,
    add_usual,
    asked,
    catch_signals,
    command,
    find_engine,
    names_of,
    refuse_niceness,
    row,
)
from integration.bench.results import BASE, Results
from integration.harness import tree

if TYPE_CHECKING:
    from integration.bench.tools import Tool

TOOLS = (*peers.TOOLS, *ours.TOOLS)
FEW = ["cp", "rsync", "dray", "dray-third"]
FILES = [f"f{power}" for power in datasets.POWERS]
BYTES = [f"g{gib}" for gib in datasets.SIZES_GIB]
#: Free space in bytes that a measurement leaves on a disk.
DISK_RESERVE_BYTES = 4 * tree.GIB


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench growth",
        description="Measure how seconds, CPU seconds and memory grow with files and bytes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = [tool.name for tool in TOOLS]
    words.add_argument(
        "--tools", type=names_of(names, "tool"), default=FEW, help="by commas", metavar="NAMES"
    )
    words.add_argument(
        "--sets",
        type=names_of([*FILES, *BYTES], "set"),
        default=[*FILES, *BYTES],
        metavar="NAMES",
        help="f3 to f6: 10^3 to 10^6 files of 8 bytes; g1, g4, g16: one file of so many GiB",
    )
    words.add_argument(
        "--where",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="folder for the large files, on a disk; those of 8 bytes are on a tmpfs",
    )
    add_usual(words, "growth", rounds=1, limit=600.0, tries=1)
    return words


def missing(name: str, scale: float, where: Path) -> str:
    """Return why a data set does not fit on the disk or in memory, or an empty text if it fits."""
    if name not in BYTES:
        return datasets.missing(name, scale, machine.free_memory())
    room = round(datasets.ROOM[name] * scale) + DISK_RESERVE_BYTES
    free = shutil.disk_usage(where).free
    return f"it takes {room >> 30} GiB of {where}, and {free >> 30} are free" * (room > free)


def main(arguments: list[str]) -> int:
    """Run all tools, print the tables, and write the results."""
    known = options()
    given = known.parse_args(arguments)
    refuse_niceness(given.nice)
    program = find_engine()
    catch_signals()
    tools: list[Tool] = [tool for tool in TOOLS if tool.name in given.tools or tool.name == BASE]
    with machine.network([]) as network:
        results = Results(
            machine=dataclasses.asdict(machine.Machine.this()),
            rows=[row(tool, network, program) for tool in tools],
            command=command(given, known, ("growth",)),
            scale=given.scale,
        )
        kept = Kept(given, results, growth_report)

        for name in given.sets:
            if why := missing(name, given.scale, given.where):
                runs.say(f"bench: without set {name}: {why}")
                results.facts.append(f"Without {name}: {why}.")
                continue
            places = [given.where if name in BYTES else TMPFS]
            one = asked(given, program, tools, [name], [network.congestion()], places=places)
            runs.run_all(one, network, results, kept.keep)
    return kept.show()
