"""Transfers whose source is on tape: the endpoint of the source brings the file online first.

Each step is idempotent, and the plug-in stores nothing:

1. The submitter asks the endpoint of the source to stage the file. Rucio stores the id of this
   recall as the ``external_id`` of its request.
2. When the file is online, the poller puts the request back into Rucio's queue.
3. The submitter asks again, finds the file online, and submits the copy from the fast root.
"""

from __future__ import annotations

import functools
import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from rucio.common.config import config_get_int
from rucio.core.rse import get_rse_name, list_rse_attributes
from rucio.db.sqla.constants import RequestType

from dray import DrayError
from dray.client import Client
from dray_rucio import requests, staging
from dray_rucio.hosts import QUERY_MAX
from dray_rucio.places import NoPlaceError, site
from dray_rucio.report import naive
from dray_rucio.sending import (
    OVER_KINDS,
    PIN_ATTRIBUTE,
    URL_ATTRIBUTE,
    NotSubmittedError,
    end,
    hosts,
    site_of,
)
from dray_rucio.submission import RECALL_LABEL, recall_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dray.client import Staged, Transfer

__all__ = [
    "ATTRIBUTE",
    "begin",
    "host_of",
    "is_needed",
    "is_permitted",
    "is_refused",
    "release",
    "release_cancelled",
    "reports",
    "unpin",
]

ATTRIBUTE = "dray_recall"
"""Attribute of a tape RSE: ``False`` leaves its recalls to another transfertool."""
PIN_SECONDS = 172_800
"""Maximum time for which the file stays online, equal to that of FTS.

The end of the copy, and the cancellation of the recall or of the copy, end the pin earlier.
"""
ONLINE_SECONDS = 43_200
"""Default of Rucio's setting ``[conveyor] bring_online``: the maximum duration of a recall."""
_LOG = logging.getLogger(__name__)


def is_needed(hop: Any) -> bool:  # noqa: ANN401 - Rucio's DirectTransfer
    """Return true if the file must be brought online before it is copied."""
    return hop.rws.request_type is RequestType.TRANSFER and bool(
        hop.src.rse.is_tape_or_staging_required()
    )


def is_permitted(attributes: Mapping[str, Any]) -> bool:
    """Return true if dray recalls files of an RSE with these attributes."""
    return str(attributes.get(ATTRIBUTE)).lower() != "false"


def is_refused(hop: Any, *, recalls: bool = True) -> bool:  # noqa: ANN401 - Rucio's
    """Return true if another transfertool must handle a hop from or to tape.

    :param recalls: true if the caller can recall files.
    """
    if hop.rws.request_type is not RequestType.TRANSFER:
        return True
    if is_needed(hop) and not (recalls and is_permitted(hop.src.rse.attributes)):
        return True
    # Rucio must wait until the file is on tape.
    return hop.dst.rse.attributes.get("archive_timeout") is not None


def begin(hop: Any) -> Staged:  # noqa: ANN401 - Rucio's DirectTransfer
    """Ask the endpoint of the source to bring a file online.

    A repeated call finds the same staged copy, and starts a new recall only if the first has failed
    or its copy was evicted.

    :returns: the staged copy. Its state is ``staged`` if the file is online.
    :raises NotSubmittedError: if the endpoint refuses, or if the path is not known.
    """
    try:
        host = site_of(hop.src.rse).host
    except NoPlaceError as error:
        raise NotSubmittedError(hop.src.rse.name, error) from error
    id = recall_id(hop.rws.request_id)
    try:
        known = staging.find(host, id)
    except DrayError as error:
        raise NotSubmittedError(hop.src.rse.name, error) from error
    # In these two states, another request with the same id starts a new recall.
    if known is not None and known.state not in ("failed", "evicted"):
        return known
    seconds = min(staging.lifetime_of(hop) or PIN_SECONDS, PIN_SECONDS)
    return staging.ask(host, hop, id=id, pin_seconds=seconds, lifetime_seconds=seconds)


