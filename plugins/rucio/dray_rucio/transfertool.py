"""The methods that Rucio's conveyor calls: submit, query, cancel, change."""

from __future__ import annotations

import logging
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rucio.common.exception import TransferToolTimeout, TransferToolWrongAnswer
from rucio.transfertool.transfertool import Transfertool, TransferToolBuilder

from dray import DrayError, DrayTemporaryError
from dray.client import unescape
from dray_rucio import recall, requests, staging, submission
from dray_rucio.again import Again
from dray_rucio.groups import Member, divide, find_name, is_group
from dray_rucio.hosts import LATER_KINDS, QUERY_MAX
from dray_rucio.places import PROTOCOL_SCHEME, NoPlaceError
from dray_rucio.report import Batch, DrayReport, error_of, file_error_of
from dray_rucio.sending import (
    NO_HOST,
    OVER_KINDS,
    PIN_ATTRIBUTE,
    URL_ATTRIBUTE,
    NotSubmittedError,
    Sender,
    end,
    hosts,
    name_of,
    site_of,
    wish_of_rule,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from dray.client import Transfer

__all__ = [
    "NAME",
    "PIN_ATTRIBUTE",
    "URL_ATTRIBUTE",
    "DrayTransfertool",
    "again",
    "hosts",
    "may_wait",
]

NAME = "dray"
GROUP_TRIES = 2
"""Number of tries of a file in a transfer with other files. Further tries have their own transfer,
because one of them may fail for a reason that concerns the whole transfer.
"""

#: Cancellations that an endpoint has not received yet.
again = Again()


class DrayTransfertool(Transfertool):
    """Passes Rucio's transfers to endpoints of dray."""

    external_name = NAME
    required_rse_attrs = (URL_ATTRIBUTE,)
    supported_schemes = Transfertool.supported_schemes | {PROTOCOL_SCHEME}

    def __init__(self, external_host: str, logger: Any = logging.log) -> None:  # noqa: ANN401 - Rucio's
        """Use the endpoint ``dray://HOST:PORT[#PIN]``."""
        super().__init__(external_host, logger)

    @classmethod
    def submission_builder_for_path(
        cls,
        transfer_path: list[Any],
        logger: Any = logging.log,  # noqa: ANN401 - Rucio's
    ) -> tuple[list[Any], TransferToolBuilder | None]:
        """Accept the first hop of a path, if both its ends have endpoints.

        Only one hop at a time is accepted, because a hop that waits for the previous one would
        occupy a slot at an endpoint.
        """
        hop = transfer_path[0]
        if staging.is_stage_in(hop):
            return cls._builder_for_stage_in(hop)
        if not cls.can_perform_transfer(hop.src.rse, hop.dst.rse) or recall.is_refused(hop):
            return [], None
        try:
            host = site_of(hop.dst.rse).host
        except NoPlaceError as error:
            # Do not raise the error here, because Rucio would then report NO_SOURCES. The
            # submission reports this error.
            logger(logging.ERROR, "dray: %s", error)
            host = NO_HOST
        return [hop], TransferToolBuilder(cls, external_host=host)

    @classmethod
    def _builder_for_stage_in(cls, hop: Any) -> tuple[list[Any], TransferToolBuilder | None]:  # noqa: ANN401
        """Accept a file of a tape RSE with an endpoint. The other RSE needs no endpoint."""
        try:
            host = site_of(hop.src.rse).host
        except NoPlaceError:
            return [], None
        return [hop], TransferToolBuilder(cls, external_host=host)

    def group_into_submit_jobs(self, transfer_paths: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """Make one job for each set of small files of a rule and RSEs, and one for each other file.

        A file is left out if its destination is unreachable, or if all its sources are
        unreachable. Such a file stays queued, and Rucio's submitter tries it again later.
        """
        hops = [hop for path in transfer_paths for hop in path]
        looked: dict[str, DrayError | None] = {}
        left: dict[str, int] = {}
        rules: dict[str, submission.Wish] = {}
        members = []
        for hop in hops:
            why = self._missing(hop, looked)
            if why is None or not may_wait(hop.rws.request_id):
                members.append(self._member(hop, rules))
            else:
                left[why] = left.get(why, 0) + 1
        for why, count in left.items():
            self.logger(logging.WARNING, "dray: %d requests stay queued: %s", count, why)
        groups = divide(members, hosts.settings.group_files)
        return [{"transfers": group, "job_params": {}} for group in groups]

    def submit(
        self, transfers: Iterable[Any], job_params: dict[str, str], timeout: int | None = None
    ) -> str:
        """Submit a job as one transfer. Return its id.

        The id of a transfer of one file is that of the request.

        :raises TransferToolTimeout: if an endpoint is unreachable or busy. The requests return to
            the queue, with an unchanged number of tries, until ``wait_seconds`` have passed.
        :raises TransferToolWrongAnswer: if the transfer is refused. Rucio then counts the try.
        """
        del job_params, timeout
        hops = list(transfers)
        sender = Sender(self.external_host, hops, self.logger)
        try:
            if staging.is_stage_in(hops[0]):
                return staging.send(self.external_host, hops[0])
            if recall.is_needed(hops[0]):
                staged = recall.begin(hops[0])
                if staged.state != "staged":
                    return staged.id
                sender.recalled = staged
            return sender.send()
        except NotSubmittedError as error:
            if error.is_passing:
                waiting = [id for id in sender.ids if may_wait(id) and requests.put_back(id)]
                if waiting:
                    for id in set(sender.ids) - set(waiting):
                        requests.fail(id, f"dray: {error}")
                    who = f"request {waiting[0]}"
                    if len(waiting) > 1:
                        who += f" and {len(waiting) - 1} others"
                    raise TransferToolTimeout(f"{error}; {who}: still queued") from error
                # The endpoint may have accepted the transfer although its answer was lost. No
                # poller would ask for that transfer, so it is cancelled.
                self._end_later(sender.id)
            for id in sender.ids:
                requests.keep_error(id, f"dray: {error}")
            kind = TransferToolTimeout if error.is_passing else TransferToolWrongAnswer
            raise kind(str(error)) from error

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,
    ) -> dict[str, Any]:
        """Return the states of transfers, by the id of the transfer.

        The state is ``None`` for a transfer that the endpoint does not know. If the endpoint is
        unreachable, the state is the error. Otherwise the state is a dictionary with one report for
        each request that has ended. A running request has no report, so Rucio asks again.
        """
        del timeout
        answers: dict[str, Any] = {}
        together = Batch()
        for id, requests_of in requests_by_eid.items():
            if staging.is_stage_in_request(requests_of):
                try:
                    answers[id] = staging.reports(self.external_host, id, requests_of)
                except DrayError as error:
                    answers[id] = error
        answers |= recall.reports(
            {id: found for id, found in requests_by_eid.items() if submission.is_recall(id)}
        )
        ids = [id for id in requests_by_eid if id not in answers]
        for first in range(0, len(ids), QUERY_MAX):
            batch = ids[first : first + QUERY_MAX]
            try:
                found = self._query(batch)
            except DrayError as error:
                answers.update(dict.fromkeys(batch, error))
                continue
            for id in batch:
                transfer = found.get(id)
                if transfer is None:
                    answers[id] = None
                    continue
                try:
                    answers[id] = self._reports(transfer, requests_by_eid[id], together)
                except DrayError as error:
                    answers[id] = error
        return answers

    def _reports(
        self, transfer: Transfer, requests_of: Mapping[str, Any], together: Batch
    ) -> dict[str, DrayReport]:
        """Return the reports of the requests that have ended."""
        if is_group(transfer.id):
            return self._reports_of_files(transfer, requests_of, together)
        if not transfer.is_terminal:
            return {}
        recall.release(transfer, requests_of.values())
        error = self._wrong_with(transfer) or error_of(transfer)
        host = self.external_host
        return {
            id: DrayReport(request, transfer, host, error, together)
            for id, request in requests_of.items()
        }

    def _reports_of_files(
        self, transfer: Transfer, requests_of: Mapping[str, Any], together: Batch
    ) -> dict[str, DrayReport]:
        """Return the reports of the files that have ended.

        A file that failed may succeed in the next session of the transfer, so its failure is
        reported at the end of the transfer.
        """
        counts = transfer.files
        if not transfer.is_terminal and not counts.done:
            return {}
        state = None if transfer.is_terminal else "done"
        client = hosts.of(self.external_host)
        found = client.files(transfer.id, state=state, limit=1000)
        outcomes = {_name_of(outcome.path): outcome for outcome in found}
        listed = {_name_of(file["path"]): file for file in transfer.request["files"]}
        names: dict[str, list[str]] = {}
        for name in listed:
            names.setdefault(name.rsplit("/", 1)[-1], []).append(name)
        reports = {}
        for id, request in requests_of.items():
            name = find_name(str(request["dest_url"]), names) or ""
            outcome = outcomes.get(name)
            if outcome is None and not transfer.is_terminal:
                continue
            error = file_error_of(transfer, outcome)
            if outcome is None and name in listed and self._is_there(transfer, listed[name]):
                error = None
            reports[id] = DrayReport(request, transfer, self.external_host, error, together)
        return reports

    def _is_there(self, transfer: Transfer, file: Mapping[str, Any]) -> bool:
        """Return true if ``file``, for which the transfer lists no outcome, is at the destination.

        The transfer lists no outcome of a file that was at the destination before the session.
        """
        if transfer.state == "done":
            return True
        if transfer.state == "cancelled":
            return False
        path = transfer.request["destination"]["url"] + file["path"]
        client = hosts.of(self.external_host)
        try:
            if client.stat(path).size != file.get("size"):
                return False
            wanted = file.get("checksum")
            return wanted in (None, f"adler32:{client.checksum(path).checksum}")
        except DrayError as error:
            if error.kind != "not_found":
                raise
            return False

    def cancel(self, transfer_ids: Sequence[str], timeout: int | None = None) -> bool:
        """Cancel transfers.

        Durable data is kept, because Rucio also cancels transfers to queue them again.

        Rucio calls this only once, so if the endpoint is unreachable, this process cancels the
        transfers later. A transfer of several files is cancelled when Rucio has no other request of
        the transfer. This process looks for other requests after Rucio's transaction has ended.
        """
        del timeout
        missed: DrayError | None = None
        for id in transfer_ids:
            if is_group(id):
                self._end_when_idle(id)
                continue
            try:
                self._end(self._host_of(id), id)
            except DrayError as error:
                if error.kind not in LATER_KINDS:
                    raise
                missed = error
                self._end_later(id)
        if missed is not None:
            raise missed
        return True

    def update_priority(
        self, transfer_id: str, priority: int, timeout: int | None = None
    ) -> dict[str, str]:
        """Change the priority of a transfer. Takes effect within a second.

        Rucio changes the priority of a whole rule. All files of a transfer belong to the same rule,
        so the change affects no other rule.
        """
        del timeout
        try:
            hosts.ask(
                self._host_of(transfer_id),
                lambda client: client.change(
                    transfer_id, priority=submission.priority_of(priority)
                ),
                hurried=True,
            )
        except DrayError as error:
            # If the transfer has ended, Rucio does not know this yet. Do not raise the error then,
            # because the change of the rule must not fail.
            if error.kind not in OVER_KINDS:
                raise
            return {"http_message": str(error)}
        return {"http_message": f"transfer {transfer_id} has priority {priority}"}

    def _missing(self, hop: Any, looked: dict[str, DrayError | None]) -> str | None:  # noqa: ANN401 - Rucio's
        """Return why a hop cannot start now. ``None`` if its destination and one source answer.

        Each endpoint is called only once, because ``looked`` caches its answer.
        """
        try:
            error = _look_for(self.external_host, looked)
            if error is not None:
                return f"RSE {hop.dst.rse.name}: {error}"
            why = None
            for source in hop.sources:
                error = _look_for(site_of(source.rse).host, looked)
                if error is None:
                    return None
                why = why or f"RSE {source.rse.name}: {error}"
        except NoPlaceError:
            # The submission reports this error.
            return None
        return why

    def _member(self, hop: Any, rules: dict[str, submission.Wish]) -> Member[Any]:  # noqa: ANN401
        """Return a file with the key of the files with which it may share a transfer."""
        try:
            names = {name_of(hop, index) for index in range(len(hop.sources))}
            name = name_of(hop)
            for each in (hop.dst, *hop.sources):
                site_of(each.rse)
        except NoPlaceError:
            # The submission reports this error.
            return Member(None, "", hop)
        return Member(self._key(hop, rules) if names == {name} else None, name, hop)

    def _key(self, hop: Any, rules: dict[str, submission.Wish]) -> Hashable | None:  # noqa: ANN401
        how, asked, rse = hosts.settings, hop.rws, hop.dst.rse
        is_small = asked.byte_count is not None and asked.byte_count <= how.group_file_bytes
        may_share = is_small and asked.rule_id is not None and asked.retry_count < GROUP_TRIES
        is_alone = rse.is_tape() or staging.is_stage_in(hop) or recall.is_needed(hop)
        if how.group_files < 2 or not may_share or is_alone:
            return None
        wish = rules.get(asked.rule_id)
        if wish is None:
            wish = rules[asked.rule_id] = wish_of_rule(asked.rule_id, self.logger)
        if wish.rate_min or wish.rate_max:
            # These rates apply to each file.
            return None
        sources = tuple(source.rse.id for source in hop.sources)
        return (asked.rule_id, rse.id, sources, asked.activity, asked.priority)

    def _query(self, ids: list[str]) -> Mapping[str, Transfer | None]:
        return hosts.ask(self.external_host, lambda client: client.query(ids))

    def _host_of(self, id: str) -> str:
        """Return the endpoint of a transfer: for a recall, that of the source."""
        found = recall.host_of(id) if submission.is_recall(id) else None
        return found or str(self.external_host)

    def _end_later(self, id: str) -> None:
        """Cancel a transfer when its endpoint is reachable."""
        host = self._host_of(id)
        again.add(f"cancel {id} at {host}", lambda: self._end(host, id))

    def _end(self, host: str, id: str) -> None:
        """Cancel a recall or a copy, and end the pin of the recalled file."""
        transfer = end(host, id, hurried=True)
        if submission.is_recall(id):
            recall.unpin(host, id)
        else:
            recall.release_cancelled(host, id, transfer)

    def _end_when_idle(self, id: str) -> None:
        """Cancel a transfer of several files when Rucio has no request for it."""
        again.add(f"cancel {id} at {self.external_host}", lambda: self._end_idle(id))

    def _end_idle(self, id: str) -> None:
        """Cancel a transfer of several files if Rucio has no request for it.

        :raises DrayTemporaryError: if the transfer still has requests.
        """
        if not requests.has_others(id):
            end(self.external_host, id, hurried=True)
            return
        found = self._query([id]).get(id)
        if found is not None and not found.is_terminal:
            cause = "other requests of the transfer remain"
            raise DrayTemporaryError(
                f"cannot cancel transfer {id}: {cause}",
                kind="busy",
                status="temporary",
                end="here",
                operation=f"cancel transfer {id}",
                file=None,
                cause=cause,
                remedy="",
            )

    def _wrong_with(self, transfer: Transfer) -> str | None:
        """Return why a finished transfer is no success: its destination had a different file."""
        if transfer.state != "done" or not transfer.files.skipped:
            return None
        path = transfer.request["destination"]["url"]
        content = transfer.request.get("content", {})
        client = hosts.of(self.external_host)
        found = client.stat(path).size
        if found != content.get("size"):
            return (
                f"dray transfer {transfer.id}: the destination already has a file of {found} bytes"
            )
        if "checksum" not in content:
            return None
        has = f"adler32:{client.checksum(path).checksum}"
        if has == content["checksum"]:
            return None
        return (
            f"dray transfer {transfer.id}: the destination already has a file with the checksum "
            f"{has}"
        )


def _name_of(path: str) -> str:
    """Return the name for a path of the API, which escapes some characters."""
    return os.fsdecode(unescape(path))


def may_wait(request_id: str) -> bool:
    """Return true if a request may stay in Rucio's queue."""
    since = requests.waits_since(request_id)
    # Rucio's times are UTC without a zone.
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    return since is None or (now - since).total_seconds() < hosts.settings.wait_seconds


def _look_for(host: str, looked: dict[str, DrayError | None]) -> DrayError | None:
    """Return the error of an unreachable endpoint, cached in ``looked``."""
    if host not in looked and host != NO_HOST:
        try:
            hosts.look_for(host, always=True)
        except DrayError as error:
            looked[host] = error
        else:
            looked[host] = None
    return looked.get(host)
