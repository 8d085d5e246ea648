"""Reserve all transfers and staged copies of a run before any of them starts.

An endpoint promises a deadline or a rate only to transfers in its queue. So the operator queues a
placeholder for each transfer that has not started. A placeholder has the same size, roots and
deadline as the transfer, but its source file does not exist. So a placeholder never moves data, and
cannot copy data that is still being written. The transfer of the task replaces the placeholder. If
the task submits no transfer, the endpoint cancels the placeholder one second before the start time
of the placeholder.

A staged copy is a transfer between two roots of one endpoint. So the placeholder of a staged copy
is also a transfer between these two roots.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator

from dray_airflow import values
from dray_airflow.deadlines.callback import RESERVATION_LABEL
from dray_airflow.deadlines.text import clock
from dray_airflow.deadlines.times import whole_second
from dray_airflow.errors import DrayTaskFailure, bad_input, one_line, translated
from dray_airflow.reservations import (
    NAMESPACE_LABEL,
    RESERVED_KEY,
    ended_runs,
    free_ended,
    free_one,
    holders,
    in_the_way,
    is_reserved,
    reservation_id,
    submit_reserved,
)
from dray_airflow.sets import could_be, find, free, submit_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from dray.client import AdmissionVerdict, Client, Request, StagingRequest, Transfer
    from dray_airflow.deadlines.graph import DeadlinePlan, TransferDeadline
    from dray_airflow.staging import StagingErrand
    from dray_airflow.submission import Clients, End, Errand

__all__ = ["DrayAdmitOperator", "is_reserved", "reservation_id", "submit_reserved"]

START_WITHIN = timedelta(seconds=60)
"""Time that a ready task may take to submit its transfer: estimated, not measured.

The time covers the scheduler, the start of a process, and a full pool.
"""
PATIENCE = (0.5, 0.25, 0.0)
"""Fractions of the time from a transfer's start to its deadline by which its task may be late.

The placeholder ends if the task is later. The first fraction that the capacity permits is used.
"""
OFFER_LASTS = timedelta(seconds=60)
"""Time that a person may take to trigger the run again with the offered deadline."""
OFFER_ROUNDS_MAX = 6
NAMED_MAX = 5
REASONS_MAX = 3
SET_MAX = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transfer that a task will submit.

    :param name: name of the task, and for a mapped task also the number of the instance.
    :param errand: request of the transfer.
    :param begin: earliest time at which the task can submit the transfer, with a time zone.
    :param deadline: deadline of the transfer, with a time zone.
    """

    name: str
    errand: Errand | StagingErrand
    begin: datetime
    deadline: datetime

    @property
    def bytes(self) -> int | None:
        """Size of the transfer, if it was declared."""
        request = self.errand.request
        content = getattr(request, "content", None)
        if request.bytes_expected is not None or content is None:
            return request.bytes_expected
        size: int | None = content.size
        return size


