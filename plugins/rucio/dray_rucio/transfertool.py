"""What the conveyor calls: submit, query, cancel, change.

The destination's endpoint drives: it is asked, and fetches from the sources' endpoints by tickets
that are minted there for it alone.
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
from dray.client import Place
from dray_rucio import submission
from dray_rucio.hosts import AWAY_KINDS, Hosts
from dray_rucio.places import NoPlaceError, Site, below, site
from dray_rucio.report import DrayReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dray.client import Client, Ticket, Transfer

__all__ = ["NAME", "PIN_ATTRIBUTE", "URL_ATTRIBUTE", "DrayTransfertool", "hosts"]

NAME = "dray"
URL_ATTRIBUTE = "dray_url"
"""Of an RSE: what stands for the prefix of its protocols at its endpoint."""
PIN_ATTRIBUTE = "dray_pin"
"""Of an RSE: the fingerprint of its endpoint, where that has no certificate of an authority."""

#: clients are shared by all transfertools of a process: Rucio makes one for each batch
hosts = Hosts()


class DrayTransfertool(Transfertool):
    """Hands Rucio's transfers to endpoints of dray."""

    external_name = NAME
    required_rse_attrs = (URL_ATTRIBUTE,)

    def __init__(self, external_host: str, logger: Any = logging.log) -> None:  # noqa: ANN401 - Rucio's
        """Speak to the endpoint ``dray://HOST:PORT[#PIN]``."""
        super().__init__(external_host, logger)

    @classmethod
    def submission_builder_for_path(
        cls,
        transfer_path: list[Any],
        logger: Any = logging.log,  # noqa: ANN401 - Rucio's
    ) -> tuple[list[Any], TransferToolBuilder | None]:
        """Take the first hop of a path, if both its ends have endpoints.

        One at a time: a hop that waits for the one before holds no place at an endpoint.
        """
        hop = transfer_path[0]
        if not cls.can_perform_transfer(hop.src.rse, hop.dst.rse) or _needs_tape(hop):
            return [], None
        try:
            host = _site_of(hop.dst.rse).host
        except NoPlaceError as error:
            logger(logging.ERROR, "dray: %s", error)
            return [], None
        return [hop], TransferToolBuilder(cls, external_host=host)

    def group_into_submit_jobs(self, transfer_paths: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """Make a job of each transfer, so that one can be cancelled without another."""
        return [{"transfers": [hop], "job_params": {}} for path in transfer_paths for hop in path]

    def submit(
        self, transfers: Iterable[Any], job_params: dict[str, str], timeout: int | None = None
    ) -> str:
        """Submit the one transfer of a job; give its id, which is the request's.

        :raises TransferToolTimeout: if an endpoint cannot be reached; nothing is lost, and Rucio
            tries again.
        :raises TransferToolWrongAnswer: if it refuses.
        """
        del job_params, timeout
        (transfer,) = transfers
        file = _file_of(transfer)
        try:
            wish = self._wish_of(file)
            previous = transfer.rws.previous_attempt_id
            if previous is not None:
                # Should it live on here unknown to Rucio, it would hold the file.
                self._end(previous)
            places, rse_ids = self._sources_of(transfer)
            try:
                return self._send(transfer, file, wish, places, rse_ids)
            except DrayUsageError as error:
                if wish == submission.Wish():
                    raise
                # It is the rule's wish, perhaps, that the endpoint will not hear of.
                self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
                return self._send(transfer, file, submission.Wish(), places, rse_ids)
        except DrayError as error:
            kind = TransferToolTimeout if error.kind in _AWAY else TransferToolWrongAnswer
            raise kind(f"{self.external_host}: {error}") from error
        except NoPlaceError as error:
            raise TransferToolWrongAnswer(str(error)) from error

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,
    ) -> dict[str, Any]:
        """Look up transfers.

        One that the endpoint does not know is ``None``; while the endpoint is away each is the
        error. What still runs has no report, and Rucio asks again.
        """
        del timeout
        answers: dict[str, Any] = {}
        ids = list(requests_by_eid)
        for first in range(0, len(ids), _QUERY_MAX):
            some = ids[first : first + _QUERY_MAX]
            try:
                found = hosts.of(self.external_host).query(some)
            except DrayError as error:
                answers.update(dict.fromkeys(some, error))
                continue
            for id in some:
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
        """Cancel transfers. What is safe stays: Rucio cancels what it queues anew as well."""
        del timeout
        for id in transfer_ids:
            self._end(id, hurried=True)
        return True

    def update_priority(
        self, transfer_id: str, priority: int, timeout: int | None = None
    ) -> dict[str, str]:
        """Change the priority, in effect within a second."""
        del timeout
        try:
            hosts.ask(
                self.external_host,
                lambda client: client.change(transfer_id, priority=priority),
                hurried=True,
            )
        except DrayError as error:
            # It is done before Rucio has heard of it: no reason to refuse the rule's change.
            if error.kind not in _OVER:
                raise
            return {"http_message": str(error)}
        return {"http_message": f"transfer {transfer_id} has priority {priority}"}

    def _wish_of(self, file: submission.File) -> submission.Wish:
        """Read what the rule says to dray; what makes no sense is told in the log alone."""
        if file.rule_id is None or not hosts.settings.heeds_meta:
            return submission.Wish()
        from rucio.core.rule import get_rule

        try:
            wish = submission.wish_of(get_rule(file.rule_id).get("meta"))
        except Exception as error:
            # Of many kinds: it makes no sense, or the rule has been deleted meanwhile.
            self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
            return submission.Wish()
        if wish.deadline is not None and wish.deadline <= datetime.now(timezone.utc):
            # It is late already; it cannot be promised any more.
            return dataclasses.replace(wish, deadline=None)
        return wish

    def _end(self, id: str, *, hurried: bool = False) -> None:
        """Cancel a transfer; one that is over, or forgotten, is as good as cancelled."""
        try:
            hosts.ask(self.external_host, lambda client: client.cancel(id), hurried=hurried)
        except DrayError as error:
            if error.kind not in _OVER:
                raise

    def _sources_of(self, transfer: Any) -> tuple[list[Place], list[str]]:  # noqa: ANN401 - Rucio's
        """Mint a ticket at each source; give their places, and their RSEs.

        :raises DrayError: if there is none left; of the last.
        """
        there = _site_of(transfer.dst.rse)
        places: list[Place] = []
        rse_ids: list[str] = []
        last: DrayError | NoPlaceError | None = None
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
                    key = hosts.key(self.external_host)
                    ticket = hosts.ask(here.host, _mint(transfer.rws.request_id, path, key))
                    place = Place(here.url(path), ticket.ticket, ticket.key, ticket.address)
            except (DrayError, NoPlaceError) as error:
                # Another replica will do.
                self.logger(logging.WARNING, "dray: no source at %s: %s", source.rse, error)
                last = error
                continue
            places.append(place)
            rse_ids.append(source.rse.id)
        if not places:
            raise last or NoPlaceError(f"request {transfer.rws.request_id} has no source")
        return places, rse_ids

    def _send(
        self,
        transfer: Any,  # noqa: ANN401 - Rucio's
        file: submission.File,
        wish: submission.Wish,
        places: list[Place],
        rse_ids: list[str],
    ) -> str:
        """Submit; give the id."""
        there = _site_of(transfer.dst.rse)
        prefix = transfer.dest_protocol().attributes["prefix"]
        request = dataclasses.replace(
            submission.request_of(
                file,
                wish,
                source_rse_ids=rse_ids,
                bound_seconds=hosts.settings.bound_seconds,
                tries=hosts.settings.tries,
            ),
            sources=places,
            destination=Place(there.path(below(transfer.dst.rse.name, prefix, transfer.dest_url))),
        )
        try:
            hosts.ask(self.external_host, lambda client: client.submit(request))
        except DrayError as error:
            if error.kind not in AWAY_KINDS:
                raise
            # It may have arrived, and is found by its id then; else it is lost, and tried again.
            self.logger(logging.WARNING, "dray: %s: %s", self.external_host, error)
        return file.request_id

    def _wrong_with(self, transfer: Transfer) -> str | None:
        """Say why one that is done is no success: another file was left where it should be."""
        if transfer.state != "done" or not transfer.files.skipped:
            return None
        path = transfer.request["destination"]["url"]
        content = transfer.request.get("content", {})
        client = hosts.of(self.external_host)
        found = client.stat(path).size
        if found != content.get("size"):
            return f"dray transfer {transfer.id}: a file of {found} bytes stands there already"
        if "checksum" not in content:
            return None
        has = f"adler32:{client.checksum(path).checksum}"
        if has == content["checksum"]:
            return None
        return f"dray transfer {transfer.id}: a file with {has} stands there already"


def _mint(id: str, path: str, key: str) -> Callable[[Client], Ticket]:
    """Get leave to read a file for a transfer of the endpoint with that key."""
    return lambda client: client.mint_ticket(id, "read", [path], key)


def _needs_tape(hop: Any) -> bool:  # noqa: ANN401 - Rucio's
    """Whether something has to be brought from tape first, or waited for until it is there."""
    return (
        hop.rws.request_type is not RequestType.TRANSFER
        or bool(hop.src.rse.is_tape_or_staging_required())
        or hop.dst.rse.attributes.get("archive_timeout") is not None
    )


_AWAY = (*AWAY_KINDS, "busy", "no_place")
"""Kinds of errors that say nothing against the request."""
_OVER = ("not_found", "already_exists")
"""Kinds of errors of a transfer that is over, or forgotten."""
_QUERY_MAX = 1000
"""Of the API: ids in one query."""


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
