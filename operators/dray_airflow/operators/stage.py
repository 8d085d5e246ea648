"""Operators for two tiers of storage: stage in to the fast tier, stage out to the slow tier, evict.

A staged copy consists of a transfer within one endpoint and a record of the copy's lifetime. The
tasks submit the transfer and wait for it as a DrayTransferOperator does.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk import BaseOperator

from dray_airflow import assets, values
from dray_airflow.errors import DrayTaskRetry, bad_input, is_unattended, translated
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.identity import key_of, transfer_id
from dray_airflow.links.transfer import publish
from dray_airflow.operators.transfer import own_labels
from dray_airflow.operators.waiting import (
    WaitingOperator,
    check_choice,
    reserved_submit,
    story,
)
from dray_airflow.staging import Direction, StagingErrand, check_agreement, outcome
from dray_airflow.submission import Clients
from dray_airflow.versions import MISSING, fast_copies, pins_of, restart

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from dray.client import Client, Staged, Transfer
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.lineage import Lineage

__all__ = ["DrayEvictOperator", "DrayStageInOperator", "DrayStageOutOperator"]

RESTARTS_MAX = 5
"""Maximum number of copies for which one try of a restart waits."""
PIN_OVER_SECONDS = 1.1
"""Time in seconds after which a pin of one second has expired.

