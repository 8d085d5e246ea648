"""The report of a transfer, or of one of its files, to Rucio."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from rucio.core.rse import get_rse, list_rse_attributes
from rucio.db.sqla.constants import RequestState, RSEType
from rucio.transfertool.transfertool import TransferStatusReport

from dray_rucio.groups import is_group
from dray_rucio.requests import ERROR_CHARACTERS_MAX
from dray_rucio.submission import OVERDUE_LABEL, sources_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray.client import FileOutcome, Transfer

__all__ = ["Batch", "DrayReport", "Report", "error_of", "file_error_of", "naive"]


class Report(TransferStatusReport):
    """The outcome of one request.

    Rucio refuses a final state without the external id, so each report contains this id. Rucio
    ignores fields whose value is false.
    """

    supported_db_fields = (
        "state",
        "external_id",
        "started_at",
        "transferred_at",
        "source_rse_id",
        "err_msg",
    )

    def __init__(self, request_id: str, transfer: Transfer, error: str | None) -> None:
        """Store an outcome.

        :param transfer: a transfer that has ended, or in which the file has ended.
        :param error: error of the request. ``None`` if its file is at the destination.
        """
        super().__init__(request_id)
        self._transfer = transfer
        self._error = error
        self.state: RequestState | None = None
        self.external_id: str | None = None
        self.started_at: datetime | None = None
        self.transferred_at: datetime | None = None
        self.source_rse_id: str | None = None
        self.err_msg: str | None = None

    def initialize(self, session: object, logger: object = logging.log) -> None:
        """Set the fields that Rucio reads."""
        del session, logger
        transfer = self._transfer
        self.external_id = transfer.id
        self.started_at = naive(transfer.started_at)
        self.source_rse_id = self._source_rse_id()
        self.err_msg = self._error
        if self.err_msg is None:
            self.state = RequestState.DONE
            self.transferred_at = self._ended_at()
        elif transfer.state == "cancelled":
            # A user cancelled the transfer, or no caller asked for it. The source is not at fault.
            self.state = RequestState.LOST
        else:
            self.state = RequestState.FAILED

    def _ended_at(self) -> datetime | None:
        """Return the time at which the file has ended."""
        return naive(self._transfer.ended_at)

    def _source_rse_id(self) -> str | None:
        """Return the RSE whose replica was read, if it is known."""
        return None


class Rse(NamedTuple):
    """An RSE in Rucio's messages.

    :param kind: ``DISK`` or ``TAPE``, as Rucio's tool for FTS reports it.
    """

    name: str
    kind: str


class Batch:
    """The RSEs of the requests of one query. Each RSE is read once, and not for each file."""

    def __init__(self) -> None:
        """Create an empty batch."""
        self._rses: dict[str, Rse] = {}

    def rse(self, rse_id: str, session: object) -> Rse:
        """Return an RSE."""
        if rse_id not in self._rses:
            found = get_rse(rse_id=rse_id, session=session)
            attributes = list_rse_attributes(rse_id=rse_id, session=session)
            is_tape = found["rse_type"] == RSEType.TAPE or attributes.get("staging_required")
            self._rses[rse_id] = Rse(str(found["rse"]), "TAPE" if is_tape else "DISK")
        return self._rses[rse_id]


class DrayReport(Report):
    """The outcome of a transfer, or of one file of a transfer of several files."""

    def __init__(
        self,
        request: Mapping[str, Any],
        transfer: Transfer,
        host: str,
        error: str | None,
        batch: Batch,
    ) -> None:
        """Store an outcome.

        :param request: the request as Rucio's poller has read it.
        :param host: external host, which is the endpoint of the transfer.
        """
        super().__init__(request["request_id"], transfer, error)
        self._request = request
        self._batch = batch
        self._host = host
        self._is_group = is_group(transfer.id)

    def get_monitor_msg_fields(
        self, session: object, logger: object = logging.log
    ) -> dict[str, Any]:
        """Return the fields of Rucio's messages: those of Rucio's tool for FTS, and dray's own."""
        del logger
        transfer = self._transfer
        address = self._host.partition("#")[0].removeprefix("dray://")
        words: dict[str, Any] = {
            "started_at": naive(transfer.started_at),
            "transferred_at": self._ended_at(),
            "reason": self._error,
            "protocol": "dray",
            "transfer-link": f"https://{address}/v1/transfers/{transfer.id}",
        }
        if not self._is_group:
            # The counts of a transfer of several files are not those of one file.
            words["bytes-sent"] = transfer.bytes.sent
            words["bytes-resumed"] = transfer.bytes.resumed
            words["bytes-read-back"] = transfer.bytes.read_back
        if transfer.receipt is not None:
            words["receipt"] = transfer.receipt.id
            words["receipt-link"] = f"{words['transfer-link']}/receipt"
        overdue = transfer.request.get("labels", {}).get(OVERDUE_LABEL)
        if overdue is not None:
            words["deadline-passed"] = overdue
        target = self._request.get("dest_rse_id")
        if target is not None:
            # Without the name, Rucio reads it from its database for each message.
            words["dst-rse"], words["dst-type"] = self._batch.rse(target, session)
        # Rucio's own value is the planned source, which may not be the source that was used.
        used = self._source_rse_id() or self._request.get("source_rse_id")
        if used is not None:
            source_rse = self._batch.rse(used, session)
            words["src-rse"], words["src-type"] = source_rse
        source = self._source_url()
        if source is not None:
            words["src-url"] = source
        return words

    def _ended_at(self) -> datetime | None:
        """Return the end of the transfer, or the present time while other files still move."""
        transfer = self._transfer
        is_live = self._is_group and not transfer.is_terminal
        return naive(datetime.now(timezone.utc) if is_live else transfer.ended_at)

    def _source_url(self) -> str | None:
        """Return the URL of the file at the endpoint from which it was read."""
        asked = self._transfer.request
        places = [*asked.get("sources", ())[:1], *asked.get("replicas", ())]
        used = self._transfer.source or 0
        if used >= len(places):
            return None
        url = str(places[used]["url"])
        if not url.startswith("dray://"):
            # A path at the endpoint of the destination.
            url = self._host.partition("#")[0] + url
        if not self._is_group:
            return url
        target = str(self._request.get("dest_url") or "")
        names = [str(file["path"]) for file in asked.get("files", ())]
        ending = [name for name in names if target.endswith("/" + name.replace("%25", "%"))]
        return url + max(ending, key=len) if ending else None

    def _source_rse_id(self) -> str | None:
        """Return the RSE whose replica was read."""
        known = sources_of(self._transfer.request.get("labels"))
        used = self._transfer.source
        return known[used] if used is not None and used < len(known) else None


