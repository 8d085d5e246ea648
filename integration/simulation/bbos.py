"""Experiment ``bbos``: writes to a burst buffer under BBOS and other policies.

``python -m integration.simulation.bbos`` runs the experiment in the simulator, and writes
``bbos.json``, ``bbos.md`` and the picture into docs/explanation/experiments.
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
    """Return the table of thresholds (equation 5.2 of the paper)."""
    head = ["DWPP / S", "start / S", "start / S, printed equation", "full / S"]
    rows = [
        [f"{row['load']}", f"{row['start']}", f"{row['start_printed']}", f"{row['full']}"]
        for row in results["thresholds"]["rows"]
    ]
    return simulator.table(head, rows)


def utilisation(results: dict[str, Any]) -> str:
    """Return the table of utilisation (section 5.3.2 of the paper)."""
    head = ["policy", "no stop", "no stop, complete versions", "stops permitted"]
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
    """Return the table of the bursts that fit without overflow."""
    head = ["policy", "demotes", "most checkpoints", "load", "highest fill / S", "stops"]
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
    """Return the table of the number ``key`` by load and policy (Figures 5.3 and 5.4)."""
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
    """Return the table of the bypass (Figure 5.6 of the paper)."""
    head = ["load", "colder than", "first period", "third period", "third period, largest"]
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
    """Return the table that compares the known with the estimated DWPP."""
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
    """Wrap each paragraph at 100 columns: the inserted numbers change the lengths of lines."""
    parts = text.rstrip("\n").split("\n\n")
    filled = [
        part
        if part.startswith(("#", "|", "!", "- "))
        else textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
        for part in parts
    ]
    return "\n\n".join(filled) + "\n"


def page(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    given = results["assumptions"]
    waits = {row["policy"]: row for row in results["waits"]["rows"]}
    sets = results["bypass"]["seeds"]
    mixed = results["estimated"]
    worst = min(row["ratio_min"] for row in mixed["rows"])
    text = f"""\
# Burst buffer: writes

