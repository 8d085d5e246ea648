"""The calls about copies: submits transfers to an endpoint, and stores their states."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dray import DrayError, DrayPermanentError
from dray.client import Content, Place, Request, Retry, Scitag
from dray_fts import sites
from dray_fts.changes import Change
from dray_fts.deletions import Deletions
from dray_fts.endpoints import LATER_KINDS, OVER_KINDS
from dray_fts.rows import (
    Flagged,
    archive_id,
    failed,
    groups,
    params_of,
    postponed,
    transfer_id,
)
from dray_fts.states import file_state, reason_of, reason_of_error
from dray_fts.tape import Tape

if TYPE_CHECKING:
    from dray.client import Transfer
    from dray_fts.changes import Row
    from dray_fts.database import Database
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Lane", "request_of"]

WORKERS = 8
BATCH = 200
QUERY_MAX = 1000
LABEL_BYTES_MAX = 256
EXISTS_REASON = "DESTINATION [17] Destination file exists and overwrite is not enabled"
_LOG = logging.getLogger(__name__)


class _SourceError(Exception):
    """The endpoint of the source refused a ticket, or did not answer."""

    def __init__(self, error: DrayError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """The transfer of a file, and the ticket to read its source."""

    row: Row
    request: Request
    source: sites.Place
    ticket: str | None


class Lane:
    """Makes the calls about files with the same destination endpoint."""

    def __init__(
        self, endpoint: str, database: Database, endpoints: Endpoints, limits: Limits
    ) -> None:
        """Store the parts that the calls use. No call is made."""
        self.endpoint = endpoint
        self.wake = threading.Event()
        self._database, self._endpoints, self._limits = database, endpoints, limits
        self._workers = ThreadPoolExecutor(WORKERS, f"dray-fts-{endpoint}")
        self._tape = Tape(endpoint, database, endpoints, limits)
        self._deletions = Deletions(endpoint, database, endpoints, limits, self._workers)
        self._flagged = {
            flag: Flagged(database, flag, endpoint, BATCH) for flag in ("to_cancel", "to_change")
        }
        self._poll_at = 0.0

    def close(self) -> None:
        """End the workers."""
        self._workers.shutdown(cancel_futures=True)

    def round(self) -> bool:
        """Make all calls that are due. Return true if more files wait for their submission.

        Cancellations come last and in the same thread: no submission of a canceled file can arrive
        after its cancellation.
        """
        self._tape.round()
        self._deletions.round()
        due = self._database.due(self.endpoint, BATCH)
        self._submit(due)
        began = time.monotonic()
        if began >= self._poll_at:
            self._poll(self._database.live(self.endpoint))
            # The queries of many files take at most half of the time.
            ended = time.monotonic()
            self._poll_at = ended + max(self._limits.poll_seconds, ended - began)
        for flag, files in self._flagged.items():
            self._settle(flag, files.next())
        return len(due) == BATCH

    # --- submission -------------------------------------------------------------------------------

    def _submit(self, rows: list[Row]) -> None:
        for group in groups(rows, QUERY_MAX):
            try:
                known = self._query(group)
            except DrayError as error:
                failures = [self._refused(row, error) for row in group]
                self._database.apply([each for each in failures if each is not None])
                continue
            refused = self._tape.existing(group, known)
            self._database.apply([each for each in refused.values() if each is not None])
            rest = [row for row in group if row["file_id"] not in refused]
            prepare = functools.partial(self._prepare, known=known)
            prepared = list(self._workers.map(prepare, rest))
            changes = [each for each in prepared if isinstance(each, Change)]
            changes += self._send([each for each in prepared if isinstance(each, _Prepared)])
            # One commit for the whole group. After a kill, the query above finds the transfers.
            self._database.apply(changes)

    def _prepare(self, row: Row, known: dict[str, Transfer | None]) -> Change | _Prepared | None:
        """Build the transfer of a file, unless an earlier driver has submitted it."""
        if known.get(transfer_id(row)) is not None:
            return Change(row["file_id"], "READY")
        try:
            return self._request(row)
        except _SourceError as error:
            return self._refused(row, error.error, is_source=True)
        except DrayError as error:
            return self._refused(row, error)
        except Exception:
            _LOG.exception("cannot submit the transfer %s", transfer_id(row))
            return failed(row, "TRANSFER [70] internal error of the FTS service; see its log")

    def _request(self, row: Row) -> _Prepared:
        owner, id = row["owner"], transfer_id(row)
        source = sites.Place(row["source_endpoint"], row["disk_path"] or row["source_path"])
        place, ticket = Place(source.path), None
        if source.endpoint != self.endpoint:
            key = self._endpoints.key(self.endpoint, owner)
            try:
                ticket = self._endpoints.mint(source, owner, id, key)
                url = self._endpoints.url(source)
            except (DrayError, KeyError) as error:
                raise _SourceError(_known(error, source.endpoint)) from error
            place = Place(url, ticket.ticket, ticket.key, ticket.address)
        is_last = row["job_type"] != "H" or self._database.is_last(row)
        request = request_of(row, place, is_last=is_last)
        return _Prepared(row, request, source, None if ticket is None else ticket.id)

    def _send(self, prepared: list[_Prepared]) -> list[Change]:
        """Submit transfers of one owner in one call."""
        if not prepared:
            return []
        owner, requests = prepared[0].row["owner"], [each.request for each in prepared]
        try:
            results = self._endpoints.ask(
                self.endpoint, owner, lambda client: client.submit_batch(requests)
            )
        except DrayError as error:
            if error.kind not in LATER_KINDS and len(prepared) > 1:
                # One malformed request must not fail the others.
                return [change for each in prepared for change in self._send([each])]
            results = (error,) * len(prepared)
        changes: list[Change] = []
        for each, result in zip(prepared, results, strict=True):
            if not isinstance(result, DrayError):
                changes.append(Change(each.row["file_id"], "READY"))
                continue
            # After an error that may pass, the submission may have arrived.
            if each.ticket is not None and result.kind not in LATER_KINDS:
                self._endpoints.revoke(each.source, owner, each.ticket)
            change = self._refused(each.row, result)
            changes += [] if change is None else [change]
        return changes

    def _refused(self, row: Row, error: DrayError, *, is_source: bool = False) -> Change | None:
        """Postpone the submission of a file after an error, or return the change to FAILED.

        If the endpoint of the source caused the error, and the job has a later alternative for the
        file, the file fails without a wait, and the alternative begins.
        """
        reason = reason_of_error(error, "SOURCE" if is_source else None)
        if is_source and self._database.has_alternative(row):
            return failed(row, reason)
        return postponed(self._database, row, error, reason, self._limits.wait_seconds)

    # --- live transfers ---------------------------------------------------------------------------

    def _poll(self, rows: list[Row]) -> None:
        for group in groups(rows, QUERY_MAX):
            try:
                known = self._query(group)
            except DrayError as error:
                # Endpoints continue without the service. The next round asks again.
                _LOG.warning("cannot query endpoint %s: %s", self.endpoint, error)
                continue
            changes = [self._change(row, known.get(transfer_id(row))) for row in group]
            self._database.apply([change for change in changes if change is not None])

    def _change(self, row: Row, transfer: Transfer | None) -> Change | None:
        """Return the change of a live file, or ``None`` if nothing has changed."""
        if transfer is None:
            # The endpoint has lost its state. A new transfer resumes from the log at the
            # destination.
            return Change(row["file_id"], "SUBMITTED")
        state, reason, to_cancel = file_state(transfer), None, None
        limit = params_of(row)["timeout_seconds"]
        if state == "ACTIVE" and limit is not None and _seconds_of(transfer) > limit:
            state, reason = "FAILED", f"TRANSFER [110] the transfer took more than {limit:g} s"
            to_cancel = 1
        metadata = None
        if state == "FINISHED" and transfer.files.skipped:
            state, reason = "FAILED", EXISTS_REASON
            metadata = self._report(row)
        elif state in ("FAILED", "CANCELED"):
            reason = reason or reason_of(transfer)
        if state == "FINISHED" and row["archives"]:
            state = "ARCHIVING"
        if state == row["file_state"] and transfer.bytes.durable == row["transferred"]:
            return None
        has_ended = transfer.is_terminal or state == "FAILED"
        ended_at = transfer.ended_at.timestamp() if transfer.ended_at else time.time()
        return Change(
            row["file_id"],
            state,
            reason,
            start_time=transfer.started_at.timestamp() if transfer.started_at else None,
            finish_time=ended_at if has_ended else None,
            filesize=transfer.bytes.listed,
            transferred=transfer.bytes.durable,
            throughput=transfer.rate.mean if has_ended else transfer.rate.now,
            file_metadata=metadata,
            archive_start=time.time() if state == "ARCHIVING" else None,
            to_cancel=to_cancel,
        )

    def _report(self, row: Row) -> str | None:
        """Return the metadata of a file with a description of the existing destination."""
        if not params_of(row)["dst_file_report"]:
            return None
        owner, path = row["owner"], row["dest_path"]
        try:
            size = self._endpoints.ask(self.endpoint, owner, lambda client: client.stat(path)).size
            checksum = self._endpoints.ask(
                self.endpoint, owner, lambda client: client.checksum(path)
            ).checksum
            is_on_tape = self._tape.is_on_tape(row)
        except DrayError as error:
            _LOG.warning("cannot describe the destination of %s: %s", transfer_id(row), error)
            return None
        found = self._database.metadata(row["file_id"])
        metadata: dict[str, Any] = found if isinstance(found, dict) else {"label": found}
        metadata["dst_file"] = {
            "file_size": size,
            "checksum_type": "ADLER32",
            "checksum_value": checksum,
            "file_on_tape": is_on_tape,
            "file_on_disk": True,
        }
        return json.dumps(metadata)

    def _settle(self, flag: str, rows: list[Row]) -> None:
        """Carry out cancellations or changes of the priority."""
        is_cancel = flag == "to_cancel"
        act = self._cancel if is_cancel else self._prioritise
        what = "cancel" if is_cancel else "change the priority of"

        def settle(row: Row) -> None:
            try:
                act(row)
            except DrayError as error:
                if error.kind not in OVER_KINDS:
                    # The flag stays, so the next round tries again.
                    _LOG.warning("cannot %s transfer %s: %s", what, transfer_id(row), error)
                    return
            if is_cancel:
                self._database.settled(flag, row["file_id"])
            else:
                self._database.prioritised(row)

        list(self._workers.map(settle, rows))

    def _cancel(self, row: Row) -> None:
        ids = [transfer_id(row)]
        if row["archive_start"] is not None:
            ids.append(archive_id(row))
        for id in ids:
            self._endpoints.cancel(self.endpoint, row["owner"], id)

    def _prioritise(self, row: Row) -> None:
        id, priority = transfer_id(row), row["priority"]
        self._endpoints.ask(
            self.endpoint, row["owner"], lambda client: client.change(id, priority=priority)
        )

    def _query(self, rows: list[Row]) -> dict[str, Transfer | None]:
        """Query the transfers of files of one owner."""
        ids = [transfer_id(row) for row in rows]
        return self._endpoints.ask(
            self.endpoint, rows[0]["owner"], lambda client: client.query(ids)
        )


def request_of(row: Row, source: Place, *, is_last: bool) -> Request:
    """Return the request for the transfer of a file.

    :param is_last: true if no other hop of the file follows.
    """
    params = params_of(row)
    may_overwrite = params["overwrite"] == "yes" or (params["overwrite"] == "hops" and not is_last)
    tag = row["scitag"]
    retry = None
    if params["retry"] != 0:
        # FTS's number counts retries, and an endpoint's number counts tries.
        retry = Retry(tries=max(params["retry"], 0) + 1)
        if params["retry_delay"]:
            retry = dataclasses.replace(retry, interval_seconds=params["retry_delay"])
    has_content = row["user_filesize"] is not None or row["content"] is not None
    return Request(
        sources=(source,),
        destination=row["dest_path"],
        id=transfer_id(row),
        content=Content(row["user_filesize"], row["content"]) if has_content else None,
        priority=row["priority"],
        activity=_cut(row["activity"]),
        labels={"fts.job": row["job_id"], "fts.vo": _cut(row["vo_name"])},
        overwrite="if-different" if may_overwrite else "never",
        checksum_attributes=True,
        streams=params["nostreams"],
        # Two numbers of a flow label (docs/reference/fts.md).
        scitag=None if tag is None else Scitag(tag >> 6, tag & 63),
        retry=retry,
    )


def _known(error: Exception, endpoint: str) -> DrayError:
    """Return the error of a call. An endpoint may be missing in a new configuration."""
    if isinstance(error, DrayError):
        return error
    text = f"the configuration of the FTS service no longer has the endpoint {endpoint}"
    return DrayPermanentError(
        text,
        kind="not_found",
        status="permanent",
        end="source",
        operation="read the source",
        file=None,
        cause=text,
        remedy="add the endpoint to the configuration again",
    )


def _seconds_of(transfer: Transfer) -> float:
    return time.time() - transfer.started_at.timestamp() if transfer.started_at else 0.0


def _cut(text: str) -> str:
    return text.encode()[:LABEL_BYTES_MAX].decode(errors="ignore")
