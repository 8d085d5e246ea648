"""The calls about tape: stages files before their copies, and waits until copies are archived.

The slow root of an endpoint takes the place of the tape. To stage files, the service calls the tape
API of the endpoint. To archive files, it makes a staging call, because the tape API has no call for
this.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from dray import DrayError
from dray.client import StagingRequest, TapeFile
from dray_fts.changes import Change
from dray_fts.endpoints import OVER_KINDS
from dray_fts.rows import (
    Flagged,
    archive_id,
    failed,
    groups,
    is_staging_only,
    params_of,
    postponed,
    transfer_id,
)
from dray_fts.states import (
    ARCHIVE_REASON,
    REASON_CHARACTERS_MAX,
    STAGING_REASON,
    reason_of,
    reason_of_error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dray.client import TapeLocality, TapeProgress, Transfer
    from dray_fts.changes import Row
    from dray_fts.database import Database
    from dray_fts.endpoints import Endpoints
    from dray_fts.settings import Limits

__all__ = ["Tape"]

BATCH = 1000
#: Files that wait are queried together, because any of them may be the next that is staged.
ALL = 1 << 31
ARCHIVED = ("TAPE", "DISK_AND_TAPE")
ON_TAPE_REASON = "DESTINATION [17] Destination file exists and is on tape"
_LOG = logging.getLogger(__name__)


class Tape:
    """Makes the calls about tape to one endpoint."""

    def __init__(
        self, endpoint: str, database: Database, endpoints: Endpoints, limits: Limits
    ) -> None:
        """Store the parts that the calls use."""
        self._endpoint = endpoint
        self._database, self._endpoints, self._limits = database, endpoints, limits
        self._to_release = Flagged(database, "to_release", endpoint, BATCH)
        self._poll_at = 0.0

    def round(self) -> None:
        """Make all calls that are due."""
        name, database = self._endpoint, self._database
        for group in groups(database.at("STAGING", "source", name, BATCH), BATCH):
            self._apply(self._stage(_distinct(group)))
        for group in _by_request(self._to_release.next()):
            self._release(group)
        began = time.monotonic()
        if began < self._poll_at:
            return
        for group in _by_request(database.at("STARTED", "source", name, ALL)):
            self._apply(self._poll(group))
        for group in groups(database.at("ARCHIVING", "dest", name, ALL), BATCH):
            self._apply(self._archive(group))
        # The queries of many files take at most half of the time.
        ended = time.monotonic()
        self._poll_at = ended + max(self._limits.poll_seconds, ended - began)

    def existing(
        self, rows: Sequence[Row], known: Mapping[str, Transfer | None]
    ) -> dict[int, Change | None]:
        """Return a failure for each file that already exists on tape and must not be overwritten.

        The endpoint itself looks for an existing file only on the fast root, to which it copies. If
        the endpoint does not answer, the result has ``None`` for each file that waits for another
        call.

        :param known: transfers of the files. A file with a transfer was checked before.
        """
        asked = [
            row
            for row in rows
            if row["archives"]
            and params_of(row)["overwrite"] != "yes"
            and known.get(transfer_id(row)) is None
        ]
        if not asked:
            return {}
        try:
            places = self._places(asked)
        except DrayError as error:
            return {row["file_id"]: self._postponed(row, error, "ARCHIVING") for row in asked}
        return {row["file_id"]: failed(row, ON_TAPE_REASON) for row in asked if _is_on(places, row)}

    def is_on_tape(self, row: Row) -> bool:
        """Return true if the destination of a file is on tape."""
        return bool(row["archives"]) and _is_on(self._places([row]), row)

    def _places(self, rows: Sequence[Row]) -> dict[str, TapeLocality]:
        paths = [row["dest_path"] for row in rows]
        return self._endpoints.ask(
            self._endpoint, rows[0]["owner"], lambda client: client.tape_localities(paths)
        )

    def _apply(self, changes: Sequence[Change | None]) -> None:
        self._database.apply([change for change in changes if change is not None])

    def _postponed(self, row: Row, error: DrayError, scope: str) -> Change | None:
        reason = reason_of_error(error, scope)
        return postponed(self._database, row, error, reason, self._limits.wait_seconds)

    # --- staging ----------------------------------------------------------------------------------

    def _stage(self, rows: Sequence[Row]) -> list[Change | None]:
        """Request to stage files.

        If the service is killed before it has stored the id of the request, it makes another
        request. The endpoint then makes no second copy. The pin of the first request ends when the
        lifetime of this pin is over.
        """
        files = [
            TapeFile(row["source_path"], params_of(row)["pin_seconds"], _metadata(row))
            for row in rows
        ]
        try:
            id = self._endpoints.ask(
                self._endpoint, rows[0]["owner"], lambda client: client.tape_stage(files)
            )
        except DrayError as error:
            return [self._postponed(row, error, "STAGING") for row in rows]
        now = time.time()
        # The time for the staging begins with the first request.
        return [
            Change(
                row["file_id"], "STARTED", stage_id=id, staging_start=row["staging_start"] or now
            )
            for row in rows
        ]

    def _poll(self, rows: Sequence[Row]) -> list[Change | None]:
        id = rows[0]["stage_id"]
        try:
            stage = self._endpoints.ask(
                self._endpoint, rows[0]["owner"], lambda client: client.tape_progress(id)
            )
        except DrayError as error:
            if error.kind == "not_found":
                # The endpoint has lost its state.
                return [Change(row["file_id"], "STAGING") for row in rows]
            _LOG.warning("cannot query stage request %s at %s: %s", id, self._endpoint, error)
            return [_late(row) for row in rows]
        found = {each.path: each for each in stage.files}
        return [_staged(row, found.get(row["source_path"])) for row in rows]

    def _release(self, rows: Sequence[Row]) -> None:
        """End the pins of ended files, and the staging of canceled files."""
        id, paths = rows[0]["stage_id"], [row["source_path"] for row in rows]
        try:
            self._endpoints.ask(
                self._endpoint, rows[0]["owner"], lambda client: client.tape_release(id, paths)
            )
        except DrayError as error:
            if error.kind not in OVER_KINDS:
                _LOG.warning("cannot release files of stage request %s: %s", id, error)
                return
        for row in rows:
            self._database.settled("to_release", row["file_id"])

    # --- archiving --------------------------------------------------------------------------------

    def _archive(self, rows: Sequence[Row]) -> list[Change | None]:
        """End files that are on tape, and let the endpoint copy the others from its fast root."""
        owner, ids = rows[0]["owner"], [archive_id(row) for row in rows]
        try:
            places = self._places(rows)
            known = self._endpoints.ask(self._endpoint, owner, lambda client: client.query(ids))
        except DrayError as error:
            _LOG.warning("cannot query archived files at %s: %s", self._endpoint, error)
            return [_late(row) for row in rows]
        return [self._archived(row, places, known[archive_id(row)]) for row in rows]

    def _archived(
        self, row: Row, places: Mapping[str, TapeLocality], transfer: Transfer | None
    ) -> Change | None:
        if _is_on(places, row):
            return Change(row["file_id"], "FINISHED", archive_finish=time.time())
        late = _late(row)
        place = places.get(row["dest_path"])
        if late is not None or (place is not None and place.locality == "UNAVAILABLE"):
            return late
        if place is None or place.locality is None:
            text = "the endpoint does not report whether the file is on tape"
            reason = f"ARCHIVING [70] {place.error if place and place.error else text}"
            return failed(row, reason[:REASON_CHARACTERS_MAX])
        if transfer is not None:
            if transfer.is_terminal and transfer.state != "done":
                return failed(row, f"ARCHIVING {reason_of(transfer)}"[:REASON_CHARACTERS_MAX])
            return None
        params = params_of(row)
        request = StagingRequest(
            row["dest_path"],
            id=archive_id(row),
            lifetime_seconds=params["pin_seconds"] or self._limits.disk_seconds,
            priority=row["priority"],
            labels={"fts.job": row["job_id"]},
        )
        try:
            self._endpoints.ask(
                self._endpoint, row["owner"], lambda client: client.stage_out(request)
            )
        except DrayError as error:
            return self._postponed(row, error, "ARCHIVING")
        return None


def _is_on(places: Mapping[str, TapeLocality], row: Row) -> bool:
    place = places.get(row["dest_path"])
    return place is not None and place.locality in ARCHIVED


def _late(row: Row) -> Change | None:
    """Return the failure of a file whose time for staging or archiving is over."""
    params = params_of(row)
    is_archiving = row["file_state"] == "ARCHIVING"
    name = "archive" if is_archiving else "staging"
    if time.time() < row[f"{name}_start"] + params[f"{name}_seconds"]:
        return None
    reason = ARCHIVE_REASON if is_archiving else STAGING_REASON
    # The endpoint must not archive a file whose failure the user has seen.
    to_cancel = 1 if is_archiving else None
    return Change(row["file_id"], "FAILED", reason, finish_time=time.time(), to_cancel=to_cancel)


def _staged(row: Row, progress: TapeProgress | None) -> Change | None:
    if progress is not None and progress.state == "COMPLETED":
        now = time.time()
        if is_staging_only(row):
            return Change(row["file_id"], "FINISHED", staging_finished=now, finish_time=now)
        path = progress.disk_path
        return Change(row["file_id"], "SUBMITTED", disk_path=path, staging_finished=now)
    if progress is None or progress.state in ("FAILED", "CANCELLED"):
        text = "the stage request at the endpoint was cancelled"
        if progress is not None and progress.error:
            text = progress.error
        return failed(row, f"STAGING [70] {text}"[:REASON_CHARACTERS_MAX])
    return _late(row)


def _metadata(row: Row) -> dict[str, object]:
    if row["staging_metadata"] is not None:
        found: dict[str, object] = json.loads(row["staging_metadata"])
        return found
    return {"dray": {"activity": row["activity"], "priority": row["priority"]}}


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each path. Other rows of the path get a request and a pin of their own."""
    return list({row["source_path"]: row for row in reversed(rows)}.values())


def _by_request(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["owner"], row["stage_id"]), []).append(row)
    return list(found.values())
