"""The versions of applications on the tiers of an endpoint: restarts and evictions.

A version is one checkpoint of an application. A restart reads the newest complete version. If this
version has a copy on the fast tier, the restart reads that copy. Otherwise the endpoint first
copies the version from the slow tier.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, NamedTuple

from dray_airflow.errors import DrayTaskRetry, bad_input
from dray_airflow.submission import FIRST_LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.client import Client, Staged, TierVersion, Transfer
    from dray_airflow.staging import StagingErrand

__all__ = ["MISSING", "Restart", "fast_copies", "pins_of", "restart"]

ROUNDS_MAX = 20
"""Maximum number of requests for one restart.

A request is repeated if another restart has ended, and the tier has not recorded its end yet.
"""
PAUSE_SECONDS = 1.0
"""Pause between two requests in seconds. A tier records ends once a second."""
MISSING = {"id": None, "path": None, "to": None, "state": None, "hit": False, "version": None}
"""Result of a restart without a complete version."""


class Restart(NamedTuple):
    """The answer to a restart. Both fields are ``None`` if there is no complete version.

    :param staged: the fast copy, if the request was accepted.
    :param transfer: the transfer that makes the fast copy. If another restart has started this
        transfer, the caller must wait for its end. ``None`` if the fast copy exists already.
    """

    staged: Staged | None = None
    transfer: Transfer | None = None


def restart(errand: StagingErrand, client: Client) -> Restart:
    """Ask for the version from which an application restarts.

    :raises DrayError: the errors of :meth:`dray.client.Client.stage_in`, except ``not_found``.
        After ``not_found``, the result is an empty :class:`Restart`.
    :raises DrayTaskRetry: if another restart has made the fast copy, but the tier has not recorded
        the end of that restart after :data:`ROUNDS_MAX` requests.
    """
    from dray.errors import DrayError

    # By this label, a stopped try recognises its own transfer, and cancels only this transfer.
    labels = {**(errand.request.labels or {}), FIRST_LABEL: errand.mark}
    request = dataclasses.replace(errand.request, labels=labels)
    for _ in range(ROUNDS_MAX):
        try:
            staged = client.stage_in(request)
        except DrayError as error:
            if error.kind == "not_found":
                return Restart()
            if error.kind == "not_admitted" and errand.admission == "best_effort":
                request = dataclasses.replace(request, deadline=None)
                continue
            if error.kind == "not_admitted":
                raise errand.refusal(error) from None
            other = _restoring(errand, client) if error.kind == "already_exists" else None
            if other is None:
                raise
            found = client.query([other])[other]
            if found is not None and not found.is_terminal:
                return Restart(None, found)
            time.sleep(PAUSE_SECONDS)
            continue
        return Restart(staged, None if staged.hit else client.transfer(staged.id))
    raise DrayTaskRetry(
        f"the fast copy of {errand.request.application} is still being restored for another request"
    )


def _restoring(errand: StagingErrand, client: Client) -> str | None:
    """Return the transfer that restores the version of this restart."""
    wish = errand.request
    found = _versions(client, wish.application or "", wish.version)
    newest = max(found, key=lambda each: (each.version, each.state != "slow"), default=None)
    return None if newest is None or newest.state != "slow" else newest.transfer


def _versions(client: Client, application: str, version: int | None) -> list[TierVersion]:
    return [
        each
        for tier in client.tiers()
        for each in client.tier(tier.name).versions
        if each.application == application and version in (None, each.version)
    ]


def fast_copies(client: Client, application: str, version: int | None) -> Sequence[TierVersion]:
    """Return the versions of an application whose fast copies can be evicted.

    :param version: number of the only version to evict. ``None`` means all versions.
    :raises DrayTaskFailure: if there is no such version.
    :raises DrayTaskRetry: if a version has no complete slow copy yet.
    """
    found = _versions(client, application, version)
    which = "a version" if version is None else f"version {version}"
    if not found:
        raise bad_input(
            f"evict {which} of {application}",
            "no tier of the endpoint has such a version",
            "check the name with `dray tier show`",
        )
    unsafe = [each for each in found if each.state in ("written", "demoting")]
    if unsafe:
        named = ", ".join(f"version {each.version} is {each.state}" for each in unsafe[:5])
        raise DrayTaskRetry(
            f"cannot evict {which} of {application}: {named}, so the slow copy is not "
            "complete; a retry evicts when the slow copy is complete",
            "already_exists",
        )
    return [each for each in found if each.state != "slow" and each.transfer is not None]


def pins_of(client: Client, version: TierVersion) -> list[str]:
    """Return the ids of the staged copies whose pins hold the fast copy of a version."""
    return [
        each.id
        for each in client.stagings(application=version.application)
        if each.pinned_until is not None and version.fast_path in (each.path, each.to)
    ]
