"""Changes to Rucio's requests for which Rucio has no function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rucio.core.request import update_request
from rucio.db.sqla import models
from rucio.db.sqla.constants import RequestState
from rucio.db.sqla.session import read_session, transactional_session
from sqlalchemy import select, update

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

__all__ = ["keep_error", "made_at", "put_back"]

ERROR_CHARACTERS_MAX = 3900
"""Maximum number of characters of a stored error. Rucio's column has 4000."""


@read_session  # type: ignore[untyped-decorator]
def made_at(request_id: str, *, session: Session) -> datetime | None:
    """Return the time at which a request was made, in UTC. Its ``requested_at`` may be empty."""
    at: datetime | None = session.execute(
        select(models.Request.created_at).where(models.Request.id == request_id)
    ).scalar_one_or_none()
    return at


@transactional_session  # type: ignore[untyped-decorator]
def put_back(request_id: str, *, session: Session) -> bool:
    """Put a request that is being submitted back into the queue. Its number of tries is unchanged.

    Rucio then finds that the request is no longer being submitted, and does not change it.

    :returns: true if the request was being submitted.
    """
    found = session.execute(
        update(models.Request)
        .where(
            models.Request.id == request_id,
            models.Request.state == RequestState.SUBMITTING,
        )
        .execution_options(synchronize_session=False)
        .values({models.Request.state: RequestState.QUEUED, models.Request.external_id: None})
    )
    return getattr(found, "rowcount", 0) == 1


@transactional_session  # type: ignore[untyped-decorator]
def keep_error(request_id: str, error: str, *, session: Session) -> None:
    """Store the reason why a request could not be submitted.

    After the last try, the rule of the request shows this reason.
    """
    update_request(request_id, err_msg=error[:ERROR_CHARACTERS_MAX], session=session)
