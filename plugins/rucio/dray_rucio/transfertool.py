"""The methods that Rucio's conveyor calls: submit, query, cancel, change.

The endpoint of the destination drives the transfer, and reads the file from the endpoints of the
sources. For each source, the transfertool mints a ticket at the source's endpoint. Only the key of
the destination's endpoint can use the ticket.
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rucio.common.exception import TransferToolTimeout, TransferToolWrongAnswer
from rucio.db.sqla.constants import RequestType
from rucio.transfertool.transfertool import Transfertool, TransferToolBuilder

from dray import DrayError, DrayUsageError
from dray.client import Client, Place
from dray_rucio import requests, submission
from dray_rucio.again import Again
from dray_rucio.hosts import LATER_KINDS, Hosts
from dray_rucio.places import NoPlaceError, Site, below, site
from dray_rucio.report import DrayReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dray.client import Ticket, Transfer

__all__ = ["NAME", "PIN_ATTRIBUTE", "URL_ATTRIBUTE", "DrayTransfertool", "hosts"]

NAME = "dray"
URL_ATTRIBUTE = "dray_url"
"""Attribute of an RSE: the URL that replaces the prefix of its protocols."""
PIN_ATTRIBUTE = "dray_pin"
"""Attribute of an RSE: the fingerprint of its endpoint.

It is needed if no authority has signed the endpoint's certificate.
"""

#: Shared by all transfertools of a process, because Rucio creates one for each batch.
hosts = Hosts()
#: Cancellations that an endpoint has not received yet.
again = Again()


class NotSubmittedError(Exception):
    """A transfer could not be submitted. The text names the RSE at which the call failed.

    :param is_passing: true if the same submission may succeed later.
    """

    def __init__(self, rse: str, error: Exception, *, is_passing: bool | None = None) -> None:
        """Store the error of a call, or of parsing an RSE's attributes."""
        super().__init__(f"RSE {rse}: {error}" if isinstance(error, DrayError) else str(error))
        self.is_passing = _is_passing(error) if is_passing is None else is_passing