One second is the minimum of a pin.
"""


class _StageOperator(WaitingOperator):
    """The common base class of staging in and staging out."""

    direction: ClassVar[Direction]
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
        path: str | None = None,
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
            path=None if self._is_restart else _path("path", self.path),
            id=self._id(context, settings, self.transfer_id),
            to=None if values.is_empty(self.to) else _path("to", self.to),
            recursive=values.truth("recursive", self.recursive),
            pin_seconds=values.seconds("pin", self.pin),
            lifetime_seconds=values.seconds("lifetime", self.lifetime),
            application=values.word(self.application),
            version=values.integer("version", self.version),
            period_seconds=values.seconds("period", self.period),
            mtbf_seconds=values.seconds("mtbf", self.mtbf),
            nodes=values.integer("nodes", self.nodes),
            replicas=values.integer("replicas", self.replicas),
            bypass=values.truth("bypass", self.bypass),
            priority=values.integer("priority", self.priority),
            deadline=values.time("deadline", self.deadline, begin),
            admission=cast("Any", admission),
            bytes_expected=values.size("bytes_expected", self.bytes_expected),
            labels=own_labels(context, self.labels),
            bound_seconds=self._bound(settings),
        )
        check_agreement(
            self.direction,
            request,
            transfer_id=self.transfer_id,
            is_evicted=bool(values.truth("evict", getattr(self, "evict", None))),
        )
        return StagingErrand(
            settings.conn_id,
            self.direction,
            request,
            str(context["ti"].id),
            is_id_own=values.is_empty(self.transfer_id),
        )

    @property
    def _is_restart(self) -> bool:
        """True if the endpoint selects the version, and with it the paths."""
        return self.direction == "in" and values.is_empty(self.path)

    def _wish(self, context: Context, settings: Settings) -> StagingErrand:
        """Return the request.

        If the task has no deadline, add the deadline that follows from the run's deadline.
        """
        errand = self.errand(context, settings)
        found = self._time_left(context)
        if found is not None and found.is_possible:
            admission = errand.admission or "best_effort"
            errand = errand.with_request(deadline=found.latest_finish, admission=admission)
        return dataclasses.replace(errand, submit=reserved_submit(context, settings))

    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> dict[str, Any]:
        self._check(client, transfer)
        with translated(settings.about(f"transfer {transfer.id}"), settings):
            staged = client.staging(transfer.id)
            result = outcome(staged, transfer)
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
        path, to = result.get("path") or self.path, result.get("to") or self.to
        inputs, outputs = ([assets.uri(authority, each)] if each else [] for each in (path, to))
        return lineage.of_places(inputs, outputs, result)


class DrayStageInOperator(_StageOperator):
    """Copy from the slow tier of an endpoint to its fast tier.

    If ``path`` is given, use the operator as a setup task, and :class:`DrayEvictOperator` as its
    teardown. If only ``application`` is given, the operator prepares a restart of the application:
    the endpoint selects ``version``, or else the newest complete version of the application on its
    tiers. If the selected version has a fast copy, nothing is copied, and ``hit`` is true in the
    result. Each try selects the version again.

    The XCom result has ``id``, ``path``, ``to``, ``state``, ``hit``, ``application``, ``version``,
    ``files``, ``bytes``, ``bytes_sent``, ``bytes_resumed``, ``bytes_read_back``, ``seconds``,
    ``pinned_until`` and ``expires_at``.

    Durations are seconds or a ``timedelta``. All arguments except ``missing_ok``, ``deferrable``,
    ``grace_seconds`` and ``expected_duration`` may be templates.

    :param path: ``/ROOT/PATH`` in the slow root. Omit it for a restart of ``application``.
    :param dray_conn_id: connection of the endpoint.
    :param to: path in the fast root. By default the same path below the fast root.
    :param recursive: copy a folder with all its contents.
    :param pin: time after the end of the copy during which the fast copy must not be evicted.
    :param lifetime: time for which the fast copy is needed. After this time the endpoint evicts the
        fast copy.
    :param application: application that will use the copy.
    :param version: version of the application's data, such as the number of a checkpoint.
    :param period: time between two checkpoints of the application.
    :param mtbf: mean time between failures of the system that writes the checkpoints.
    :param nodes: number of nodes that write the checkpoints.
    :param replicas: number of copies that the endpoint makes.
    :param bypass: copy from the slow root to a root that is in no tier, without a fast copy.
    :param priority: 0 to 9.
    :param deadline: time by which the copy must be complete.
    :param admission: handling of a deadline that cannot be promised. ``required``: refuse the
        request. ``best_effort``: stage without a promise. By default, a new copy is refused if
        ``deadline`` is given. A copy that has already started, and a copy without ``deadline``, for
        which the deadline of the DAG run applies, run without a promise.
    :param bytes_expected: size of the copy, if known. If it is given, the endpoint promises or
        refuses the deadline immediately. If it is not given, the copy starts without a promise, and
        the endpoint may promise the deadline when all files are listed.
    :param expected_duration: expected duration, used only for planning and not sent.
    :param labels: texts by which the copy can be found. The task adds its own labels.
    :param transfer_id: replaces the id that is derived from DAG, run, task and map index.
    :param missing_ok: if the application has no complete version, succeed with ``version`` and
        ``to`` equal to ``None``, as before the first checkpoint. By default the task fails.
    """

    direction = "in"
    asked_for = "staging in"

    def __init__(self, *, missing_ok: bool = False, **kwargs: Any) -> None:  # noqa: ANN401 - as Airflow's own operators
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.missing_ok = missing_ok

    def _id(self, context: Context, settings: Settings, given: str | None = None) -> str:
        """Return the id of the copy. A restart has another id in each try.

        The reason: a later try may restore another version, and an id belongs to one version.
        """
        if not self._is_restart:
            return super()._id(context, settings, given)
        part = f"try {context['ti'].id}"
        return transfer_id(*key_of(context), namespace=settings.namespace, part=part)

    def _ask(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        return self._restart(context) if self._is_restart else super()._ask(context)

    def _restart(self, context: Context) -> dict[str, Any]:
        settings = DrayHook(self.active_conn_id).settings
        errand = self._wish(context, settings)
        application = errand.request.application
        self._remember(context, settings, errand.id)
        with Clients() as clients:
            client = clients.of(errand.conn_id)
            for _ in range(RESTARTS_MAX):
                with translated(settings.about(f"restart of {application}"), settings):
                    found = restart(errand, client)
                    self._was_believed = True
                    if found.transfer is None:
                        return self._found(context, settings, found.staged, errand)
                self._remember(context, settings, found.transfer.id)
                said = "restarts" if found.transfer.id == errand.id else "waits for the restart of"
                self.log.info("%s %s: %s", said, application, story(found.transfer))
                publish(context, settings, found.transfer)
                ended = self._wait(context, client, settings, found.transfer)
                if ended.id == errand.id and not is_unattended(ended):
                    return self._complete(context, client, settings, ended)
        raise DrayTaskRetry(f"the restart of {application} did not get a fast copy; try again")

    def _found(
        self, context: Context, settings: Settings, staged: Staged | None, errand: StagingErrand
    ) -> dict[str, Any]:
        """Return the result of a restart that copies nothing."""
        application = errand.request.application
        if staged is not None:
            result = outcome(staged, None)
            self.log.info("%s restarts from its fast copy: %s", application, result)
            assets.announce(context, assets.uri(settings.authority, result["to"]), result)
            return result
        if not self.missing_ok or errand.request.version is not None:
            raise bad_input(
                f"restart {application}",
                "no tier of the endpoint has the version"
                if errand.request.version is not None
                else "no tier of the endpoint has a complete version",
                "check the name with `dray tier show`, or set missing_ok=True to start "
                "from the beginning",
            )
        self.log.info("%s has no complete version and starts from the beginning", application)
        return {**MISSING, "application": application}

    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> dict[str, Any]:
        if self._is_restart and transfer.id != self._id(context, settings):
            # The task has waited for the transfer of another restart. Ask for the version again.
            return self._restart(context)
        return super()._complete(context, client, settings, transfer)


class DrayStageOutOperator(_StageOperator):
    """Copy from the fast tier of an endpoint to its slow tier, and optionally evict the fast copy.

    The arguments are those of :class:`DrayStageInOperator`, for the other direction: ``path`` is in
    the fast root, and is required. With ``application`` and ``version``, the task declares the data
    to the tier as a version of the application, and the transfer demotes this version (copies it to
    the slow root). ``period`` tells the tier how often the application writes, and ``mtbf`` or
    ``nodes`` how often it restarts.

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

    If a file has no slow copy, its fast copy is kept, and the task fails with the name of the file.
    If a copy has already been evicted, the task succeeds.

    :param staged: the result of a stage operator (``stage_in.output``), the id in such a result, or
        several of these.
    :param dray_conn_id: connection of the endpoint.
    :param unpin: remove the pins of the copies first.
    :param application: instead of ``staged``: application whose versions on the tiers are evicted.
    :param version: number of the only version to evict. By default all versions are evicted.
    """

    template_fields: Sequence[str] = ("staged", "dray_conn_id", "unpin", "application", "version")
    ui_color = "#e3dff2"

    def __init__(
        self,
        *,
        staged: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
        dray_conn_id: str = DrayHook.default_conn_name,
        unpin: bool | str = True,
        application: str | None = None,
        version: int | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.staged = staged
        self.dray_conn_id = dray_conn_id
        self.unpin = unpin
        self.application = application
        self.version = version

    def execute(self, context: Context) -> dict[str, Any]:
        """Evict the copies, one after the other.

        :returns: a dictionary. Its key ``evicted`` has the ids of the evicted copies.
        """
        del context
        application = values.word(self.application)
        version = values.integer("version", self.version)
        is_staged = not values.is_empty(self.staged)
        if is_staged == (application is not None) or (is_staged and version is not None):
            raise bad_input(
                "evict",
                "the task needs either the argument staged, or the argument application "
                "with an optional version",
                "give the result of a stage operator, or the name of an application",
            )
        hook = DrayHook(values.text("dray_conn_id", self.dray_conn_id))
        with hook.get_conn() as client:
            if application is None:
                evicted = self._evict(hook, client, _ids("staged", self.staged))
            else:
                evicted = self._evict_versions(hook, client, application, version)
        return {"evicted": evicted}

    def _evict(self, hook: DrayHook, client: Client, ids: Sequence[str]) -> list[str]:
        for id in ids:
            with translated(hook.settings.about(f"staged copy {id}"), hook.settings):
                if values.truth("unpin", self.unpin) and client.staging(id).state == "staged":
                    _unpin(client, (id,))
                client.evict_staging(id)
            self.log.info("staged copy %s was evicted", id)
        return list(ids)

    def _evict_versions(
        self, hook: DrayHook, client: Client, application: str, version: int | None
    ) -> list[str]:
        evicted = []
        with translated(hook.settings.about(f"versions of {application}"), hook.settings):
            for each in fast_copies(client, application, version):
                if values.truth("unpin", self.unpin):
                    _unpin(client, pins_of(client, each))
                evicted.append(client.evict_staging(each.transfer or "").id)
                self.log.info("the fast copy of version %d was evicted", each.version)
        return evicted


def _ids(name: str, value: object) -> tuple[str, ...]:
    """Return the ids in a value that has ids or results with ids."""
    several = [value] if isinstance(value, (str, Mapping)) or value is None else value
    if isinstance(several, Sequence):
        # The result of a restart without a version has no id, and nothing to evict.
        is_none = [isinstance(each, Mapping) and each.get("id") is None for each in several]
        several = [
            each["id"] if isinstance(each, Mapping) else each
            for each, is_left_out in zip(several, is_none, strict=True)
            if not is_left_out
        ]
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
