"""The state of a transfer, in one line for a task's log. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.client import Transfer

__all__ = ["story", "waits_for"]


def waits_for(transfer: Transfer) -> str | None:
    """Return the reason why a transfer waits. ``None`` if it is running or has ended."""
    if transfer.state == "paused":
        return "paused by a user: resume it at the endpoint"
    if transfer.state == "waiting":
        why = transfer.error.message if transfer.error is not None else "its last try failed"
        at = transfer.next_try_at
        when = f" until {at.isoformat(timespec='seconds')}" if at is not None else ""
        return f"waits{when} for its next try: {why}"
    if transfer.state == "queued":
        begin = _time(transfer.request.get("not_before"))
        if begin is not None and begin > datetime.now(timezone.utc):
            return f"waits until its not_before, {begin.isoformat(timespec='seconds')}"
        return "waits in the endpoint's queue until other transfers end"
    if transfer.held:
        return "is held: other transfers precede it, and it keeps its session"
    return None


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    # Python 3.10 cannot parse a `Z` at the end.
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


def story(transfer: Transfer) -> str:
    """Describe the state of a transfer in one line."""
    words = [f"{transfer.state}", f"{transfer.bytes.durable} of {transfer.bytes.listed} bytes safe"]
    if transfer.rate.now:
        words.append(f"{transfer.rate.now / (1 << 20):.1f} MiB/s")
    if transfer.eta is not None:
        words.append(f"expected end {transfer.eta.isoformat(timespec='seconds')}")
    if transfer.miss is not None:
        words.append(f"its deadline will be missed: {transfer.miss.cause}")
    if (why := waits_for(transfer)) is not None:
        words.append(why)
    return ", ".join(words)
