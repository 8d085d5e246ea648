"""Submit many transfers to an endpoint as one set, with as few calls as possible.

The size of a request body is limited (``limits.body_bytes``), so a large set is sent in parts. The
set is still accepted as a whole or not at all: if a part is refused, the earlier parts are
cancelled.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dray.client import Admission, AdmissionVerdict, Client, Request, Transfer

__all__ = ["Taken", "could_be", "find", "free", "in_parts", "submit_set"]

T = TypeVar("T")
R = TypeVar("R")


class Taken(NamedTuple):
    """The result of submitting a set.

    :param transfers: the transfers, in the order of the set. Empty if the set was refused.
    :param verdicts: for a refused set, the known decisions, in the order of the set.
    """

    transfers: tuple[Transfer, ...]
    verdicts: tuple[AdmissionVerdict, ...] = ()


def in_parts(items: Sequence[T], ask: Callable[[Sequence[T]], R]) -> Iterator[R]:
    """Pass all items to ``ask``, in one call if possible. Yield the answer of each call.

    If the endpoint refuses the body of a call as too large, halve the number of items and try
    again.

    :raises DrayError: as ``ask``. The kind ``limit_exceeded`` only if a single item is too large.
    """
    from dray.errors import DrayError

    at, size = 0, len(items)
    while at < len(items):
        batch = items[at : at + size]
        try:
            answer = ask(batch)
        except DrayError as error:
            if error.kind != "limit_exceeded" or len(batch) == 1:
                raise
            size = len(batch) // 2
            continue
        at += len(batch)
        yield answer


def find(client: Client, ids: Sequence[str]) -> dict[str, Transfer | None]:
    """Return transfers by their ids. An unknown id has the value ``None``."""
    found: dict[str, Transfer | None] = {}
    for batch in in_parts(ids, client.query):
        found.update(batch)
    return found


def could_be(client: Client, requests: Sequence[Request]) -> Admission | None:
    """Return the decision about a set of transfers. ``None`` if the set is too large for a call.

    The set is never sent in parts, because the endpoint would promise each part the rate that the
    other parts need.
    """
    from dray.errors import DrayError

    # Labels take most of the space and do not affect the decision.
    slim = [dataclasses.replace(each, labels=None) for each in requests]
    try:
        return client.admission(slim)
    except DrayError as error:
        if error.kind != "limit_exceeded":
            raise
    return None


def submit_set(client: Client, requests: Sequence[Request]) -> Taken:
    """Submit a set, of which all transfers or none are accepted.

    :raises DrayError: if a call fails. A part of the set may then be accepted.
    """
    from dray.client import AdmissionVerdict

    answer = could_be(client, requests)
    if answer is not None and answer.decision == "refuse":
        return Taken((), answer.transfers)
    taken: list[Transfer] = []
    verdicts: list[AdmissionVerdict] = []
    for batch in in_parts(requests, lambda part: client.submit_batch(part, atomic=True)):
        errors = [each for each in batch if isinstance(each, Exception)]
        taken += [each for each in batch if not isinstance(each, Exception)]
        nothing = AdmissionVerdict()
        verdicts += [getattr(each, "admission", None) or nothing for each in batch]
        if errors:
            for each in taken:
                free(client, each.id, each)
            return Taken((), tuple(verdicts))
    return Taken(tuple(taken))


def free(client: Client, id: str, found: Transfer | None) -> bool:
    """Cancel a transfer and delete its record. Return false if it was missing or had ended before.

    :param found: last known state of the transfer.
    """
    from dray.errors import DrayError

    if found is None:
        return False
    try:
        freed = found.is_terminal or client.cancel(id).is_terminal
        if freed:
            client.forget(id)
    except DrayError as error:
        if error.kind not in {"not_found", "already_exists"}:
            raise
    return not found.is_terminal
