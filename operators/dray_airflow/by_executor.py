"""Transfers by a service that moves files itself, such as Globus (:mod:`dray.executors`).

The Airflow task submits the transfer to the service and waits, as for an endpoint. If Airflow has a
store for the state of tasks (AIP-103), the store contains the records of submissions. So a retry on
another worker finds the transfer that the first attempt submitted. Otherwise the records are files
on the worker.
"""

from __future__ import annotations

import json
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from dray_airflow import assets, values
from dray_airflow.errors import DrayTaskRetry, bad_input, of_error, of_transfer, translated
from dray_airflow.identity import key_of, transfer_id
from dray_airflow.links.transfer import publish_at
from dray_airflow.stories import story
from dray_airflow.version_compat import AirflowNotFoundException, task_state_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Connection, Context

    from dray.client import Client, Request, Transfer
    from dray.executors import Executor
    from dray_airflow.operators.transfer import DrayTransferOperator
    from dray_airflow.submission import End

__all__ = ["Run", "open_at", "scheme_of_ends", "settings_at"]

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
POLL_SECONDS_DEFERRED = 30.0
OUTAGE_SECONDS = 900.0
"""Time for which a task or a trigger retries if the service does not answer."""
#: Arguments of the operator that only an endpoint understands.
_OF_ENDPOINTS = (
    "replicas",
    "files_min",
    "include",
    "exclude",
    "class_",
    "not_before",
    "bytes_expected",
    "priority",
    "weight",
    "rate_min",
    "rate_max",
    "resume",
    "durability",
)


def scheme_of_ends(sources: Sequence[End], destination: End) -> str | None:
    """Return the scheme of the executor that a transfer needs. ``None`` if it needs none."""
    from dray.executors import scheme_of

    found = {scheme_of(end.path) for end in (*sources, destination)} - {None}
    if len(found) > 1:
        raise bad_input(
            "choose an executor",
            f"the URLs have the schemes {', '.join(sorted(str(each) for each in found))}",
            "use one scheme, or copy in two steps",
        )
    return next(iter(found), None)


