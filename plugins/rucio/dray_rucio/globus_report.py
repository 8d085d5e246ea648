"""The report of a Globus task to Rucio."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rucio.db.sqla.constants import RequestState
from rucio.transfertool.transfertool import TransferStatusReport

from dray_rucio.report import naive
from dray_rucio.requests import ERROR_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dray.client import Transfer

__all__ = ["GlobusReport"]


class GlobusReport(TransferStatusReport):
    """The outcome of one task, which belongs to one request.

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

    def __init__(self, request_id: str, transfer: Transfer, source_rse_ids: Sequence[str]) -> None:
        """Store a task that has ended.

        :param source_rse_ids: RSE of the source, if it is known.
        """
        super().__init__(request_id)
        self._transfer = transfer
        #: True if the task has succeeded, but has kept another file at the destination.
        self.is_wrong = transfer.state == "done" and transfer.files.skipped > 0
        self.state: RequestState | None = None
        self.external_id: str | None = None
        self.started_at: datetime | None = None
        self.transferred_at: datetime | None = None
        self.source_rse_id = next(iter(source_rse_ids), None)
        self.err_msg: str | None = None

    def initialize(self, session: object, logger: object = logging.log) -> None:
        """Set the fields that Rucio reads."""
        del session, logger
        transfer = self._transfer
        self.external_id = transfer.id
        self.started_at = naive(transfer.started_at)
        self.err_msg = self._error()
        if self.err_msg is None:
            self.state = RequestState.DONE
            self.transferred_at = naive(transfer.ended_at)
        elif transfer.state == "cancelled":
            # A person has cancelled the task. The source is not at fault.
            self.state = RequestState.LOST
        else:
            self.state = RequestState.FAILED

    def get_monitor_msg_fields(
        self, session: object, logger: object = logging.log
    ) -> dict[str, Any]:
        """Return the fields of Rucio's messages."""
        del session, logger
        transfer = self._transfer
        return {
            "protocol": "globus",
            "started_at": naive(transfer.started_at),
            "transferred_at": naive(transfer.ended_at),
            "reason": self._error(),
            "bytes-sent": transfer.bytes.sent,
        }

    def _error(self) -> str | None:
        """Return the error of a failed task."""
        transfer = self._transfer
        if self.is_wrong:
            return (
                f"Globus task {transfer.id}: the destination already has a file, and Globus cannot "
                "compare it with Rucio's catalogue; check the file, and delete it if it is wrong"
            )
        if transfer.state == "done":
            return None
        error = transfer.error
        said = f"{error.kind}: {error}" if error is not None else "no reason was given"
        return f"Globus task {transfer.id} is {transfer.state}: {said}"[:ERROR_CHARACTERS_MAX]