class DrayTransfertool(Transfertool):
    """Passes Rucio's transfers to endpoints of dray."""

    external_name = NAME
    required_rse_attrs = (URL_ATTRIBUTE,)

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
        if not cls.can_perform_transfer(hop.src.rse, hop.dst.rse) or _needs_tape(hop):
            return [], None
        try:
            host = _site_of(hop.dst.rse).host
        except NoPlaceError as error:
            # Do not raise the error here, because Rucio would then report NO_SOURCES. The
            # submission reports this error.
            logger(logging.ERROR, "dray: %s", error)
            host = NO_HOST
        return [hop], TransferToolBuilder(cls, external_host=host)

    def group_into_submit_jobs(self, transfer_paths: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """Make one job of each transfer, so that each transfer can be cancelled separately.

        A transfer is left out if its destination is unreachable, or if all its sources are
        unreachable. Such a transfer stays queued, and Rucio's submitter tries the transfer again
        later.
        """
        hops = [hop for path in transfer_paths for hop in path]
        looked: dict[str, DrayError | None] = {}
        left: dict[str, int] = {}
        jobs = []
        for hop in hops:
            why = self._missing(hop, looked)
            if why is None or not _may_wait(hop.rws.request_id):
                jobs.append({"transfers": [hop], "job_params": {}})
            else:
                left[why] = left.get(why, 0) + 1
        for why, count in left.items():
            self.logger(logging.WARNING, "dray: %d requests stay queued: %s", count, why)
        return jobs

    def submit(
        self, transfers: Iterable[Any], job_params: dict[str, str], timeout: int | None = None
    ) -> str:
        """Submit the single transfer of a job. Return its id, which is the id of the request.

        :raises TransferToolTimeout: if an endpoint is unreachable or busy. The request returns to
            the queue, with an unchanged number of tries, until ``wait_seconds`` have passed.
        :raises TransferToolWrongAnswer: if the transfer is refused. Rucio then counts the try.
        """
        del job_params, timeout
        (transfer,) = transfers
        id = transfer.rws.request_id
        try:
            return self._submit(transfer)
        except NotSubmittedError as error:
            if error.is_passing and _may_wait(id) and requests.put_back(id):
                raise TransferToolTimeout(f"{error}; request {id} stays queued") from error
            if error.is_passing:
                # The endpoint may have accepted the transfer although its answer was lost. No
                # poller would ask for that transfer, so it is cancelled.
                self._end_later(id)
            requests.keep_error(id, f"dray: {error}")
            kind = TransferToolTimeout if error.is_passing else TransferToolWrongAnswer
            raise kind(str(error)) from error

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,
    ) -> dict[str, Any]:
        """Return the state of transfers.

        The result is ``None`` for a transfer that the endpoint does not know. If the endpoint is
        unreachable, each result is the error. A running transfer has no report, so Rucio asks
        again.
        """
        del timeout
        answers: dict[str, Any] = {}
        ids = list(requests_by_eid)
        for first in range(0, len(ids), _QUERY_MAX):
            batch = ids[first : first + _QUERY_MAX]
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
                    wrong = self._wrong_with(transfer)
                except DrayError as error:
                    answers[id] = error
                    continue
                answers[id] = {
                    request_id: DrayReport(request_id, transfer, wrong)
                    for request_id in requests_by_eid[id]
                    if transfer.is_terminal
                }
        return answers

    def cancel(self, transfer_ids: Sequence[str], timeout: int | None = None) -> bool:
        """Cancel transfers.

        Durable data is kept, because Rucio also cancels transfers to queue them again.

        Rucio calls this only once. If the endpoint is unreachable, this process cancels the
        transfers later.
        """
        del timeout
        missed: DrayError | None = None
        for id in transfer_ids:
            try:
                self._end(id, hurried=True)
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
        """Change the priority. Takes effect within a second."""
        del timeout
        try:
            hosts.ask(
                self.external_host,
                lambda client: client.change(
                    transfer_id, priority=submission.priority_of(priority)
                ),
                hurried=True,
            )
        except DrayError as error:
            # The transfer has ended, and Rucio does not know this yet. Do not raise the error,
            # because the change of the rule must not fail.
            if error.kind not in _OVER:
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
                error = _look_for(_site_of(source.rse).host, looked)
                if error is None:
                    return None
                why = why or f"RSE {source.rse.name}: {error}"
        except NoPlaceError:
            # The submission reports this error.
            return None
        return why

    def _submit(self, transfer: Any) -> str:  # noqa: ANN401 - Rucio's
        """Submit a transfer. Return its id.

        :raises NotSubmittedError: if the submission fails. The message names the RSE.
        """
        file = _file_of(transfer)
        wish = self._wish_of(file)
        there = transfer.dst.rse.name
        try:
            if self.external_host == NO_HOST:
                _site_of(transfer.dst.rse)
            # Look up the destination before the sources, so that an error of the destination is
            # not reported as an error of a source.
            key = hosts.key(self.external_host)
            previous = transfer.rws.previous_attempt_id
            if previous is not None:
                # Cancel the transfer of the previous try. If that transfer still runs and Rucio
                # does not know it, it would block the file.
                self._end(previous)
            hosts.look_for(self.external_host)
        except (DrayError, NoPlaceError) as error:
            raise NotSubmittedError(there, error) from error
        places, rse_ids = self._sources_of(transfer, key)
        try:
            try:
                return self._send(transfer, file, wish, places, rse_ids)
            except DrayUsageError as error:
                without = submission.without_wish(wish)
                if wish == without:
                    raise
                # The endpoint may refuse the deadline or the rate that the rule asks for.
                self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
                return self._send(transfer, file, without, places, rse_ids)
        except (DrayError, NoPlaceError) as error:
            raise NotSubmittedError(there, error) from error

    def _wish_of(self, file: submission.File) -> submission.Wish:
        """Parse the part of the rule's ``meta`` for dray. If it is invalid, only log the error."""
        if file.rule_id is None or not hosts.settings.heeds_meta:
            return submission.Wish()
        from rucio.core.rule import get_rule

        try:
            wish = submission.wish_of(get_rule(file.rule_id).get("meta"))
        except Exception as error:
            # The part may be invalid, or the rule may be deleted. The types of these errors differ.
            self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
            return submission.Wish()
        wish = submission.at(wish, datetime.now(timezone.utc))
        if wish.passed is not None:
            self.logger(
                logging.WARNING,
                "dray: rule %s: its deadline %s has passed; the endpoint starts request %s "
                "before others",
                file.rule_id,
                wish.passed,
                file.request_id,
            )
        return wish

    def _query(self, ids: list[str]) -> Mapping[str, Transfer | None]:
        return hosts.ask(self.external_host, lambda client: client.query(ids))

    def _end(self, id: str, *, hurried: bool = False) -> None:
        """Cancel a transfer. If it has ended or is unknown, that counts as success."""
        try:
            hosts.ask(self.external_host, lambda client: client.cancel(id), hurried=hurried)
        except DrayError as error:
            if error.kind not in _OVER:
                raise

    def _end_later(self, id: str) -> None:
        """Cancel a transfer when its endpoint is reachable."""
        again.add(f"cancel {id} at {self.external_host}", lambda: self._end(id, hurried=True))

    def _sources_of(self, transfer: Any, key: str) -> tuple[list[Place], list[str]]:  # noqa: ANN401 - Rucio's
        """Mint a ticket at each source. Return the places of the sources and their RSEs.

        :param key: fingerprint of the destination's endpoint.
        :raises NotSubmittedError: if no source is left. The message has the error of each source.
        """
        there = _site_of(transfer.dst.rse)
        places: list[Place] = []
        rse_ids: list[str] = []
        errors: list[NotSubmittedError] = []
        for source in transfer.sources:
            if len(places) >= hosts.settings.sources_max:
                break
            try:
                here = _site_of(source.rse)
                prefix = transfer.source_protocol(source).attributes["prefix"]
                path = here.path(below(source.rse.name, prefix, transfer.source_url(source)))
                if here.authority == there.authority:
                    place = Place(path)
                else:
                    ticket = hosts.ask(here.host, _mint(transfer.rws.request_id, path, key))
                    place = Place(here.url(path), ticket.ticket, ticket.key, ticket.address)
            except (DrayError, NoPlaceError) as error:
                # Continue, because another replica is enough.
                errors.append(NotSubmittedError(source.rse.name, error))
                self.logger(logging.WARNING, "dray: a source cannot be used: %s", errors[-1])
                continue
            places.append(place)
            rse_ids.append(source.rse.id)
        if not places:
            request = f"request {transfer.rws.request_id}"
            why = "; ".join(str(error) for error in errors) or f"{request} has no source"
            raise NotSubmittedError(
                transfer.dst.rse.name,
                NoPlaceError(why),
                is_passing=any(error.is_passing for error in errors),
            ) from (errors[-1] if errors else None)
        return places, rse_ids

    def _send(
        self,
        transfer: Any,  # noqa: ANN401 - Rucio's
        file: submission.File,
        wish: submission.Wish,
        places: list[Place],
        rse_ids: list[str],
    ) -> str:
        """Send the request to the endpoint. Return the id."""
        there = _site_of(transfer.dst.rse)
        prefix = transfer.dest_protocol().attributes["prefix"]
        request = dataclasses.replace(
            submission.request_of(
                file,
                wish,
                source_rse_ids=rse_ids,
                bound_seconds=hosts.settings.bound_seconds,
                tries=hosts.settings.tries,
                resume=hosts.settings.resume,
            ),
            sources=places[:1],
            replicas=places[1:] or None,
            destination=Place(there.path(below(transfer.dst.rse.name, prefix, transfer.dest_url))),
        )
        try:
            hosts.ask(self.external_host, lambda client: client.submit(request))
        except DrayError as error:
            if error.kind != "already_exists":
                raise
            # An earlier submission was accepted, but its answer was lost. Since then the list of
            # sources has changed, so the two requests differ.
            found = self._query([file.request_id]).get(file.request_id)
            if found is None:
                raise
            if found.is_terminal:
                # The transfer has just ended. Submitting it again starts a new attempt.
                raise NotSubmittedError(transfer.dst.rse.name, error, is_passing=True) from error
        return file.request_id

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


