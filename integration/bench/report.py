"""Tables and pictures of results, as text, Markdown and SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration.bench import results as of
from integration.bench.tools import CLEAR, COPY, ENCRYPTED, LIMIT, THIRD
from integration.simulation import plot

if TYPE_CHECKING:
    from integration.bench.results import Line, Results

KINDS = (LIMIT, COPY, CLEAR, ENCRYPTED, THIRD)
HEADS = (
    "tool",
    "MB/s",
    "low to high",
    "CPU s/GB",
    "peak MiB",
    "time / `cp -r`",
    "x fastest peer",
    "foreign CPU s",
    "",
)


def cases(results: Results) -> list[tuple[str, str, str]]:
    """List the tables there are: set, file system, congestion control."""
    found = [(each.set, each.where, each.congestion) for each in results.samples]
    return list(dict.fromkeys(found))


def cells(line: Line) -> list[str]:
    """Write a line's cells."""
    title = f"**{line.row.title}**" if line.row.is_ours else line.row.title
    notes = "; ".join(line.notes).replace("|", "\\|").replace("\n", " ")
    if line.rounds == 0:
        return [title, *[""] * 7, notes]
    return [
        title,
        f"{line.rate:.0f}",
        f"{line.low:.0f} to {line.high:.0f}",
        f"{line.cpu_seconds:.2f}",
        f"{line.peak_mib:.0f}",
        f"{line.of_base:.2f}" if line.of_base else "",
        f"{line.of_peer:.2f}" if line.of_peer else "",
        f"{line.foreign_seconds:.1f}",
        notes,
    ]


def table(results: Results, set_name: str, where: str, congestion: str) -> list[str]:
    """Write one table in Markdown, by kinds, the fastest first."""
    found = of.lines(results, set_name, where, congestion)
    title = next(each.title for each in results.sets if each.name == set_name)
    rounds = max(line.rounds for line in found)
    head = f"{title}; {where}, {congestion}, {rounds} round{'s' if rounds != 1 else ''}"
    text = [head, "", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for kind in KINDS:
        there = sorted(
            (line for line in found if line.row.kind == kind),
            key=lambda line: (line.rounds == 0, -line.rate),
        )
        if there:
            text.append(f"| *{kind}* |{' |' * (len(HEADS) - 1)}")
            text += [f"| {' | '.join(cells(line))} |" for line in there]
    return text


def page(results: Results) -> str:
    """Write the tables of all cases."""
    parts = [line for case in cases(results) for line in ["", *table(results, *case)]]
    return "\n".join(parts).lstrip("\n") + "\n"


def pictures(results: Results) -> dict[str, str]:
    """Draw a picture for each set and file system: a group of bars for each tool that ran."""
    found: dict[str, str] = {}
    places = list(dict.fromkeys((name, where) for name, where, _ in cases(results)))
    for name, where in places:
        congestions = [each for a, b, each in cases(results) if (a, b) == (name, where)]
        by_case = {each: of.lines(results, name, where, each) for each in congestions}
        rates = {
            each: {line.row.title: line.rate for line in lines} for each, lines in by_case.items()
        }
        ran = [
            line.row.title
            for line in max(by_case.values(), key=lambda lines: sum(line.rate for line in lines))
            if line.rate and line.row.kind != LIMIT
        ]
        if not ran:
            continue
        title = next(each.title for each in results.sets if each.name == name)
        found[f"{name}-{where}.svg"] = plot.across(
            plot.Frame(f"{title}, {where}", "MB per second", ""),
            ran,
            [plot.Bars(each, [rates[each][tool] for tool in ran]) for each in congestions],
        )
    return found
