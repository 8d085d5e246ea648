"""Reservations at endpoints for tasks of a run that have not started.

A :class:`~dray_airflow.operators.admit.DrayAdmitOperator` makes a reservation, which is a
placeholder transfer. The reservation ends when the task submits its own transfer, or when the run
ends. At the end of a run, Airflow calls :mod:`dray_airflow.listener`, which cancels the remaining
reservations of this run. If the listener cannot reach an endpoint, a reservation may remain. If an
endpoint later refuses a transfer because of that reservation, the refused task checks if the run of
the reservation has ended, and then cancels the reservation.

Invariant owned here: this module cancels only reservations, and only in two cases. If a task
submits its transfer, the module cancels the reservation for this transfer. If a run has ended
according to this Airflow, the module cancels the remaining reservations of the run.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dray_airflow.deadlines.callback import RESERVATION_LABEL
from dray_airflow.sets import find, free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow.sdk import Context

    from dray.client import AdmissionVerdict, Client, Request, StagingRequest, Transfer

__all__ = [
    "NAMESPACE_LABEL",
    "RESERVED_KEY",
    "ended_runs",
    "free_ended",
    "holders",
    "is_reserved",
    "reservation_id",
    "submit_past_ended",
    "submit_reserved",
]

log = logging.getLogger(__name__)

SUFFIX = ".r"
NAMESPACE_LABEL = "airflow.namespace"
"""Label of a reservation with the ``namespace`` of the connection.

If two Airflow installations use one endpoint, each uses this label to recognise its reservations.
"""
RESERVED_KEY = "dray_reserved"
"""Key of the XCom with a run's reservations: lists of ids by connection."""
ENDED_RUNS = frozenset({"success", "failed"})
ROUNDS_MAX = 3
"""Maximum number of submissions. Between two of them, conflicting reservations are cancelled.

Each refusal names all conflicting transfers.
"""
NAMED_MAX = 3

R = TypeVar("R", "Request", "StagingRequest")

IsEnded: TypeAlias = "Callable[[Mapping[str, Any]], bool]"
"""A function that tells from a transfer's labels if it is a reservation whose run has ended."""


def reservation_id(id: str) -> str:
    """Return the id of the reservation for a transfer."""
    return f"{id}{SUFFIX}"


def is_reserved(context: Context) -> bool:
    """Return true if the DAG has a DrayAdmitOperator, so the transfer may have a reservation."""
    dag: Any = context.get("dag") or context["task"].dag
    return any(getattr(task, "is_dray_admit", False) for task in dag.tasks)


def ended_runs(context: Context, namespace: str) -> IsEnded:
    """Return a function that asks Airflow if the run of a reservation has ended.

    :param namespace: namespace of the connection. For a reservation of another namespace, the
        function returns false.
    """
    ti: Any = context["ti"]
    known: dict[tuple[str, str], bool] = {}

    def is_ended(labels: Mapping[str, Any]) -> bool:
        is_own = str(labels.get(NAMESPACE_LABEL, "")) == namespace
        if RESERVATION_LABEL not in labels or not is_own:
            return False
        run = (str(labels.get("dag_id", "")), str(labels.get("run_id", "")))
        if run == (ti.dag_id, ti.run_id):
            return False
        if run not in known:
            try:
                state = ti.get_dagrun_state(*run)
            except Exception as error:
                # The run belongs to another Airflow or was deleted. So it does not count as ended.
                log.info("the state of run %s of %s is not known: %s", run[1], run[0], error)
                state = None
            known[run] = str(getattr(state, "value", state)) in ENDED_RUNS
        return known[run]

    return is_ended


def free_ended(client: Client, ids: Iterable[str], is_ended: IsEnded) -> list[str]:
    """Cancel each of these transfers that is a reservation of an ended run.

    :returns: the ids of the cancelled reservations.
    """
    freed = []
    for id, found in find(client, list(dict.fromkeys(ids))).items():
        labels = {} if found is None else dict(found.request.get("labels") or {})
        if found is not None and not found.is_terminal and is_ended(labels):
            log.info("reservation %s is freed: run %s has ended", id, labels.get("run_id"))
            free(client, id, found)
            freed.append(id)
    return freed


