"""Writes to a tier under BBOS and other policies: ``dray-sim experiment bbos``.

``python -m integration.simulation.bbos`` runs it and writes ``bbos.json``, ``bbos.md`` and the
picture into docs/explanation/experiments.
"""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from integration.simulation import plot, simulator

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = ("MaxBW", "MaxEff", "BBOS", "BBOS, even")
CONGESTIONS = ("low", "medium", "high")


def thresholds(results: dict[str, Any]) -> str:
    """Return the table of equation 5.2."""
    head = ["DWPP / S", "start / S", "start / S, printed form", "full / S"]
    rows = [
        [f"{row['load']}", f"{row['start']}", f"{row['start_printed']}", f"{row['full']}"]
        for row in results["thresholds"]["rows"]
    ]
    return simulator.table(head, rows)


def utilisation(results: dict[str, Any]) -> str:
    """Return the table of section 5.3.2."""
    head = ["policy", "no stop", "no stop, complete versions", "written and demoted in a period"]
    rows = [
        [
            row["policy"],
            f"{row['without_stop']:.1f} %",
            f"{row['complete_without_stop']:.1f} %",
            f"{row['in_period']:.1f} %",
            "-" if row["policy"] == "BBOS, even" else f"{row['paper']} %",
        ]
        for row in results["utilisation"]
    ]
    return simulator.table([*head, "paper"], rows)


def overflow(results: dict[str, Any]) -> str:
    """Return the table of bursts up to the bound."""
    head = ["policy", "demotes", "checkpoints up to", "load", "highest fill / S", "stops"]
    rows = [
        [
            row["policy"],
            row["demotes"],
            f"{row['checkpoints']}",
            f"{row['load']:.2f} S",
            f"{row['used']:.3f}",
            f"{row['stopped_s']:.2f} s",
        ]
        for row in results["overflow"]
    ]
    return simulator.table(head, rows)


def writes(results: dict[str, Any], key: str, digits: int) -> str:
    """Return the table of one number of Figures 5.3 and 5.4."""
    found = {(row["policy"], row["load"], row["congestion"]): row[key] for row in results["writes"]}
    rows = []
    for load in (1.3, 1.6, 1.9):
        for congestion in CONGESTIONS:
            values = [found[policy, load, congestion] for policy in POLICIES]
            own = found["DataWarp", 1.0, congestion]
            cells = [f"{value:.{digits}f}" for value in (own, *values)]
            rows.append([f"{load} S, {congestion}", *cells])
    return simulator.table(["load, congestion", "DataWarp (1.0 S)", *POLICIES], rows)


def bypass(results: dict[str, Any]) -> str:
    """Return the table of Figure 5.6."""
    head = ["load", "colder than", "first period", "third period", "highest of the sets"]
    head += ["throughput, GB/s", "without bypass, GB/s"]
    rows = [
        [
            f"{row['load']} S",
            f"{row['colder_than']:.0%} of the versions",
            f"-{row['first_percent']:.1f} %",
            f"-{row['last_percent']:.1f} %",
            f"-{row['last_percent_max']:.1f} %",
            f"{row['throughput_gb_s']:.3f}",
            f"{row['throughput_without_gb_s']:.3f}",
        ]
        for row in results["bypass"]["rows"]
    ]
    return simulator.table(head, rows)


def estimated(results: dict[str, Any]) -> str:
    """Return the table of estimated DWPP."""
    head = ["policy, load, congestion", "known, GB/s", "estimated, GB/s", "lowest ratio"]
    head += ["known, latency", "estimated, latency", "longest stops"]
    rows = [
        [
            f"{row['policy']}, {row['load']} S, {row['congestion']}",
            f"{row['oracle_gb_s']:.3f}",
            f"{row['estimated_gb_s']:.3f}",
            f"{row['ratio_min']:.3f}",
            f"{row['oracle_latency_s']:.1f} s",
            f"{row['estimated_latency_s']:.1f} s",
            f"{row['estimated_stopped_s_max']:.1f} s",
        ]
        for row in results["estimated"]["rows"]
    ]
    return simulator.table(head, rows)


def refilled(text: str) -> str:
    """Wrap the paragraphs of a page again, because numbers have changed the lengths of lines."""
    parts = text.rstrip("\n").split("\n\n")
    filled = [
        part
        if part.startswith(("#", "|", "!"))
        else textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in parts
    ]
    return "\n\n".join(filled) + "\n"


