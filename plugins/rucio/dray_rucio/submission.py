"""Convert Rucio's requests to requests for an endpoint. Pure functions.

A request of Rucio becomes a transfer with the same id, or a file of a transfer of several files. If
the answer to a submission is lost, the repeated submission attaches to the first. A retry is
another request of Rucio and another transfer. But the destination keeps the durable data of the
earlier transfer, so this data is not sent again.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from dray.client import Content, ListedFile, Request, Retry, Selection
from dray_rucio.groups import group_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "OVERDUE_LABEL",
    "RECALL_LABEL",
    "SOURCES_LABEL",
    "File",
    "Wish",
    "WishError",
    "at",
    "group_request_of",
    "is_recall",
    "priority_of",
    "recall_id",
    "request_of",
    "sources_of",
    "wish_of",
    "without_wish",
]

SOURCES_LABEL = "rucio.source_rse_ids"
"""Label with the RSEs of a transfer's sources, in order.

The order is needed because an endpoint reports the replica in use by its number.
"""
OVERDUE_LABEL = "rucio.overdue"
"""Label with the deadline of a rule, if it had passed before the file was submitted."""
RECALL_LABEL = "rucio.recall"
"""Label with the id of the recall that has brought the file of a tape RSE online."""
RECALL_PREFIX = "recall-"
LABEL_BYTES_MAX = 256
"""Maximum number of bytes of a label in the API."""
PRIORITY_MAX = 9
"""Maximum priority in the API."""


@dataclass(frozen=True, slots=True)
class File:
    """The relevant fields of a request of Rucio.

    :param request_id: id of the request.
    :param scope: scope of the file.
    :param name: name of the file.
    :param size: size in bytes, if known.
    :param adler32: eight hexadecimal digits, if known.
    :param activity: activity of the rule.
    :param priority: any number. An endpoint has priorities 0 to 9. The endpoint gets the nearest of
        these.
    :param rule_id: id of the rule. An intermediate hop has no rule.
    :param destination_rse: name of the destination's RSE.
    :param is_verified: true if the checksum must match (the RSE's ``verify_checksum``).
    :param may_overwrite: true if a different existing file may be replaced. Never true for tape.
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

    :param deadline: time by which the files should be complete, with a time zone.
    :param rate_min: minimum rate for each file in bytes per second.
    :param rate_max: maximum rate for each file in bytes per second.
    :param passed: the deadline, if it has passed. Such a file gets no promise. Among the files
        without a promise, the endpoint starts those with the earliest deadlines first.
    """

    deadline: datetime | None = None
    rate_min: int | None = None
    rate_max: int | None = None
    passed: datetime | None = None


def wish_of(meta: str | dict[str, Any] | None) -> Wish:
    """Parse a rule's ``meta``. Parts for other programs are ignored.

    :raises WishError: if the part for dray is invalid. The message names the fault.
    """
    words: Any = meta
    # Parsed twice: Rucio's client requires a text, and Rucio stores that text as JSON.
    for _ in range(2):
        if isinstance(words, str):
            try:
                words = json.loads(words)
            except ValueError:
                # Rucio allows any text in `meta`.
                return Wish()
    said = words.get("dray") if isinstance(words, dict) else None
    if said is None:
        return Wish()
    if not isinstance(said, dict):
        raise WishError(f'the part "dray" of the rule\'s meta is {said!r}; write an object')
    unknown = sorted(set(said) - {"deadline", "rate_min", "rate_max"})
    if unknown:
        raise WishError(
            f"the part dray of the rule's meta has the unknown field {unknown[0]!r}; known: "
            "deadline, rate_min, rate_max"
        )
    wish = Wish(_time(said.get("deadline")), _rate(said, "rate_min"), _rate(said, "rate_max"))
    if wish.rate_min and wish.rate_max and wish.rate_min > wish.rate_max:
        raise WishError(
            f"rate_min of the rule's meta is {wish.rate_min}, which is greater than rate_max"
        )
    return wish


def at(wish: Wish, now: datetime) -> Wish:
    """Return the wish with ``passed`` set if its deadline is not later than ``now``."""
    is_over = wish.deadline is not None and wish.deadline <= now
    return dataclasses.replace(wish, passed=wish.deadline if is_over else None)


def without_wish(wish: Wish) -> Wish:
    """Return a wish without the parts that an endpoint may refuse.

    A passed deadline is kept. No endpoint refuses it, because it asks for no promise. Without a
    deadline, the endpoint would start the file after all files with deadlines.
    """
    return Wish(deadline=wish.passed, passed=wish.passed)


def priority_of(priority: int) -> int:
    """Return the nearest priority of an endpoint, as FTS does."""
    return min(max(priority, 0), PRIORITY_MAX)


def recall_id(request_id: str) -> str:
    """Return the id with which a file is recalled from tape before it is copied.

    The copy has the id of the request, and both may be at the same endpoint.
    """
    return RECALL_PREFIX + request_id


def is_recall(external_id: str) -> bool:
    """Return true if an external id is that of a recall, and not yet that of a copy."""
    return external_id.startswith(RECALL_PREFIX)


def request_of(
    file: File,
    wish: Wish,
    *,
    source_rse_ids: Sequence[str],
    bound_seconds: int | None,
    tries: int | None,
    resume: Literal["verify", "trust"] | None = None,
) -> Request:
    """Return the request without sources and destination. A label names the sources' RSEs.

    With a deadline, the endpoint is asked for a promise. If the endpoint refuses the promise, the
    file is moved without it, because a late file is better for a rule than no file. A deadline that
    has passed cannot be promised. But of the transfers without a promise, the endpoint starts those
    with the earliest deadlines first, within a priority and an activity.
    """
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
        content=Content(size=file.size, checksum=_checksum_of(file)),
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


def group_request_of(files: Mapping[str, File], request: Request) -> Request:
    """Return the request for several files, without sources and destination.

    :param files: the files by their paths below the source and the destination.
    :param request: the request for one of these files. The new request keeps the values of this
        request that apply to all the files, such as the deadline.
    """
    labels = {key: text for key, text in (request.labels or {}).items() if key != "rucio.did"}
    return dataclasses.replace(
        request,
        id=group_id(file.request_id for file in files.values()),
        content=None,
        selection=Selection(recursive=True),
        files=[
            # A `%` in a name is escaped for the API.
            ListedFile(path.replace("%", "%25"), file.size, _checksum_of(file))
            for path, file in files.items()
        ],
        labels={**labels, "rucio.files": str(len(files))},
    )


def _checksum_of(file: File) -> str | None:
    """Return the required checksum of a file. Some catalogues omit leading zeros."""
    if not file.adler32 or not file.is_verified:
        return None
    return f"adler32:{file.adler32.lower().zfill(8)}"


def sources_of(labels: object) -> tuple[str, ...]:
    """Return the RSEs in the label :data:`SOURCES_LABEL`."""
    said = labels.get(SOURCES_LABEL, "") if isinstance(labels, dict) else ""
    return tuple(str(said).split(",")) if said else ()


def _joined(ids: Sequence[str]) -> str:
    """Join as many ids as fit into a label. No id is cut."""
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
        raise WishError(
            f"the deadline of the rule's meta is {text!r}, which is not a time; {example}"
        ) from error
    raise WishError(
        f"the deadline of the rule's meta is {text!r}, which has no time zone; {example}"
    )


def _rate(said: dict[str, Any], name: str) -> int | None:
    rate = said.get(name)
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate < 1 << 63:
        raise WishError(
            f"{name} of the rule's meta is {rate!r}; write a whole number of bytes per second"
        )
    return rate


def _cut(text: str) -> str:
    """Shorten a text to the maximum size of a label."""
    return text.encode()[:LABEL_BYTES_MAX].decode(errors="ignore")
