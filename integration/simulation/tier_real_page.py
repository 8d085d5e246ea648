"""The page with the results of :mod:`tier_real`."""

from __future__ import annotations

import json
import textwrap
from dataclasses import fields
from typing import Any

from integration.simulation import simulator
from integration.simulation.tier_scale import MB, MIB, Scale, ideal


def rows_of(results: dict[str, Any]) -> str:
    """Return the table of the periods."""
    head = ["written", "writes", "expected", "pattern", "peak", "blocked", "slowest write, s"]
    head += ["all written, s", "E-order", "V-order", "left", "wrong"]
    rows = []
    for each in results["periods"]:
        pattern = {
            "when_idle": "1",
            "from_threshold": "2",
            "from_start": "3",
            None: "above the bound",
        }[each["pattern"]]
        rows.append(
            [
                f"{each['written']:.2f} S",
                "burst" if each["burst"] else "even",
                f"{each['expected']:.2f} S",
                pattern,
                f"{each['peak']:.2f} S",
                str(each["refused"]),
                f"{each['longest_seconds']:.2f}",
                f"{each['seconds']:.1f}",
                *(str(each[name]) for name in ("older", "newest", "left", "wrong")),
            ]
        )
    return simulator.table(head, rows)


def bursts_of(results: dict[str, Any]) -> str:
    """Return the table of the bursts, with the largest burst that fits."""
    head = ["burst", "versions", "w, MB/s", "d, s", "v / Brmax + g, s", "g, s", "at most", "peak"]
    head += ["blocked"]
    least = results["version"] / results["read_max"]

    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{round(value, 2) + 0.0:.2f}"

    rows = [
        [
            f"{each['written']:.2f} S",
            str(each["versions"]),
            f"{each['write_rate'] / MB:.1f}",
            seconds(each["found_seconds"]),
            seconds(each["cycle_seconds"]),
            seconds(each["cycle_seconds"] and each["cycle_seconds"] - least),
            str(each["largest"]),
            f"{each['peak']:.2f} S",
            str(each["refused"]),
        ]
        for each in results["periods"]
        if each["burst"]
    ]
    return simulator.table(head, rows)


