"""Pass Rucio's transfers between Globus collections to the Globus Transfer service.

Rucio's external id is the id of the Globus task. The external host is ``globus://COLLECTION``, with
the collection of the destination. The package ``dray_globus`` makes the calls. It is found as an
executor (:mod:`dray.executors`), so that this plug-in does not import another one.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rucio.common.config import config_get_items, config_has_section
from rucio.common.exception import TransferToolTimeout, TransferToolWrongAnswer
from rucio.transfertool.transfertool import Transfertool, TransferToolBuilder

from dray import DrayError, DrayUsageError
from dray.client import Content, Request
from dray.executors import open_executor
from dray_rucio import recall, requests, submission
from dray_rucio.globus_places import SCHEME, Collection, collection, label_of
from dray_rucio.globus_records import RequestStore, kept_of
from dray_rucio.globus_report import GlobusReport
from dray_rucio.hosts import LATER_KINDS
from dray_rucio.places import NoPlaceError
from dray_rucio.sending import is_verified, wish_of_rule
from dray_rucio.transfertool import NAME, again, hosts, may_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dray.client import Transfer
    from dray.executors import Executor

__all__ = [
    "COLLECTION_ATTRIBUTE",
    "PATH_ATTRIBUTE",
    "SECTION",
    "GlobusTransfertool",
    "ask",
    "executor",
]

COLLECTION_ATTRIBUTE = "globus_endpoint_id"
"""Rucio's own attribute of an RSE: the UUID of its Globus collection."""
PATH_ATTRIBUTE = "dray_globus_path"
"""Attribute of an RSE: the path in the collection that replaces the prefix of its protocols."""
SECTION = "dray_globus"
"""Section of ``rucio.cfg`` with the settings of the executor."""
NO_COLLECTION = SCHEME
"""External host for an RSE whose attributes name no collection."""

records = RequestStore()
_local = threading.local()


