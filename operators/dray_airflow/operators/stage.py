"""Operators for two tiers of storage: stage in to the fast tier, stage out to the slow tier, evict.

A staged copy is a transfer at one endpoint, and a record of its lifetime. The tasks submit and wait
as the tasks of transfers do.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator

from dray_airflow import assets, values
from dray_airflow.deadlines.graph import clock
from dray_airflow.deadlines.times import whole_second
from dray_airflow.errors import DrayTaskFailure, bad_input, translated
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.operators.transfer import own_labels
from dray_airflow.operators.waiting import WaitingOperator, check_choice
from dray_airflow.submission import said

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from dray.client import Client, Staged, StagingRequest, Transfer
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.lineage import Lineage
    from dray_airflow.submission import Clients

__all__ = ["DrayEvictOperator", "DrayStageInOperator", "DrayStageOutOperator"]

log = logging.getLogger(__name__)

PIN_OVER_SECONDS = 1.1
"""Time in seconds after which a pin of one second has expired.

One second is the minimum of a pin.
"""


@dataclass(frozen=True, slots=True)
class StagingErrand:
    """A copy that a task wants to stage.

    The interface is that of :class:`dray_airflow.submission.Errand`.

    :param admission: ``best_effort``: continue without a promise if the deadline cannot be
        promised.
    :param bytes: size of the copy, if known. The staging request itself has no size.
    """

    conn_id: str
    direction: Literal["in", "out"]
    request: StagingRequest
    mark: str
    is_id_own: bool = True
    is_begun_kept: bool = True
    admission: str | None = None
    bytes: int | None = None

    @property
    def id(self) -> str:
        """Id of the copy and of its transfer."""
        return self.request.id or ""

    def body(self) -> dict[str, Any]:
        """Return the fields of the request that describe the data."""
        return {**said(self.request), "direction": self.direction}

    def late(self) -> StagingErrand:
        """Return the request for a copy that has started, without a deadline that has passed."""
        from datetime import datetime, timezone

        late = dataclasses.replace(self, admission=self.admission or "best_effort")
        deadline = self.request.deadline
        if deadline is None or deadline > datetime.now(timezone.utc):
            return late
        return dataclasses.replace(late, request=dataclasses.replace(self.request, deadline=None))

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
        """Return a copy of this request without the check of capacity.

        A started copy keeps its promise.
        """
        del found
        return dataclasses.replace(self, admission="best_effort")

    def send(self, clients: Clients, labels: Mapping[str, str]) -> Transfer:
        """Submit the request, and return its transfer."""
        from dray.errors import DrayError

        client = clients.of(self.conn_id)
        is_soft = self.admission == "best_effort"
        if not is_soft:
            self._check_room(client)
        stage = client.stage_in if self.direction == "in" else client.stage_out
        request = dataclasses.replace(self.request, labels=labels)
        try:
            staged = stage(request)
        except DrayError as error:
            if error.kind != "not_admitted" or not is_soft:
                raise
            staged = stage(dataclasses.replace(request, deadline=None))
        return client.transfer(staged.id)

    def _check_room(self, client: Client) -> None:
        """Ask if an equal transfer would be promised its deadline. Nothing is reserved.

        The check is needed because a staging request has no size, and the endpoint would accept it
        unchecked.

        :raises DrayTaskFailure: if the transfer would be refused.
        """
        from dray.client import Request
        from dray.errors import DrayError

        wish = self.request
        if wish.deadline is None or self.bytes is None or wish.path is None or wish.to is None:
            return
        like = Request(
            wish.path,
            wish.to,
            bytes_expected=self.bytes,
            deadline=wish.deadline,
            priority=wish.priority,
        )
        try:
            answer = client.admission([like])
        except DrayError as error:
            if error.status != "permanent":
                raise
            # This call needs the permission to transfer, which a caller with the permission to
            # stage may not have.
            log.warning("it is unknown whether staging %s will be in time: %s", self.id, error)
            return
        if answer.decision == "accept":
            return
        verdict = answer.transfers[0] if answer.transfers else None
        reasons = ", ".join(verdict.reasons) if verdict else ""
        offer = verdict.earliest_finish if verdict else None
        remedy = (
            f"give it the deadline {clock(whole_second(offer))} or a later one" if offer else ""
        )
        raise DrayTaskFailure(
            f"cannot promise staging {self.id} by {clock(wish.deadline)}:"
            f" {reasons or 'no capacity is left'}; {remedy}, or"
            ' stage without a promise: admission="best_effort"',
            "not_admitted",
        )


class _StageOperator(WaitingOperator):
    """The common base class of staging in and staging out."""

    direction: ClassVar[Literal["in", "out"]]
    template_fields: Sequence[str] = (
        "path",
        "dray_conn_id",
        "to",
        "recursive",
        "pin",
        "lifetime",
        "application",
        "version",
        "period",
        "mtbf",
        "nodes",
        "replicas",
        "bypass",
        "priority",
        "deadline",
        "admission",
        "bytes_expected",
        "labels",
        "transfer_id",
    )
    ui_color = "#e3dff2"

    def __init__(
        self,
        *,
        path: str,
        dray_conn_id: str = DrayHook.default_conn_name,
        to: str | None = None,
        recursive: bool | str | None = None,
        pin: timedelta | float | str | None = None,
        lifetime: timedelta | float | str | None = None,
        application: str | None = None,
        version: int | str | None = None,
        period: timedelta | float | str | None = None,
        mtbf: timedelta | float | str | None = None,
        nodes: int | str | None = None,
        replicas: int | str | None = None,
        bypass: bool | str | None = None,
        priority: int | str | None = None,
        deadline: datetime | timedelta | str | None = None,
        admission: str | None = None,
        bytes_expected: int | str | None = None,
        expected_duration: timedelta | float | None = None,
        labels: Mapping[str, str] | None = None,
        transfer_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.dray_conn_id = dray_conn_id
        self.to = to
        self.recursive = recursive
        self.pin = pin
        self.lifetime = lifetime
        self.application = application
        self.version = version
        self.period = period
        self.mtbf = mtbf
        self.nodes = nodes
        self.replicas = replicas
        self.bypass = bypass
        self.priority = priority
        self.deadline = deadline
        self.admission = admission
        self.bytes_expected = bytes_expected
        self.expected_duration = expected_duration
        self.labels = labels
        self.transfer_id = transfer_id

    @property
    def active_conn_id(self) -> str:
        """The connection of the called endpoint, with templates rendered."""
        return values.text("dray_conn_id", self.dray_conn_id)

    def errand(self, context: Context, settings: Settings) -> StagingErrand:
        """Return the staging request from the rendered fields.

        :raises DrayTaskFailure: if a field is invalid. The message names the field.
        """
        from dray.client import StagingRequest

        admission = values.word(self.admission)
        check_choice("admission", admission, ("required", "best_effort"))
        begin = getattr(context.get("dag_run"), "start_date", None)
        request = StagingRequest(
            path=_path("path", self.path),
            id=self._id(context, settings, self.transfer_id),
            to=None if values.is_empty(self.to) else _path("to", self.to),
            recursive=values.truth("recursive", self.recursive),
            pin_seconds=values.seconds("pin", self.pin),
            lifetime_seconds=values.seconds("lifetime", self.lifetime),
            application=None if values.is_empty(self.application) else self.application,
            version=values.integer("version", self.version),
            period_seconds=values.seconds("period", self.period),
            mtbf_seconds=values.seconds("mtbf", self.mtbf),
            nodes=values.integer("nodes", self.nodes),
            replicas=values.integer("replicas", self.replicas),
            bypass=values.truth("bypass", self.bypass),
            priority=values.integer("priority", self.priority),
            deadline=values.time("deadline", self.deadline, begin),
            labels=own_labels(context, self.labels),
            bound_seconds=self._bound(settings),
        )
        return StagingErrand(
            settings.conn_id,
            self.direction,
            request,
            str(context["ti"].id),
            is_id_own=values.is_empty(self.transfer_id),
            admission=admission,
            bytes=values.size("bytes_expected", self.bytes_expected),
        )

    def _wish(self, context: Context, settings: Settings) -> StagingErrand:
        """Return the request.

        If the task has no deadline, add the one that follows from the run's.
        """
        errand = self.errand(context, settings)
        found = self._time_left(context)
        if found is None or not found.is_possible:
            return errand
        request = dataclasses.replace(errand.request, deadline=found.latest_finish)
        admission = errand.admission or "best_effort"
        return dataclasses.replace(errand, request=request, admission=admission)

    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> dict[str, Any]:
        self._check(client, transfer)
        with translated(settings.about(f"transfer {transfer.id}"), settings):
            staged = client.staging(transfer.id)
            result = _outcome(staged, transfer)
            self._after(client, staged)
        self.log.info("staging %s %s is done: %s", self.direction, transfer.id, result)
        assets.announce(context, assets.uri(settings.authority, result["to"]), result)
        return result

    def _after(self, client: Client, staged: Staged) -> None:
        """Do the remaining work when the copy is complete."""

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Report inputs and outputs to OpenLineage."""
        return self._lineage({})

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Lineage:  # noqa: ANN401
        """Report inputs and outputs to OpenLineage, with the number of bytes moved."""
        result = task_instance.xcom_pull(task_ids=task_instance.task_id)
        return self._lineage(result if isinstance(result, dict) else {})

    def _lineage(self, result: dict[str, Any]) -> Lineage:
        from dray_airflow import lineage

        authority = DrayHook(self.active_conn_id).settings.authority
        to = result.get("to") or self.to
        outputs = [assets.uri(authority, to)] if to else []
        return lineage.of_places([assets.uri(authority, self.path)], outputs, result)


