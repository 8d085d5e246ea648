"""Staging requests of tasks, and their results.

A staged copy consists of a transfer within one endpoint and a record of the copy's lifetime. If a
restart (a request without a path) finds that its fast copy exists, there is no transfer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dray_airflow import values
from dray_airflow.deadlines.text import clock
from dray_airflow.deadlines.times import whole_second
from dray_airflow.errors import DrayTaskFailure, bad_input
from dray_airflow.submission import said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from dray.client import Client, Staged, StagingRequest, Transfer
    from dray.errors import DrayError
    from dray_airflow.submission import Clients

__all__ = ["Direction", "Stage", "StagingErrand", "StagingSubmit", "check_agreement", "outcome"]

Direction: TypeAlias = Literal["in", "out"]
Stage: TypeAlias = "Callable[[StagingRequest], Transfer]"
StagingSubmit: TypeAlias = "Callable[[Client, StagingRequest, Stage], Transfer]"
"""A function that cancels the copy's reservation and stages the copy with the given function."""


@dataclass(frozen=True, slots=True)
class StagingErrand:
    """A copy that a task wants to stage.

    The interface is that of :class:`dray_airflow.submission.Errand`.

    :param submit: function that replaces the client's call if the copy was reserved.
    """

    conn_id: str
    direction: Direction
    request: StagingRequest
    mark: str
    is_id_own: bool = True
    is_begun_kept: bool = True
    submit: StagingSubmit | None = None

    @property
    def id(self) -> str:
        """Id of the copy and of its transfer."""
        return self.request.id or ""

    @property
    def admission(self) -> str | None:
        """Handling of a deadline that cannot be promised."""
        return self.request.admission

    @property
    def is_restart(self) -> bool:
        """True if the endpoint selects the version, and with it the paths."""
        return self.request.path is None

    def body(self) -> dict[str, Any]:
        """Return the fields of the request that describe the data."""
        return {**said(self.request), "direction": self.direction}

    def with_request(self, **words: Any) -> StagingErrand:  # noqa: ANN401 - fields of a request
        """Return a copy with another request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **words))

    def late(self) -> StagingErrand:
        """Return the request for a copy that has started, without a deadline that has passed."""
        from datetime import datetime, timezone

        late = self.with_request(admission=self.admission or "best_effort")
        deadline = self.request.deadline
        if deadline is None or deadline > datetime.now(timezone.utc):
            return late
        return late.with_request(deadline=None)

    def is_used_up(self, clients: Clients) -> bool:
        """Return true if the slow copy exists and the fast copy, its source, was evicted."""
        from dray.errors import DrayError

        if self.direction == "in":
            return False
        client = clients.of(self.conn_id)
        try:
            staged = client.staging(self.id)
            if staged.state != "evicted" or staged.to is None:
                return False
            client.stat(staged.to)
        except DrayError as error:
            if error.status != "permanent":
                raise
            return False
        try:
            client.stat(staged.path)
        except DrayError as error:
            if error.kind != "not_found":
                raise
            return True
        # The fast copy exists again, because it was staged in again.
        return False

    def as_found(self, found: Transfer) -> StagingErrand:
        """Return this request with the ``admission`` of the submitted request ``found``."""
        return self.with_request(admission=found.request.get("admission"))

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Submit the request, and return its transfer.

        :raises DrayTaskFailure: if the deadline cannot be promised.
        """
        from dray.errors import DrayError

        client = clients.of(self.conn_id)

        def stage(wish: StagingRequest) -> Transfer:
            ask = client.stage_in if self.direction == "in" else client.stage_out
            return client.transfer(ask(wish).id)

        request = dataclasses.replace(self.request, labels=labels)
        try:
            return stage(request) if self.submit is None else self.submit(client, request, stage)
        except DrayError as error:
            if error.kind != "not_admitted":
                raise
            if self.admission != "best_effort":
                raise self.refusal(error) from None
        return stage(dataclasses.replace(request, deadline=None))

    def refusal(self, error: DrayError) -> DrayTaskFailure:
        """Return the failure of a task whose deadline cannot be promised."""
        verdict = getattr(error, "admission", None)
        reasons = ", ".join(verdict.reasons) if verdict else error.message
        offer = verdict.earliest_finish if verdict else None
        remedy = f"set the deadline to {clock(whole_second(offer))} or later, or" if offer else ""
        by = clock(self.request.deadline) if self.request.deadline else "its deadline"
        return DrayTaskFailure(
            f"cannot promise staging {self.id} by {by}:"
            f" {reasons or 'no capacity is left'}; {remedy} stage without a promise:"
            ' admission="best_effort"',
            "not_admitted",
        )


