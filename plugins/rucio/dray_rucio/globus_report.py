"""The report of a Globus task to Rucio."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dray_rucio.report import Report, naive
from dray_rucio.requests import ERROR_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.client import Transfer

__all__ = ["GlobusReport"]


class GlobusReport(Report):
    """The outcome of one task, which belongs to one request."""

    def __init__(self, request_id: str, transfer: Transfer, source_rse_ids: Sequence[str]) -> None:
        """Store a task that has ended.

        :param source_rse_ids: RSE of the source, if it is known.
        """
        #: True if the task has succeeded, but has kept another file at the destination.
        self.is_wrong = transfer.state == "done" and transfer.files.skipped > 0
        super().__init__(request_id, transfer, _error_of(transfer, is_wrong=self.is_wrong))
        self._source = next(iter(source_rse_ids), None)

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
            "reason": self._error,
            "bytes-sent": transfer.bytes.sent,
        }

    def _source_rse_id(self) -> str | None:
        return self._source


def _error_of(transfer: Transfer, *, is_wrong: bool) -> str | None:
    """Return the error of a failed task."""
    if is_wrong:
        return (
            f"Globus task {transfer.id}: the destination already has a file, and Globus cannot "
            "compare it with Rucio's catalogue; check the file, and delete it if it is wrong"
        )
    if transfer.state == "done":
        return None
    error = transfer.error
    said = f"{error.kind}: {error}" if error is not None else "no reason was given"
    return f"Globus task {transfer.id} is {transfer.state}: {said}"[:ERROR_CHARACTERS_MAX]