def error_of(transfer: Transfer) -> str | None:
    """Return the error of a failed transfer: its own error, or that of its file."""
    if transfer.state == "done":
        return None
    error = transfer.error or next((failure.error for failure in transfer.failures), None)
    said = f"{error.kind}: {error}" if error is not None else "no reason was given"
    return f"dray transfer {transfer.id} is {transfer.state}: {said}"[:ERROR_CHARACTERS_MAX]


def file_error_of(transfer: Transfer, outcome: FileOutcome | None) -> str | None:
    """Return the error of a file of a transfer of several files.

    :param outcome: ``None`` if the transfer has ended without an outcome of the file, and the
        destination does not have the file.
    """
    if outcome is None:
        has_cause = transfer.error is not None and transfer.error.kind != "nothing_matched"
        if has_cause or transfer.state == "cancelled":
            return error_of(transfer)
        return f"dray transfer {transfer.id} is {transfer.state}: the source has no such file"
    if outcome.state == "done":
        return None
    said = "no reason was given"
    if outcome.error is not None:
        said = f"{outcome.error.kind}: {outcome.error}"
    return f"dray transfer {transfer.id}: {said}"[:ERROR_CHARACTERS_MAX]


def naive(time: datetime | None) -> datetime | None:
    """Return a time in the form that Rucio stores: UTC without a zone."""
    return None if time is None else time.astimezone(timezone.utc).replace(tzinfo=None)