def page(results: dict[str, Any]) -> str:
    """Return the text of the page."""
    scale = Scale(**{each.name: results[each.name] for each in fields(Scale)})
    bound = 1.0 / (1.0 - scale.read_max / scale.write_min)
    part = scale.version / scale.capacity
    lower = bound * (1.0 - part * scale.read_max / scale.write_min)
    whole = sum(each["wrong"] for each in results["periods"])
    most = ideal(scale).largest()
    averages = [each["load_average"] for each in results["periods"]]
    return f"""\
<!-- Written by `python -m integration.simulation.tier_real`; edit that. -->

# A tier with real file systems

Three applications write versions to a tier of a real endpoint. There are ten periods. In each
period, the applications together write 1.0 to 2.1 S, where S is the capacity of the fast tier. The
page shows at which load the fast file system was full. [Tiers](../../design/tiers.md) explains the
terms. [A burst buffer](bbos.md) answers the same question with the simulator.

## Set-up

- The fast root is an ext4 file system on a loop device, with S = {scale.capacity / MB:.0f} MB. The
  device has {scale.reserve / MIB:.0f} MiB more than S, for the journal and the tables of the file
  system. The slow root is another ext4 file system.
- Bwmax is {scale.write_max / MB:.1f} MB/s, Bwmin is {scale.write_min / MB:.0f} MB/s, Brmax is
  {scale.read_max / MB:.0f} MB/s, and Brmin is {scale.read_min / MB:.1f} MB/s. These are the
  bandwidths of [the BBOS paper](bbos.md) divided by 25. A version has v = {scale.version / MB:.0f}
  MB, and a period has {scale.period} s. S and v are about a thousandth of the sizes in [the
  simulator](bbos.md).
- By the paper's equation 5.1, the writes to a disk slow down while a demotion reads from the disk.
  A loop device does not do this. So the test sets a limit with blkio (cgroup v1): writes to the
  fast device are limited to Bwmin while a demotion runs, and to Bwmax otherwise. blkio also limits
  writes to the slow device to {scale.slow_write / MB:.0f} MB/s. The endpoint limits a demotion to
  Brmax.
- Each load begins with empty file systems and has two periods. The applications write their
  versions at even intervals in the first period, and in one burst without idle time in the second
  period.
- The applications write one after the other, and sync after each {scale.chunk / MIB:.0f} MiB. Each
  application declares its first version and its period (`POST /v1/staging/out`). It writes the
  other versions without a call.
- The stored results are those of a {results["build"]} build on two cores that had other work: the
  load average was {min(averages):.1f} to {max(averages):.1f}.

The bound is the largest load that the tier can take without overflow. It is {bound:.2f} S. This
bound assumes that a demotion may begin before its version is complete. The endpoint demotes only
complete versions, which lowers the bound to {lower:.2f} S.

## Results

- The column *written* shows the load of the period. The column *writes* shows whether the versions
  were written at even intervals or in a burst.
- The column *expected* shows the tier's estimate of the load. The column *pattern* shows which
  [pattern of demotions](../../design/tiers.md#start-and-speed-of-a-demotion) the tier used. If the
  tier expected a load above the bound, it used none of the patterns, and demoted at Brmax.
- The column *peak* shows the most space that was used on the fast file system. The column *blocked*
  shows the number of writes that failed because the file system was full. The application repeated
  each of these writes after a quarter of a second.
- The column *slowest write* shows the longest time of a write of {scale.chunk / MIB:.0f} MiB with
  its sync. The column *all written* shows the time from the start of the period to the end of the
  last write.
- The column *E-order* shows the number of demotions of older versions. The column *V-order* shows
  the number of demotions of a version that was the newest of its application.
- The column *left* shows the number of versions that had no slow copy {scale.margin} seconds before
  the end of the period.
- The column *wrong* shows the number of copies whose content is wrong: the catalog says that a root
  has the version, but the SHA-256 of the copy on this root differs. The sum of this
  column is {whole}.

{rows_of(results)}

{conclusion(results)}

## The largest burst

The space of a version is free only at the end of its demotion. A burst of n versions that are
written at the rate w without idle time therefore fits only if

    n v - v ⌊((n - 1) v / w - d) / (v / Brmax + g)⌋ ≤ S

Here d is the time from the end of a version to the moment at which the endpoint finds that the
version is complete, and g is the pause between two demotions. If d and g are 0 and w is Bwmin,
{most} versions fit, which are {most * part:.2f} S. At these bandwidths, no endpoint can take a
larger burst, because the data arrives faster than a demotion at Brmax frees space. The bound of
{bound:.2f} S is higher, because it assumes that each demoted byte immediately frees its space. The
largest burst uses every byte of S. So one pause that is longer than the mean can make the tier
full.

- The columns *burst*, *versions*, *w* and *d* show the load, the number of versions, and the
  measured w and d.
- The column *v / Brmax + g* shows the mean time from the start of a demotion to the start of the
  next. The mean includes only demotions after the moment at which the tier wanted to demote at
  Brmax. If the tier never wanted this, the column shows "-". The column *g* shows the same time
  without v / Brmax.
- The column *at most* shows the largest n that fits with the measured w, d and g. If g was not
  measured, the formula uses g = 0. If a write was blocked, w includes the time for which that
  write was blocked.
- The columns *peak* and *blocked* show the same as in the table above.

{bursts_of(results)}

## Refused applications

After the two periods of each load, one more application declares that it will write S bytes in
each period. The endpoint refuses this application if the load was at least
{refused_from(results):.1f} S:

    {refusal(results)}

`make tier-run` runs the experiment as root, and writes this page.
"""


def refused_from(results: dict[str, Any]) -> float:
    """Return the smallest load at which the endpoint refused one more application."""
    return min(float(each["load"]) for each in results["periods"] if each.get("refusal"))


def refusal(results: dict[str, Any]) -> str:
    """Return the endpoint's refusal at the largest load, in lines of at most 90 characters."""
    said = [each["refusal"] for each in results["periods"] if each.get("refusal")]
    return "\n    ".join(textwrap.wrap(said[-1], 90))


def conclusion(results: dict[str, Any]) -> str:
    """Return the paragraph that compares the loads with the bound."""
    even = [each for each in results["periods"] if not each["burst"]]
    burst = [each for each in results["periods"] if each["burst"]]
    free = {
        name: max((each["written"] for each in part if each["refused"] == 0), default=0.0)
        for name, part in (("even", even), ("burst", burst))
    }
    return f"""\
The largest load without a blocked write was {free["even"]:.2f} S at even intervals, and
{free["burst"]:.2f} S in a burst. A blocked write does not cause a loss of data: the application
repeats the write. The write succeeds after the tier has deleted the fast copy of a version that has
a slow copy."""


def files(text: str) -> dict[str, str]:
    """Return the contents of all files of the experiment by file name."""
    return {"tier-real.json": text, "tier-real.md": page(json.loads(text))}