def reports(requests_by_eid: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Put requests back into the queue if their file is online.

    :returns: for the id of each recall: the reports of the requests if the recall has failed,
        ``None`` if the endpoint does not know the recall, the error if a call has failed, or an
        empty dictionary.
    """
    answers: dict[str, Any] = {}
    by_host: dict[str, list[str]] = {}
    for id, requests_of in requests_by_eid.items():
        try:
            host = _host_of_rse(next(iter(requests_of.values()))["source_rse_id"])
        except NoPlaceError as error:
            answers[id] = error
        else:
            by_host.setdefault(host, []).append(id)
    for host, ids in by_host.items():
        for first in range(0, len(ids), QUERY_MAX):
            batch = ids[first : first + QUERY_MAX]
            try:
                found = hosts.ask(host, functools.partial(Client.query, ids=batch))
            except DrayError as error:
                answers.update(dict.fromkeys(batch, error))
                continue
            for id in batch:
                try:
                    answers[id] = _reports_of(host, id, requests_by_eid[id], found.get(id))
                except DrayError as error:
                    answers[id] = error
    return answers


def _reports_of(
    host: str, id: str, requests_of: Mapping[str, Any], transfer: Transfer | None
) -> dict[str, Any] | None:
    """Return the reports of one recall. See :func:`reports`.

    :param transfer: transfer of the recall. ``None`` if the file was online already.
    """
    late = None if transfer is None or transfer.is_terminal else _late(transfer)
    if transfer is not None and not transfer.is_terminal and late is None:
        return {}
    staged = staging.find(host, id)
    if staged is None:
        return None
    # An evicted copy is staged again by the next submission.
    if staged.state in ("staged", "evicted"):
        started, ended = _times(transfer)
        requests.queue_again(list(requests_of), id, started, ended)
        return {}
    if staged.state != "failed":
        if late is None:
            # The transfer has just been started again, or has just ended.
            return {}
        end(host, id)
    return {each: staging.StageReport(each, staged, transfer, late) for each in requests_of}


def host_of(id: str) -> str | None:
    """Return the endpoint of a recall. ``None`` if Rucio no longer knows its request."""
    rse_id = requests.source_of(id)
    try:
        return None if rse_id is None else _host_of_rse(rse_id)
    except NoPlaceError as error:
        _LOG.warning("dray: recall %s: %s", id, error)
        return None


def release(transfer: Transfer, requests_of: Iterable[Mapping[str, Any]]) -> None:
    """End the pin of a recalled file whose copy has ended.

    If the call fails, the pin ends with its lifetime.
    """
    id = transfer.request.get("labels", {}).get(RECALL_LABEL)
    if id is None:
        return
    for request in requests_of:
        try:
            unpin(_host_of_rse(request["source_rse_id"]), id)
        except NoPlaceError as error:
            _LOG.warning("dray: cannot release %s: %s", id, error)


def release_cancelled(host: str, id: str, transfer: Transfer | None) -> None:
    """End the pin of a recalled file after a cancellation of its copy.

    Rucio has a transaction open, so each call has a short timeout. If a call fails, the pin ends
    with its lifetime.

    :param host: endpoint of the destination.
    :param id: id of the copy.
    :param transfer: the copy. ``None`` if it had already ended when it was cancelled.
    """
    if transfer is None:
        try:
            transfer = hosts.ask(host, lambda client: client.query([id]), hurried=True).get(id)
        except DrayError as error:
            _LOG.warning("dray: cannot look up the recall of %s: %s", id, error)
    if transfer is None or RECALL_LABEL not in transfer.request.get("labels", {}):
        return
    source = requests.source_of(id)
    if source is not None:
        release(transfer, [{"source_rse_id": source}])


def unpin(host: str, id: str) -> None:
    """End the pin of a recalled file. If the call fails, the pin ends with its lifetime."""
    try:
        hosts.ask(host, lambda client: client.pin_staging(id, 0), hurried=True)
    except DrayError as error:
        if error.kind not in OVER_KINDS:
            _LOG.warning("dray: cannot release %s: %s", id, error)


def _host_of_rse(rse_id: str) -> str:
    """Return the external host of an RSE's endpoint.

    The RSE is that of Rucio's request. An address that an endpoint returns would not be safe,
    because the daemon sends its token there.
    """
    attributes = list_rse_attributes(rse_id)
    name, url = get_rse_name(rse_id), attributes.get(URL_ATTRIBUTE)
    if url is None:
        raise NoPlaceError(f"RSE {name} has no attribute {URL_ATTRIBUTE}")
    pin = attributes.get(PIN_ATTRIBUTE)
    return site(name, str(url), None if pin is None else str(pin)).host


def _times(transfer: Transfer | None) -> tuple[datetime | None, datetime | None]:
    """Return the start and the end of a recall. A file that was online already has neither."""
    if transfer is None:
        return None, None
    return naive(transfer.started_at), naive(transfer.ended_at)


def _late(transfer: Transfer) -> str | None:
    """Return the error of a recall that takes longer than Rucio permits."""
    limit = config_get_int(
        "conveyor", "bring_online", raise_exception=False, default=ONLINE_SECONDS
    )
    if transfer.submitted_at is None:
        return None
    if datetime.now(timezone.utc) < transfer.submitted_at + timedelta(seconds=limit):
        return None
    return (
        f"dray recall {transfer.id} has not brought the file online within {limit} s ([conveyor] "
        "bring_online)"
    )