def in_the_way(verdicts: Iterable[AdmissionVerdict | None]) -> list[str]:
    """Return the caller's transfers that use the resource of a refused request."""
    return [id for each in verdicts if each and each.obstacle for id in each.obstacle.transfers]


def holders(client: Client, verdicts: Sequence[AdmissionVerdict]) -> str:
    """Describe the transfers that use the rate of a refused set. Empty if they are unknown."""
    own = list(dict.fromkeys(in_the_way(verdicts)))
    all_of_them = max((each.obstacle.promises for each in verdicts if each.obstacle), default=0)
    # Transfers of the refused set do not exist, so they are not found here.
    transfers = {id: found for id, found in find(client, own).items() if found is not None}
    own = list(transfers)
    named = [_holder(id, transfers[id]) for id in own[:NAMED_MAX]]
    if len(own) > NAMED_MAX:
        named.append(f"{len(own) - NAMED_MAX} more of your transfers")
    if all_of_them > len(own):
        named.append(f"{all_of_them - len(own)} transfers of other owners")
    return f"; the rate is promised to {', '.join(named)}" if named else ""


def _holder(id: str, found: Transfer) -> str:
    request = found.request
    labels = dict(request.get("labels") or {})
    if "task_id" not in labels:
        return id
    what = "the reservation for" if RESERVATION_LABEL in labels else "the transfer of"
    until = f", until {request['deadline']}" if request.get("deadline") else ""
    return (
        f"{what} task {labels['task_id']} of run {labels.get('run_id')} of DAG"
        f" {labels.get('dag_id')} ({id}{until})"
    )


# --- submitting -----------------------------------------------------------------------------------


def submit_past_ended(
    client: Client,
    request: R,
    send: Callable[[R], Transfer] | None = None,
    is_ended: IsEnded | None = None,
) -> Transfer:
    """Submit a request. If reservations of ended runs prevent it, cancel them and submit again.

    :param send: function that submits. By default :meth:`dray.client.Client.submit`.
    :raises DrayError: as ``send``.
    """
    from dray.errors import DrayError

    submit: Any = send or client.submit
    for left in reversed(range(ROUNDS_MAX)):
        try:
            found: Transfer = submit(request)
        except DrayError as error:
            if error.kind != "not_admitted" or is_ended is None or not left:
                raise
            if not free_ended(client, in_the_way([getattr(error, "admission", None)]), is_ended):
                raise
        else:
            return found
    raise AssertionError("the last round returns or raises")


def submit_reserved(
    client: Client,
    request: R,
    send: Callable[[R], Transfer] | None = None,
    is_ended: IsEnded | None = None,
) -> Transfer:
    """Submit a request in place of its reservation.

    If the endpoint can promise the request and the reservation at the same time, the request is
    submitted before the reservation is cancelled. Otherwise the reservation is cancelled first, and
    another caller may get the freed rate before the request is submitted.

    :param send: function that submits. By default :meth:`dray.client.Client.submit`.
    :raises DrayError: as ``send``.
    """
    from dray.errors import DrayError

    submit: Any = send or client.submit
    held = reservation_id(request.id or "")
    is_soft = request.admission == "best_effort"
    if is_soft and not _is_live(client, held):
        free_one(client, held)
        return _sent(submit, request)
    # A best-effort transfer with a reservation asks for a promise first. Only if the promise is
    # refused is the reservation cancelled before the submission.
    wish = dataclasses.replace(request, admission="required") if is_soft else request
    try:
        transfer = submit_past_ended(client, wish, send, is_ended)
    except DrayError as error:
        if error.kind != "not_admitted" or not free_one(client, held):
            if not is_soft:
                raise
            free_one(client, held)
            return _sent(submit, request)
    else:
        free_one(client, held)
        return transfer
    try:
        return _sent(submit, wish)
    except DrayError as error:
        if not is_soft or error.kind != "not_admitted":
            raise
    return _sent(submit, request)


def _sent(submit: Callable[[Any], Transfer], request: object) -> Transfer:
    return submit(request)


def _is_live(client: Client, held: str) -> bool:
    reservation = client.query([held])[held]
    return reservation is not None and not reservation.is_terminal


def free_one(client: Client, held: str) -> bool:
    """Cancel a reservation. Return false if it does not exist or has ended."""
    return free(client, held, client.query([held])[held])
