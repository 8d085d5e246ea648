"""The results of runs, their form in a file, and the numbers that are computed from them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from integration.bench.path import Seen
from integration.bench.tools import CLEAR, COMPARED, ENCRYPTED, THIRD

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 1e6
GB = 1e9
MIB = 1 << 20
#: Kinds of tools with two processes. Tools of other kinds are not compared with dray as its peers.
KINDS_OF_PEERS = (CLEAR, COMPARED, ENCRYPTED, THIRD)
#: Default of the tool whose time is the reference.
BASE = "cp"


#: A table: data set, file system or path, congestion control.
Case = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """A tool, as stored in the results."""

    name: str
    title: str
    kind: str
    is_ours: bool
    version: str
    #: Reason for which the tool was not run. Empty if it was run.
    missing: str = ""


@dataclass(frozen=True)
class Set:
    """A data set, as stored in the results."""

    name: str
    title: str
    size: int
    files: int


@dataclass(frozen=True)
class Sample:
    """One run of one tool."""

    set: str
    where: str
    congestion: str
    round: int
    tool: str
    seconds: float
    #: CPU seconds of all processes of the tool.
    cpu_seconds: float
    #: Peak memory of all processes of the tool together, in bytes.
    memory_peak: int
    #: CPU seconds that other processes of the machine used meanwhile.
    foreign_seconds: float
    notes: tuple[str, ...] = ()
    #: Reason for which the run does not count. Empty if it counts.
    error: str = ""
    #: Peak memory of single processes in bytes: first the timed process, then the largest others.
    peaks: tuple[int, ...] = ()
    #: The observed traffic of a run over a path.
    seen: Seen = field(default_factory=Seen)
    #: Seconds for which the caller waited if ``seconds`` covers only the copy itself. Otherwise 0.
    waited: float = 0.0
    #: Share of the tool's time for checksums, as the tool reports it. 0 if it reports none.
    summing: float = 0.0


@dataclass
class Results:
    """All results of a measurement."""

    machine: dict[str, Any]
    rows: list[Row]
    sets: list[Set] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    command: str = ""
    scale: float = 1.0
    #: Name of the tool whose time is the reference.
    base: str = BASE
    #: Rate of the path between the ends, in megabits per second.
    megabits: float = 0.0
    #: Sentences for the report, about the path and about data sets that were left out.
    facts: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Write the results as JSON, one run on each line."""
        parts = []
        for name, value in dataclasses.asdict(self).items():
            lines = (
                ",\n".join(f"  {json.dumps(each)}" for each in value)
                if isinstance(value, list)
                else ""
            )
            text = f"[\n{lines}\n ]" if isinstance(value, list) and lines else json.dumps(value)
            parts.append(f' "{name}": {text}')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @staticmethod
    def read(text: str) -> Results:
        """Parse the output of :meth:`text`."""
        value = json.loads(text)
        samples = [
            {
                **each,
                "notes": tuple(each["notes"]),
                "peaks": tuple(each.get("peaks", ())),
                "seen": Seen.read(each.get("seen", {})),
            }
            for each in value["samples"]
        ]
        return Results(
            machine=value["machine"],
            rows=[Row(**each) for each in value["rows"]],
            sets=[Set(**each) for each in value["sets"]],
            samples=[Sample(**each) for each in samples],
            command=value["command"],
            scale=value["scale"],
            base=value.get("base", BASE),
            megabits=value.get("megabits", 0.0),
            facts=value.get("facts", []),
        )


@dataclass(frozen=True)
class Line:
    """One line of a table: medians over the rounds."""

    row: Row
    #: MB per second: median, lowest and highest. 0 without a good run.
    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    #: CPU seconds per GB.
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0
    foreign_seconds: float = 0.0
    #: Median over the rounds of the time divided by that of ``cp -r``. 0 without a common round.
    of_base: float = 0.0
    #: Median over the rounds of a ratio: the time of the fastest peer of the same kind, divided by
    #: the time of the tool.
    of_peer: float = 0.0
    notes: tuple[str, ...] = ()
    rounds: int = 0