def check_agreement(
    direction: Direction,
    request: StagingRequest,
    *,
    transfer_id: object = None,
    is_evicted: bool = False,
) -> None:
    """Check that the arguments of a staging task do not contradict each other.

    :param transfer_id: the task's argument ``transfer_id``.
    :param is_evicted: true if the task evicts the fast copy when the slow copy is complete.
    :raises DrayTaskFailure: if arguments contradict each other or are missing. The message lists
        all problems.
    """
    found: list[str] = []
    given = {
        name: value
        for name, value in dataclasses.asdict(request).items()
        if value is not None and value is not False and (name, value) != ("replicas", 1)
    }
    if request.application is None:
        needing = [name for name in ("version", *_HABITS) if name in given]
        if needing:
            found.append(f"{_names(needing)} without application")
    if "mtbf_seconds" in given and "nodes" in given:
        found.append("mtbf and nodes, which both give the time between failures")
    if request.path is None and direction == "out":
        found.append("no path to stage out")
    elif request.path is None:
        if request.application is None:
            found.append("neither a path nor an application to restart")
        extra = [name for name in ("to", "recursive", "bypass", *_HABITS) if name in given]
        if not values.is_empty(transfer_id):
            extra.append("transfer_id")
        if extra:
            found.append(f"{_names(extra)} without path, although the version determines the paths")
    if request.bypass and is_evicted:
        found.append("bypass with evict, although a bypass makes no fast copy")
    if found:
        raise bad_input(
            f"stage {direction}",
            f"its arguments contradict each other or are incomplete: {'; '.join(found)}",
            "remove or add arguments (docs/how-to/airflow-stage.md)",
        )


_HABITS = ("period_seconds", "mtbf_seconds", "nodes", "replicas")
"""Fields of a request that describe an application to the tier."""


def _names(fields: Sequence[str]) -> str:
    return ", ".join(field.removesuffix("_seconds") for field in fields)


def outcome(staged: Staged, transfer: Transfer | None) -> dict[str, Any]:
    """Return the result of a staging task, small enough for an XCom.

    :param transfer: the transfer that made the copy. ``None`` if the fast copy existed.
    """
    result: dict[str, Any] = {
        "id": staged.id,
        "path": staged.path,
        "to": staged.to,
        "state": staged.state,
        "hit": staged.hit,
        "application": staged.application,
        "version": staged.version,
        "files": 0,
        "bytes": staged.bytes or 0,
        "bytes_sent": 0,
        "bytes_resumed": 0,
        "bytes_read_back": 0,
        "seconds": 0.0,
        "pinned_until": _text(staged.pinned_until),
        "expires_at": _text(staged.expires_at),
    }
    if transfer is None:
        return result
    begun = transfer.started_at or transfer.submitted_at
    if begun is not None and transfer.ended_at is not None:
        result["seconds"] = round((transfer.ended_at - begun).total_seconds(), 3)
    return {
        **result,
        "files": transfer.files.done,
        "bytes": transfer.bytes.listed,
        "bytes_sent": transfer.bytes.sent,
        "bytes_resumed": transfer.bytes.resumed,
        "bytes_read_back": transfer.bytes.read_back,
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
