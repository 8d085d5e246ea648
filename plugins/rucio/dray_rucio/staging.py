"""Requests of the type ``STAGEIN``: bring a file of a tape RSE into the fast root of its endpoint.

The endpoint of the tape RSE has a slow root, which takes the place of the tape, and a fast root.
The attribute ``dray_url`` of the RSE names the slow root. The id of the staging request is the id
of Rucio's request.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rucio.db.sqla.constants import RequestState, RequestType
from rucio.transfertool.transfertool import TransferStatusReport

from dray import DrayError
from dray.client import StagingRequest
from dray_rucio import submission
from dray_rucio.places import NoPlaceError
from dray_rucio.report import naive
from dray_rucio.requests import ERROR_CHARACTERS_MAX
from dray_rucio.sending import NotSubmittedError, file_of, hosts, name_of, site_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray.client import Staged, Transfer

__all__ = [
    "StageReport",
    "ask",
    "is_stage_in",
    "is_stage_in_request",
    "lifetime_of",
    "reports",
    "send",
]

PIN_SECONDS_MAX = 316_224_000
"""Maximum duration of a pin in the API."""
ENDED = ("staged", "failed", "evicted")
"""States of a staged copy that has ended."""


def is_stage_in(hop: Any) -> bool:  # noqa: ANN401 - Rucio's DirectTransfer
    """Return true if a hop brings a file online, and copies it to no other RSE."""
    return hop.rws.request_type is RequestType.STAGEIN


def is_stage_in_request(requests_of: Mapping[str, Any]) -> bool:
    """Return true if these requests of one external id have the type ``STAGEIN``."""
    return any(each.get("request_type") is RequestType.STAGEIN for each in requests_of.values())


def send(host: str, hop: Any) -> str:  # noqa: ANN401 - Rucio's DirectTransfer
    """Ask the endpoint of the tape RSE to stage a file. Return the id.

    :raises NotSubmittedError: if the endpoint refuses, or if the path is not known.
    """
    return ask(host, hop, id=hop.rws.request_id, pin_seconds=lifetime_of(hop)).id


def lifetime_of(hop: Any) -> int | None:  # noqa: ANN401 - Rucio's DirectTransfer
    """Return the time in seconds for which a rule needs the file online, if it is known."""
    lifetime = int(hop.rws.attributes.get("lifetime") or 0)
    return min(lifetime, PIN_SECONDS_MAX) if lifetime > 0 else None


def ask(
    host: str,
    hop: Any,  # noqa: ANN401 - Rucio's DirectTransfer
    *,
    id: str,
    pin_seconds: int | None,
    lifetime_seconds: int | None = None,
) -> Staged:
    """Ask the endpoint of the tape RSE to stage a file.

    :raises NotSubmittedError: if the endpoint refuses, or if the path is not known.
    """
    file = file_of(hop)
    rse = hop.src.rse
    try:
        request = StagingRequest(
            path=site_of(rse).path(name_of(hop, 0)),
            id=id,
            pin_seconds=pin_seconds,
            lifetime_seconds=lifetime_seconds,
            priority=None if file.priority is None else submission.priority_of(file.priority),
            bytes_expected=file.size,
            bound_seconds=hosts.settings.bound_seconds,
            labels={"rucio.rule": file.rule_id} if file.rule_id else None,
        )
        return hosts.ask(host, lambda client: client.stage_in(request))
    except (DrayError, NoPlaceError) as error:
        raise NotSubmittedError(rse.name, error) from error


def find(host: str, id: str) -> Staged | None:
    """Return a staged copy. ``None`` if the endpoint does not know it.

    :raises DrayError: if the endpoint refuses or does not answer.
    """
    try:
        return hosts.ask(host, lambda client: client.staging(id))
    except DrayError as error:
        if error.kind == "not_found":
            return None
        raise


def reports(host: str, id: str, requests_of: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the reports of a staged copy. ``None`` if the endpoint does not know it."""
    staged = find(host, id)
    if staged is None:
        return None
    if staged.state not in ENDED:
        return {}
    transfer = hosts.ask(host, lambda client: client.query([id])).get(id)
    return {each: StageReport(each, staged, transfer) for each in requests_of}


class StageReport(TransferStatusReport):
    """The outcome of a request of the type ``STAGEIN``, or of a recall before a copy."""

    supported_db_fields = (
        "state",
        "external_id",
        "staging_started_at",
        "staging_finished_at",
        "transferred_at",
        "err_msg",
    )

    def __init__(
        self,
        request_id: str,
        staged: Staged,
        transfer: Transfer | None,
        error: str | None = None,
    ) -> None:
        """Store a staged copy. It has no transfer if the fast copy existed already.

        :param error: error of the request, by default that of a failed staged copy.
        """
        super().__init__(request_id)
        self._staged = staged
        self._late = error
        self._transfer = transfer
        self.state: RequestState | None = None
        self.external_id: str | None = None
        self.staging_started_at: datetime | None = None
        self.staging_finished_at: datetime | None = None
        self.transferred_at: datetime | None = None
        self.err_msg: str | None = None

    def initialize(self, session: object, logger: object = logging.log) -> None:
        """Set the fields that Rucio reads."""
        del session, logger
        staged, transfer = self._staged, self._transfer
        now = datetime.now(timezone.utc)
        started = (transfer and transfer.started_at) or now
        ended = (transfer and transfer.ended_at) or now
        self.external_id = staged.id
        self.staging_started_at = naive(started)
        if staged.state == "staged":
            self.state = RequestState.DONE
            self.staging_finished_at = naive(ended)
            self.transferred_at = self.staging_finished_at
        else:
            self.state = RequestState.FAILED
            self.err_msg = self._error()

    def get_monitor_msg_fields(
        self, session: object, logger: object = logging.log
    ) -> dict[str, Any]:
        """Return the fields of Rucio's messages."""
        self.ensure_initialized(session, logger)
        return {
            "started_at": self.staging_started_at,
            "transferred_at": self.transferred_at,
            "reason": self.err_msg,
            "protocol": "dray",
            "src-type": "TAPE",
            "dst-type": "DISK",
        }

    def _error(self) -> str:
        staged = self._staged
        if self._late is not None:
            return self._late
        said = f"{staged.error.kind}: {staged.error}" if staged.error else "no reason was given"
        return f"dray staged copy {staged.id} is {staged.state}: {said}"[:ERROR_CHARACTERS_MAX]
