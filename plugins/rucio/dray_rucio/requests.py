"""Queries and changes of Rucio's requests for which Rucio has no function."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rucio.core.request import transition_request_state, update_request
from rucio.db.sqla import models
from rucio.db.sqla.constants import RequestState
from rucio.db.sqla.session import read_session, transactional_session
from sqlalchemy import select, update

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

__all__ = [
    "ATTRIBUTES_CHARACTERS_MAX",
    "ERROR_CHARACTERS_MAX",
    "attributes_of",
    "earlier",
    "fail",
    "has_others",
    "keep_error",
    "note",
    "put_back",
    "queue_again",
    "source_of",
    "waits_since",
]

ERROR_CHARACTERS_MAX = 3900
"""Maximum number of characters of a stored error. Rucio's column has 4000."""
ATTRIBUTES_CHARACTERS_MAX = 4000
"""Size of Rucio's column for the attributes of a request."""
KEY = "dray_transfer"
"""Name of the id of an earlier transfer in the attributes of a request."""
IDS_MAX = 500
"""Maximum number of ids in one statement. Some databases allow only a thousand."""


@read_session  # type: ignore[untyped-decorator]
def waits_since(request_id: str, *, session: Session) -> datetime | None:
    """Return the time at which a request was made or its recall from tape ended, in UTC.

    Its ``requested_at`` may be empty.
    """
    table = models.Request
    row = session.execute(
        select(table.created_at, table.staging_finished_at).where(table.id == request_id)
    ).one_or_none()
    return max((at for at in row or () if at is not None), default=None)


@transactional_session  # type: ignore[untyped-decorator]
def note(request_ids: Sequence[str], external_id: str, *, session: Session) -> None:
    """Store the id of the transfer before it is submitted.

    If the submitter is killed before Rucio stores the id, the next try finds the transfer.
    """
    for ids in _parts(request_ids):
        session.execute(
            update(models.Request)
            .where(models.Request.id.in_(ids), models.Request.state == RequestState.SUBMITTING)
            .execution_options(synchronize_session=False)
            .values({models.Request.external_id: external_id})
        )


@read_session  # type: ignore[untyped-decorator]
def earlier(
    request_ids: Sequence[str], previous_ids: Sequence[str], *, session: Session
) -> set[str]:
    """Return the ids of the transfers that Rucio submitted earlier for the files of these requests.

    :param request_ids: requests that Rucio submits now, and may have submitted before.
    :param previous_ids: requests of the previous tries of the same files.
    """
    found: set[str] = set()
    for ids in _parts(request_ids):
        for attributes in session.execute(
            select(models.Request.attributes).where(models.Request.id.in_(ids))
        ).scalars():
            kept = attributes_of(attributes).get(KEY)
            if kept is not None:
                found.add(str(kept))
    table = models.RequestHistory
    for ids in _parts(previous_ids):
        for id, external_id in session.execute(
            select(table.id, table.external_id).where(table.id.in_(ids))
        ):
            # The transfer of a single file has the id of its request.
            found.add(str(id if external_id is None else external_id))
    return found


@read_session  # type: ignore[untyped-decorator]
def has_others(external_id: str, request_ids: Sequence[str] = (), *, session: Session) -> bool:
    """Return true if a transfer has submitted requests other than ``request_ids``."""
    rows = session.execute(
        select(models.Request.id).where(
            models.Request.external_id == external_id,
            models.Request.state.in_((RequestState.SUBMITTING, RequestState.SUBMITTED)),
        )
    ).scalars()
    known = set(request_ids)
    return any(str(id) not in known for id in rows)


@transactional_session  # type: ignore[untyped-decorator]
def put_back(request_id: str, *, session: Session) -> bool:
    """Put a request that is being submitted back into the queue. Its number of tries is unchanged.

    Rucio then finds that the request is no longer being submitted, and does not change it. The
    attributes of the request keep the id of the transfer, because the endpoint may have accepted
    the transfer, and Rucio removes the external id before the next submission.

    :returns: true if the request was being submitted.
    """
    is_submitting = (
        models.Request.id == request_id,
        models.Request.state == RequestState.SUBMITTING,
    )
    row = session.execute(
        select(models.Request.external_id, models.Request.attributes)
        .where(*is_submitting)
        .with_for_update()
    ).one_or_none()
    if row is None:
        return False
    values: dict[Any, Any] = {models.Request.state: RequestState.QUEUED}
    if row[0] is not None:
        text = json.dumps({**attributes_of(row[1]), KEY: str(row[0])})
        if len(text) <= ATTRIBUTES_CHARACTERS_MAX:
            values[models.Request.attributes] = text
    found = session.execute(
        update(models.Request)
        .where(*is_submitting)
        .execution_options(synchronize_session=False)
        .values(values)
    )
    return getattr(found, "rowcount", 0) == 1


@transactional_session  # type: ignore[untyped-decorator]
def queue_again(
    request_ids: Sequence[str],
    external_id: str,
    started_at: datetime | None,
    ended_at: datetime | None,
    *,
    session: Session,
) -> None:
    """Put submitted requests back into the queue, because their file is online.

    :param external_id: id of the recall. A request that has another id by now is not changed.
    :param started_at: start of the recall, in UTC.
    :param ended_at: end of the recall, in UTC.
    """
    table = models.Request
    for ids in _parts(request_ids):
        session.execute(
            update(table)
            .where(
                table.id.in_(ids),
                table.state == RequestState.SUBMITTED,
                table.external_id == external_id,
            )
            .execution_options(synchronize_session=False)
            .values(
                {
                    table.state: RequestState.QUEUED,
                    table.staging_started_at: started_at,
                    table.staging_finished_at: ended_at,
                }
            )
        )


@read_session  # type: ignore[untyped-decorator]
def source_of(external_id: str, *, session: Session) -> str | None:
    """Return the id of the source RSE of the requests with an external id, also of ended ones."""
    for table in (models.Request, models.RequestHistory):
        found = session.execute(
            select(table.source_rse_id).where(table.external_id == external_id).limit(1)
        ).scalar_one_or_none()
        if found is not None:
            return str(found)
    return None


@transactional_session  # type: ignore[untyped-decorator]
def fail(request_id: str, error: str, *, session: Session) -> None:
    """Mark a request as not submitted.

    Rucio does this itself, unless the submission of the job put another request of the same job
    back into the queue.
    """
    transition_request_state(
        request_id,
        state=RequestState.SUBMISSION_FAILED,
        err_msg=error[:ERROR_CHARACTERS_MAX],
        session=session,
    )


@transactional_session  # type: ignore[untyped-decorator]
def keep_error(request_id: str, error: str, *, session: Session) -> None:
    """Store the reason why a request could not be submitted.

    After the last try, the rule of the request shows this reason.
    """
    update_request(request_id, err_msg=error[:ERROR_CHARACTERS_MAX], session=session)


def attributes_of(found: object) -> dict[str, Any]:
    """Parse the attributes of a request, which Rucio stores as JSON."""
    # Parsed twice, as Rucio does: some of its functions store a text as JSON.
    for _ in range(2):
        if isinstance(found, str):
            found = json.loads(found or "{}")
    return found if isinstance(found, dict) else {}


def _parts(ids: Sequence[str]) -> Iterator[Iterable[str]]:
    return (ids[first : first + IDS_MAX] for first in range(0, len(ids), IDS_MAX))
