"""What the conveyor calls: submit, query, cancel, change.

The destination's endpoint drives: it is asked, and fetches from the sources' endpoints by tickets
that are minted there for it alone. A token leaves this process for the endpoint that it is for.
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rucio.common.exception import TransferToolTimeout, TransferToolWrongAnswer
from rucio.transfertool.transfertool import Transfertool, TransferToolBuilder

from dray import DrayError
from dray.client import Client, Place
from dray_rucio import submission
from dray_rucio.hosts import AWAY_KINDS, Hosts
from dray_rucio.places import NoPlaceError, Site, below, site
from dray_rucio.report import DrayReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dray.client import Request, Ticket, Transfer

__all__ = ["NAME", "PIN_ATTRIBUTE", "URL_ATTRIBUTE", "DrayTransfertool", "hosts"]

NAME = "dray"
URL_ATTRIBUTE = "dray_url"
"""Of an RSE: what stands for the prefix of its protocols at its endpoint."""
PIN_ATTRIBUTE = "dray_pin"
"""Of an RSE: the fingerprint of its endpoint, where that has no certificate of an authority."""

T = TypeVar("T")
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
        if not cls.can_perform_transfer(hop.src.rse, hop.dst.rse):
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
            request = submission.request_of(
                file,
                self._wish_of(file),
                bound_seconds=hosts.settings.bound_seconds,
                tries=hosts.settings.tries,
            )
            return self._send(transfer, request).id
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
                answers[id] = {
                    request_id: DrayReport(request_id, transfer)
                    for request_id in requests_by_eid[id]
                    if transfer.is_terminal
                }
        return answers

    def cancel(self, transfer_ids: Sequence[str], timeout: int | None = None) -> bool:
        """Cancel transfers. What is safe at the destination goes with them: their rule is gone."""
        del timeout
        for id in transfer_ids:
            try:
                hosts.of(self.external_host).cancel(id, purge=True)
            except DrayError as error:
                # One that is over, or forgotten, is as good as cancelled.
                if error.kind not in _OVER:
                    raise
        return True

    def update_priority(
        self, transfer_id: str, priority: int, timeout: int | None = None
    ) -> dict[str, str]:
        """Change the priority, in effect within a second."""
        del timeout
        try:
            hosts.of(self.external_host).change(transfer_id, priority=priority)
        except DrayError as error:
            # It is done before Rucio has heard of it: no reason to refuse the rule's change.
            if error.kind not in _OVER:
                raise
            return {"http_message": str(error)}
        return {"http_message": f"transfer {transfer_id} has priority {priority}"}

    def _wish_of(self, file: submission.File) -> submission.Wish:
        """Read what the rule says to dray; what makes no sense is told in the log alone."""
        if file.rule_id is None:
            return submission.Wish()
        from rucio.core.rule import get_rule

        try:
            wish = submission.wish_of(get_rule(file.rule_id).get("meta"))
        except submission.WishError as error:
            self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
            return submission.Wish()
        except Exception as error:
            # Of many kinds; the rule may have been deleted meanwhile.
            self.logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
            return submission.Wish()
        if wish.deadline is not None and wish.deadline <= datetime.now(timezone.utc):
            # It is late already; it cannot be promised any more.
            return dataclasses.replace(wish, deadline=None)
        return wish

    def _send(self, transfer: Any, request: Request) -> Transfer:  # noqa: ANN401 - Rucio's
        """Mint a ticket at each source, and submit."""
        there = _site_of(transfer.dst.rse)
        name = below(
            transfer.dst.rse.name,
            transfer.dest_protocol().attributes["prefix"],
            transfer.dest_url,
        )
        places: list[Place] = []
        rse_ids: list[str] = []
        key = ""
        last: DrayError | NoPlaceError | None = None
        for source in transfer.sources:
            try:
                here = _site_of(source.rse)
                path = here.path(
                    below(
                        source.rse.name,
                        transfer.source_protocol(source).attributes["prefix"],
                        transfer.source_url(source),
                    )
                )
                if here.authority == there.authority:
                    place = Place(path)
                else:
                    key = key or self._ask(Client.endpoint).key
                    ticket = hosts.ask(here.host, partial(_mint, request.id or "", path, key))
                    place = Place(here.url(path), ticket.ticket, ticket.key, ticket.address)
            except (DrayError, NoPlaceError) as error:
                # Another replica will do.
                self.logger(logging.WARNING, "dray: no source at %s: %s", source.rse, error)
                last = error
                continue
            places.append(place)
            rse_ids.append(source.rse.id)
        if not places:
            raise last or NoPlaceError(f"request {request.id} has no source")
        labels = {**(request.labels or {}), submission.SOURCES_LABEL: ",".join(rse_ids)}
        whole = dataclasses.replace(
            request, sources=places, destination=Place(there.path(name)), labels=labels
        )
        return self._ask(lambda client: client.submit(whole))

    def _ask(self, what: Callable[[Client], T]) -> T:
        """Ask the destination's endpoint."""
        return hosts.ask(self.external_host, what)


def _mint(id: str, path: str, key: str, client: Client) -> Ticket:
    """Get leave to read a file for a transfer of the endpoint with that key."""
    return client.mint_ticket(id, "read", [path], key)


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
        source_rse_ids=tuple(source.rse.id for source in transfer.sources),
        destination_rse=destination.name,
        is_verified=verifies is None or str(verifies).lower() != "false",
        may_overwrite=not destination.is_tape(),
    )