def rotated(names: Sequence[str], turn: int, turns: int) -> list[str]:
    """Return the order of the tools in a round. Each tool has another predecessor in each round.

    The state in which a tool leaves the machine's memory and caches may change the result of the
    next tool. The orders are the rows of the design in E. J. Williams (1949), "Experimental designs
    balanced for the estimation of residual effects of treatments". The first row is ``names``.
    """
    count = len(names)
    zigzag = [at // 2 + 1 if at % 2 else -(at // 2) % count for at in range(count)]
    place = {number % count: at for at, number in enumerate(zigzag)}
    # With a step of `count // 2`, half of the pairs of neighbours would repeat in the next round.
    step = count // max(1, turns)
    shift = turn * max(1, step - 1 if step == count // 2 else step)
    return [names[place[(number + shift) % count]] for number in zigzag]


def ratios(of: Sequence[Sample], to: Sequence[Sample]) -> list[float]:
    """Return the time of one tool divided by the time of another, for each common round."""
    base = {sample.round: sample.seconds for sample in to}
    return [each.seconds / base[each.round] for each in of if each.round in base]


def merged(parts: Sequence[Results]) -> Results:
    """Merge the results of several runs that contain different tables.

    :raises ValueError: if two runs contain the same table, because rounds of different runs cannot
        be compared. Also if the runs differ in a property that all tables share.
    """
    first, *others = parts
    one = dataclasses.replace(
        first, rows=list(first.rows), sets=list(first.sets), samples=list(first.samples)
    )
    one.facts = list(first.facts)
    for other in others:
        cases = [
            {(each.set, each.where, each.congestion) for each in of.samples} for of in (one, other)
        ]
        if both := cases[0] & cases[1]:
            raise ValueError(f"two runs measured {', '.join(min(both))}")
        if differs := _differences(one, other):
            raise ValueError(f"two runs differ in {', '.join(differs)}")
        known = {row.name: at for at, row in enumerate(one.rows)}
        for row in other.rows:
            if row.name not in known:
                one.rows.append(row)
            elif one.rows[known[row.name]].missing:
                one.rows[known[row.name]] = row
        one.sets += [each for each in other.sets if each.name not in {of.name for of in one.sets}]
        one.samples += other.samples
        one.command += f"\n    {other.command}"
        one.facts += [fact for fact in other.facts if fact not in one.facts]
    return one


def _differences(one: Results, other: Results) -> list[str]:
    """Name the properties that differ between two runs, but that merged runs must share."""
    found = [
        name for name in ("scale", "base", "megabits") if getattr(one, name) != getattr(other, name)
    ]
    hosts = [{**each.machine, "date": ""} for each in (one, other)]
    found += ["machine"] if hosts[0] != hosts[1] else []
    rows = {row.name: row for row in one.rows if not row.missing}
    found += [row.name for row in other.rows if not row.missing and rows.get(row.name, row) != row]
    sets = {each.name: each for each in one.sets}
    return [*found, *(each.title for each in other.sets if sets.get(each.name, each) != each)]


def samples_of(results: Results, case: Case, tool: str) -> list[Sample]:
    """List a tool's runs without an error in a case."""
    return [
        each
        for each in results.samples
        if (each.set, each.where, each.congestion, each.tool) == (*case, tool) and not each.error
    ]


def times_as_fast(results: Results, case: Case, tool: str, as_tool: str) -> float:
    """Return the median ratio of the speeds of two tools, or 0 if one of them has no run."""
    found = ratios(samples_of(results, case, as_tool), samples_of(results, case, tool))
    return statistics.median(found) if found else 0.0


def lines(results: Results, set_name: str, where: str, congestion: str) -> list[Line]:
    """Compute the lines of a table, one for each tool, in the order of the rows."""
    size = next(each.size for each in results.sets if each.name == set_name)
    good: dict[str, list[Sample]] = {row.name: [] for row in results.rows}
    errors: dict[str, str] = {}
    for sample in results.samples:
        if (sample.set, sample.where, sample.congestion) == (set_name, where, congestion):
            if sample.error:
                errors[sample.tool] = sample.error
            else:
                good[sample.tool].append(sample)
    best = _fastest_peers(results.rows, good)
    found = []
    for row in results.rows:
        samples = good[row.name]
        if not samples:
            why = row.missing or errors.get(row.name, "not run")
            found.append(Line(row, notes=(why,)))
            continue
        rates = sorted(size / MB / sample.seconds for sample in samples)
        to_base = ratios(samples, good.get(results.base, []))
        to_peer = ratios(good.get(best.get(row.kind, ""), []), samples)
        notes = [note for sample in samples for note in sample.notes]
        notes += [errors[row.name]] if row.name in errors else []
        found.append(
            Line(
                row,
                rate=statistics.median(rates),
                low=rates[0],
                high=rates[-1],
                cpu_seconds=statistics.median(s.cpu_seconds for s in samples) / (size / GB),
                peak_mib=statistics.median(s.memory_peak for s in samples) / MIB,
                foreign_seconds=statistics.median(s.foreign_seconds for s in samples),
                of_base=statistics.median(to_base) if to_base else 0.0,
                of_peer=statistics.median(to_peer) if to_peer else 0.0,
                notes=tuple(dict.fromkeys(notes)),
                rounds=len(samples),
            )
        )
    return found


def _fastest_peers(rows: list[Row], good: dict[str, list[Sample]]) -> dict[str, str]:
    """Name the fastest tool of each kind, without the tools of dray."""
    best: dict[str, tuple[float, str]] = {}
    for row in rows:
        if row.kind in KINDS_OF_PEERS and not row.is_ours and good[row.name]:
            seconds = statistics.median(sample.seconds for sample in good[row.name])
            best[row.kind] = min(best.get(row.kind, (seconds, row.name)), (seconds, row.name))
    return {kind: name for kind, (_, name) in best.items()}
