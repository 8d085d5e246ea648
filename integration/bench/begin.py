"""The common start and end of every part of the benchmark: options, program, signals, results."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from integration.bench import machine, runs
from integration.bench.results import Row
from integration.harness.program import ROOT, find_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from integration.bench.path import WidePath
    from integration.bench.results import Results
    from integration.bench.tools import Tool

TMPFS = Path("/dev/shm")  # noqa: S108 - every Linux has it


def names_of(known: list[str], what: str) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names."""

    def parse(text: str) -> list[str]:
        found = [word for word in text.split(",") if word]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"no {what} {word!r}: {', '.join(known)}")
        return found

    return parse


def add_usual(
    words: argparse.ArgumentParser, part: str, *, rounds: int = 3, limit: float, tries: int = 2
) -> None:
    """Add the options that every part of the benchmark has.

    :param part: name of the folder for the results.
    :param limit: default of ``--limit``, in seconds.
    """
    words.add_argument("--scale", type=float, default=1.0, help="how much of each set")
    words.add_argument("--rounds", type=int, default=rounds, help="how often each tool runs")
    words.add_argument("--limit", type=float, default=limit, help="seconds that one run may take")
    words.add_argument(
        "--tries",
        type=int,
        default=tries,
        help="runs of a tool in a round until others leave it alone",
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
        default=ROOT / "integration" / "out" / part,
        help="folder for tables.md, pictures, and results.json with every sample",
    )
    words.add_argument("--json", type=Path, help="write the results here too", metavar="FILE")
    words.add_argument("--page", action="store_true", help="write the manual's page anew")


def find_engine() -> Path:
    """Find the program: ``DRAY_PROGRAM``, else the release build of this tree.

    :raises SystemExit: if it does not exist, or is a debug build.
    """
    named = os.environ.get("DRAY_PROGRAM")
    try:
        program = Path(named) if named else find_program()
    except FileNotFoundError as error:
        raise SystemExit(f"bench: {error}") from None
    machine.refuse_debug(program)
    return program.resolve()


def command(
    given: argparse.Namespace, known: argparse.ArgumentParser, part: tuple[str, ...] = ()
) -> str:
    """Return the command that repeats the run, without ``--out``, ``--json`` and ``--page``."""
    words = list(part)
    for name, value in vars(given).items():
        if value == known.get_default(name) or name in {"out", "json", "page"}:
            continue
        text = ",".join(value) if isinstance(value, list) else str(value)
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, text]
    return (
        f"make bench-peers ARGS={shlex.quote(shlex.join(words))}" if words else "make bench-peers"
    )


def row(tool: Tool, network: machine.Network, program: Path) -> Row:
    """Describe a tool. If the tool cannot run here, add the reason."""
    version = tool.find_version()
    if tool.is_ours:
        version = dataclasses.replace(tool, version=(str(program), "--version")).find_version()
    return Row(tool.name, tool.title, tool.kind, tool.is_ours, version, tool.missing(network))


def named_congestions(given: argparse.Namespace) -> list[str]:
    """Return the congestion controls that ``--congestion`` names, without ``system``."""
    return [word for word in given.congestion.split(",") if word not in ("", "system")]


def congestions_on(given: argparse.Namespace, network: machine.Network) -> list[str]:
    """Return the congestion controls of ``--congestion``. Replace ``system`` by the present one."""
    named = [word for word in given.congestion.split(",") if word]
    return [network.congestion() if word == "system" else word for word in named]


def asked(
    given: argparse.Namespace,
    program: Path,
    tools: list[Tool],
    sets: list[str],
    congestions: list[str],
    *,
    places: list[Path] | None = None,
    path: WidePath | None = None,
) -> runs.Asked:
    """Return the runs that the options ``given`` and the other arguments request.

    :param places: folders in which the copies are made. By default the tmpfs.
    """
    return runs.Asked(
        tools=tools,
        sets=sets,
        scale=given.scale,
        rounds=given.rounds,
        congestions=congestions,
        places=places or [TMPFS],
        memory=TMPFS,
        limit=given.limit,
        tries=given.tries,
        wait=given.wait,
        nice=given.nice,
        program=program,
        path=path,
    )


class Report(Protocol):
    """The presentation of a part: the printed text, pictures by name, the manual's page."""

    def tables(self, results: Results, /) -> str: ...  # noqa: D102
    def pictures(self, results: Results, /) -> dict[str, str]: ...  # noqa: D102
    def publish(self, text: str, /) -> None: ...  # noqa: D102


class Kept:
    """Results that are written to disk after each sample, and shown at the end."""

    def __init__(self, given: argparse.Namespace, results: Results, report: Report) -> None:
        """Print for each tool whether it runs."""
        self._given, self._results, self._report = given, results, report
        for each in results.rows:
            runs.say(f"{each.name:15} {each.missing or each.version}")
        given.out.mkdir(parents=True, exist_ok=True)

    def keep(self) -> None:
        """Write the results of all samples so far."""
        text, out, also = self._results.text(), self._given.out, self._given.json
        for place in (out / "results.json", *([also] if also else [])):
            write(place, text)
        write(out / "tables.md", self._report.tables(self._results))
        for name, picture in self._report.pictures(self._results).items():
            write(out / name, picture)

    def show(self) -> int:
        """Print the tables, and write the page if it is requested. Return the exit code."""
        runs.say("\n" + self._report.tables(self._results))
        runs.say(f"bench: results, tables and pictures are in {self._given.out}")
        if self._given.page:
            self._report.publish(self._results.text())
        return 0


def _ended(number: int, _: FrameType | None) -> NoReturn:
    # A second signal would disturb the clean-up.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def catch_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end the process with a clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)


def refuse_niceness(nice: int) -> None:
    """Stop if the process is to change its niceness, but may not restore it.

    :raises SystemExit: if ``nice`` is not 0 and the user is not root.
    """
    if nice and os.geteuid() != 0:
        raise SystemExit("bench: only root changes the niceness there and back: without --nice")


def write(path: Path, text: str) -> None:
    """Write a file atomically, because a signal may end the process in the middle."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)