def settings_at(connection: Connection) -> dict[str, str]:
    """Return the settings in a connection: login, password, and the fields of extra.

    :raises DrayTaskFailure: if the extra field is not a JSON object of texts.
    """
    try:
        found = json.loads(connection.extra or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise bad_input(
            f"use connection {connection.conn_id!r}",
            "the extra field is not a JSON object of texts",
            'write {"sites": "/etc/dray/sites.toml"}',
        )
    if connection.login:
        found["client_id"] = connection.login
    if connection.password:
        found["client_secret"] = connection.password
    return found


def open_at(scheme: str, conn_id: str, store: Any | None = None) -> Executor:  # noqa: ANN401
    """Open an executor with the settings of a connection.

    If the default connection does not exist, the settings are those of the environment.
    """
    from airflow.sdk.bases.hook import BaseHook

    from dray.executors import open_executor

    settings: dict[str, str] | None = None
    try:
        settings = settings_at(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException:
        if conn_id != default_conn(scheme):
            raise bad_input(
                f"use connection {conn_id!r}",
                "the connection does not exist",
                "create the connection",
            ) from None
    with translated(f"connection {conn_id!r}"):
        return open_executor(scheme, settings, store)


def default_conn(scheme: str) -> str:
    """Return the name of the default connection of an executor."""
    return f"{scheme}_default"


class Run:
    """One run of a task that submits a transfer to an executor.

    :param operator: the operator, with templates rendered.
    """

    def __init__(self, operator: DrayTransferOperator, context: Context) -> None:
        """Find the executor. No call is made yet."""
        self._operator = operator
        self._context = context
        self._sources, self._destination = operator._ends()
        self._scheme = str(scheme_of_ends(self._sources, self._destination))
        given = values.word(operator.executor_conn_id)
        self._conn_id = given or default_conn(self._scheme)
        self._executor = open_at(self._scheme, self._conn_id, task_state_store(context))
        named = values.word(operator.transfer_id)
        self._id = named or transfer_id(*key_of(context))

    def begin(self) -> dict[str, Any]:
        """Submit the transfer, wait for its end or defer, and return the result."""
        operator = self._operator
        request = self._request()
        with translated(self._about):
            found = self._executor.submit(request, self._options())
            self.recall()
        log.info("transfer %s: %s", self._id, story(found))
        self._publish(found)
        left = operator._seconds_left()
        if operator.deferrable:
            grace = operator.grace_seconds if left is None else min(operator.grace_seconds, left)
            ended = self._wait_for(found, grace)
            if ended is None:
                self._defer(request)
            return self._result(cast("Transfer", ended))
        lost_at: float | None = None
        while True:
            left = operator._seconds_left()
            if left is not None and left <= 0:
                raise operator._timed_out()
            ended = self._wait_for(found, LOG_SECONDS if left is None else min(LOG_SECONDS, left))
            if ended is not None:
                return self._result(ended)
            lost_at = self._look(lost_at)

    def _look(self, lost_at: float | None) -> float | None:
        """Log the state of the transfer.

        :param lost_at: time since which the service has not answered.
        :returns: the new value of ``lost_at``, after this query.
        """
        from dray.errors import DrayError

        try:
            found = self._executor.transfer(self._id)
        except DrayError as error:
            lost_at = time.monotonic() if lost_at is None else lost_at
            is_over = time.monotonic() - lost_at >= OUTAGE_SECONDS
            if error.status == "permanent" or is_over:
                raise of_error(error, self._about) from None
            return lost_at
        log.info("transfer %s: %s", self._id, story(found))
        self._publish(found)
        return None

    def complete(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the trigger has fired.

        :raises DrayTaskRetry: if the transfer has not ended: the trigger could not query it, or it
            runs again.
        """
        with translated(self._about):
            self.recall()
            found = self._executor.transfer(self._id)
            if not found.is_terminal and event.get("state") == "late":
                # The query has cancelled the task, which may need some seconds to end.
                found = self._executor.wait(self._id, LOG_SECONDS)
        if not found.is_terminal:
            message = event.get("error") or f"the transfer is {found.state} again"
            raise DrayTaskRetry(f"{self._about}: {message}", str(event.get("kind", "other")))
        return self._result(found)

    def recall(self) -> None:
        """Set the link and the function that cancels the transfer."""
        executor, id = self._executor, self._id

        def cancel() -> None:
            try:
                log.info("transfer %s: %s", id, story(executor.cancel(id)))
            except Exception as error:
                log.warning("cannot cancel transfer %s, so the transfer continues: %s", id, error)

        self._operator.cancel_by_executor = cancel
        self._operator.transfer_url = executor.page(id)

    @property
    def _about(self) -> str:
        return f"transfer {self._id} by {self._scheme} (connection {self._conn_id!r})"

    def _defer(self, request: Request) -> None:
        from dray_airflow.triggers.executor import DrayExecutorTrigger

        operator = self._operator
        left = operator._seconds_left()
        if left is not None and left <= 0:
            raise operator._timed_out()
        begun = operator._begun_at
        operator.defer(
            trigger=DrayExecutorTrigger(
                scheme=self._scheme,
                conn_id=self._conn_id,
                remote_id=self._executor.task_id(self._id),
                deadline=None if request.deadline is None else request.deadline.isoformat(),
                poll_seconds=POLL_SECONDS_DEFERRED,
            ),
            method_name="execute_complete",
            timeout=None if left is None else timedelta(seconds=left),
            kwargs={"begun_at": begun.isoformat() if begun else None},
        )

    def _wait_for(self, found: Transfer, seconds: float) -> Transfer | None:
        """Wait at most ``seconds``. Return ``None`` if the transfer still runs."""
        from dray.errors import DrayError

        if found.is_terminal:
            return found
        if seconds <= 0:
            return None
        try:
            return self._executor.wait(self._id, seconds)
        except DrayError as error:
            if error.status == "permanent":
                raise of_error(error, self._about) from None
            if error.kind != "timed_out":
                log.warning("the state of transfer %s is unknown: %s", self._id, error)
                time.sleep(min(seconds, 1.0))
            return None

    def _publish(self, found: Transfer) -> None:
        page = self._operator.transfer_url
        publish_at(self._context, f"{self._scheme} ({self._conn_id})", page, found)

    def _result(self, ended: Transfer) -> dict[str, Any]:
        """Return the result of an ended transfer, and forget it, so that a cleared task runs."""
        from dray_airflow.operators.transfer import outcome

        self._publish(ended)
        for notice in ended.notices:
            log.warning("transfer %s: %s", ended.id, notice)
        error = of_transfer(ended)
        if error is not None:
            raise error
        with translated(self._about):
            result = outcome(cast("Client", self._executor), ended, has_receipts=False)
            self._executor.forget(self._id)
        if ended.files.skipped:
            count = ended.files.skipped
            log.warning("transfer %s kept %d existing files (overwrite=never)", ended.id, count)
        assets.announce(self._context, self._url(self._destination), result)
        return result

    def _request(self) -> Request:
        from dray.client import Content, Request, Selection

        operator, context = self._operator, self._context
        for name in _OF_ENDPOINTS:
            if not values.is_empty(getattr(operator, name)):
                raise bad_input(
                    f"use {name}",
                    f"{self._scheme} has no such option",
                    "leave the argument out, or use endpoints at both ends",
                )
        run_begin = getattr(context.get("dag_run"), "start_date", None)
        size, checksum = values.size("size", operator.size), values.word(operator.checksum)
        has_content = size is not None or checksum is not None
        is_recursive = values.truth("recursive", operator.recursive)
        given: dict[str, Any] = {
            "selection": Selection(recursive=True) if is_recursive else None,
            "content": Content(size, checksum) if has_content else None,
            "deadline": values.time("deadline", operator.deadline, run_begin),
            "admission": values.word(operator.admission),
            "verify": values.truth("verify", operator.verify),
            "overwrite": values.word(operator.overwrite),
            "activity": values.word(operator.activity) or context["ti"].dag_id,
            "labels": values.labels("labels", operator.labels),
        }
        sources = [self._url(end) for end in self._sources]
        return Request(sources, self._url(self._destination), id=self._id, **given)

    def _options(self) -> Mapping[str, Any]:
        options = self._operator.options
        if options is not None and not hasattr(options, "items"):
            raise bad_input("use options", f"its value is {options!r}", "give a dictionary")
        return options or {}

    def _url(self, end: End) -> str:
        """Return the URL of an end. A path alone belongs to the endpoint of its connection."""
        if "://" in end.path:
            return end.path
        from dray_airflow.hooks.dray import DrayHook

        authority, path = end.split(DrayHook(end.conn_id).settings)
        return f"dray://{authority}{path}"
