"""Asking an endpoint for many transfers together, in as few requests as it takes.

A body has a limit there (``limits.body_bytes``), so a large set is asked for in parts. All of it is
taken or none all the same: what was taken of one that is refused is given back.
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
    """What became of a set.

    :param transfers: in its order; empty if it was refused.
    :param verdicts: of one that was refused, as far as they are known, in its order.
    """

    transfers: tuple[Transfer, ...]
    verdicts: tuple[AdmissionVerdict, ...] = ()


def in_parts(items: Sequence[T], ask: Callable[[Sequence[T]], R]) -> Iterator[R]:
    """Ask for all at once, and for halves of what the endpoint finds too large.

    :raises DrayError: as ``ask``; ``limit_exceeded`` only if one alone is too large.
    """
    from dray.errors import DrayError

    at, size = 0, len(items)
    while at < len(items):
        some = items[at : at + size]
        try:
            answer = ask(some)
        except DrayError as error:
            if error.kind != "limit_exceeded" or len(some) == 1:
                raise
            size = len(some) // 2
            continue
        at += len(some)
        yield answer


def find(client: Client, ids: Sequence[str]) -> dict[str, Transfer | None]:
    """Look for transfers by their ids."""
    found: dict[str, Transfer | None] = {}
    for some in in_parts(ids, client.query):
        found.update(some)
    return found


def could_be(client: Client, requests: Sequence[Request]) -> Admission | None:
    """Say whether a set could be promised; ``None``: it is too large for one question.

    Asked whole, for parts alone would each be told of the room that the others need.
    """
    from dray.errors import DrayError

    # What they are found by later takes most of their room, and decides nothing.
    slim = [dataclasses.replace(each, labels=None) for each in requests]
    try:
        return client.admission(slim)
    except DrayError as error:
        if error.kind != "limit_exceeded":
            raise
    return None


def submit_set(client: Client, requests: Sequence[Request]) -> Taken:
    """Submit a set: all are taken, or none.

    :raises DrayError: if the endpoint cannot be asked; then a part may have been taken.
    """
    from dray.client import AdmissionVerdict

    answer = could_be(client, requests)
    if answer is not None and answer.decision == "refuse":
        return Taken((), answer.transfers)
    taken: list[Transfer] = []
    verdicts: list[AdmissionVerdict] = []
    for some in in_parts(requests, lambda part: client.submit_batch(part, atomic=True)):
        errors = [each for each in some if isinstance(each, Exception)]
        taken += [each for each in some if not isinstance(each, Exception)]
        nothing = AdmissionVerdict()
        verdicts += [getattr(each, "admission", None) or nothing for each in some]
        if errors:
            for each in taken:
                free(client, each.id, each)
            return Taken((), tuple(verdicts))
    return Taken(tuple(taken))


def free(client: Client, id: str, found: Transfer | None) -> bool:
    """Take a transfer away, and forget it; ``False``: there was nothing, or it had ended.

    :param found: as it was found.
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
