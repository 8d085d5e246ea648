"""Read the facts about a rule from Rucio's database. Nothing is changed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from rucio.common.exception import RSEProtocolNotSupported
from rucio.core.distance import get_distances
from rucio.core.heartbeat import list_heartbeats
from rucio.core.rse import get_rse, get_rse_protocols, list_rse_attributes
from rucio.core.rule import get_rule
from rucio.db.sqla import models
from rucio.db.sqla.constants import LockState, ReplicaState, RSEType
from rucio.db.sqla.session import read_session
from rucio.rse import rsemanager
from sqlalchemy import func, select

from dray_rucio.causes import host_of
from dray_rucio.facts import FileFacts, RequestFacts, RseFacts, RuleFacts, SourceFacts
from dray_rucio.globus import COLLECTION_ATTRIBUTE
from dray_rucio.recall import is_permitted
from dray_rucio.submission import is_recall
from dray_rucio.transfertool import PIN_ATTRIBUTE, URL_ATTRIBUTE

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["FILES_MAX", "read_rule"]

FILES_MAX = 1000
"""Default maximum number of files that are examined. A rule may have a million files."""
ALIVE = timedelta(minutes=15)
"""Maximum age of the heartbeat of a live daemon. Rucio's daemons write one in each cycle, which
lasts ten minutes at most by default.
"""


@read_session  # type: ignore[untyped-decorator]
def read_rule(id: str, files_max: int = FILES_MAX, *, session: Session) -> RuleFacts:
    """Return the facts about a rule.

    :raises rucio.common.exception.RuleNotFound: if the rule does not exist.
    """
    rule = get_rule(id, session=session)
    lock = models.ReplicaLock
    where = (lock.rule_id == id, lock.state != LockState.OK)
    missing = session.execute(select(func.count()).select_from(lock).where(*where)).scalar_one()
    locks = session.execute(select(lock).where(*where).limit(files_max)).scalars().all()
    reader = _Reader(session)
    return RuleFacts(
        id=str(rule["id"]),
        did=f"{rule['scope'].external}:{rule['name']}",
        rse_expression=rule["rse_expression"],
        account=rule["account"].external,
        state=rule["state"].name,
        error=rule["error"],
        done=rule["locks_ok_cnt"],
        missing=missing,
        submitters=_alive("conveyor-submitter", session),
        pollers=_alive("conveyor-poller", session),
        files=tuple(reader.file(each) for each in locks),
    )


def _alive(daemon: str, session: Session) -> int:
    """Count the threads of a daemon with a recent heartbeat."""
    # Rucio's times are UTC without a zone.
    since = datetime.now(timezone.utc).replace(tzinfo=None) - ALIVE
    found = list_heartbeats(session=session)
    return sum(
        str(beat["readable"]).startswith(daemon) and beat["updated_at"] >= since for beat in found
    )


class _Reader:
    """Reads files. RSEs and pairs of RSEs are cached, because the files of a rule share them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rses: dict[str, RseFacts] = {}
        self._pairs: dict[tuple[str, str], SourceFacts] = {}

    def file(self, lock: Any) -> FileFacts:  # noqa: ANN401 - a row of Rucio
        """Return the facts about the file of a lock."""
        replica = models.RSEFileAssociation
        sources = self._session.execute(
            select(replica.rse_id).where(
                replica.scope == lock.scope,
                replica.name == lock.name,
                replica.state == ReplicaState.AVAILABLE,
                replica.rse_id != lock.rse_id,
            )
        ).scalars()
        return FileFacts(
            did=f"{lock.scope.external}:{lock.name}",
            destination=self._rse(lock.rse_id),
            is_stuck=lock.state == LockState.STUCK,
            bytes=lock.bytes or 0,
            sources=tuple(self._source(str(each), lock.rse_id) for each in sources),
            request=self._request(lock),
        )

    def _request(self, lock: Any) -> RequestFacts | None:  # noqa: ANN401
        # Rules share requests, so the rule of the request may be another one.
        for table in (models.Request, models.RequestHistory):
            row = (
                self._session.execute(
                    select(table)
                    .where(
                        table.scope == lock.scope,
                        table.name == lock.name,
                        table.dest_rse_id == lock.rse_id,
                    )
                    .order_by(table.created_at.desc())
                    .limit(1)
                )
                .scalars()
                .first()
            )
            if row is not None:
                error = row.err_msg
                if error is None and row.previous_attempt_id is not None:
                    error = self._error_of(str(row.previous_attempt_id))
                return RequestFacts(
                    id=str(row.id),
                    transfer=str(row.external_id or row.id),
                    state=row.state.name,
                    is_live=table is models.Request,
                    created_at=row.created_at.replace(tzinfo=timezone.utc),
                    tries=(row.retry_count or 0) + 1,
                    error=error,
                    tool=row.transfertool,
                    host=self._host(row),
                )
        return None

    def _host(self, row: Any) -> str | None:  # noqa: ANN401 - a row of Rucio
        """Return the external host of a request. A recall is at the endpoint of the source."""
        if row.source_rse_id is not None and is_recall(row.external_id or ""):
            return host_of(self._rse(row.source_rse_id)) or row.external_host
        return None if row.external_host is None else str(row.external_host)

    def _error_of(self, id: str) -> str | None:
        table = models.RequestHistory
        return self._session.execute(
            select(table.err_msg).where(table.id == id)
        ).scalar_one_or_none()

    def _rse(self, id: str) -> RseFacts:
        if id not in self._rses:
            rse = get_rse(rse_id=id, session=self._session)
            attributes = list_rse_attributes(rse_id=id, session=self._session)
            url, pin = attributes.get(URL_ATTRIBUTE), attributes.get(PIN_ATTRIBUTE)
            collection = attributes.get(COLLECTION_ATTRIBUTE)
            self._rses[id] = RseFacts(
                name=rse["rse"],
                url=None if url is None else str(url),
                pin=None if pin is None else str(pin),
                is_tape=rse["rse_type"] == RSEType.TAPE or bool(attributes.get("staging_required")),
                can_read=bool(rse["availability_read"]),
                can_write=bool(rse["availability_write"]),
                waits_for_tape=attributes.get("archive_timeout") is not None,
                collection=None if collection is None else str(collection),
                is_recalled=is_permitted(attributes),
            )
        return self._rses[id]

    def _source(self, id: str, destination_id: str) -> SourceFacts:
        pair = (id, destination_id)
        if pair not in self._pairs:
            distances = get_distances(
                src_rse_id=id, dest_rse_id=destination_id, session=self._session
            )
            self._pairs[pair] = SourceFacts(
                rse=self._rse(id),
                has_distance=any(each["distance"] is not None for each in distances),
                mismatch=self._mismatch(id, destination_id),
            )
        return self._pairs[pair]

    def _mismatch(self, id: str, destination_id: str) -> str | None:
        from rucio.common.config import config_get_list

        schemes = config_get_list("conveyor", "scheme", raise_exception=False, default=None)
        try:
            rsemanager.find_matching_scheme(
                rse_settings_dest=get_rse_protocols(destination_id, session=self._session),
                rse_settings_src=get_rse_protocols(id, session=self._session),
                operation_src="third_party_copy_read",
                operation_dest="third_party_copy_write",
                scheme=list(schemes) if schemes else None,
            )
        except RSEProtocolNotSupported as error:
            return str(error)
        return None
