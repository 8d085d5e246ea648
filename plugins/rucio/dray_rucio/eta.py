"""The expected end of a rule, from the endpoints' estimates for its transfers. Pure functions.

A rule is complete when its last file is complete. A file without a running transfer has no
estimate. The estimate of a rule with such a file is only a lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dray_rucio.globus_places import is_globus
from dray_rucio.submission import is_recall

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from dray_rucio.causes import Answers
    from dray_rucio.facts import FileFacts, RuleFacts

__all__ = ["Estimate", "estimate"]


class Estimate(NamedTuple):
    """The expected end of a rule.

    :param end: latest expected end of the running transfers. ``None`` if no transfer has an
        estimate.
    :param known: number of files with an estimate.
    :param unknown: number of files without an estimate, by reason.
    """

    end: datetime | None
    known: int
    unknown: Mapping[str, int]

    @property
    def is_complete(self) -> bool:
        """True if no file lacks an estimate."""
        return not self.unknown

    @property
    def story(self) -> str:
        """The estimate as text."""
        if self.is_complete and self.end is None:
            return "all files are at their destinations"
        lines = []
        if self.end is not None:
            end = self.end.isoformat(timespec="seconds")
            what = "expected end" if self.is_complete else "not complete before"
            lines.append(f"{what}: {end} (for {self.known} files)")
        else:
            lines.append("the expected end is unknown")
        lines += [f"unknown for {count} files: {why}" for why, count in self.unknown.items()]
        return "\n".join(lines)


def estimate(rule: RuleFacts, answers: Answers) -> Estimate:
    """Return the expected end of a rule."""
    ends: list[datetime] = []
    unknown: dict[str, int] = {}
    for file in rule.files:
        end = _end_of(file, answers)
        if isinstance(end, str):
            unknown[end] = unknown.get(end, 0) + 1
        else:
            ends.append(end)
    left = rule.missing - len(rule.files)
    if left > 0:
        unknown["they were not examined (--files)"] = left
    if rule.state not in ("OK", "REPLICATING") and not rule.files:
        unknown[f"the rule is {rule.state}"] = max(rule.missing, 1)
    return Estimate(max(ends, default=None), len(ends), unknown)


def _end_of(file: FileFacts, answers: Answers) -> datetime | str:
    """Return the expected end of a file's transfer, or the reason why it is unknown."""
    request = file.request
    if file.is_stuck or request is None or not request.is_live:
        return "they are stuck until Rucio repairs the rule"
    if request.state != "SUBMITTED":
        return f"their requests are {request.state} in Rucio"
    if request.tool != "dray":
        return f"the transfertool {request.tool} moves them"
    error = answers.errors.get(request.host or "")
    if error is not None:
        address = (request.host or "").partition("#")[0]
        is_away = error.kind in ("unreachable", "timed_out")
        return f"the endpoint {address} {'does not answer' if is_away else 'refuses the call'}"
    if is_recall(request.transfer):
        return "their files are recalled from tape first"
    transfer = answers.transfers.get(request.transfer)
    if transfer is None:
        return "the endpoint does not know their transfers"
    if transfer.is_terminal and transfer.ended_at is not None:
        if transfer.state == "done":
            return transfer.ended_at
        return f"their transfers are {transfer.state}, and Rucio does not know this yet"
    if is_globus(request.host):
        return "Globus does not estimate the end of a task"
    if transfer.eta is not None:
        return transfer.eta
    if transfer.promised and transfer.eta_between is not None:
        return transfer.eta_between.late or transfer.eta_between.early
    if transfer.bytes.sent > 0:
        return "the endpoint has not measured the rate of their transfers yet"
    return f"their transfers are {transfer.state} at the endpoint and move no data yet"