class DrayStageInOperator(_StageOperator):
    """Copy from the slow tier of an endpoint to its fast tier.

    Use it as a setup task, with :class:`DrayEvictOperator` as its teardown. The XCom result has
    ``id``, ``path``, ``to``, ``state``, ``bytes``, ``bytes_sent``, ``bytes_resumed``,
    ``bytes_read_back``, ``seconds``, ``pinned_until`` and ``expires_at``.

    Durations are seconds or a ``timedelta``. All arguments except ``deferrable``, ``grace_seconds``
    and ``expected_duration`` may be templates.

    :param path: ``/ROOT/PATH`` in the slow root.
    :param dray_conn_id: connection of the endpoint.
    :param to: path in the fast root. By default the same path in that root.
    :param recursive: copy a folder with all its contents.
    :param pin: time after its completion for which the fast copy must not be evicted.
    :param lifetime: time for which the fast copy is needed. The endpoint then evicts it.
    :param application: application that will use the copy.
    :param version: version of the application's data, such as the number of a checkpoint.
    :param period: time between checkpoints, with ``mtbf`` or ``nodes``.
    :param mtbf: mean time between failures of the system that writes the checkpoints.
    :param nodes: number of nodes that write the checkpoints.
    :param replicas: number of fast copies.
    :param bypass: copy past the fast tier.
    :param priority: 0 to 9.
    :param deadline: time by which the copy must be complete.
    :param admission: handling of a deadline that cannot be promised. ``required``: refuse the
        request. ``best_effort``: stage without a promise. By default a first request is refused. A
        request that has started, or that has only the run's deadline, continues.
    :param bytes_expected: size of the copy, if known. If ``to`` is given too, the task asks the
        endpoint before it starts if the deadline can be promised for this size. Otherwise the copy
        starts, and the endpoint may promise the deadline when all files are listed.
    :param expected_duration: expected duration, used only for planning and not sent.
    :param labels: texts by which the copy can be found. The task adds its own labels.
    :param transfer_id: replaces the id that is derived from DAG, run, task and map index.
    """

    direction = "in"
    asked_for = "staging in"


