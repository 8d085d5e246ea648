"""The report of a transfer to Rucio."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rucio.core.rse import get_rse_name
from rucio.db.sqla.constants import RequestState
from rucio.transfertool.transfertool import TransferStatusReport

from dray_rucio.submission import OVERDUE_LABEL, sources_of

if TYPE_CHECKING:
    from dray.client import Transfer

__all__ = ["DrayReport", "error_of"]

ERROR_CHARACTERS_MAX = 3900
"""Maximum number of characters of an error. Rucio's column has 4000."""


class DrayReport(TransferStatusReport):
    """The outcome of one transfer, which belongs to one request.

    Rucio refuses a final state without the external id. Rucio ignores fields whose value is false.
    """

    supported_db_fields = (
        "state",
        "external_id",
        "started_at",
        "transferred_at",
        "source_rse_id",
        "err_msg",
    )

    def __init__(self, request_id: str, transfer: Transfer, wrong: str | None = None) -> None:
        """Store a transfer that has ended.

        :param wrong: reason why Rucio must treat a finished transfer as failed.
        """
        super().__init__(request_id)
        self._transfer = transfer
        self._wrong = wrong
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
        self.started_at = _naive(transfer.started_at)
        self.source_rse_id = self._source_rse_id()
        self.err_msg = self._wrong or error_of(transfer)
        if self.err_msg is None:
            self.state = RequestState.DONE
            self.transferred_at = _naive(transfer.ended_at)
        elif transfer.state == "cancelled":
            # A user cancelled the transfer, or no caller asked for it. The source is not at fault.
            self.state = RequestState.LOST
        else:
            self.state = RequestState.FAILED

    def get_monitor_msg_fields(
        self, session: object, logger: object = logging.log
    ) -> dict[str, Any]:
        """Return the fields of Rucio's messages."""
        del logger
        transfer = self._transfer
        words: dict[str, Any] = {
            "started_at": _naive(transfer.started_at),
            "transferred_at": _naive(transfer.ended_at),
            "reason": self._wrong or error_of(transfer),
            "bytes-sent": transfer.bytes.sent,
            "bytes-resumed": transfer.bytes.resumed,
            "bytes-read-back": transfer.bytes.read_back,
        }
        overdue = transfer.request.get("labels", {}).get(OVERDUE_LABEL)
        if overdue is not None:
            words["deadline-passed"] = overdue
        used = self._source_rse_id()
        if used is not None:
            # Rucio's own value is the planned source, which may not be the source that was used.
            words["src-rse"] = get_rse_name(rse_id=used, session=session)
        return words

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


def _naive(time: datetime | None) -> datetime | None:
    """Return a time in the form that Rucio stores: UTC without a zone."""
    return None if time is None else time.astimezone(timezone.utc).replace(tzinfo=None)
