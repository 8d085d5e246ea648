"""The operator that makes one endpoint copy files from or to another endpoint.

The task only submits the transfer and waits. A retry, a cleared task or another worker continues
the same transfer (:mod:`dray_airflow.submission`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dray_airflow import assets, by_executor, values
from dray_airflow.errors import bad_input
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.identity import key_of
from dray_airflow.operators.waiting import WaitingOperator, check_choice, reserved_submit
from dray_airflow.submission import End, Errand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from airflow.sdk import Context

    from dray.client import Client, Request, Transfer
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.lineage import Lineage
    from dray_airflow.submission import Ends

__all__ = ["DrayTransferOperator"]

log = logging.getLogger(__name__)

SOURCES_MAX = 256
REPLICAS_MAX = 15


class DrayTransferOperator(WaitingOperator):
    """Move files from one endpoint to another, or within one endpoint.

    The XCom result is a small dictionary: ``id``, ``files``, ``bytes``, ``bytes_sent``,
    ``bytes_resumed``, ``bytes_adopted``, ``bytes_durable``, ``bytes_read_back``, ``seconds``, for a
    single file ``checksum``, and ``receipt``, the id of the signed receipt, if the endpoint writes
    receipts.

    Sizes are in bytes and rates in bytes per second, as numbers or as ``200GB``, ``100MiB``. Times
    are ``datetime`` objects with a zone or RFC 3339 texts. A ``timedelta`` counts from the start of
    the DAG run. All arguments except ``deferrable`` and ``grace_seconds`` may be templates. An
    empty result of a template counts as not given.

    :param sources: ``/ROOT/PATH`` at the endpoint of ``source_conn_id``, or a ``dray://`` URL. All
        sources of a list are copied: at most 256, in one root.
    :param destination: path or URL at ``destination_conn_id``. If the path ends with a slash, or if
        there are several sources, the destination is a folder.
    :param source_conn_id: connection of the sources.
    :param destination_conn_id: connection of the destination.
    :param replicas: at most 15 equal copies of a single source. If the source fails, the replicas
        are read, one after another. The sizes of source and replicas are compared before data
        moves.
    :param replica_conn_id: connection of all replicas, or a list with one connection per replica.
        By default ``source_conn_id``.
    :param files_min: minimum number of files, by default 1. If the source has fewer files, the
        transfer fails. With 0, an empty source is permitted.
    :param active: end whose endpoint drives the transfer, ``destination`` or ``source``.
    :param recursive: copy a folder with all its contents.
    :param include: patterns of files to select in a folder.
    :param exclude: patterns of files and folders to leave out.
    :param class_: ``realtime``, ``deadline`` or ``background``.
    :param deadline: time by which the transfer must be done. By default the deadline of the DAG
        run, propagated back through the graph (docs/explanation/airflow-deadlines.md).
    :param not_before: earliest start time.
    :param admission: handling of a deadline that cannot be promised. ``required``: refuse the
        transfer. ``best_effort``: transfer without a promise. By default, a new transfer is
        refused, and a transfer that has already started continues without a promise.
    :param bytes_expected: size of the transfer, if known. The promise of a deadline covers this
        size.
    :param expected_duration: expected duration, used only for planning and not sent.
    :param priority: 0 to 9.
    :param weight: weight among transfers that share a rate, 1 to 1000.
    :param rate_min: minimum rate.
    :param rate_max: maximum rate.
    :param verify: read each file back before it gets its final name.
    :param resume: ``verify`` (read back the durable data of an earlier run) or ``trust``.
    :param durability: ``none``, ``file`` or ``object``.
    :param overwrite: ``never``, ``if-different`` or ``always``.
    :param size: required size of a single file.
    :param checksum: required checksum of a single file, ``adler32:HHHHHHHH`` or
        ``crc32c:HHHHHHHH``.
    :param activity: key by which the transfer can be found, and by which transfers take turns. By
        default the id of the DAG.
    :param labels: texts by which the transfer can be found. The task adds its own labels.
    :param options: further fields of :class:`dray.client.Request`, such as ``streams`` and
        ``object_size``.
    :param transfer_id: replaces the id that is derived from DAG, run, task and map index. If a live
        transfer with this id has a different request, the task fails. With a derived id, such a
        transfer is an older request of this task, and the task cancels it.
    :param executor_conn_id: connection of the service that moves the files, if a URL has a scheme
        such as ``globus``. By default ``globus_default`` for this scheme. If this connection does
        not exist, the environment of the worker has the settings.
    """

    template_fields: Sequence[str] = (
        "sources",
        "destination",
        "source_conn_id",
        "destination_conn_id",
        "replicas",
        "replica_conn_id",
        "files_min",
        "active",
        "recursive",
        "include",
        "exclude",
        "class_",
        "deadline",
        "not_before",
        "admission",
        "bytes_expected",
        "priority",
        "weight",
        "rate_min",
        "rate_max",
        "verify",
        "resume",
        "durability",
        "overwrite",
        "size",
        "checksum",
        "activity",
        "labels",
        "options",
        "transfer_id",
        "executor_conn_id",
    )
    ui_color = "#d7e8f5"

    def __init__(
        self,
        *,
        sources: str | Sequence[str],
        destination: str,
        source_conn_id: str = DrayHook.default_conn_name,
        destination_conn_id: str = DrayHook.default_conn_name,
        replicas: str | Sequence[str] | None = None,
        replica_conn_id: str | Sequence[str] | None = None,
        files_min: int | str | None = None,
        active: str = "destination",
        recursive: bool | str | None = None,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        class_: str | None = None,
        deadline: datetime | timedelta | str | None = None,
        not_before: datetime | timedelta | str | None = None,
        admission: str | None = None,
        bytes_expected: int | str | None = None,
        expected_duration: timedelta | float | None = None,
        priority: int | str | None = None,
        weight: int | str | None = None,
        rate_min: int | str | None = None,
        rate_max: int | str | None = None,
        verify: bool | str | None = None,
        resume: str | None = None,
        durability: str | None = None,
        overwrite: str | None = None,
        size: int | str | None = None,
        checksum: str | None = None,
        activity: str | None = None,
        labels: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        transfer_id: str | None = None,
        executor_conn_id: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.sources = sources
        self.destination = destination
        self.source_conn_id = source_conn_id
        self.destination_conn_id = destination_conn_id
        self.replicas = replicas
        self.replica_conn_id = replica_conn_id
        self.files_min = files_min
        self.active = active
        self.recursive = recursive
        self.include = include
        self.exclude = exclude
        self.class_ = class_
        self.deadline = deadline
        self.not_before = not_before
        self.admission = admission
        self.bytes_expected = bytes_expected
        self.expected_duration = expected_duration
        self.priority = priority
        self.weight = weight
        self.rate_min = rate_min
        self.rate_max = rate_max
        self.verify = verify
        self.resume = resume
        self.durability = durability
        self.overwrite = overwrite
        self.size = size
        self.checksum = checksum
        self.activity = activity
        self.labels = labels
        self.options = options
        self.transfer_id = transfer_id
        self.executor_conn_id = executor_conn_id
        #: Cancels the task of an executor, for :meth:`on_kill`.
        self.cancel_by_executor: Callable[[], None] | None = None

    # --- called by Airflow ------------------------------------------------------------------------

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - as Airflow's own operators
        """Submit the transfer or resume it, and wait for its end."""
        if by_executor.scheme_of_ends(*self._ends()) is not None:
            self._begun_at = datetime.now(timezone.utc)
            return by_executor.Run(self, context).begin()
        return super().execute(context)

    def execute_complete(
        self, context: Context, event: Mapping[str, Any], begun_at: str | None = None
    ) -> Any:  # noqa: ANN401 - as Airflow's own operators
        """Continue after the trigger has fired."""
        if "executor" in event:
            return by_executor.Run(self, context).complete(event)
        return super().execute_complete(context, event, begun_at)

    def on_kill(self) -> None:
        """Cancel the transfer. Durable data is kept."""
        if self.cancel_by_executor is None:
            super().on_kill()
            return
        self._is_told_to_end = True
        self.cancel_by_executor()

    def _recall(self, context: Context) -> None:
        if by_executor.scheme_of_ends(*self._ends()) is not None:
            by_executor.Run(self, context).recall()
            return
        super()._recall(context)

    # --- the request ------------------------------------------------------------------------------

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Return the request from the rendered fields.

        No connection is opened. The request has only the deadline of the task itself. The deadline
        that follows from the run is added when the task runs.

        :param settings: settings of the called endpoint. See :attr:`active_conn_id`.
        :raises DrayTaskFailure: if a field is invalid. The message names the field.
        """
        sources, destination = self._ends()
        if (scheme := by_executor.scheme_of_ends(sources, destination)) is not None:
            raise bad_input(
                "reserve the transfer",
                f"the service that moves {scheme}:// URLs makes no promises",
                "list only the other tasks in the argument tasks of DrayAdmitOperator",
            )
        self._check_client(sources)
        return Errand(
            sources,
            destination,
            self._request(context, settings),
            active="source" if self.active == "source" else "destination",
            mark=str(context["ti"].id),
            is_id_own=values.is_empty(self.transfer_id),
            replicas=self._replicas(sources),
        )

    @property
    def active_conn_id(self) -> str:
        """The connection of the called endpoint, with templates rendered."""
        sources, destination = self._ends()
        return (sources[0] if self.active == "source" else destination).conn_id

    def _ends(self) -> tuple[tuple[End, ...], End]:
        active: Sequence[Ends] = ("destination", "source")
        check_choice("active", self.active, active)
        paths = values.texts("sources", self.sources)
        if not 1 <= len(paths) <= SOURCES_MAX:
            raise bad_input(
                "use sources",
                f"sources has {len(paths)} items after its templates were rendered",
                f"give 1 to {SOURCES_MAX} files or folders; all of them are copied",
            )
        conn_ids = set(values.texts("source_conn_id", self.source_conn_id))
        if len(conn_ids) != 1:
            raise bad_input(
                "use source_conn_id",
                f"{len(conn_ids)} connections are given",
                "give one connection for all sources; list equal copies at other endpoints "
                "in replicas",
            )
        (conn_id,) = conn_ids
        sources = tuple(End(conn_id, path) for path in paths)
        destination = End(
            values.text("destination_conn_id", self.destination_conn_id),
            values.text("destination", self.destination),
        )
        return sources, destination

    def _check_client(self, sources: Sequence[End]) -> None:
        """Refuse several sources if the installed client is old and would take them as replicas."""
        from dray.client import Request

        is_new = "replicas" in {each.name for each in dataclasses.fields(Request)}
        if not is_new and (len(sources) > 1 or not values.is_empty(self.replicas)):
            raise bad_input(
                "use sources and replicas",
                "the installed dray.client supports a single source only",
                "install dray_airflow and dray of the same version",
            )

    def _replicas(self, sources: Sequence[End]) -> tuple[End, ...]:
        """Return the replicas of the one source."""
        paths = values.texts("replicas", self.replicas)
        if not paths:
            return ()
        if len(paths) > REPLICAS_MAX or len(sources) > 1 or self.active == "source":
            raise bad_input(
                "use replicas",
                f"{len(paths)} replicas are given for {len(sources)} sources, and active is "
                f"{self.active!r}",
                f"give up to {REPLICAS_MAX} copies of one source, with active='destination'",
            )
        conn_ids = values.texts("replica_conn_id", self.replica_conn_id) or (sources[0].conn_id,)
        if len(conn_ids) == 1:
            conn_ids *= len(paths)
        if len(conn_ids) != len(paths):
            raise bad_input(
                "use replica_conn_id",
                f"{len(conn_ids)} connections are given for {len(paths)} replicas",
                "give one connection for all replicas, or one for each replica",
            )
        return tuple(End(conn, path) for conn, path in zip(conn_ids, paths, strict=True))

    def _request(self, context: Context, settings: Settings) -> Request:
        from dray.client import Content, Request, Selection
        from dray.errors import DrayUsageError

        class_, durability = values.word(self.class_), values.word(self.durability)
        overwrite, admission = values.word(self.overwrite), values.word(self.admission)
        check_choice("class_", class_, ("realtime", "deadline", "background"))
        resume = values.word(self.resume)
        check_choice("durability", durability, ("none", "file", "object"))
        check_choice("resume", resume, ("verify", "trust"))
        check_choice("overwrite", overwrite, ("never", "if-different", "always"))
        check_choice("admission", admission, ("required", "best_effort"))
        begin = getattr(context.get("dag_run"), "start_date", None)
        include = values.texts("include", self.include)
        exclude = values.texts("exclude", self.exclude)
        size, checksum = values.size("size", self.size), values.word(self.checksum)
        given: dict[str, Any] = {
            "selection": Selection(
                recursive=values.truth("recursive", self.recursive),
                include=include or None,
                exclude=exclude or None,
            ),
            "content": None if size is None and checksum is None else Content(size, checksum),
            "class_": class_,
            "deadline": values.time("deadline", self.deadline, begin),
            "not_before": values.time("not_before", self.not_before, begin),
            "admission": admission,
            "bytes_expected": values.size("bytes_expected", self.bytes_expected),
            "priority": values.integer("priority", self.priority),
            "weight": values.integer("weight", self.weight),
            "rate_min": values.size("rate_min", self.rate_min),
            "rate_max": values.size("rate_max", self.rate_max),
            "verify": values.truth("verify", self.verify),
            "resume": resume,
            "durability": durability,
            "overwrite": overwrite,
            "activity": values.word(self.activity) or context["ti"].dag_id,
            "labels": own_labels(context, self.labels),
        }
        files_min = values.integer("files_min", self.files_min)
        if files_min is not None:
            given["files_min"] = files_min
        fields = {each.name for each in dataclasses.fields(Request)} - set(given)
        fields -= {"id", "sources", "replicas", "files_min", "destination"}
        if self.options is not None and not isinstance(self.options, Mapping):
            raise bad_input(
                "use options",
                f"its value is {self.options!r} after its templates were rendered",
                "give a dictionary, or set render_template_as_native_obj=True in the DAG",
            )
        for name, value in (self.options or {}).items():
            if name not in fields:
                raise bad_input(
                    "use options",
                    f"options has the unknown field {name!r}",
                    f"use one of {', '.join(sorted(fields))}",
                )
            given[name] = value
        given.setdefault("bound_seconds", self._bound(settings))
        id = self._id(context, settings, self.transfer_id)
        try:
            return Request(sources=(), destination="", id=id, **given)
        except (DrayUsageError, TypeError) as error:
            raise bad_input("use options", str(error), "see dray.client.Request") from None

    def _wish(self, context: Context, settings: Settings) -> Errand:
        errand = self._by_deadline(context, self.errand(context, settings))
        return dataclasses.replace(errand, submit=reserved_submit(context, settings))

    def _by_deadline(self, context: Context, errand: Errand) -> Errand:
        """If the task has no deadline, add the deadline that follows from the run's deadline."""
        found = self._time_left(context)
        if found is None:
            return errand
        request = errand.request
        class_ = request.class_ or found.class_
        if not found.is_possible:
            # The run's deadline has passed. Submit the transfer without a deadline, but in the
            # deadline class, so that it precedes transfers without a deadline.
            return errand.with_request(class_=class_)
        admission = request.admission or "best_effort"
        return errand.with_request(class_=class_, deadline=found.latest_finish, admission=admission)

    def _complete(
        self, context: Context, client: Client, settings: Settings, transfer: Transfer
    ) -> dict[str, Any]:
        self._check(client, transfer)
        result = outcome(client, transfer)
        self.log.info("transfer %s is done: %s", transfer.id, result)
        if transfer.files.skipped:
            self.log.warning(
                "transfer %s kept %d existing files (overwrite=never)",
                transfer.id,
                transfer.files.skipped,
            )
        _, destination = self._ends()
        destination_settings = settings if destination.conn_id == settings.conn_id else None
        destination_settings = destination_settings or DrayHook(destination.conn_id).settings
        authority, path = destination.split(destination_settings)
        assets.announce(context, assets.uri(authority, path), result)
        return result

    # --- lineage ----------------------------------------------------------------------------------

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Report inputs and outputs to OpenLineage."""
        from dray_airflow import lineage

        return lineage.of_transfer(*self._ends(), None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Lineage:  # noqa: ANN401
        """Report inputs and outputs to OpenLineage, with the number of bytes moved."""
        from dray_airflow import lineage

        return lineage.of_transfer(*self._ends(), task_instance)


def own_labels(context: Context, given: object) -> dict[str, str]:
    """Return the labels of a task's transfers: ``given``, and the key of the task in Airflow."""
    key = key_of(context)._asdict()
    own = {name: values.label_text(value) for name, value in key.items()}
    return {**values.labels("labels", given), **own}


