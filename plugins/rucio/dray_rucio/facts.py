"""The facts about a rule that explain why its files do not move. Frozen data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - fields of dataclasses

__all__ = ["FileFacts", "RequestFacts", "RseFacts", "RuleFacts", "SourceFacts"]


@dataclass(frozen=True, slots=True)
class RseFacts:
    """An RSE.

    :param url: attribute ``dray_url``, if the RSE has it.
    :param pin: attribute ``dray_pin``, if the RSE has it.
    :param is_recalled: false if dray must not recall files of this tape RSE (``dray_recall``).
    :param waits_for_tape: true if Rucio must wait until a file is on tape (``archive_timeout``).
    :param collection: attribute ``globus_endpoint_id``, if the RSE has it.
    """

    name: str
    url: str | None
    pin: str | None
    is_tape: bool
    can_read: bool
    can_write: bool
    waits_for_tape: bool
    collection: str | None = None
    is_recalled: bool = True


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """An RSE with an available replica.

    :param has_distance: true if Rucio has a distance to the destination.
    :param mismatch: reason why the protocols of the two RSEs do not match, if they do not.
    """

    rse: RseFacts
    has_distance: bool
    mismatch: str | None


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The last request of Rucio for a file.

    :param state: name of Rucio's state.
    :param transfer: id of the transfer of a submitted request.
    :param is_live: false if the request is archived, so that no daemon handles it.
    :param created_at: time at which the request was made, with a time zone.
    :param host: external host of a submitted request: its endpoint or its Globus collection.
    """

    id: str
    transfer: str
    state: str
    is_live: bool
    created_at: datetime
    tries: int
    error: str | None
    tool: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file of the rule that is not at its destination.

    :param is_stuck: true if Rucio has given up the file until the rule is repaired.
    """

    did: str
    destination: RseFacts
    is_stuck: bool
    bytes: int
    sources: tuple[SourceFacts, ...]
    request: RequestFacts | None


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """A rule, and its files that are not at their destinations.

    :param files: the first files. There may be more: see ``missing``.
    :param missing: number of files that are not at their destinations.
    :param submitters: number of live submitters.
    :param pollers: number of live pollers.
    """

    id: str
    did: str
    rse_expression: str
    account: str
    state: str
    error: str | None
    done: int
    missing: int
    submitters: int
    pollers: int
    files: tuple[FileFacts, ...]
