"""Convert Rucio's requests to requests of an endpoint. Pure functions.

Each request of Rucio becomes one request with the same id: a repeated submission, whose first
answer was lost, attaches to the first. A retry is another request of Rucio and another transfer;
only the destination knows which data is durable, and that data is not sent again.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from dray.client import Content, Request, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "OVERDUE_LABEL",
    "SOURCES_LABEL",
    "File",
    "Wish",
    "WishError",
    "at",
    "priority_of",
    "request_of",
    "sources_of",
    "wish_of",
    "without_wish",
]

SOURCES_LABEL = "rucio.source_rse_ids"
"""The RSEs of a transfer's sources, in order: an endpoint reports the used one by number."""
OVERDUE_LABEL = "rucio.overdue"
"""Label of a rule whose deadline had passed before its file was submitted."""
LABEL_BYTES_MAX = 256
"""Limit of the API: bytes of one label."""
PRIORITY_MAX = 9
"""Limit of the API."""


@dataclass(frozen=True, slots=True)
class File:
    """The relevant fields of a request of Rucio.

    :param request_id: its id.
    :param scope: of the file.
    :param name: of the file.
    :param size: bytes, if known.
    :param adler32: eight hexadecimal digits, if known.
    :param activity: of the rule.
    :param priority: any number; an endpoint has 0 to 9, and uses the nearest of them.
    :param rule_id: the rule; none for an intermediate hop.
    :param destination_rse: its name.
    :param is_verified: whether the checksum counts (the RSE's ``verify_checksum``).
    :param may_overwrite: whether a different existing file may be replaced; not on tape.
    """

    request_id: str
    scope: str
    name: str
    size: int | None
    adler32: str | None
    activity: str | None
    priority: int | None
    rule_id: str | None
    destination_rse: str
    is_verified: bool = True
    may_overwrite: bool = True


class WishError(ValueError):
    """The part of a rule's ``meta`` for dray is invalid."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The part of a rule's ``meta`` for dray: ``{"dray": {"deadline": "2026-12-01T08:00:00Z"}}``.

    :param deadline: when its files should be complete; aware.
    :param rate_min: bytes per second for each file.
    :param rate_max: the same, at most.
    :param passed: the deadline, if it has passed: the file goes first among those with deadlines.
    """

    deadline: datetime | None = None
    rate_min: int | None = None
    rate_max: int | None = None
    passed: datetime | None = None


def wish_of(meta: str | dict[str, Any] | None) -> Wish:
    """Read a rule's ``meta``; parts for other programs are ignored.

    :raises WishError: names the fault.
    """
    words: Any = meta
    # Rucio stores its input as JSON, and its client requires a text: that is JSON of JSON.
    for _ in range(2):
        if isinstance(words, str):
            try:
                words = json.loads(words)
            except ValueError:
                # Free text is allowed there.
                return Wish()
    said = words.get("dray") if isinstance(words, dict) else None
    if said is None:
        return Wish()
    if not isinstance(said, dict):
        raise WishError(f'"dray" of the rule\'s meta is {said!r}; write an object')
    unknown = sorted(set(said) - {"deadline", "rate_min", "rate_max"})
    if unknown:
        raise WishError(f"the rule's meta has {unknown[0]!r}; known: deadline, rate_min, rate_max")
    wish = Wish(_time(said.get("deadline")), _rate(said, "rate_min"), _rate(said, "rate_max"))
    if wish.rate_min and wish.rate_max and wish.rate_min > wish.rate_max:
        raise WishError(f"rate_min of the rule's meta, {wish.rate_min}, is above its rate_max")
    return wish


def at(wish: Wish, now: datetime) -> Wish:
    """Return a wish as it applies at a time."""
    is_over = wish.deadline is not None and wish.deadline <= now
    return dataclasses.replace(wish, passed=wish.deadline if is_over else None)


def without_wish(wish: Wish) -> Wish:
    """Reduce a wish that an endpoint refuses to the fact that its deadline has passed."""
    return Wish(passed=wish.passed)


def priority_of(priority: int) -> int:
    """Return the nearest priority of an endpoint; FTS does so too."""
    return min(max(priority, 0), PRIORITY_MAX)


def request_of(
    file: File,
    wish: Wish,
    *,
    source_rse_ids: Sequence[str],
    bound_seconds: int | None,
    tries: int | None,
    resume: Literal["verify", "trust"] | None = None,
) -> Request:
    """Return the request, without its places; their RSEs are named in order.

    A deadline asks for a promise, and a transfer without a promise is moved anyway: late is better
    for a rule than not at all. A deadline that has passed cannot be promised; the endpoint starts
    the earliest deadline first.
    """
    # Some catalogues omit leading zeros.
    adler32 = (file.adler32 or "").lower().zfill(8)
    checksum = f"adler32:{adler32}" if file.adler32 and file.is_verified else None
    labels = {
        "rucio.did": _cut(f"{file.scope}:{file.name}"),
        "rucio.rule": file.rule_id or "",
        "rucio.destination": _cut(file.destination_rse),
        SOURCES_LABEL: _joined(source_rse_ids),
    }
    if wish.passed is not None:
        labels[OVERDUE_LABEL] = wish.passed.isoformat()
    return Request(
        sources=(),
        destination="",
        id=file.request_id,
        content=Content(size=file.size, checksum=checksum),
        deadline=wish.deadline,
        class_="deadline" if wish.passed else None,
        admission=None if wish == Wish() else "best_effort",
        priority=None if file.priority is None else priority_of(file.priority),
        rate_min=wish.rate_min,
        rate_max=wish.rate_max,
        activity=_cut(file.activity) if file.activity else None,
        labels={key: value for key, value in labels.items() if value},
        overwrite="if-different" if file.may_overwrite else "never",
        checksum_attributes=True,
        resume=resume,
        retry=None if tries is None else Retry(tries=tries),
        bound_seconds=bound_seconds,
    )


def sources_of(labels: object) -> tuple[str, ...]:
    """Read :data:`SOURCES_LABEL` back."""
    said = labels.get(SOURCES_LABEL, "") if isinstance(labels, dict) else ""
    return tuple(str(said).split(",")) if said else ()


def _joined(ids: Sequence[str]) -> str:
    """Join as many ids as a label holds; no id is cut."""
    text = ",".join(ids)
    return text if len(text) <= LABEL_BYTES_MAX else text[: LABEL_BYTES_MAX + 1].rpartition(",")[0]


def _time(text: object) -> datetime | None:
    if text is None:
        return None
    example = "write it as 2026-12-01T08:00:00Z"
    try:
        time = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        if time.tzinfo is not None:
            return time.astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise WishError(f"the deadline of the rule's meta is {text!r}; {example}") from error
    raise WishError(f"the deadline of the rule's meta, {text!r}, has no time zone; {example}")


def _rate(said: dict[str, Any], name: str) -> int | None:
    rate = said.get(name)
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate < 1 << 63:
        raise WishError(f"{name} of the rule's meta is {rate!r}; write bytes per second")
    return rate


def _cut(text: str) -> str:
    """Cut a text to the size of a label."""
    return text.encode()[:LABEL_BYTES_MAX].decode(errors="ignore")