def _mint(id: str, path: str, key: str) -> Callable[[Client], Ticket]:
    """Return a call that mints a ticket to read a file, for the endpoint with this key."""
    return lambda client: client.mint_ticket(id, "read", [path], key)


def _is_passing(error: Exception) -> bool:
    """Return true if the same call may succeed later."""
    return isinstance(error, DrayError) and error.kind in LATER_KINDS


def _may_wait(request_id: str) -> bool:
    """Return true if a request may stay in Rucio's queue."""
    since = requests.made_at(request_id)
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


def _needs_tape(hop: Any) -> bool:  # noqa: ANN401 - Rucio's
    """Return true if a file must be recalled from tape, or if a recall must be awaited."""
    return (
        hop.rws.request_type is not RequestType.TRANSFER
        or bool(hop.src.rse.is_tape_or_staging_required())
        or hop.dst.rse.attributes.get("archive_timeout") is not None
    )


NO_HOST = "dray://"
"""External host for an RSE whose attributes name no endpoint."""
_OVER = ("not_found", "already_exists")
"""Kinds of errors for a transfer that has ended or whose record was deleted."""
_QUERY_MAX = 1000
"""Maximum number of ids in one query of the API."""


def _site_of(rse: Any) -> Site:  # noqa: ANN401 - Rucio's RseData
    attributes = rse.attributes
    url = attributes.get(URL_ATTRIBUTE)
    if url is None:
        raise NoPlaceError(f"RSE {rse.name} has no attribute {URL_ATTRIBUTE}")
    pin = attributes.get(PIN_ATTRIBUTE)
    return site(rse.name, str(url), None if pin is None else str(pin))


def _file_of(transfer: Any) -> submission.File:  # noqa: ANN401 - Rucio's DirectTransfer
    asked, destination = transfer.rws, transfer.dst.rse
    verifies = destination.attributes.get("verify_checksum")
    return submission.File(
        request_id=asked.request_id,
        scope=asked.scope.external,
        name=asked.name,
        size=asked.byte_count,
        adler32=asked.adler32,
        activity=asked.activity,
        priority=asked.priority,
        rule_id=asked.rule_id,
        destination_rse=destination.name,
        is_verified=verifies is None or str(verifies).lower() != "false",
        may_overwrite=not destination.is_tape(),
    )
