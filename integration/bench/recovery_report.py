"""Tables and pictures of docs/explanation/measured-recovery.md, from the samples of ``recovery``.

The text of the page is written by hand. Each table is between two comments, and this module writes
only the lines between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from integration.bench import recovery_report_faults as faults
from integration.bench.recovery_data import (
    OBJECT_BYTES,
    SETS,
    Kept,
    Middle,
    Sample,
    differences,
    middle,
)
from integration.bench.recovery_pair import NO_LOG, forms
from integration.harness.program import ROOT
from integration.simulation import plot

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "explanation" / "measured-recovery.md"
FOLDER = PAGE.with_suffix("")
RESULTS = FOLDER / "results.jsonl"
MIB = 1 << 20

#: Pace and number of files of a series of runs, which can be compared with each other.
Series = tuple[float, int]


def series_of(samples: list[Sample]) -> list[Series]:
    """List the pace and the number of files of all samples, the slowest first."""
    return sorted({(each.key.pace, each.key.files) for each in samples}, reverse=True)


def within(samples: list[Sample], series: Series) -> list[Sample]:
    """Return the samples of a series."""
    return [each for each in samples if (each.key.pace, each.key.files) == series]


def heading(set_name: str, series: Series, rounds: int) -> str:
    """Describe a series in one line."""
    pace, files = series
    objects = SETS[set_name].objects
    how = f"paced to {pace:g} s" if pace else "not paced"
    return (
        f"Set {set_name}, {files} files of {objects} object{'s' * (objects > 1)}, {how},"
        f" {rounds} round{'s' * (rounds > 1)}:"
    )


def rounds_of(samples: list[Sample]) -> int:
    """Return the greatest number of rounds of a case."""
    cases = [each.key.case for each in samples]
    return max((cases.count(case) for case in set(cases)), default=0)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def median_of(samples: list[Sample], name: str) -> float:
    """Return the median of a value."""
    return middle([each.values[name] for each in samples]).median


# --- figures 5 and 6 ------------------------------------------------------------------------------


def per_object(kept: Kept, set_name: str, series: Series, form: str) -> Middle | None:
    """Return CPU microseconds for each logged object: the difference to a run without a log.

    Returns ``None`` if no round has both runs.
    """
    base = within(kept.good("overhead", set_name, NO_LOG), series)
    ours = within(kept.good("overhead", set_name, form), series)
    objects = series[1] * SETS[set_name].objects
    found = [each / objects * 1e6 for _, each in differences(ours, base, "cpu_seconds")]
    return middle(found) if found else None


def upper_percent(kept: Kept, set_name: str, series: Series, form: str) -> float | None:
    """Return the upper bound of the additional time in percent of the time without a log."""
    base = within(kept.good("overhead", set_name, NO_LOG), series)
    ours = within(kept.good("overhead", set_name, form), series)
    found = [each for _, each in differences(ours, base, "seconds")]
    if not found or not base:
        return None
    one = middle(found)
    bound = one.mean + one.half if one.count > 1 else one.mean
    return bound / median_of(base, "seconds") * 100


def overhead(kept: Kept) -> list[str]:
    """Return the tables of time, CPU and memory."""
    lines: list[str] = []
    head = ["log", "seconds", "CPU s", "more time at most, %", "CPU us/object"]
    head += ["MiB source", "MiB sink"]
    for set_name in SETS:
        for series in series_of(kept.good("overhead", set_name)):
            rows = []
            for form in [NO_LOG, *forms()]:
                ours = within(kept.good("overhead", set_name, form), series)
                if not ours:
                    continue
                seconds = middle([each.values["seconds"] for each in ours])
                cpu = middle([each.values["cpu_seconds"] for each in ours])
                cost = per_object(kept, set_name, series, form)
                upper = upper_percent(kept, set_name, series, form)
                is_base = form == NO_LOG
                cells = [f"`{form}`" if not is_base else "no log", seconds.text(), cpu.text()]
                cells.append("" if upper is None or is_base else f"{upper:.2f}")
                cells.append("" if cost is None or is_base else cost.text(1))
                cells += [
                    f"{median_of(ours, name) / MIB:.0f}"
                    for name in ("source_memory", "sink_memory")
                ]
                rows.append(cells)
            rounds = rounds_of(within(kept.good("overhead", set_name), series))
            lines += ["", heading(set_name, series, rounds), "", *table(head, rows)]
    return lines


# --- figure 7 -------------------------------------------------------------------------------------


def space(kept: Kept) -> list[str]:
    """Return the tables of the sizes of logs."""
    lines: list[str] = []
    head = [
        "log",
        "peak KiB, `:nosums`",
        "peak KiB, with sums",
        "logs at the peak",
        "bytes at the end",
    ]
    for set_name in SETS:
        samples = kept.good("space", set_name)
        for series in series_of(samples):
            rows = []
            for form in forms(("",)):
                cells = [f"`{form}`"]
                both = [
                    within(kept.good("space", set_name, f"{form}{option}"), series)
                    for option in (":nosums", "")
                ]
                if not any(both):
                    continue
                for ours in both:
                    cells.append(f"{median_of(ours, 'log_peak') / 1024:.1f}" if ours else "")
                there = [*both[0], *both[1]]
                cells.append(f"{max(each.values['log_files'] for each in there):.0f}")
                cells.append(f"{max(each.values['log_end'] for each in there):.0f}")
                rows.append(cells)
            rounds = rounds_of(within(samples, series))
            lines += ["", heading(set_name, series, rounds), "", *table(head, rows)]
    return lines


def compaction(kept: Kept) -> list[str]:
    """Return the table of the largest log that a compaction wrote in each copy, as medians."""
    by_form: dict[tuple[str, str, int], list[Sample]] = {}
    for each in [*kept.good("space"), *kept.good("overhead")]:
        if each.values.get("compacted_objects"):
            by_form.setdefault((each.key.set, each.key.case, each.key.files), []).append(each)
    rows = [
        [
            f"`{case}`",
            f"{name}, {files} files",
            f"{len(samples)}",
            f"{median_of(samples, 'compacted_bytes') / 1024:.1f}",
            f"{median_of(samples, 'compacted_objects'):.0f}",
            f"{median_of(samples, 'compacted_bits'):.1f}",
        ]
        for (name, case, files), samples in sorted(by_form.items())
    ]
    head = ["log", "set", "copies", "KiB", "objects of unfinished files", "bits per object"]
    if not rows:
        return ["", "No log of these runs was long enough for a compaction."]
    return ["", *table(head, rows)]


# --- threads --------------------------------------------------------------------------------------


def threads(kept: Kept) -> list[str]:
    """Return the table of rates by threads."""
    samples = kept.good("threads")
    if not samples:
        return []
    counts = sorted({int(each.key.case.partition("/")[2]) for each in samples})
    rows = []
    for count in counts:
        cells = [str(count)]
        for kind in ("one", "eleven"):
            rates = thread_rates(kept, kind, count)
            cells.append(middle(rates).text(1) if rates else "")
        rows.append(cells)
    head = ["threads", "MiB/s, that many threads in all", "MiB/s, that many for each of 11 targets"]
    return ["", *table(head, rows)]


def thread_rates(kept: Kept, kind: str, count: int) -> list[float]:
    """Return the rates in MiB/s of the runs with this many threads."""
    size = 11 * 64 * OBJECT_BYTES
    return [
        size / MIB / each.values["seconds"] for each in kept.good("threads", "", f"{kind}/{count}")
    ]


# --- page -----------------------------------------------------------------------------------------


def conditions(kept: Kept) -> list[str]:
    """Return the machines, days and commands of the runs."""
    rows = []
    for run in kept.runs:
        host = run["machine"]
        where = f"{host['cpus']} processors ({host['processor']}), {host['system']}"
        rows.append([host["date"], f"{where}, Linux {host['kernel']}", f"`{run['command']}`"])
    return ["", *table(["day", "machine", "command"], rows)]


SECTIONS: dict[str, Callable[[Kept], list[str]]] = {
    "conditions": conditions,
    "overhead": overhead,
    "space": space,
    "compaction": compaction,
    "recovery": faults.recovery,
    "mechanisms": faults.mechanisms,
    "unavailable": faults.unavailable,
    "threads": threads,
}


def filled(page: str, kept: Kept) -> str:
    """Return the page with new tables between its comments.

    :raises ValueError: if the page lacks the comments of a table.
    """
    for name, make in SECTIONS.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", page, re.DOTALL)
        if found is None:
            raise ValueError(f"the page has no comments of the table {name!r}")
        body = "\n".join([begin, *make(kept), "", end])
        page = page[: found.start()] + body + page[found.end() :]
    return page


def pictures(kept: Kept) -> dict[str, str]:
    """Return the pictures by file name."""
    found = dict(faults.pictures(kept))
    for set_name in SETS:
        samples = kept.good("space", set_name)
        if samples:
            names, series = max(
                (
                    ([form for form in forms(("",)) if _peaks(kept, set_name, each, form)], each)
                    for each in series_of(samples)
                ),
                key=lambda found: (len(found[0]), found[1][1]),
            )
            bars = [
                plot.Bars(
                    title,
                    [
                        sizes[0]
                        if (sizes := _peaks(kept, set_name, series, name + option))
                        else 0.0
                        for name in names
                    ],
                )
                for title, option in (("without sums", ":nosums"), ("with sums", ""))
            ]
            frame = plot.Frame(f"Log at its peak, set {set_name}", "KiB", "")
            if names:
                found[f"space-{set_name}.svg"] = plot.across(frame, names, bars)
        samples = kept.good("overhead", set_name)
        if samples:
            series = series_of(samples)[0]
            names = [
                form for form in forms() if within(kept.good("overhead", set_name, form), series)
            ]
            names = [NO_LOG, *names]
            values = [
                median_of(ours, "cpu_seconds") * 1000 if ours else 0.0
                for ours in (
                    within(kept.good("overhead", set_name, name), series) for name in names
                )
            ]
            frame = plot.Frame(f"CPU of both ends, set {set_name}", "milliseconds", "")
            found[f"cpu-{set_name}.svg"] = plot.across(frame, names, [plot.Bars("CPU", values)])
    curves = []
    for kind, title in (("one", "threads in all"), ("eleven", "threads of each target")):
        points = [
            (float(count), middle(rates).median)
            for count in (1, 2, 4, 8, 16)
            if (rates := thread_rates(kept, kind, count))
        ]
        if points:
            curves.append(plot.Line(title, points))
    if curves:
        frame = plot.Frame("Rate by threads", "threads", "MiB per second")
        found["threads.svg"] = plot.lines(frame, curves)
    return found


def _peaks(kept: Kept, set_name: str, series: Series, form: str) -> list[float]:
    ours = within(kept.good("space", set_name, form), series)
    return [median_of(ours, "log_peak") / 1024] if ours else []


def publish(kept: Kept) -> None:
    """Write the tables of the page, and the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    for name, picture in pictures(kept).items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, kept), encoding="utf-8")