class _Pause:
    """The time during which the service is not called, because it is busy or unreachable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._error: DrayError | None = None

    @property
    def error(self) -> DrayError | None:
        """The error of the last call, while the service must not be called."""
        with self._lock:
            return self._error if time.monotonic() < self._until else None

    def note(self, error: DrayError) -> None:
        """Begin a pause if the error is temporary.

        If the service has sent a time (``Retry-After``), the pause lasts for this time, and
        otherwise for ``away_seconds``.
        """
        if error.kind not in LATER_KINDS:
            return
        seconds = error.retry_after_seconds
        if seconds is None:
            seconds = hosts.settings.away_seconds
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)
            self._error = error


pause = _Pause()


def executor() -> Executor:
    """Return the executor of this thread, with the settings in ``rucio.cfg``.

    :raises DrayUsageError: if the settings are missing or invalid, or if the extra ``globus`` is
        not installed.
    """
    found: Executor | None = getattr(_local, "executor", None)
    if found is None:
        if not config_has_section(SECTION):
            raise _unconfigured()
        settings = {"tries": "0", **dict(config_get_items(SECTION))}
        found = _local.executor = open_executor("globus", settings, records)
    return found


def ask(task_ids: Sequence[str]) -> dict[str, Transfer | None]:
    """Return the states of tasks, with the messages of pause rules.

    :raises DrayError: if the service cannot be queried.
    """
    found = executor().query(task_ids)
    for id, transfer in found.items():
        if transfer is not None and transfer.state == "paused":
            # The query of several tasks does not include the message of a pause rule.
            found[id] = executor().transfer(id)
    return found


class GlobusTransfertool(Transfertool):
    """Passes Rucio's transfers between collections to the Globus Transfer service."""

    external_name = NAME
    required_rse_attrs = (COLLECTION_ATTRIBUTE,)

    @classmethod
    def submission_builder_for_path(
        cls,
        transfer_path: list[Any],
        logger: Any = logging.log,  # noqa: ANN401 - Rucio's
    ) -> tuple[list[Any], TransferToolBuilder | None]:
        """Accept the first hop of a path, if both its ends have collections."""
        hop = transfer_path[0]
        if not cls.can_perform_transfer(hop.src.rse, hop.dst.rse) or recall.is_refused(
            hop, recalls=False
        ):
            return [], None
        try:
            host = _collection_of(hop.dst.rse).host
        except NoPlaceError as error:
            # The submission reports this error, because Rucio would report NO_SOURCES.
            logger(logging.ERROR, "dray: %s", error)
            host = NO_COLLECTION
        return [hop], TransferToolBuilder(cls, external_host=host)

    def group_into_submit_jobs(self, transfer_paths: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """Make one job of each transfer, so that each transfer can be cancelled separately.

        While the service is busy or unreachable, the transfers stay queued.
        """
        hops = [hop for path in transfer_paths for hop in path]
        error = pause.error
        if error is not None:
            count = len(hops)
            hops = [hop for hop in hops if not may_wait(hop.rws.request_id)]
            left = count - len(hops)
            self.logger(logging.WARNING, "dray: %d requests stay queued: %s", left, error)
        return [{"transfers": [hop], "job_params": {}} for hop in hops]

    def submit(
        self, transfers: Iterable[Any], job_params: dict[str, str], timeout: int | None = None
    ) -> str:
        """Submit the single transfer of a job. Return the id of the Globus task.

        :raises TransferToolTimeout: if the service is unreachable or busy. The request returns to
            the queue, with an unchanged number of tries, until ``wait_seconds`` have passed.
        :raises TransferToolWrongAnswer: if the transfer is refused. Rucio then counts the try.
        """
        del job_params, timeout
        (transfer,) = transfers
        id = transfer.rws.request_id
        try:
            return self._submit(transfer)
        except (DrayError, NoPlaceError) as error:
            is_passing = isinstance(error, DrayError) and error.kind in LATER_KINDS
            rse = transfer.dst.rse.name
            text = f"RSE {rse}: {error}" if isinstance(error, DrayError) else str(error)
            if is_passing and may_wait(id) and requests.put_back(id):
                raise TransferToolTimeout(f"{text}; request {id} stays queued") from error
            requests.keep_error(id, f"dray: {text}")
            raise (TransferToolTimeout if is_passing else TransferToolWrongAnswer)(text) from error
        finally:
            records.forget_deleted(id)

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,
    ) -> dict[str, Any]:
        """Return the state of tasks.

        The result of an ended task is a report for each of its requests. The result of a running
        task is empty, and that of a task unknown to the service is ``None``. If the service is
        unreachable or busy, each result is the error.
        """
        del timeout
        error = pause.error
        try:
            if error is not None:
                raise error
            found = executor().query(list(requests_by_eid))
        except DrayError as caught:
            if caught is not error:
                pause.note(caught)
            return dict.fromkeys(requests_by_eid, caught)
        answers: dict[str, Any] = {}
        for eid, by_id in requests_by_eid.items():
            transfer = found.get(eid)
            if transfer is None:
                answers[eid] = None
                continue
            answers[eid] = {
                id: _report(id, words, transfer)
                for id, words in by_id.items()
                if transfer.is_terminal
            }
        return answers

    def cancel(self, transfer_ids: Sequence[str], timeout: int | None = None) -> bool:
        """Cancel tasks. Rucio calls this only once, so this process repeats a failed call."""
        del timeout
        missed: DrayError | None = None
        for id in transfer_ids:
            try:
                _end(id)
            except DrayError as error:
                if error.kind not in LATER_KINDS:
                    raise
                missed = error
                again.add(f"cancel Globus task {id}", functools.partial(_end, id))
        if missed is not None:
            raise missed
        return True

    def update_priority(
        self, transfer_id: str, priority: int, timeout: int | None = None
    ) -> dict[str, str]:
        """Change nothing, because Globus has no priorities. The change of the rule succeeds."""
        del timeout
        return {"http_message": f"Globus has no priorities; task {transfer_id} ignores {priority}"}

    def _submit(self, transfer: Any) -> str:  # noqa: ANN401 - Rucio's
        error = pause.error
        if error is not None:
            raise error
        run = executor()
        request = self._request(transfer)
        label = label_of(_did(transfer.rws), transfer.rws.rule_id)
        try:
            found = run.submit(request, {"label": label})
            return run.task_id(found.id)
        except DrayError as caught:
            pause.note(caught)
            raise

    def _request(self, transfer: Any) -> Request:  # noqa: ANN401 - Rucio's
        """Return the request of a transfer.

        :raises NoPlaceError: if the attributes of an RSE name no collection.
        """
        asked, rse = transfer.rws, transfer.dst.rse
        prefix = transfer.dest_protocol().attributes["prefix"]
        source, source_rse_id = self._source(transfer)
        return Request(
            sources=source,
            destination=_collection_of(rse).url(prefix, transfer.dest_url),
            id=asked.request_id,
            content=_content(transfer),
            deadline=self._deadline(asked.rule_id),
            labels={submission.SOURCES_LABEL: source_rse_id},
            overwrite="never" if rse.is_tape() else "if-different",
            verify=is_verified(rse),
        )

    def _source(self, transfer: Any) -> tuple[str, str]:  # noqa: ANN401 - Rucio's
        """Return the URL of the source, and the id of the source's RSE.

        If an earlier submission got no answer, the source of that submission is used again, because
        the repeated submission must be equal to the earlier one.
        """
        found: list[tuple[str, str]] = []
        for each in transfer.sources:
            try:
                place = _collection_of(each.rse)
                prefix = transfer.source_protocol(each).attributes["prefix"]
                found.append((place.url(prefix, transfer.source_url(each)), each.rse.id))
            except NoPlaceError as error:
                self.logger(logging.WARNING, "dray: a source cannot be used: %s", error)
                if not found and each is transfer.sources[-1]:
                    raise
        earlier = records.get(transfer.rws.request_id) or {}
        if earlier and earlier.get("task_id") is None:
            urls = [each["url"] for each in earlier.get("request", {}).get("sources", ())]
            return next((each for each in found if each[0] in urls), found[0])
        return found[0]

    def _deadline(self, rule_id: str | None) -> datetime | None:
        """Return the deadline of a rule. A deadline that has passed is ignored."""
        wish = wish_of_rule(rule_id, self.logger)
        if wish.rate_min or wish.rate_max:
            self.logger(
                logging.WARNING, "dray: rule %s: Globus has no rates; they are ignored", rule_id
            )
        wish = submission.at(wish, datetime.now(timezone.utc))
        if wish.passed is not None:
            self.logger(
                logging.WARNING, "dray: rule %s: its deadline %s has passed", rule_id, wish.passed
            )
            return None
        return wish.deadline