class DrayAdmitOperator(BaseOperator):
    """Reserve all transfers of the run as a set: all are promised, or the task fails immediately.

    Put this operator before the first transfer. The operator requests a promise for each later
    transfer, with its size (``bytes_expected`` or ``size``), its earliest start, and its latest
    finish (docs/explanation/airflow-deadlines.md). A transfer without a size cannot be promised. A
    reservation lasts until the task submits its own transfer. If the task is later than a permitted
    delay, the reservation ends before the task can use it. The permitted delay is half of the time
    between the earliest start and the latest finish, or a quarter of this time, or zero: the
    largest that the capacity permits.

    A copy to stage in or to stage out is reserved too, if its task has ``path``, ``to`` and
    ``bytes_expected``. The token then needs the scopes ``storage.read`` and ``storage.create`` for
    these paths. A restart (staging in without ``path``) cannot be reserved.

    Reservations end with the run. If a later run is refused because of a reservation of an ended
    run, the later run cancels this reservation.

    A refusal names the task that does not fit, the reason, the transfers that use the rate, and the
    earliest deadline of the run that could be promised. The XCom result has ``deadline``,
    ``promised``, ``left_out`` and ``transfers``, with the id and the times of each task's transfer.

    :param tasks: ids of the transfer tasks to reserve. By default all that have not started.
    :param start_within: time that a ready task may take to submit its transfer.
    :param required: ``True``: the task fails unless every transfer that has not started is
        promised. It also fails if there is a transfer whose size or request is unknown.
        ``"known"``: such transfers are left out, and all others must be promised. ``False``: a
        refusal is only logged, no reservation is kept, and the run continues.
    """

    is_dray_admit: ClassVar[bool] = True
    template_fields: Sequence[str] = ("tasks",)
    ui_color = "#d7e8f5"

    def __init__(
        self,
        *,
        tasks: Sequence[str] | None = None,
        start_within: timedelta = START_WITHIN,
        required: bool | Literal["known"] = True,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments. They are not checked yet."""
        super().__init__(**kwargs)
        self.tasks = tasks
        self.start_within = start_within
        self.required = required

    def execute(self, context: Context) -> dict[str, Any]:
        """Request the promises and make the reservations.

        :raises DrayTaskFailure: if a required transfer has no promise. No reservation is kept.
        :raises DrayTaskRetry: if an endpoint is unreachable.
        """
        from dray_airflow.deadlines.dag import plan_for
        from dray_airflow.submission import Clients

        if self.required not in (True, False, "known"):
            raise bad_input(
                "reserve the run's transfers",
                f"required={self.required!r} is not an allowed value",
                'write True, False or "known"',
            )
        try:
            plan = plan_for(context)
        except ValueError as error:
            raise DrayTaskFailure(f"cannot reserve the run's transfers: {error}") from None
        if plan is None:
            raise bad_input(
                "reserve the run's transfers",
                "the run has no deadline",
                'trigger it with conf {"deadline": "2h"}, or give the DAG a DeadlineAlert',
            )
        wanted, left_out = self._wanted(context, plan)
        if self.required is True and left_out:
            raise _not_known(left_out)
        sets: dict[str, list[Wanted]] = {}
        for each in wanted:
            sets.setdefault(each.errand.conn_id, []).append(each)
        kept: list[tuple[Client, str]] = []
        reserved: dict[str, Any] = {}
        # Store the ids before the requests, so that the listener at the end of the run knows all
        # reservations.
        context["ti"].xcom_push(
            key=RESERVED_KEY,
            value={
                conn_id: [reservation_id(each.errand.id) for each in each_set]
                for conn_id, each_set in sets.items()
            },
        )
        with Clients() as clients:
            try:
                for conn_id, each_set in sets.items():
                    settings = clients.settings(conn_id)
                    with translated(f"the transfers of the run at {conn_id}", settings):
                        to_come = _to_come(clients.of(conn_id), each_set, left_out)
                        if not to_come:
                            continue
                        # Remember the ids before the submission, because the endpoint may have
                        # accepted the reservations of an interrupted submission.
                        client = clients.of(conn_id)
                        kept += [(client, reservation_id(each.errand.id)) for each in to_come]
                        for want, transfer in self._keep(context, plan, clients, to_come):
                            reserved[want.name] = _reservation(want, transfer)
            except BaseException as error:
                # The reservations of a run are made together or not at all. So cancel the
                # reservations that other endpoints have accepted.
                self._give_back(kept)
                is_refusal = isinstance(error, DrayTaskFailure) and error.kind == "not_admitted"
                if self.required or not is_refusal:
                    raise
                self.log.warning("%s; the run continues without reservations", error)
                reserved = {}
        promised = sum(each["promised"] for each in reserved.values())
        self.log.info("%d transfers are promised as a set; tasks left out: %s", promised, left_out)
        return {
            "deadline": plan.deadline.isoformat(),
            "promised": promised,
            "left_out": left_out,
            "transfers": reserved,
        }

    def _give_back(self, kept: list[tuple[Client, str]]) -> None:
        """Cancel the reservations at reachable endpoints. The others end at their start times."""
        from dray.errors import DrayError

        for client, held in kept:
            try:
                free_one(client, held)
            except DrayError as error:
                self.log.warning("reservation %s stays until its start time: %s", held, error)

    # --- the set to reserve -----------------------------------------------------------------------

    def _wanted(self, context: Context, plan: DeadlinePlan) -> tuple[list[Wanted], dict[str, str]]:
        """Return the transfers to reserve, and the reasons for those that are left out."""
        dag: Any = context.get("dag") or context["task"].dag
        wanted: list[Wanted] = []
        left_out: dict[str, str] = {}
        chosen = set(values.texts("tasks", self.tasks)) if self.tasks else None
        unknown = sorted((chosen or set()) - set(dag.task_ids))
        if unknown:
            raise bad_input(
                "use tasks", f"the DAG has no task {', '.join(unknown)}", "check the task ids"
            )
        asked = [each for each in dag.tasks if chosen is None or each.task_id in chosen]
        others = [each.task_id for each in asked if not _is_transfer(each)]
        if self.required and (len(others) == len(asked) or chosen is not None) and others:
            said = (
                f"these tasks copy no files: {', '.join(others)}"
                if chosen
                else "the DAG has no task that transfers or stages files"
            )
            raise bad_input(
                "reserve the run's transfers", said, "name tasks that transfer or stage files"
            )
        for operator in asked:
            found = plan.transfers.get(operator.task_id)
            if found is None:
                continue
            try:
                every = list(self._errands(context, operator, found))
            except _NotKnown as error:
                left_out[operator.task_id] = f"its files are not known before the run: {error}"
                continue
            for each in every:
                if lacking := _lacking(each.errand):
                    left_out[each.name] = lacking
                elif each.bytes is None:
                    left_out[each.name] = "the size is not known: give bytes_expected"
                else:
                    wanted.append(each)
        if len(wanted) > SET_MAX:
            raise bad_input(
                "reserve the run's transfers",
                f"the run has {len(wanted)} transfers",
                f"name tasks with at most {SET_MAX} transfers in the argument tasks, or "
                "combine transfers",
            )
        return wanted, left_out

    def _errands(
        self,
        context: Context,
        operator: Any,  # noqa: ANN401 - an operator, mapped or not
        found: TransferDeadline,
    ) -> Iterator[Wanted]:
        """Return the request of an operator, or of each instance of a mapped operator."""
        from dray_airflow.deadlines.dag import task_from
        from dray_airflow.hooks.dray import DrayHook

        is_mapped = bool(getattr(operator, "is_mapped", False))
        task = task_from(operator, operator.dag)
        count = task.instances if is_mapped else 1
        at_once = min(task.at_once or count, count)
        begin = self._begin(found)
        for index in range(count):
            inside = _context_of(context, operator, index if is_mapped else -1)
            rendered: Any = operator.prepare_for_execution()
            try:
                rendered.render_template_fields(inside)
            except DrayTaskFailure:
                raise
            except Exception as error:
                # Templates and mapped arguments can raise any error.
                raise _NotKnown(one_line(str(error) or type(error).__name__)) from None
            rendered = inside["task"] if is_mapped else rendered
            try:
                settings = DrayHook(rendered.active_conn_id).settings
                errand: Errand | StagingErrand = rendered.errand(inside, settings)
            except DrayTaskFailure as error:
                if not _follows_others(operator):
                    raise
                # A template that depends on a task that has not run renders to an empty text.
                raise _NotKnown(str(error)) from None
            # The instances of the first round must leave time for the later rounds.
            rounds = -(-count // at_once)
            part = (found.latest_finish - begin) / rounds
            round_begin = begin + part * (index // at_once)
            yield Wanted(
                f"{operator.task_id}[{index}]" if is_mapped else operator.task_id,
                errand,
                max(round_begin, getattr(errand.request, "not_before", None) or round_begin),
                errand.request.deadline or round_begin + part,
            )

    def _begin(self, found: TransferDeadline) -> datetime:
        """Return the expected start of a task's transfer.

        The time until the start is at least ``start_within``, or a quarter of the time until the
        latest finish if this quarter is less.
        """
        now = datetime.now(timezone.utc)
        soon = min(now + self.start_within, now + (found.latest_finish - now) / 4)
        return max(found.earliest_start, soon)

    # --- calls ------------------------------------------------------------------------------------

    def _keep(
        self, context: Context, plan: DeadlinePlan, clients: Clients, wanted: list[Wanted]
    ) -> list[tuple[Wanted, Transfer]]:
        """Reserve a set of transfers at one endpoint.

        :raises DrayTaskFailure: if the set cannot be promised.
        """
        client = clients.of(wanted[0].errand.conn_id)
        # First cancel reservations of earlier tries of this task, which may have other times.
        for id, left in find(client, [reservation_id(each.errand.id) for each in wanted]).items():
            free(client, id, left)
        is_ended = ended_runs(context, clients.settings(wanted[0].errand.conn_id).namespace)
        verdicts: Sequence[AdmissionVerdict] = ()
        for part in PATIENCE:
            requests = [_standing_for(context, each, clients, part) for each in wanted]
            taken = submit_set(client, requests)
            if not taken.transfers and free_ended(client, in_the_way(taken.verdicts), is_ended):
                taken = submit_set(client, requests)
            verdicts = taken.verdicts
            if taken.transfers:
                pairs = list(zip(wanted, taken.transfers, strict=True))
                unpromised = [
                    f"{want.name}: {', '.join(map(str, transfer.notices)) or 'no reason given'}"
                    for want, transfer in pairs
                    if not transfer.promised
                ]
                if unpromised:
                    raise DrayTaskFailure(
                        "cannot promise the run's transfers: the endpoint of connection "
                        f"{wanted[0].errand.conn_id} accepted them, but without a promise: "
                        f"{'; '.join(unpromised[:NAMED_MAX])}; set rate in the endpoint's "
                        "configuration, or run without promises: required=False",
                        "not_admitted",
                    )
                return pairs
        raise self._refusal(context, plan, clients, wanted, verdicts)

    def _refusal(
        self,
        context: Context,
        plan: DeadlinePlan,
        clients: Clients,
        wanted: list[Wanted],
        verdicts: Sequence[AdmissionVerdict],
    ) -> DrayTaskFailure:
        reasons = []
        for want, verdict in zip(wanted, verdicts, strict=False):
            if verdict.earliest_finish is not None or verdict.obstacle is not None:
                said = ", ".join(verdict.reasons) or "no capacity is left"
                reasons.append(f"{want.name} by {clock(want.deadline)}: {said}")
        # Airflow cuts a long message at its end, and the remedy is at the end.
        if len(reasons) > REASONS_MAX:
            reasons[REASONS_MAX:] = [f"and {len(reasons) - REASONS_MAX} more"]
        offer = self._offer(context, plan, clients, wanted, verdicts)
        remedy = "run without promises: required=False"
        if offer is not None:
            remedy = (
                "if triggered again within a minute, the run could be promised by "
                f"{clock(offer)}:"
                f' trigger it with the conf {{"deadline": "{clock(offer)}"}}, or {remedy}'
            )
        held_by = holders(clients.of(wanted[0].errand.conn_id), verdicts)
        count = f"the {len(wanted)} transfers" if len(wanted) > 1 else "the transfer"
        return DrayTaskFailure(
            f"cannot promise {count} of the run by its deadline {clock(plan.deadline)}:"
            f" {'; '.join(reasons) or 'no capacity is left'}{held_by}; {remedy}",
            "not_admitted",
        )

    def _offer(
        self,
        context: Context,
        plan: DeadlinePlan,
        clients: Clients,
        wanted: list[Wanted],
        verdicts: Sequence[AdmissionVerdict],
    ) -> datetime | None:
        """Return the earliest deadline of the run that the endpoint could promise.

        Returns ``None`` if there is no such deadline, or if one call cannot hold all transfers.
        """
        client = clients.of(wanted[0].errand.conn_id)
        ready = datetime.now(timezone.utc) + self.start_within
        wanted = [
            dataclasses.replace(want, begin=max(want.begin, ready) + OFFER_LASTS) for want in wanted
        ]
        shift = timedelta(0)
        for _ in range(OFFER_ROUNDS_MAX):
            late = [
                verdict.earliest_finish - (want.deadline + shift)
                for want, verdict in zip(wanted, verdicts, strict=False)
                if verdict.earliest_finish is not None
            ]
            if not late:
                return None
            # ``earliest_finish`` may be before the deadline, if another transfer of the set is the
            # reason for the refusal. So the shift grows by at least one second.
            shift += max(max(late), timedelta(seconds=1))
            later = [dataclasses.replace(want, deadline=want.deadline + shift) for want in wanted]
            answer = could_be(
                client, [_standing_for(context, each, clients, 0.0) for each in later]
            )
            if answer is None:
                return None
            if answer.decision == "accept":
                return whole_second(plan.deadline + shift)
            verdicts = answer.transfers
        return None


class _NotKnown(Exception):
    """The transfer of a task is not known until other tasks have run."""


def _not_known(left_out: dict[str, str]) -> DrayTaskFailure:
    named = [f"{name}: {why}" for name, why in left_out.items()]
    more = f"; and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return bad_input(
        "promise all transfers of the run",
        f"{'; '.join(named[:NAMED_MAX])}{more}",
        'add the missing values, list only the other tasks in tasks, or set required="known"',
    )


def _is_transfer(operator: Any) -> bool:  # noqa: ANN401 - an operator, mapped or not
    operator_class = getattr(operator, "operator_class", type(operator))
    return bool(getattr(operator_class, "is_dray_transfer", False))


def _lacking(errand: Errand | StagingErrand) -> str | None:
    """Return the reason for which the ends of a copy are unknown. ``None`` if they are known."""
    from dray_airflow.staging import StagingErrand

    if not isinstance(errand, StagingErrand):
        return None
    if errand.is_restart:
        return "the version of a restart is not known before the restart"
    is_known = errand.request.to is not None
    return None if is_known else "the other root of the copy is not known: set the argument `to`"


def _follows_others(operator: Any) -> bool:  # noqa: ANN401 - an operator, mapped or not
    """Return true if the operator's arguments depend on the results of other tasks."""
    from airflow.sdk import XComArg

    if getattr(operator, "is_mapped", False) and any(
        True for _ in operator.iter_mapped_dependencies()
    ):
        return True
    given = getattr(operator, "partial_kwargs", None) or vars(operator)
    fields = [given[name] for name in operator.template_fields if name in given]
    is_linked = any(True for _ in XComArg.iter_xcom_references(fields))
    return is_linked or any("xcom" in str(each) for each in fields)


def _to_come(client: Client, wanted: list[Wanted], left_out: dict[str, str]) -> list[Wanted]:
    """Return the wanted transfers that are not live yet.

    If a user clears this operator in a run, transfers of the run may be live already.
    """
    known = find(client, [each.errand.id for each in wanted])
    found = []
    for each in wanted:
        transfer = known[each.errand.id]
        if transfer is None or transfer.is_terminal:
            found.append(each)
        else:
            left_out[each.name] = f"the transfer has started and is {transfer.state}"
    return found


def _reservation(want: Wanted, transfer: Transfer) -> dict[str, Any]:
    return {
        "id": want.errand.id,
        "bytes": want.bytes,
        "promised": transfer.promised,
        "not_before": transfer.request.get("not_before"),
        "deadline": transfer.request.get("deadline"),
    }


class _Instance:
    """The task instance in templates of another task: that task's key and this task's XComs."""

    def __init__(self, ti: Any, operator: Any, map_index: int) -> None:  # noqa: ANN401 - Airflow's
        self._ti = ti
        self.task = operator
        self.task_id = operator.task_id
        self.map_index = map_index
        self.id = ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - Airflow's own
        return getattr(self._ti, name)


def _context_of(context: Context, operator: Any, map_index: int) -> Any:  # noqa: ANN401 - Airflow's
    own: dict[str, Any] = dict(context)
    instance = _Instance(context["ti"], operator, map_index)
    own.update(ti=instance, task_instance=instance, task=operator)
    return own


def _ends(errand: Errand | StagingErrand) -> tuple[End, ...]:
    """Return the sources of a copy, and its destination as the last end."""
    from dray_airflow.staging import StagingErrand
    from dray_airflow.submission import End

    if not isinstance(errand, StagingErrand):
        return (*errand.sources, errand.destination)
    wish = errand.request
    return tuple(End(errand.conn_id, path or "") for path in (wish.path, wish.to))


def _shares(wish: Request | StagingRequest) -> dict[str, Any]:
    """Return the fields that determine the class and the share of a transfer."""
    from dray.client import StagingRequest

    if isinstance(wish, StagingRequest):
        return {"class_": "deadline", "activity": wish.application}
    names = ("weight", "rate_min", "rate_max", "activity")
    return {"class_": wish.class_ or "deadline", **{name: getattr(wish, name) for name in names}}


def _standing_for(context: Context, want: Wanted, clients: Clients, patience: float) -> Request:
    """Return the placeholder of a transfer. It uses the same resources and moves no data."""
    from dray.client import Request, Retry

    errand = want.errand
    active = clients.settings(errand.conn_id).authority

    name = f"reserved-for-{errand.id}"

    def place(end: Any, *, is_source: bool) -> str:  # noqa: ANN401 - an End
        authority, path = end.split(clients.settings(end.conn_id))
        # Choose a path that the task may access and at which no file ever exists. The path is below
        # the source, or next to the destination, because the destination's name must stay free.
        folder = path.rstrip("/") if is_source or path.endswith("/") else path.rpartition("/")[0]
        path = f"{folder}/{name}"
        return path if authority == active else f"dray://{authority}{path}"

    wish = errand.request
    ends = _ends(errand)
    begin = want.begin + (want.deadline - want.begin) * patience
    now = datetime.now(timezone.utc)
    begin = max(begin, now + timedelta(seconds=2))
    namespace = clients.settings(errand.conn_id).namespace
    own = {NAMESPACE_LABEL: namespace} if namespace else {}
    return Request(
        sources=place(ends[0], is_source=True),
        replicas=[place(source, is_source=True) for source in ends[1:-1]] or None,
        destination=place(ends[-1], is_source=False),
        id=reservation_id(errand.id),
        deadline=want.deadline,
        not_before=begin,
        admission="required",
        bytes_expected=want.bytes,
        priority=wish.priority,
        **_shares(wish),
        labels={**(wish.labels or {}), **own, RESERVATION_LABEL: errand.id},
        retry=Retry(tries=1),
        # If no task replaces the placeholder, the endpoint cancels it one second before its start
        # time. Each query for the placeholder starts this time limit again. So a placeholder that a
        # client has queried starts at its start time, and fails because its source does not exist.
        bound_seconds=max(int((begin - now).total_seconds()) - 1, 1),
    )
