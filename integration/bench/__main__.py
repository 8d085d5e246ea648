"""``python -m integration.bench``: run the tools, print tables, keep the results."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from integration.bench import datasets, machine, ours, peers, report, runs
from integration.bench.results import BASE, Results, Row
from integration.harness.program import ROOT, find_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from integration.bench.tools import Tool

TOOLS = (*peers.TOOLS, *ours.TOOLS)
#: beside dray itself what `make bench` compares with: what most hosts have
SHORT = ("cp", "rsync", "dray-one", "dray", "dray-tls")
TMPFS = Path("/dev/shm")  # noqa: S108 - every Linux has it


def _names(known: list[str], what: str) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        found = [word for word in text.split(",") if word]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"no {what} {word!r}: {', '.join(known)}")
        return found

    return parse


def options() -> argparse.ArgumentParser:
    """Describe the command line."""
    words = argparse.ArgumentParser(
        prog="python -m integration.bench",
        description="Measure dray beside other movers: MB/s, CPU seconds per GB, peak memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = [tool.name for tool in TOOLS]
    words.add_argument(
        "--tools", type=_names(names, "tool"), default=names, help="by commas", metavar="NAMES"
    )
    short = f"only {', '.join(SHORT)}"
    words.add_argument("--short", action="store_true", help=short)
    sets = list(datasets.MAKERS)
    words.add_argument(
        "--sets",
        type=_names(sets, "set"),
        default=sets,
        metavar="NAMES",
        help="a: one file of 4 GiB; b: 30 of 200 MiB; c: Linux's sources; d: 5000 files of 1 MiB",
    )
    words.add_argument("--scale", type=float, default=1.0, help="how much of each set")
    words.add_argument("--rounds", type=int, default=3, help="how often each tool runs")
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
    words.add_argument("--limit", type=float, default=180.0, help="seconds that one run may take")
    words.add_argument(
        "--tries", type=int, default=2, help="runs of a tool in a round until others leave it alone"
    )
    words.add_argument(
        "--wait", type=float, default=20.0, help="seconds before a run to wait for a quiet machine"
    )
    words.add_argument(
        "--nice",
        type=int,
        default=0,
        help="niceness of all tools while they are timed; below 0, as root, before others' work",
    )
    words.add_argument(
        "--out",
        type=Path,
        default=ROOT / "integration" / "out" / "bench",
        help="folder for tables.md, pictures, and results.json with every sample",
    )
    words.add_argument("--json", type=Path, help="write the results here too", metavar="FILE")
    words.add_argument("--page", action="store_true", help="write the manual's page anew")
    return words


def find_engine() -> Path:
    """Find the program: ``DRAY_PROGRAM``, else the release build of this tree.

    :raises SystemExit: when there is none, or it is a debug build.
    """
    named = os.environ.get("DRAY_PROGRAM")
    try:
        program = Path(named) if named else find_program()
    except FileNotFoundError as error:
        raise SystemExit(f"bench: {error}") from None
    machine.refuse_debug(program)
    return program.resolve()


def command(given: argparse.Namespace, known: argparse.ArgumentParser) -> str:
    """Write the command that does the same again, without the places of results."""
    words = []
    for name, value in vars(given).items():
        if value == known.get_default(name) or name in {"out", "json", "page"}:
            continue
        text = ",".join(value) if isinstance(value, list) else str(value)
        words += [f"--{name}"] if value is True else [f"--{name}", text]
    return (
        f"make bench-peers ARGS={shlex.quote(shlex.join(words))}" if words else "make bench-peers"
    )


def row(tool: Tool, network: machine.Network, program: Path) -> Row:
    """Describe a tool, and why it will not run if so."""
    version = tool.find_version()
    if tool.is_ours:
        version = dataclasses.replace(tool, version=(str(program), "--version")).find_version()
    return Row(tool.name, tool.title, tool.kind, tool.is_ours, version, tool.missing(network))


def _ended(number: int, _: FrameType | None) -> NoReturn:
    # A second one would disturb what the first has begun to put away.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all: a signal may come in the middle."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def main(arguments: list[str]) -> int:
    """Measure, print, write."""
    given = options().parse_args(arguments)
    if given.nice and os.geteuid() != 0:
        raise SystemExit("bench: only root changes the niceness there and back: without --nice")
    program = find_engine()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)
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
                _write(path, text)
            _write(given.out / "tables.md", report.tables(results))
            for name, picture in report.pictures(results).items():
                _write(given.out / name, picture)

        runs.run_all(asked, network, results, keep)
    runs.say("\n" + report.tables(results))
    runs.say(f"bench: results, tables and pictures are in {given.out}")
    if given.page:
        report.publish(results.text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
