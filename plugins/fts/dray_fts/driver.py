"""Moves the files of jobs: submits transfers to endpoints, and stores what becomes of them.

The id of a transfer is the id of the job and the number of the file. So a driver that was killed
finds the transfers that it has submitted, and submits none twice.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dray import DrayError
from dray.client import Content, Place, Request, Retry, Scitag
from dray_fts import sites
from dray_fts.database import Change
from dray_fts.endpoints import LATER_KINDS, OVER_KINDS
from dray_fts.states import file_state, reason_of, reason_of_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dray.client import Transfer
    from dray_fts.database import Database, Row
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Driver", "request_of", "transfer_id"]

WORKERS = 8
BATCH = 400
QUERY_MAX = 1000
PAUSE_FIRST = 2.0
PAUSE_MAX = 60.0
HOUSEKEEPING_SECONDS = 60.0
LABEL_BYTES_MAX = 256
EXISTS_REASON = "DESTINATION [17] Destination file exists and overwrite is not enabled"
_LOG = logging.getLogger(__name__)


def transfer_id(row: Row) -> str:
    """Return the id of the transfer of a file."""
    return f"{row['job_id']}.{row['number']}"


class Driver:
    """A thread that drives endpoints."""

    def __init__(self, database: Database, endpoints: Endpoints, limits: Limits) -> None:
        """Create the driver. :meth:`start` starts its thread."""
        self._database, self._endpoints, self._limits = database, endpoints, limits
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="dray-fts-driver", daemon=True)
        self._workers = ThreadPoolExecutor(WORKERS, "dray-fts")
        self._housekeeping = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Begin the next round now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after its current call. Transfers continue at their endpoints."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()
        self._workers.shutdown(cancel_futures=True)

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                self.round()
            except Exception:
                # The next round begins from the database, so nothing is lost.
                _LOG.exception("a round of the driver failed")
            self._wake.wait(self._limits.poll_seconds)

    def round(self) -> None:
        """Make all calls that are due.

        Cancellations come last and in the same thread: no submission of a canceled file can arrive
        after its cancellation.
        """
        self._submit(self._database.due(BATCH))
        self._poll(self._database.live())
        self._settle("to_cancel", self._database.to_cancel(BATCH))
        self._settle("to_change", self._database.to_change(BATCH))
        if time.monotonic() - self._housekeeping > HOUSEKEEPING_SECONDS:
            self._housekeeping = time.monotonic()
            self._database.forget(self._limits.keep_days * 86400)
        self._database.expire()

    # --- submission -------------------------------------------------------------------------------

    def _submit(self, rows: list[Row]) -> None:
        for group in _groups(rows):
            try:
                known = self._query(group)
            except DrayError as error:
                for row in group:
                    self._put_off(row, error)
                continue
            list(self._workers.map(lambda row, known=known: self._begin(row, known), group))

    def _begin(self, row: Row, known: dict[str, Transfer | None]) -> None:
        """Submit the transfer of a file, unless an earlier driver has submitted it."""
        try:
            found = known.get(transfer_id(row))
            if found is None:
                self._send(row)
            self._database.apply([Change(row["file_id"], "READY")])
        except DrayError as error:
            if error.kind in LATER_KINDS:
                self._put_off(row, error)
            else:
                self._fail(row, reason_of_error(error))
        except Exception:
            _LOG.exception("cannot submit the transfer %s", transfer_id(row))
            self._fail(row, "TRANSFER [70] internal error of the FTS service; see its log")

    def _send(self, row: Row) -> None:
        owner, id = row["owner"], transfer_id(row)
        source = sites.Place(row["source_endpoint"], row["source_path"])
        place = Place(source.path)
        if row["source_endpoint"] != row["dest_endpoint"]:
            key = self._endpoints.key(row["dest_endpoint"], owner)
            ticket = self._endpoints.mint(source, owner, id, key)
            place = Place(self._endpoints.url(source), ticket.ticket, ticket.key, ticket.address)
        is_last = row["number"] == len(self._database.files(row["job_id"])) - 1
        request = request_of(row, place, is_last=is_last)
        self._endpoints.client(row["dest_endpoint"], owner).submit(request)

    def _put_off(self, row: Row, error: DrayError) -> None:
        """Submit a transfer later, unless it has waited too long or has an alternative."""
        has_waited = time.time() - row["queued_since"] > self._limits.wait_seconds
        has_alternative = row["job_type"] == "R" and any(
            each["file_index"] == row["file_index"] and each["file_state"] == "NOT_USED"
            for each in self._database.files(row["job_id"])
        )
        if error.kind not in LATER_KINDS or has_waited or has_alternative:
            self._fail(row, reason_of_error(error))
            return
        pause = min(PAUSE_FIRST * 2 ** min(row["pauses"], 8), PAUSE_MAX)
        _LOG.warning("transfer %s waits %g s: %s", transfer_id(row), pause, error)
        self._database.postpone(row["file_id"], time.time() + pause, reason_of_error(error))

    def _fail(self, row: Row, reason: str) -> None:
        change = Change(row["file_id"], "FAILED", reason, finish_time=time.time())
        self._database.apply([change])

    # --- live transfers ---------------------------------------------------------------------------

    def _poll(self, rows: list[Row]) -> None:
        for group in _groups(rows):
            try:
                known = self._query(group)
            except DrayError as error:
                # Endpoints continue without the service. The next round asks again.
                _LOG.warning("cannot query endpoint %s: %s", group[0]["dest_endpoint"], error)
                continue
            changes = [self._change(row, known.get(transfer_id(row))) for row in group]
            self._database.apply([change for change in changes if change is not None])

    def _change(self, row: Row, transfer: Transfer | None) -> Change | None:
        """Return the change of a live file, or ``None`` if nothing has changed."""
        if transfer is None:
            # The endpoint has lost its state. A new transfer resumes from the log at the
            # destination.
            return Change(row["file_id"], "SUBMITTED")
        state, reason = file_state(transfer), None
        limit = json.loads(row["params"])["timeout_seconds"]
        if state == "ACTIVE" and limit is not None and _seconds_of(transfer) > limit:
            self._cancel(row)
            state, reason = "FAILED", f"TRANSFER [110] the transfer took more than {limit:g} s"
        metadata = None
        if state == "FINISHED" and transfer.files.skipped:
            state, reason = "FAILED", EXISTS_REASON
            metadata = self._report(row)
        elif state in ("FAILED", "CANCELED"):
            reason = reason or reason_of(transfer)
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
        )

    def _report(self, row: Row) -> str | None:
        """Return the metadata of a file with a description of the existing destination."""
        if not json.loads(row["params"])["dst_file_report"]:
            return None
        client = self._endpoints.client(row["dest_endpoint"], row["owner"])
        try:
            size = client.stat(row["dest_path"]).size
            checksum = client.checksum(row["dest_path"]).checksum
        except DrayError as error:
            _LOG.warning("cannot describe the destination of %s: %s", transfer_id(row), error)
            return None
        found = json.loads(row["file_metadata"])
        metadata: dict[str, Any] = found if isinstance(found, dict) else {"label": found}
        metadata["dst_file"] = {
            "file_size": size,
            "checksum_type": "ADLER32",
            "checksum_value": checksum,
            "file_on_tape": False,
            "file_on_disk": True,
        }
        return json.dumps(metadata)

    def _settle(self, flag: str, rows: list[Row]) -> None:
        """Carry out cancellations or changes of the priority."""
        act = self._cancel if flag == "to_cancel" else self._prioritise

        def settle(row: Row) -> None:
            try:
                act(row)
            except DrayError as error:
                if error.kind not in OVER_KINDS:
                    # The flag stays, so the next round tries again.
                    _LOG.warning("%s of transfer %s: %s", flag, transfer_id(row), error)
                    return
            self._database.settled(flag, row["file_id"])

        list(self._workers.map(settle, rows))

    def _cancel(self, row: Row) -> None:
        client = self._endpoints.client(row["dest_endpoint"], row["owner"])
        client.cancel(transfer_id(row))

    def _prioritise(self, row: Row) -> None:
        client = self._endpoints.client(row["dest_endpoint"], row["owner"])
        client.change(transfer_id(row), priority=row["priority"])

    def _query(self, rows: list[Row]) -> dict[str, Transfer | None]:
        """Query the transfers of files that one endpoint drives for one owner."""
        client = self._endpoints.client(rows[0]["dest_endpoint"], rows[0]["owner"])
        return client.query([transfer_id(row) for row in rows])


def request_of(row: Row, source: Place, *, is_last: bool) -> Request:
    """Return the request for the transfer of a file.

    :param is_last: false for a hop after which another hop follows.
    """
    params = json.loads(row["params"])
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


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Group files by endpoint and owner, at most as many as one query permits."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dest_endpoint"], row["owner"]), []).append(row)
    for group in groups.values():
        for first in range(0, len(group), QUERY_MAX):
            yield group[first : first + QUERY_MAX]


def _seconds_of(transfer: Transfer) -> float:
    return time.time() - transfer.started_at.timestamp() if transfer.started_at else 0.0


def _cut(text: str) -> str:
    return text.encode()[:LABEL_BYTES_MAX].decode(errors="ignore")