class DrayStageOutOperator(_StageOperator):
    """Copy from the fast tier of an endpoint to its slow tier, and optionally evict the fast copy.

    The arguments are those of :class:`DrayStageInOperator`, for the other direction: ``path`` is in
    the fast root.

    :param evict: evict the fast copy when the slow copy is complete. The endpoint checks each file
        first, and refuses while a pin holds the file.
    :param unpin: results of stage operators, or ids, of copies whose pins are removed before the
        eviction.
    """

    direction = "out"
    asked_for = "staging out"
    template_fields: Sequence[str] = (*_StageOperator.template_fields, "evict", "unpin")

    def __init__(
        self,
        *,
        evict: bool | str | None = None,
        unpin: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.evict = evict
        self.unpin = unpin

    def _after(self, client: Client, staged: Staged) -> None:
        if not values.truth("evict", self.evict):
            return
        _unpin(client, (staged.id, *_ids("unpin", self.unpin)))
        client.evict_staging(staged.id)
        self.log.info("the fast copy %s was evicted", staged.path)


class DrayEvictOperator(BaseOperator):
    """Evict fast copies. Use it as a teardown for :class:`DrayStageInOperator`.

    A file without a slow copy is kept. The task then fails with the name of the file. A copy that
    is already evicted is no error.

    :param staged: the result of a stage operator (``stage_in.output``), the id in such a result, or
        several of these.
    :param dray_conn_id: connection of the endpoint.
    :param unpin: remove the pins of the copies first.
    """

    template_fields: Sequence[str] = ("staged", "dray_conn_id", "unpin")
    ui_color = "#e3dff2"

    def __init__(
        self,
        *,
        staged: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        dray_conn_id: str = DrayHook.default_conn_name,
        unpin: bool | str = True,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.staged = staged
        self.dray_conn_id = dray_conn_id
        self.unpin = unpin

    def execute(self, context: Context) -> dict[str, Any]:
        """Evict the copies, one after the other.

        :returns: a dictionary whose key ``evicted`` has the ids.
        """
        del context
        ids = _ids("staged", self.staged)
        if not ids:
            raise bad_input("use staged", "it is empty", "give the id of a stage operator's result")
        hook = DrayHook(values.text("dray_conn_id", self.dray_conn_id))
        with hook.get_conn() as client:
            for id in ids:
                with translated(hook.settings.about(f"staged copy {id}"), hook.settings):
                    if values.truth("unpin", self.unpin) and client.staging(id).state == "staged":
                        _unpin(client, (id,))
                    client.evict_staging(id)
                self.log.info("staged copy %s was evicted", id)
        return {"evicted": list(ids)}


def _ids(name: str, value: object) -> tuple[str, ...]:
    """Return the ids in a value that has ids or results with ids."""
    several = [value] if isinstance(value, (str, Mapping)) or value is None else value
    if isinstance(several, Sequence):
        several = [each.get("id") if isinstance(each, Mapping) else each for each in several]
    return values.texts(name, None if several == [None] else several)


def _path(name: str, value: str | None) -> str:
    path = values.text(name, value)
    if not path.startswith("/"):
        raise bad_input(
            f"use {name}", f"{path!r} is not a path of the endpoint", "write /ROOT/PATH"
        )
    return path


def _unpin(client: Client, ids: Sequence[str]) -> None:
    pinned = [id for id in ids if client.staging(id).pinned_until is not None]
    for id in pinned:
        client.pin_staging(id, 1)
    if pinned:
        time.sleep(PIN_OVER_SECONDS)


def _outcome(staged: Staged, transfer: Transfer) -> dict[str, Any]:
    begun = transfer.started_at or transfer.submitted_at
    seconds = 0.0
    if begun is not None and transfer.ended_at is not None:
        seconds = (transfer.ended_at - begun).total_seconds()
    return {
        "id": staged.id,
        "path": staged.path,
        "to": staged.to,
        "state": staged.state,
        "files": transfer.files.done,
        "bytes": transfer.bytes.listed,
        "bytes_sent": transfer.bytes.sent,
        "bytes_resumed": transfer.bytes.resumed,
        "bytes_read_back": transfer.bytes.read_back,
        "seconds": round(seconds, 3),
        "pinned_until": _text(staged.pinned_until),
        "expires_at": _text(staged.expires_at),
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