This page repeats the experiments of section 5.3 of the dissertation on Mulconn and BBOS ("the
paper") in a fluid model of one fast tier. The model runs the code that decides for the tiers of an
endpoint. [Tiers](../../design/tiers.md) describes these decisions and defines the terms: S is the
capacity of the fast tier, and DWPP is the data written per period. A *load* of 1.3 S means a DWPP
of 1.3 S. `make experiments-bbos` writes this page.

The paper compares BBOS with three [other policies](../../design/tiers.md#other-policies): DataWarp
(each application owns a part of the capacity), MaxBW (demote only while no application writes) and
MaxEff (always demote at Brmax). The policy *BBOS, even* is not in the paper: it is [BBOS with even
rates](../../design/tiers.md#even-rates).

The paper states these parameters: Bwmax {given["bw_max"]} GB/s and Bwmin {given["bw_min"]} GB/s
(write rate of the fast tier without and beside a demotion), Brmax {given["br_max"]} GB/s and Brmin
{given["br_min"]} GB/s (highest and lowest rate of a demotion), a period of {given["period_s"]:.0f}
s, and checkpoints of {given["checkpoint_gb"]:.0f} GB. The paper does not state S. Here S is
{given["capacity_gb"]:.0f} GB, because with this value MaxBW can write and demote 190 % of S in a
period, as the paper says. No other number was fitted.

A write *stops* while it waits for free space on the fast tier. The *congestion* says how fast
the requests to write follow each other. With low congestion, the requests are evenly distributed
over the period. With medium congestion, the time between two requests is half as long, and with
high congestion a tenth as long. In a *burst*, all requests arrive at the start of the period.

## Thresholds (equation 5.2)

The table shows two thresholds of the data written so far in a period. When the data reaches
*start*, a demotion begins to run beside the writes. When the data reaches *full*, the demotion runs
at Brmax. The column *printed equation* shows the start by the equation as the paper prints it,
which [contradicts the paper's text](../../design/tiers.md#start-and-speed-of-a-demotion).

{thresholds(results)}

Figure 5.2 of the dissertation shows other thresholds: 0.7 S for a DWPP of 1.2 S, 0.6 S for a DWPP
of 1.4 S, and 1.6 S as the largest DWPP. These thresholds do not follow from equation 5.2 with the
values of Bwmax, Bwmin, Brmax and Brmin above. A maximum of 1.6 S also contradicts the load of 2.1 S
that the dissertation measured. By the equation, the largest DWPP without overflow (the *bound*) is
{results["thresholds"]["bound"]:.3f} S.

## Utilisation (section 5.3.2)

All checkpoints of a period are written in one burst. The table shows the largest load, as a
percentage of S, that the tier can take and demote in one period under each policy.

- The column *no stop* shows the largest load at which no write stops. Here a policy may demote
  bytes of a version that is still being written, as in the paper.
- The column *no stop, complete versions* shows the same if a policy demotes a version only after
  the version is complete, as dray does. In the rows *MaxEff*, *BBOS* and *BBOS, even*, this lowers
  the largest load by one checkpoint, 3.6 % of S. In the rows *DataWarp* and *MaxBW*, it does not
  change the largest load.
- The column *stops permitted* shows the largest load if writes may stop.
- The column *paper* shows the number of the paper.

{utilisation(results)}

The numbers of the paper follow from two different conditions. The paper's numbers for MaxEff and
BBOS are those without stops. Its number for MaxBW is the number with stops permitted. If stops are
permitted, MaxEff and BBOS reach 276 %. Without stops, MaxBW reaches 98 %. DataWarp reaches 98 %
and not 100 %, because the load is a whole number of checkpoints.

## No overflow up to the bound

Each row of the table describes a series of bursts. The largest burst has as many checkpoints as fit
below the bound of the policy. Each further burst has four checkpoints fewer than the one before.

- The column *demotes* shows which bytes the policy may demote: all written bytes (*written*), or
  only bytes of complete versions (*complete*).
- The columns *most checkpoints* and *load* show the size of the largest burst.
- The column *highest fill / S* shows the most data without a slow copy in any of the bursts.
- The column *stops* shows the time for which writes stopped, summed over all bursts. A time below
  0.1 s in one burst is no stop: it comes from the time steps of the model.

{overflow(results)}

## Throughput in GB/s (Figure 5.3)

The throughput of a checkpoint is its size divided by the duration of its write. The duration does
not include the time before the start of the write, in which the write waits for other writes or for
space. The table shows the mean throughput of all checkpoints. The load in the first column does not
apply to DataWarp, which always has a load of 1.0 S, the most that it can serve.

{writes(results, "throughput_gb_s", 2)}

The text of the paper has no numbers for the throughput. Its statements agree with the table:
MaxBW is always the fastest policy. MaxEff is always slower than BBOS. BBOS is faster if the DWPP
is smaller. With high congestion DataWarp is the slowest policy, because its writes overlap.

With *BBOS, even*, demotions use the idle time between requests. With high congestion there is no
idle time, and the throughput of *BBOS, even* differs from that of BBOS by at most half a percent.

## Mean latency in seconds (Figure 5.4)

The latency of a checkpoint is the time from its request to the end of its write. This table shows
the mean over all checkpoints:

{writes(results, "latency_s", 1)}

This table shows the highest latency of a checkpoint:

{writes(results, "latency_max_s", 1)}

These results agree with the paper:

- With low congestion, no write waits.
- Where MaxBW has no stops (for example with low congestion), it has a lower latency than BBOS.
- With medium congestion at 1.9 S, and with high congestion at 1.6 S and 1.9 S, MaxBW has the
  highest mean latency. Where MaxBW has stops, it also has the highest single latency of all
  policies.
- BBOS has a lower latency than MaxEff in every row.
- With high congestion, the mean latency of DataWarp (1.0 S) is similar to the mean latency of BBOS
  with a load of 1.3 S.

One result differs. In the paper, with medium congestion, writes of MaxBW begin to wait "when the
DWPP exceeds 1.6 S". In the model, a load of 1.6 S still fits: at the end of the 44 writes, 2060 GB
have no slow copy yet, which is less than S.

With high congestion, the mean latency of *BBOS, even* is 2 to 5 % higher than that of BBOS, because
*BBOS, even* slows down all writes, and BBOS slows down only the later writes.

## Waits of each job (Figure 5.5)

A *job* is the write of one checkpoint. The load is 1.9 S, with medium congestion. Under MaxBW, job
{waits["MaxBW"]["first_stop"]} is the first job that stops; in the dissertation, the jobs after job
{results["waits"]["paper_stops_after"]} stop. Under BBOS no job stops, as in the dissertation. The
dissertation shows that under BBOS some jobs wait until an earlier job has been written. In the
model this does not occur, because a write takes at most 80 GB / Bwmin = 26.7 s, and a request
arrives only every 36.5 s. Such waits are possible only if writes are slower than Bwmin, the lowest
write rate.

![Waits of each job](bbos-waits.svg)

## Bypass (Figure 5.6)

A checkpoint can [bypass the fast tier](../../design/tiers.md#bypass): it is written directly to the
slow tier. Such a checkpoint need not be demoted. The experiment runs three periods of one hour,
with medium congestion and the policy BBOS. The MTBF (mean time between failures) of each
application is random from 0 to 100 minutes. The numbers are means over {sets} random sets of MTBFs.

- A checkpoint bypasses the fast tier only if its application fails less often than a certain part
  of the other applications with a version on the fast tier. The column *colder than* shows this
  part, as a percentage of the newest versions of these applications.
- The columns *first period* and *third period* show by how much the bypass changes the demoted
  bytes, as a percentage of the DWPP. The column *third period, largest* shows the largest change
  among the sets of MTBFs.
- The last two columns show the mean throughput of the writes to the fast tier in the third period,
  with and without the bypass.

{bypass(results)}

The paper reports that the bypass reduces the demoted bytes by "up to 38 %". It states neither the
value of *colder than*, nor the congestion, nor the number of periods. The default of dray is
*colder than 100 %*, which has the smallest effect. With *colder than 50 %*, at 1.9 S, the mean
reduction is 35 %, and the largest reduction in one set is 42 %.

## DWPP estimated

In the experiments above, the policy knows the DWPP. This experiment compares a policy that knows
the DWPP of each period in advance (*known*) with the same policy if it estimates the DWPP from
earlier periods (*estimated*, by `PeriodEstimator`). Only complete versions are demoted.

There are {mixed["applications"]} applications, and the sizes of their checkpoints differ by a
factor of up to ten. The size of each checkpoint differs from the application's mean by up to
{mixed["change"]:.0%}. In each period, one of {mixed["skips"]} applications on average writes
nothing. The first periods only give the estimator a history; the next {mixed["periods"]} periods
are measured. All numbers are means over {mixed["sets"]} random sets of sizes, except in two
columns: *lowest ratio* shows the lowest quotient of estimated and known throughput in a set, and
*longest stops* shows the longest total time of stops in a set, with the estimated DWPP.

{estimated(results)}

The lowest ratio in the table is {worst:.3f}. The tests require at least 0.97. The estimated DWPP is
a 90 % quantile of the possible values, so it is more often too high than too low, and demotions
more often begin too early than too late.
"""
    return refilled(text)


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
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
