"""The states of FTS, and the conversion of a transfer's state and error. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dray import DrayError
    from dray.client import Transfer

__all__ = [
    "ARCHIVE_REASON",
    "FAILED_REASON",
    "JOB_STATES",
    "LIVE",
    "QUEUE_REASON",
    "REASON_CHARACTERS_MAX",
    "STAGING_REASON",
    "TERMINAL",
    "file_state",
    "job_state",
    "reason_of",
    "reason_of_error",
]

LIVE = ("STAGING", "STARTED", "SUBMITTED", "READY", "ACTIVE", "ARCHIVING", "DELETE")
"""States of a file that has not ended."""
TERMINAL = ("FINISHED", "FAILED", "CANCELED")
"""States of a file that has ended. A file in the state NOT_USED has not begun."""
JOB_STATES = (*LIVE, *TERMINAL, "FINISHEDDIRTY")
"""States of a job, which are the values of the filter ``state_in``."""
FAILED_REASON = "One or more files failed. Please have a look at the details for more information"
"""FTS's reason of a job of which at least one file has failed."""
STAGING_REASON = "STAGING [110] bring-online timeout has been exceeded"
"""FTS's reason of a file that was not staged within ``bring_online``."""
ARCHIVE_REASON = "ARCHIVING [110] archive timeout has been exceeded"
"""FTS's reason of a file that was not archived within ``archive_timeout``."""
QUEUE_REASON = "The transfer has been staying too long in the queue"
"""FTS's reason of a file that has waited longer than ``max_time_in_queue``."""
REASON_CHARACTERS_MAX = 2000

#: States of a job without a running transfer, each with the states that the units may have.
_EARLY = {
    "DELETE": {"DELETE"},
    "STAGING": {"STAGING", "STARTED"},
    "SUBMITTED": {"SUBMITTED"},
    "READY": {"SUBMITTED", "READY"},
}
#: A waiting transfer has had a temporary error. Its next session starts without a call.
_OF_TRANSFER = {
    "queued": "READY",
    "waiting": "READY",
    "paused": "READY",
    "active": "ACTIVE",
    "done": "FINISHED",
    "incomplete": "FAILED",
    "failed": "FAILED",
    "cancelled": "CANCELED",
}
#: FTS writes the number of a system error into the reason.
_NUMBERS = {
    "not_found": 2,
    "nothing_matched": 2,
    "io": 5,
    "short_read": 5,
    "checksum_mismatch": 5,
    "source_changed": 5,
    "permission_denied": 13,
    "unauthorized": 13,
    "busy": 16,
    "already_exists": 17,
    "not_a_directory": 20,
    "is_a_directory": 21,
    "invalid_request": 22,
    "no_space": 28,
    "read_only": 30,
    "name_too_long": 36,
    "protocol": 71,
    "timed_out": 110,
    "unreachable": 113,
    "cancelled": 125,
}
_SCOPES = {"source": "SOURCE", "sink": "DESTINATION"}


def file_state(transfer: Transfer) -> str:
    """Return the state of the file that a transfer copies."""
    return _OF_TRANSFER[transfer.state]


def job_state(job_type: str, files: Iterable[tuple[int, str]]) -> str:
    """Return the state of a job.

    :param job_type: ``N``, ``Y`` (reuse), ``R`` (alternative sources) or ``H`` (several hops).
    :param files: index and state of each file.
    """
    groups: dict[int, list[str]] = {}
    for number, (index, state) in enumerate(files):
        # All hops are one unit, and so are all alternatives of a file.
        groups.setdefault({"H": 0, "R": index}.get(job_type, number), []).append(state)
    states = [_group_state(job_type, group) for group in groups.values()]
    live = {state for state in states if state not in TERMINAL}
    if live == {"ARCHIVING"}:
        return "ARCHIVING"
    if live:
        early = (state for state, members in _EARLY.items() if members.issuperset(states))
        return next(early, "ACTIVE")
    if len(set(states)) == 1:
        return states[0]
    if "FINISHED" in states:
        return "FINISHEDDIRTY"
    return "CANCELED"


def _group_state(job_type: str, states: Sequence[str]) -> str:
    if job_type == "R" and "FINISHED" in states:
        return "FINISHED"
    live = [state for state in states if state in LIVE]
    if live:
        has_begun = job_type == "H" and "FINISHED" in states
        return "ACTIVE" if has_begun and live[0] != "ARCHIVING" else live[0]
    for state in ("CANCELED", "FAILED"):
        if state in states:
            return state
    return "FINISHED"


def reason_of(transfer: Transfer) -> str:
    """Return the reason of a transfer that has ended without success."""
    error = transfer.error or next((failure.error for failure in transfer.failures), None)
    if error is None:
        return f"TRANSFER [125] the transfer {transfer.id} is {transfer.state}"
    return reason_of_error(error)


def reason_of_error(error: DrayError, scope: str | None = None) -> str:
    """Return an error in FTS's form: ``SCOPE [NUMBER] TEXT``.

    :param scope: by default the end at which the error occurred.
    """
    scope = scope or _SCOPES.get(error.end, "TRANSFER")
    return f"{scope} [{_NUMBERS.get(error.kind, 70)}] {error}"[:REASON_CHARACTERS_MAX]
