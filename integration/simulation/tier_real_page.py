"""The page about a tier with real file systems; :mod:`tier_real` measures it."""

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
    """Return the table of the bursts, with the bound of each."""
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
    """Write the page."""
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

Three applications write versions to a tier of a real endpoint, with 1.0 to 2.1 S in each of ten
periods. The page shows at which load the fast file system was full. [Tiers](../../design/tiers.md)
explains the terms, and [a burst buffer](bbos.md) has the same question in the simulator.

## Set-up

- The fast root is an ext4 on a loop device with S = {scale.capacity / MB:.0f} MB, and
  {scale.reserve / MIB:.0f} MiB beside S for its journal and its tables. The slow root is another
  ext4.
- Bwmax is {scale.write_max / MB:.1f} MB/s, Bwmin {scale.write_min / MB:.0f} MB/s, Brmax
  {scale.read_max / MB:.0f} MB/s and Brmin {scale.read_min / MB:.1f} MB/s: the paper's numbers,
  1 : 25. A version has v = {scale.version / MB:.0f} MB, so sizes are the paper's, 1 : 1000. A
  period has {scale.period} s.
- blkio (cgroup v1) limits writes to the fast device to Bwmax, and to Bwmin while a demotion runs.
  A disk has this relation (equation 5.1), but blkio limits reads and writes separately. It limits
  writes to the slow device to {scale.slow_write / MB:.0f} MB/s. The endpoint limits a demotion to
  Brmax.
- Each load begins with empty file systems and has two periods. Versions are written at even
  intervals in the first period, and in one burst without idle time in the second period.
- Applications write one after the other, and sync each {scale.chunk / MIB:.0f} MiB. Each one
  declares its first version with its period (`POST /v1/staging/out`), and writes the other versions
  without a call.
- The stored results are those of a {results["build"]} build on two cores that had other work: the
  load average was {min(averages):.1f} to {max(averages):.1f}.

The bound of the tier is {bound:.2f} S. A version of this size is demoted only after it is complete,
which lowers the bound to {lower:.2f} S.

## Results

{rows_of(results)}

- *Peak* is the most space that was used on the fast file system. *Blocked* is the number of writes
  that failed because the file system was full; the application repeated each one after a quarter of
  a second.
- *E-order* is the number of demotions that took an older version, and *V-order* the number that
  took the newest version of its application.
- *Left* is the number of versions without a slow copy {scale.margin} seconds before the end of the
  period.
- *Wrong* is the number of versions whose content differs (sha256) on a root that has the version
  according to the catalog. The sum is {whole}.

{conclusion(results)}

## The largest burst

The space of a version is free only at the end of its demotion. A burst of n versions that are
written at the rate w without idle time therefore fits only if

    n v - v ⌊((n - 1) v / w - d) / (v / Brmax + g)⌋ ≤ S

where d is the time until the endpoint has found a complete version, and g the pause between two
demotions. Without d and g, and at w = Bwmin, {most} versions fit, which are {most * part:.2f} S.
A larger burst is impossible at these bandwidths, whatever the endpoint does: it arrives faster than
Brmax drains. The bound of {bound:.2f} S assumes that space is free with each demoted byte. The
largest burst needs every byte of S, so a pause that is longer than the mean can fill it.

{bursts_of(results)}

The mean of v / Brmax + g counts the demotions from the moment at which the tier wants to demote at
Brmax; "-" means that it did not. *At most* is the largest n that fits with the measured w, d and g
of the burst, or with g = 0. If a write was blocked, w includes the time for which that write was
blocked.

## Refused applications

At the end of each load, one more application declares S bytes in each period. The endpoint refuses
it from {refused_from(results):.1f} S:

    {refusal(results)}

`make tier-run` runs it as root, and writes this page.
"""


def refused_from(results: dict[str, Any]) -> float:
    """Return the smallest load at which one more application was refused."""
    return min(float(each["load"]) for each in results["periods"] if each.get("refusal"))


def refusal(results: dict[str, Any]) -> str:
    """Return the message of the refusal at the largest load, wrapped."""
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
Without a blocked write, the tier took {free["even"]:.2f} S at even intervals and
{free["burst"]:.2f} S in a burst. An application whose write fails does not lose data: the tier
deletes a fast copy as soon as it has a slow copy, and a repeated write then succeeds."""


def files(text: str) -> dict[str, str]:
    """Give all files of the experiment, by name."""
    return {"tier-real.json": text, "tier-real.md": page(json.loads(text))}