def page(results: dict[str, Any]) -> str:
    """Write the page."""
    given = results["assumptions"]
    waits = {row["policy"]: row for row in results["waits"]["rows"]}
    sets = results["bypass"]["seeds"]
    mixed = results["estimated"]
    worst = min(row["ratio_min"] for row in mixed["rows"])
    text = f"""\
# Burst buffer: writes

Section 5.3 of the dissertation on Mulconn and BBOS, in a fluid model of one fast tier. The
decisions are those of [tiers](../../design/tiers.md). `make experiments-bbos` writes this page.

Parameters of the paper: Bwmax {given["bw_max"]} GB/s, Bwmin {given["bw_min"]} GB/s, Brmax
{given["br_max"]} GB/s, Brmin {given["br_min"]} GB/s, a period of {given["period_s"]:.0f} s, and
checkpoints of {given["checkpoint_gb"]:.0f} GB. The paper does not state S. Here S is
{given["capacity_gb"]:.0f} GB, because MaxBW can then write and demote 190 % of S in a period,
as the paper says. No other number was fitted. *BBOS, even* is not a policy of the paper: it is
[BBOS with even rates](../../design/tiers.md#even-rates).

## Thresholds (equation 5.2)

{thresholds(results)}

A demotion runs beside writes from *start*, and at Brmax from *full*. Figure 5.2 draws other
thresholds (0.7 S for 1.2 S, 0.6 S for 1.4 S, and 1.6 S as the maximum). They do not follow from
the equation at the stated bandwidths, and a maximum of 1.6 S contradicts the measured 2.1 S.
The bound is {results["thresholds"]["bound"]:.3f} S.

## Utilisation (section 5.3.2)

All checkpoints are requested at the start of the period.

{utilisation(results)}

The numbers of the paper follow from two different conditions. Those of MaxEff and BBOS are the
most data that no write waits for. That of MaxBW is the most data that is written and demoted in
a period, and its writes wait. By the condition of MaxBW, MaxEff and BBOS reach 276 %, and by
theirs, MaxBW reaches 98 %. The sizes are whole checkpoints, so DataWarp has 98 %. dray demotes
only complete versions. That costs the demotion of one checkpoint, 3.6 % of S.

## No overflow up to the bound

Bursts of every fourth number of checkpoints, down from the bound. The stops are the sum over
all bursts; those below 0.1 s in one burst are errors of the model's steps.

{overflow(results)}

## Throughput in GB/s (Figure 5.3)

{writes(results, "throughput_gb_s", 2)}

The throughput is that of the write, without its waits. The paper prints no numbers in the text.
Its statements hold: MaxBW is always fastest; MaxEff is always slower than BBOS; BBOS is faster
at a smaller DWPP; DataWarp is slowest with high congestion, because its writes overlap. The
even rates use the idle time between requests. With high congestion there is none, and they are
as fast as BBOS within half a percent.

## Mean latency in seconds (Figure 5.4)

{writes(results, "latency_s", 1)}

The highest latency:

{writes(results, "latency_max_s", 1)}

As in the paper, no write waits with low congestion. MaxBW is faster than BBOS where it has no
stop (low congestion, and medium congestion at 1.3 S), and slowest where it has stops: at 1.9 S
with medium congestion, and with high congestion. Its variance is then the highest. In the
paper, MaxBW begins to wait "when the DWPP exceeds 1.6 S" with medium congestion. In the model
1.6 S itself still fits: 44 checkpoints leave 2060 GB. BBOS has a lower latency than MaxEff
everywhere. The latency of DataWarp at 1.0 S with high congestion is similar to that of BBOS at
1.3 S, as the paper says. With high congestion, the mean latency of the even rates is 2 to 5 %
above that of BBOS, because the ramp slows down the later writes only.

## Waits of each job (Figure 5.5)

At 1.9 S with medium congestion, job {waits["MaxBW"]["first_stop"]} is the first that MaxBW
stops. In the paper the jobs after {results["waits"]["paper_stops_after"]} stop. BBOS never
stops a job, as in the paper. The waits for earlier jobs that the paper shows for BBOS do not
occur: a write takes at most 80 GB / Bwmin = 26.7 s, and the requests come every 36.5 s. They
occur only if writes are slower than the stated Bwmin.

![Waits of each job](bbos-waits.svg)

## Bypass (Figure 5.6)

Change of the demoted bytes. The MTBFs are random from 0 to 100 minutes, in {sets} sets, and the
period is one hour, with medium congestion. The means over the sets:

{bypass(results)}

The paper has "up to 38 %". It does not say how much colder than the versions on the fast tier a
checkpoint must be, nor the congestion, nor the number of periods. The default of dray, colder
than all, has the least effect. With "colder than half of the versions" the mean is 35 %, and
single sets reach 42 %.

## DWPP estimated

{mixed["periods"]} periods, after others for the history, of {mixed["applications"]}
applications whose sizes differ by a factor of ten. Each checkpoint changes by up to
{mixed["change"]:.0%} from its mean, and one of {mixed["skips"]} applications skips a period.
*Known* uses the true DWPP of each period in advance. *Estimated* uses `PeriodEstimator`. Only
complete versions are demoted. The numbers are means over {mixed["sets"]} random sets, except
the lowest ratio of a set, and the longest sum of the stops of a set.

{estimated(results)}

The lowest ratio is {worst:.3f}, and at least 0.97 is required. The estimate is a 90 % quantile,
so it errs towards an early demotion.
"""
    return refilled(text)


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    results = json.loads(text)
    series = [
        plot.Line(row["policy"], [(at + 1, wait) for at, wait in enumerate(row["waits_s"])])
        for row in results["waits"]["rows"]
        if row["policy"] in ("MaxBW", "BBOS")
    ]
    frame = plot.Frame("Waits at 1.9 S, medium congestion", "job", "seconds")
    picture = plot.lines(frame, series)
    return {"bbos.json": text, "bbos.md": page(results), "bbos-waits.svg": picture}


def main(folder: Path = simulator.PAGES) -> None:
    """Run the experiment and write its files."""
    simulator.write(folder, files(simulator.run("bbos")))


if __name__ == "__main__":
    main()
