"""Moves the files of jobs: submits transfers to endpoints, and stores their states.

The id of a transfer is the id of the job and the number of the file. So a driver that was killed
finds the transfers that it has submitted, and submits none twice.
"""

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
from dray_fts.database import Change
from dray_fts.endpoints import AWAY_KINDS, LATER_KINDS, OVER_KINDS
from dray_fts.states import file_state, reason_of, reason_of_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dray.client import Transfer
    from dray_fts.database import Database, Row
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Driver", "request_of", "transfer_id"]

WORKERS = 8
BATCH = 100
QUERY_MAX = 1000
PAUSE_FIRST = 2.0
PAUSE_MAX = 60.0
HOUSEKEEPING_SECONDS = 1.0
LABEL_BYTES_MAX = 256
EXISTS_REASON = "DESTINATION [17] Destination file exists and overwrite is not enabled"
_LOG = logging.getLogger(__name__)


def transfer_id(row: Row) -> str:
    """Return the id of the transfer of a file."""
    return f"{row['job_id']}.{row['number']}"


class _SourceError(Exception):
    """The endpoint of the source refused a ticket, or did not answer."""

    def __init__(self, error: DrayError) -> None:
        super().__init__(str(error))
        self.error = error


class Driver:
    """Threads that drive endpoints: one for each endpoint, so that no endpoint delays another."""

    def __init__(self, database: Database, endpoints: Endpoints, limits: Limits) -> None:
        """Create the driver. :meth:`start` starts its threads."""
        self._database, self._limits = database, limits
        self._stop = threading.Event()
        self._lanes = [_Lane(name, database, endpoints, limits) for name in endpoints.names]
        self._threads = [threading.Thread(target=self._keep_house, daemon=True)]
        for lane in self._lanes:
            name = f"dray-fts-{lane.endpoint}"
            thread = threading.Thread(target=self._run, args=(lane,), name=name, daemon=True)
            self._threads.append(thread)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Begin the next rounds now."""
        for lane in self._lanes:
            lane.wake.set()

    def stop(self) -> None:
        """End the threads after their current calls. Transfers continue at their endpoints."""
        self._stop.set()
        self.wake()
        for thread in self._threads:
            thread.join()
        for lane in self._lanes:
            lane.close()

    def _run(self, lane: _Lane) -> None:
        while not self._stop.is_set():
            lane.wake.clear()
            try:
                lane.round()
            except Exception:
                # The next round begins from the database, so nothing is lost.
                _LOG.exception("a round for endpoint %s failed", lane.endpoint)
            lane.wake.wait(self._limits.poll_seconds)

    def _keep_house(self) -> None:
        """Cancel files that have waited too long, and delete old jobs."""
        while not self._stop.wait(HOUSEKEEPING_SECONDS):
            try:
                self._database.expire()
                self._database.forget(self._limits.keep_days * 86400)
            except Exception:
                _LOG.exception("cannot cancel expired files, or cannot delete old jobs")


class _Lane:
    """Makes the calls to one endpoint of destinations, and to the endpoints of its sources."""

    def __init__(
        self, endpoint: str, database: Database, endpoints: Endpoints, limits: Limits
    ) -> None:
        self.endpoint = endpoint
        self.wake = threading.Event()
        self._database, self._endpoints, self._limits = database, endpoints, limits
        self._workers = ThreadPoolExecutor(WORKERS, f"dray-fts-{endpoint}")

    def close(self) -> None:
        """End the workers."""
        self._workers.shutdown(cancel_futures=True)

    def round(self) -> None:
        """Make all calls that are due.

        Cancellations come last and in the same thread: no submission of a canceled file can arrive
        after its cancellation.
        """
        self._submit(self._database.due(self.endpoint, BATCH))
        self._poll(self._database.live(self.endpoint))
        for flag in ("to_cancel", "to_change"):
            self._settle(flag, self._database.flagged(flag, self.endpoint, BATCH))

    # --- submission -------------------------------------------------------------------------------

    def _submit(self, rows: list[Row]) -> None:
        for group in _groups(rows):
            try:
                known = self._query(group)
            except DrayError as error:
                for row in group:
                    self._refused(row, error)
                continue
            begin = functools.partial(self._begin, known=known)
            changes = self._workers.map(begin, group)
            # One commit for the whole group. After a kill, the query above finds the transfers.
            self._database.apply([change for change in changes if change is not None])

    def _begin(self, row: Row, known: dict[str, Transfer | None]) -> Change | None:
        """Submit the transfer of a file, unless an earlier driver has submitted it."""
        try:
            if known.get(transfer_id(row)) is None:
                self._send(row)
        except _SourceError as error:
            return self._refused(row, error.error, is_source=True)
        except DrayError as error:
            return self._refused(row, error)
        except Exception:
            _LOG.exception("cannot submit the transfer %s", transfer_id(row))
            return _failed(row, "TRANSFER [70] internal error of the FTS service; see its log")
        return Change(row["file_id"], "READY")

    def _send(self, row: Row) -> None:
        owner, id = row["owner"], transfer_id(row)
        source = sites.Place(row["source_endpoint"], row["source_path"])
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
        try:
            self._endpoints.ask(self.endpoint, owner, lambda client: client.submit(request))
        except DrayError as error:
            # After an error that may pass, the submission may have arrived.
            if ticket is not None and error.kind not in LATER_KINDS:
                self._endpoints.revoke(source, owner, ticket.id)
            raise

    def _refused(self, row: Row, error: DrayError, *, is_source: bool = False) -> Change | None:
        """Submit a transfer later, or return the change to FAILED.

        A file does not wait for an endpoint of a source if the file has an alternative.
        """
        reason, now = reason_of_error(error, is_source=is_source), time.time()
        away_since = row["away_since"] or now
        if (
            error.kind not in LATER_KINDS
            or (error.kind in AWAY_KINDS and now - away_since > self._limits.wait_seconds)
            or (is_source and self._database.has_alternative(row))
        ):
            return _failed(row, reason)
        pause = min(PAUSE_FIRST * 2 ** min(row["pauses"], 8), PAUSE_MAX)
        _LOG.warning(
            "cannot submit transfer %s, next try in %g s: %s", transfer_id(row), pause, error
        )
        is_away = error.kind in AWAY_KINDS
        self._database.postpone(row["file_id"], now + pause, reason, is_away=is_away)
        return None

    # --- live transfers ---------------------------------------------------------------------------

    def _poll(self, rows: list[Row]) -> None:
        for group in _groups(rows):
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
        owner, path = row["owner"], row["dest_path"]
        try:
            size = self._endpoints.ask(self.endpoint, owner, lambda client: client.stat(path)).size
            checksum = self._endpoints.ask(
                self.endpoint, owner, lambda client: client.checksum(path)
            ).checksum
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
            self._database.settled(flag, row["file_id"])

        list(self._workers.map(settle, rows))

    def _cancel(self, row: Row) -> None:
        id = transfer_id(row)
        self._endpoints.ask(self.endpoint, row["owner"], lambda client: client.cancel(id))

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
    """Group files by owner, at most as many as one query permits."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["owner"], []).append(row)
    for group in groups.values():
        for first in range(0, len(group), QUERY_MAX):
            yield group[first : first + QUERY_MAX]


def _failed(row: Row, reason: str) -> Change:
    return Change(row["file_id"], "FAILED", reason, finish_time=time.time())


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