def _collection_of(rse: Any) -> Collection:  # noqa: ANN401 - Rucio's RseData
    id, path = (rse.attributes.get(name) for name in (COLLECTION_ATTRIBUTE, PATH_ATTRIBUTE))
    if id is None:
        raise NoPlaceError(f"RSE {rse.name} has no attribute {COLLECTION_ATTRIBUTE}")
    return collection(rse.name, str(id), None if path is None else str(path))


def _content(transfer: Any) -> Content:  # noqa: ANN401 - Rucio's DirectTransfer
    """Return the checksum of Rucio's catalogue, or the size if no checksum is compared.

    MD5 comes first, because it is the default algorithm of Globus.
    """
    asked = transfer.rws
    if is_verified(transfer.dst.rse):
        if asked.md5:
            return Content(checksum=f"md5:{asked.md5.lower()}")
        if asked.adler32:
            # Some catalogues omit leading zeros.
            return Content(checksum=f"adler32:{asked.adler32.lower().zfill(8)}")
    return Content(size=asked.byte_count)


def _did(asked: Any) -> str:  # noqa: ANN401 - Rucio's RequestWithSources
    return f"{asked.scope.external}:{asked.name}"


def _unconfigured() -> DrayUsageError:
    operation = "log in at Globus"
    cause = f"rucio.cfg has no section [{SECTION}]"
    remedy = "write the client_id and client_secret of a Globus client into this section"
    return DrayUsageError(
        f"cannot {operation}: {cause}; {remedy}",
        kind="invalid_request",
        status="permanent",
        end="here",
        operation=operation,
        file=None,
        cause=cause,
        remedy=remedy,
    )


def _report(id: str, words: Mapping[str, Any], transfer: Transfer) -> GlobusReport:
    kept = kept_of(words.get("attributes")) or {}
    sources = submission.sources_of(kept.get("request", {}).get("labels"))
    report = GlobusReport(id, transfer, sources)
    if report.is_wrong:
        # The next try must not find this task, because the task has succeeded.
        records.delete(id)
    return report


def _end(task_id: str) -> None:
    """Cancel a task. If the service does not know the task, that counts as success."""
    try:
        executor().cancel(task_id)
    except DrayError as error:
        if error.kind != "not_found":
            raise
