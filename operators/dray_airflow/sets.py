"""Request many transfers of an endpoint as one set, in as few calls as possible.

A request body has a limit (``limits.body_bytes``), so a large set is sent in parts. A set is still
accepted as a whole or not at all: if a part is refused, the earlier parts are cancelled.
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

    :param transfers: in its order; empty if it was refused.
    :param verdicts: of a refused set, as far as they are known, in its order.
    """

    transfers: tuple[Transfer, ...]
    verdicts: tuple[AdmissionVerdict, ...] = ()


def in_parts(items: Sequence[T], ask: Callable[[Sequence[T]], R]) -> Iterator[R]:
    """Send all items in one call; halve the number while the endpoint finds the body too large.

    :raises DrayError: as ``ask``; ``limit_exceeded`` only if a single item is too large.
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
    """Find transfers by their ids."""
    found: dict[str, Transfer | None] = {}
    for batch in in_parts(ids, client.query):
        found.update(batch)
    return found


def could_be(client: Client, requests: Sequence[Request]) -> Admission | None:
    """Return whether a set could be promised; ``None``: it is too large for one call.

    The set is sent whole: the endpoint would promise each part the rate that the others need.
    """
    from dray.errors import DrayError

    # Labels take most of the space, and do not affect the decision.
    slim = [dataclasses.replace(each, labels=None) for each in requests]
    try:
        return client.admission(slim)
    except DrayError as error:
        if error.kind != "limit_exceeded":
            raise
    return None


def submit_set(client: Client, requests: Sequence[Request]) -> Taken:
    """Submit a set: all are accepted, or none.

    :raises DrayError: if a call fails; then a part may have been accepted.
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
    """Cancel a transfer and forget it; ``False``: it did not exist, or had ended.

    :param found: its last known state.
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
