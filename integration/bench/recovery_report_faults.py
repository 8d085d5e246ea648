"""Tables and pictures of the faults: figures 8 to 10 of FT-LADS."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from integration.bench.recovery_data import SETS, Kept, middle, recovery_seconds
from integration.bench.recovery_movers import dray_movers
from integration.bench.recovery_peers import peers
from integration.simulation import plot

if TYPE_CHECKING:
    from integration.bench.recovery_data import Sample
    from integration.bench.recovery_movers import Mover

POINTS = (20, 40, 60, 80)
SIDES = ("source", "sink", "client")


def series_of(kept: Kept, set_name: str) -> list[tuple[float, int]]:
    """List pace and number of files of the runs with a set, the slowest first."""
    samples = kept.good("recovery", set_name)
    return sorted({(each.key.pace, each.key.files) for each in samples}, reverse=True)


def of_case(kept: Kept, set_name: str, series: tuple[float, int], case: str) -> list[Sample]:
    """Return the runs of a case."""
    found = kept.good("recovery", set_name, case)
    return [each for each in found if (each.key.pace, each.key.files) == series]


def whole(kept: Kept, set_name: str, series: tuple[float, int], name: str) -> float | None:
    """Return TT: the median of the copies without a fault, in seconds."""
    found = [each.values["seconds"] for each in of_case(kept, set_name, series, f"{name}/whole")]
    return statistics.median(found) if found else None


def estimated(
    kept: Kept, set_name: str, series: tuple[float, int], case: str, of: str
) -> list[float]:
    """Return ER of each run of a case, in seconds. ``of`` names the mover of the whole copies."""
    total = whole(kept, set_name, series, of)
    if total is None:
        return []
    return [
        recovery_seconds(each.values["before"], each.values["after"], total)
        for each in of_case(kept, set_name, series, case)
    ]


def recovery(kept: Kept) -> list[str]:
    """Return the tables of ER by mover, side and point."""
    lines: list[str] = []
    head = [
        "mover",
        "killed",
        "TT, s",
        *(f"ER at {point} %, s" for point in POINTS),
        "greatest ER, % of TT",
    ]
    for set_name in SETS:
        for series in series_of(kept, set_name):
            rows = []
            for mover in [*dray_movers(), *peers()]:
                total = whole(kept, set_name, series, mover.whole)
                if total is None:
                    continue
                for side in [each for each in SIDES if each in mover.sides]:
                    row = _row(kept, set_name, series, mover, side, total)
                    rows += [row] if row else []
            # A series may have only the references of figure 10.
            if not rows:
                continue
            objects = SETS[set_name].objects
            what = f"{series[1]} files of {objects} object{'s' * (objects > 1)}"
            lines += ["", f"Set {set_name}, {what}, paced to {series[0]:g} s:", ""]
            lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
            lines += [f"| {' | '.join(row)} |" for row in rows]
    return lines


def _row(
    kept: Kept, set_name: str, series: tuple[float, int], mover: Mover, side: str, total: float
) -> list[str]:
    found = [
        estimated(kept, set_name, series, f"{mover.name}/{side}/{point}", mover.whole)
        for point in POINTS
    ]
    if not any(found):
        return []
    cells = [middle(each).text() if each else "" for each in found]
    greatest = max(middle(each).median for each in found if each)
    return [mover.title, side, f"{total:.2f}", *cells, f"{greatest / total * 100:.1f}"]


def mechanisms(kept: Kept) -> list[str]:
    """Return the table of ER of all forms of the log at one point (figure 10)."""
    lines: list[str] = []
    for set_name in SETS:
        for series in series_of(kept, set_name):
            rows = []
            for case in _form_cases(kept, set_name, series):
                values = estimated(kept, set_name, series, case, "push")
                if values:
                    form = case.partition("@")[2].partition("/")[0]
                    point = case.rpartition("/")[2]
                    rows.append(f"| `{form}` | {point} | {middle(values).text()} |")
            if rows:
                lines += ["", f"Set {set_name}, {series[1]} files, paced to {series[0]:g} s:", ""]
                lines += ["| log | fault at, % | ER, s |", "|---|---|---|", *rows]
    return lines


def _form_cases(kept: Kept, set_name: str, series: tuple[float, int]) -> list[str]:
    cases = [
        each.key.case
        for each in kept.good("recovery", set_name)
        if "@" in each.key.case and (each.key.pace, each.key.files) == series
    ]
    return list(dict.fromkeys(cases))


def unavailable(kept: Kept) -> list[str]:
    """Return the cases without a successful run, with the last error of each case."""
    good = {(each.key.set, each.key.case) for each in kept.samples if not each.error}
    errors = {
        (each.key.set, each.key.case): each.error
        for each in kept.samples
        if each.error and (each.key.set, each.key.case) not in good
    }
    if not errors:
        return ["", "Every case has at least one successful run."]
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for (set_name, case), error in errors.items():
        mover, _, rest = case.partition("/")
        reason = " ".join(error.split()).replace("|", "/")[:160]
        by_reason.setdefault((set_name, mover, reason), []).append(rest)
    return [
        "",
        *(
            f"- {mover}, set {set_name} ({', '.join(cases)}): {reason}"
            for (set_name, mover, reason), cases in by_reason.items()
        ),
    ]


def pictures(kept: Kept) -> dict[str, str]:
    """Draw ER by point for faults of the source, and ER of the forms.

    Each picture shows the slowest series with the most files.
    """
    found: dict[str, str] = {}
    for set_name in SETS:
        for series in series_of(kept, set_name):
            curves = _curves(kept, set_name, series)
            name = f"recovery-{set_name}.svg"
            if curves and name not in found:
                frame = plot.Frame(f"Set {set_name}, source killed", "fault at, %", "ER, seconds")
                found[name] = plot.lines(frame, curves)
            cases = _form_cases(kept, set_name, series)
            name = f"mechanisms-{set_name}.svg"
            if cases and name not in found:
                found[name] = _bars(kept, set_name, series, cases)
    return found


def _curves(kept: Kept, set_name: str, series: tuple[float, int]) -> list[plot.Line]:
    curves = []
    for mover in [*dray_movers(), *peers()]:
        # The lines of these movers are close to others.
        if mover.name.endswith(("-random", "-fsync")):
            continue
        points = []
        for point in POINTS:
            case = f"{mover.name}/source/{point}"
            values = estimated(kept, set_name, series, case, mover.whole)
            if values:
                points.append((float(point), max(0.0, statistics.median(values))))
        if points:
            curves.append(plot.Line(mover.name, points))
    return curves


def _bars(kept: Kept, set_name: str, series: tuple[float, int], cases: list[str]) -> str:
    # A value of zero would be drawn as a missing one.
    bars = [
        max(0.1, statistics.median(estimated(kept, set_name, series, case, "push") or [0.0]) * 1000)
        for case in cases
    ]
    names = [case.partition("@")[2].partition("/")[0] for case in cases]
    frame = plot.Frame(f"Set {set_name}, source killed at 80 %", "ER, milliseconds", "")
    return plot.across(frame, names, [plot.Bars("ER", bars)])