def outcome(client: Client, transfer: Transfer, *, has_receipts: bool = True) -> dict[str, Any]:
    """Return the result of a finished transfer, small enough for an XCom.

    :param has_receipts: false if the service that moves the files writes no receipts.
    """
    from dray.errors import DrayError

    begun = transfer.started_at or transfer.submitted_at
    seconds = 0.0
    if begun is not None and transfer.ended_at is not None:
        seconds = (transfer.ended_at - begun).total_seconds()
    result: dict[str, Any] = {
        "id": transfer.id,
        "files": transfer.files.done,
        "bytes": transfer.bytes.listed,
        "bytes_sent": transfer.bytes.sent,
        "bytes_resumed": transfer.bytes.resumed,
        "bytes_adopted": transfer.bytes.adopted,
        "bytes_durable": transfer.bytes.durable,
        "bytes_read_back": transfer.bytes.read_back,
        "seconds": round(seconds, 3),
    }
    if transfer.files.listed == 1:
        try:
            only = next(client.files(transfer.id, state="done"), None)
        except DrayError:
            # The file exists and was checked. Only its checksum is missing in the result.
            only = None
        if only is not None and only.crc32c:
            result["checksum"] = f"crc32c:{only.crc32c}"
        elif only is not None and only.adler32:
            result["checksum"] = f"adler32:{only.adler32}"
    receipt = receipt_of(client, transfer) if has_receipts else None
    if receipt is not None:
        result["receipt"] = receipt
    return result


def receipt_of(client: Client, transfer: Transfer) -> str | None:
    """Return the id of a transfer's receipt. ``None`` if there is no receipt.

    The endpoint writes the receipt a moment after the end of the transfer.
    """
    from dray.errors import DrayError

    if transfer.receipt is None:
        try:
            # The endpoint answers when it has written the receipt.
            client.receipt(transfer.id, files=False)
            transfer = client.transfer(transfer.id)
        except DrayError as error:
            log.info("transfer %s has no receipt: %s", transfer.id, error)
    return transfer.receipt.id if transfer.receipt is not None else None
