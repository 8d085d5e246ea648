"""Records of submissions to Globus, in the attributes of Rucio's requests.

All daemons of Rucio share its database. Rucio copies the attributes of a failed request to the
request of the next try. So the next try finds the submission id that a killed submitter has stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rucio.db.sqla import models
from rucio.db.sqla.session import read_session, transactional_session
from sqlalchemy import select, update

from dray import DrayPermanentError
from dray_rucio.requests import ATTRIBUTES_CHARACTERS_MAX, attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

__all__ = ["RequestStore", "kept_of"]

KEY = "dray_globus"
"""Name of the record in the attributes of a request."""


class RequestStore:
    """A store of records (:class:`dray.executors.Store`) by the ids of Rucio's requests."""

    def __init__(self) -> None:
        """Create a store. No call is made yet."""
        #: Records of requests that were deleted during their submission.
        self._deleted: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of a request, or the one that an earlier try has left."""
        if "-" in key:
            # The id of a Globus task. Requests have ids without hyphens.
            return None
        found = self._deleted.get(key) or kept_of(_attributes(key))
        return None if found is None else {**found, "id": key}

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Store the record of a request.

        If Rucio has deleted the request after its submission, the record is kept in memory. The
        submission then returns the id of the task, and Rucio cancels the task.

        :raises DrayPermanentError: if Rucio has deleted the request before its submission.
        """
        kept = {name: each for name, each in value.items() if name != "id"}
        if _store(key, kept):
            return
        if value.get("task_id") is None:
            raise _deleted(key)
        self._deleted[key] = kept

    def delete(self, key: str) -> None:
        """Remove the record of a request."""
        self._deleted.pop(key, None)
        _store(key, None)

    def forget_deleted(self, key: str) -> None:
        """Remove the record of a request that Rucio has deleted."""
        self._deleted.pop(key, None)


def kept_of(attributes: object) -> dict[str, Any] | None:
    """Return the record in the attributes of a request."""
    found = attributes_of(attributes).get(KEY)
    return found if isinstance(found, dict) else None


@read_session  # type: ignore[untyped-decorator]
def _attributes(request_id: str, *, session: Session) -> str | None:
    found: str | None = session.execute(
        select(models.Request.attributes).where(models.Request.id == request_id)
    ).scalar_one_or_none()
    return found


@transactional_session  # type: ignore[untyped-decorator]
def _store(request_id: str, record: Mapping[str, Any] | None, *, session: Session) -> bool:
    """Replace the record of a request.

    :returns: false if the request does not exist.
    """
    row = session.execute(
        select(models.Request.attributes).where(models.Request.id == request_id).with_for_update()
    ).one_or_none()
    if row is None:
        return False
    attributes = attributes_of(row[0])
    attributes.pop(KEY, None)
    if record is not None:
        attributes[KEY] = dict(record)
        if len(json.dumps(attributes)) > ATTRIBUTES_CHARACTERS_MAX:
            # Only the choice of the source in the next try needs the URLs.
            attributes[KEY].pop("request", None)
    session.execute(
        update(models.Request)
        .where(models.Request.id == request_id)
        .execution_options(synchronize_session=False)
        .values({models.Request.attributes: json.dumps(attributes)})
    )
    return True


def _deleted(request_id: str) -> DrayPermanentError:
    cause, remedy = "Rucio has deleted the request", "nothing is left to do"
    operation = f"store the submission of request {request_id}"
    return DrayPermanentError(
        f"cannot {operation}: {cause}",
        kind="not_found",
        status="permanent",
        end="here",
        operation=operation,
        file=None,
        cause=cause,
        remedy=remedy,
    )
