"""The executor: submit, query, cancel and wait, with the requests and answers of ``dray.client``.

Invariant owned here: one id has at most one live task. A repeated submission finds the task of the
first one, also if the caller was killed before it received the answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import globus_sdk

from dray.client import FileOutcome, Place, Request, Transfer
from dray.errors import DrayError
from dray_globus import jobs, sites, urls
from dray_globus.errors import make, of_sdk
from dray_globus.login import open_client
from dray_globus.report import PAGE, GlobusTask, task_of, transfer_of
from dray_globus.settings import Settings
from dray_globus.store import FileStore, Record, RecordStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dray.executors import Store
    from dray_globus.jobs import Job, Options

__all__ = ["GlobusExecutor", "open_executor"]

QUERY_MAX = 100
"""Maximum number of tasks in one query. The ids are a part of the URL of the call."""
EVENTS_MAX = 20
"""Number of events that are read for the cause of a fault."""
POLL_SECONDS_FIRST = 1.0
POLL_SECONDS_MAX = 30.0
"""Maximum time between two polls. A task of seconds is noticed soon, one of hours is polled rarely.
"""
T = TypeVar("T")


class GlobusExecutor:
    """Hands transfers to the Globus Transfer service.

    :param settings: by default read from the environment.
    :param store: durable store of the records, by default files below ``settings.state``.
    :param client: client of the service, by default opened with the settings.
    :param clock: current time, for tests.
    :param sleep: function that waits, for tests.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        client: globus_sdk.TransferClient | None = None,
        clock: Callable[[], datetime] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Read the site map and open a client. No call is made yet."""
        self.settings = settings or Settings.from_environment()
        self._sites = sites.read(self.settings.sites)
        self._records = RecordStore(store or FileStore(self.settings.state))
        self._client = client or open_client(self.settings)
        self._clock = clock or (lambda: datetime.now(timezone.utc))
        self._sleep = sleep

    # --- submissions ------------------------------------------------------------------------------

    def submit(
        self,
        request: Request,
        options: Options | Mapping[str, Any] | None = None,
        *,
        is_repeated: bool = False,
    ) -> Transfer:
        """Submit a transfer, or attach to the task that an earlier submission of the id created.

        A task that has failed or was cancelled is submitted again, as a new attempt. Files with
        equal content are then not copied again.

        :param is_repeated: submit again even if the task has succeeded.
        :raises DrayUsageError: if the request asks for something that Globus cannot do.
        :raises DrayError: if the service refuses the submission or does not answer. The same call
            may then be made again, and creates no second task.
        """
        if isinstance(options, Mapping):
            options = jobs.options_of(options)
        job = jobs.job_of(request, self._sites, options)
        id = request.id or f"globus-{uuid.uuid4().hex}"
        with self._records.locked(id):
            record = self._records.get(id)
            attempt = 1
            if record is not None:
                found = self._found(record, job)
                is_used = found is not None and (
                    not found.is_terminal or (found.state == "done" and not is_repeated)
                )
                if found is not None and is_used and record.body == job.body:
                    return dataclasses.replace(found, attached=True)
                attempt = record.attempt + (record.task_id is not None)
            if record is None or record.task_id is not None:
                self._check_size(job)
                record = self._prepared(id, request, job, attempt)
            return self._send(record, job)

    def _found(self, record: Record, job: Job) -> Transfer | None:
        """Return the state of the task of a record. ``None`` if the record has no known task.

        :raises DrayError: ``already_exists`` if a live task, or a submission without an answer, has
            another request.
        """
        if record.task_id is None:
            if record.body != job.body:
                raise _other(
                    record.id, "an earlier submission with another request has no answer yet"
                )
            return None
        found = self._report_of_known(record)
        if found is not None and not found.is_terminal and record.body != job.body:
            raise _other(record.id, f"task {record.task_id} with another request has not ended")
        return found

    def _prepared(self, id: str, request: Request, job: Job, attempt: int) -> Record:
        """Store a new submission id durably, and return its record."""
        with _converted(f"submit transfer {id}"):
            submission_id = str(self._client.get_submission_id()["value"])
        record = Record(id, submission_id, job.body, attempt, request=_kept(request, job))
        self._records.put(record)
        return record

    def _send(self, record: Record, job: Job) -> Transfer:
        data = job.data(record.id, record.submission_id)
        try:
            with _converted(f"submit transfer {record.id}"):
                answer = self._client.submit_transfer(data)
        except DrayError as error:
            if error.status == "permanent" and error.kind != "unauthorized":
                # The service has refused the submission, so no task has its id.
                self._records.delete(record.id)
            raise
        record = dataclasses.replace(record, task_id=str(answer["task_id"]))
        self._records.put(record)
        found = self._report(record)
        return dataclasses.replace(found, attached=answer["code"] == "Duplicate")

    def _check_size(self, job: Job) -> None:
        """Compare the size of the only file, because the service has no option for this."""
        if job.size is None:
            return
        path = job.items[0].source
        with _converted(f"look up {path}"):
            found = self._client.operation_stat(job.source, path=path)
        if found["size"] != job.size:
            raise make(
                "source_changed",
                f"submit {path}",
                f"the file has {found['size']} bytes, but the request expects {job.size}",
                "check the source",
                end="source",
                file=path,
            )

    # --- queries ----------------------------------------------------------------------------------

    def transfer(self, id: str) -> Transfer:
        """Return the state of a transfer. If its deadline has passed, cancel it.

        :param id: id of the transfer, or of a task that another program has submitted.
        :raises DrayError: ``not_found`` if the id is unknown, or if the service has forgotten the
            task.
        """
        record = self._record(id)
        found = self._report(record)
        if found.is_terminal or not self._is_overdue(found.request):
            return found
        return self._cancelled(dataclasses.replace(record, is_overdue=True))

    def query(self, ids: Sequence[str]) -> dict[str, Transfer | None]:
        """Return the states of several transfers with few calls. ``None`` for an unknown one.

        :param ids: ids of transfers, or of tasks that another program has submitted.
        """
        records = {id: self._records.get(id) or _record_of_task(id) for id in ids}
        by_task = {r.task_id: r for r in records.values() if r is not None and r.task_id}
        found: dict[str, Transfer | None] = dict.fromkeys(ids)
        tasks = list(by_task)
        for first in range(0, len(tasks), QUERY_MAX):
            batch = [str(task) for task in tasks[first : first + QUERY_MAX]]
            with _converted("query tasks"):
                documents = list(
                    self._client.task_list(limit=QUERY_MAX, filter={"task_id": batch})["DATA"]
                )
            listed = {str(document["task_id"]) for document in documents}
            for unlisted in (by_task[task] for task in batch if task not in listed):
                # The list contains a new task only after some time.
                found[unlisted.id] = self._report_of_known(unlisted)
            for document in documents:
                record = by_task.get(str(document["task_id"]))
                if record is None:
                    continue
                task = task_of(document)
                # The list has no events, and the cause of a failure may be only there.
                is_plain = task.status == "SUCCEEDED" or (
                    task.status == "ACTIVE" and not self._is_overdue(record.request)
                )
                found[record.id] = (
                    transfer_of(task, record) if is_plain else self.transfer(record.id)
                )
        return found

    def task(self, id: str) -> GlobusTask:
        """Return the state of a transfer as the service reports it, with events and pauses."""
        return self._task(self._record(id))

    def files(self, id: str, state: str | None = None) -> Iterator[FileOutcome]:
        """Yield the outcomes of the copied files, and of the files skipped because of an error.

        :param state: ``done`` or ``failed``, to select the outcomes.
        """
        record = self._record(id)
        task = str(record.task_id)
        with _converted(f"list the files of transfer {id}"):
            if state in (None, "done"):
                for each in self._client.paginated.task_successful_transfers(task).items():
                    yield FileOutcome(str(each["destination_path"]), "done")
            if state in (None, "failed"):
                for each in self._client.paginated.task_skipped_errors(task).items():
                    path = str(each["source_path"])
                    yield FileOutcome(
                        path,
                        "failed",
                        error=make(
                            "io",
                            f"read {path}",
                            f"{each['error_code']}: {each.get('error_details') or ''}".strip(": "),
                            "check the file, and submit the transfer again",
                            end="source",
                            file=path,
                        ),
                    )

    # --- changes ----------------------------------------------------------------------------------

    def cancel(self, id: str) -> Transfer:
        """Cancel a transfer. Files that were copied completely stay at the destination.

        If the transfer has ended already, return its state.
        """
        record = self._record(id)
        found = self._report(record)
        if found.is_terminal:
            return found
        return self._cancelled(dataclasses.replace(record, is_cancelled=True))

    def wait(
        self,
        id: str,
        timeout_seconds: float | None = None,
        *,
        told: Callable[[Transfer], None] | None = None,
    ) -> Transfer:
        """Wait for the end of a transfer. Cancel its task if the transfer's deadline passes.

        :param told: called with each state.
        :raises DrayTemporaryError: ``timed_out`` after ``timeout_seconds``. The task continues.
        :raises DrayError: if the service does not answer for ``outage_seconds``, or refuses.
        """
        begun = time.monotonic()
        pause, lost_at = POLL_SECONDS_FIRST, None
        while True:
            now = time.monotonic()
            try:
                found = self.transfer(id)
            except DrayError as error:
                lost_at = now if lost_at is None else lost_at
                is_over = now - lost_at >= self.settings.outage_seconds
                if error.status == "permanent" or is_over:
                    raise
            else:
                lost_at = None
                if told is not None:
                    told(found)
                if found.is_terminal:
                    return found
            left = None if timeout_seconds is None else begun + timeout_seconds - time.monotonic()
            if left is not None and left <= 0:
                raise make(
                    "timed_out",
                    f"wait for transfer {id}",
                    f"the transfer has not ended within {timeout_seconds:g} s",
                    "the task continues; wait again",
                )
            self._sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, POLL_SECONDS_MAX)

    def forget(self, id: str) -> None:
        """Remove the record of an ended transfer. A later submission of the id starts anew."""
        self._records.delete(id)

    def task_id(self, id: str) -> str:
        """Return the id of the task of a transfer. Other methods accept it in place of ``id``."""
        return str(self._record(id).task_id)

    def page(self, id: str) -> str:
        """Return the page of the task in the Globus web app."""
        return PAGE.format(id=self.task_id(id))

    # --- parts ------------------------------------------------------------------------------------

    def _record(self, id: str) -> Record:
        record = self._records.get(id)
        if record is not None and record.task_id is not None:
            return record
        foreign = _record_of_task(id) if record is None else None
        if foreign is not None:
            return foreign
        raise make(
            "not_found",
            f"find transfer {id}",
            "no record has this id"
            if record is None
            else "the service has not answered its submission",
            "check the id and DRAY_GLOBUS_STATE"
            if record is None
            else "submit the transfer again with the same id",
            end="here",
        )

    def _report(self, record: Record) -> Transfer:
        return transfer_of(self._task(record), record)

    def _report_of_known(self, record: Record) -> Transfer | None:
        """Return the state of a task. ``None`` if the service does not know the task any more."""
        try:
            return self._report(record)
        except DrayError as error:
            if error.kind != "not_found":
                raise
            return None

    def _task(self, record: Record) -> GlobusTask:
        """Read a task. If it has faults, read its events; if it is paused, the pause rules."""
        id = str(record.task_id)
        operation = f"query task {id} of transfer {record.id}"
        try:
            with _converted(operation):
                document = self._client.get_task(id).data
        except DrayError as error:
            if error.kind != "not_found" or record.submission_id == "":
                raise
            raise make(
                "not_found",
                operation,
                "the service does not know this task any more",
                "submit the transfer again: files with equal content are not copied again",
            ) from None
        pauses: list[str] = []
        events: list[dict[str, Any]] = []
        with _converted(operation):
            if document.get("is_paused"):
                rules = self._client.task_pause_info(id).data
                pauses = [_pause(rule) for rule in rules.get("pause_rules", [])]
                pauses += [str(text) for text in _messages(rules)]
            if document.get("faults") or document.get("status") in ("FAILED", "INACTIVE"):
                events = list(self._client.task_event_list(id, limit=EVENTS_MAX)["DATA"])
        return task_of(document, pauses, events)

    def _is_overdue(self, request: Mapping[str, Any]) -> bool:
        deadline = request.get("deadline")
        return isinstance(deadline, str) and datetime.fromisoformat(deadline) <= self._clock()

    def _cancelled(self, record: Record) -> Transfer:
        """Cancel the task of a record. The reason is stored first, so that no answer loses it."""
        if record.submission_id:
            self._records.put(record)
        with _converted(f"cancel transfer {record.id}"):
            self._client.cancel_task(str(record.task_id))
        return self._report(record)


def open_executor(
    settings: Mapping[str, str] | None = None, store: Store | None = None
) -> GlobusExecutor:
    """Open the executor for a program that uses :mod:`dray.executors`.

    :param settings: values for the fields of :class:`Settings`, by field name. Without them, the
        environment variables apply.
    """
    read = None if settings is None else Settings.of_texts(settings)
    return GlobusExecutor(read, store=store)


@contextlib.contextmanager
def _converted(operation: str) -> Iterator[None]:
    """Convert errors of the SDK to errors of dray."""
    try:
        yield
    except globus_sdk.GlobusError as error:
        raise of_sdk(error, operation) from None


def _kept(request: Request, job: Job) -> dict[str, Any]:
    """Return the part of a request that answers repeat, with the URLs of the collections."""
    kept: dict[str, Any] = {
        "sources": [{"url": urls.GlobusPlace(job.source, item.source).url} for item in job.items],
        "destination": {"url": _url(request.destination)},
        "labels": dict(request.labels or {}),
    }
    if request.activity is not None:
        kept["activity"] = request.activity
    if job.deadline is not None:
        kept["deadline"] = job.deadline.astimezone(timezone.utc).isoformat()
    if request.content is not None:
        content = {"size": request.content.size, "checksum": request.content.checksum}
        kept["content"] = {name: value for name, value in content.items() if value is not None}
    return kept


def _url(place: Place | str) -> str:
    return place if isinstance(place, str) else place.url


def _pause(rule: dict[str, Any]) -> str:
    return str(rule.get("message") or f"pause rule {rule.get('id')}")


def _messages(rules: dict[str, Any]) -> list[str]:
    names = ("source_pause_message", "destination_pause_message")
    return [str(rules[name]) for name in names if rules.get(name)]


def _other(id: str, cause: str) -> DrayError:
    return make(
        "already_exists",
        f"submit transfer {id}",
        cause,
        "wait for the end of this transfer, cancel it, or choose another id",
        end="here",
    )


def _record_of_task(id: str) -> Record | None:
    """Return a record for the id of a task that another program has submitted."""
    try:
        is_task = str(uuid.UUID(id)) == id.lower()
    except ValueError:
        return None
    return Record(id, "", "", task_id=id) if is_task else None
