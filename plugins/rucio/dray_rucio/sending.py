"""Submit the files of one job of Rucio as one transfer.

The endpoint of the destination drives the transfer, and reads the files from the endpoints of the
sources. For each source, this module mints a ticket at the source's endpoint. Only the key of the
destination's endpoint can use the ticket.
"""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from dray import DrayError, DrayUsageError
from dray.client import Client, Place
from dray_rucio import requests, submission
from dray_rucio.groups import folder_of, group_id, is_group
from dray_rucio.hosts import LATER_KINDS, Hosts
from dray_rucio.places import NoPlaceError, Site, below, site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dray.client import Request, Staged, Ticket, Transfer

__all__ = [
    "NO_HOST",
    "PIN_ATTRIBUTE",
    "URL_ATTRIBUTE",
    "NotSubmittedError",
    "Sender",
    "end",
    "file_of",
    "hosts",
    "is_verified",
    "name_of",
    "site_of",
    "wish_of_rule",
]

URL_ATTRIBUTE = "dray_url"
"""Attribute of an RSE: the URL that replaces the prefix of its protocols."""
PIN_ATTRIBUTE = "dray_pin"
"""Attribute of an RSE: the fingerprint of its endpoint.

It is needed if no authority has signed the endpoint's certificate.
"""
NO_HOST = "dray://"
"""External host for an RSE whose attributes name no endpoint."""
OVER_KINDS = ("not_found", "already_exists")
"""Kinds of errors for a transfer that has ended or whose record was deleted."""

#: Shared by all transfertools of a process, because Rucio creates one for each batch.
hosts = Hosts()


class NotSubmittedError(Exception):
    """A transfer could not be submitted. The text names the RSE at which the call failed.

    :param is_passing: true if the same submission may succeed later.
    """

    def __init__(self, rse: str, error: Exception, *, is_passing: bool | None = None) -> None:
        """Store the error of a call, or of parsing an RSE's attributes."""
        super().__init__(f"RSE {rse}: {error}" if isinstance(error, DrayError) else str(error))
        passes = isinstance(error, DrayError) and error.kind in LATER_KINDS
        self.is_passing = passes if is_passing is None else is_passing


class Sender:
    """The submission of one job: one file, or several files of the same rule and RSEs."""

    def __init__(self, host: str, transfers: Sequence[Any], logger: Any) -> None:  # noqa: ANN401
        """Prepare the submission of these transfers to the endpoint ``host``."""
        self._host = host
        self._logger = logger
        self._transfers = transfers
        self._first = transfers[0]
        self.ids = [transfer.rws.request_id for transfer in transfers]
        #: Id of the transfer at the endpoint.
        self.id = self.ids[0] if len(self.ids) == 1 else group_id(self.ids)
        #: The copy in the fast root, if the file was recalled from tape.
        self.recalled: Staged | None = None

    def send(self) -> str:
        """Submit the transfer. Return its id.

        :raises NotSubmittedError: if the submission fails. The message names the RSE.
        """
        file = file_of(self._first)
        wish = self._wish_of(file)
        there = self._first.dst.rse.name
        try:
            if self._host == NO_HOST:
                site_of(self._first.dst.rse)
            # Look up the destination before the sources, so that an error of the destination is
            # not reported as an error of a source.
            key = hosts.key(self._host)
            self._end_earlier()
            hosts.look_for(self._host)
        except (DrayError, NoPlaceError) as error:
            raise NotSubmittedError(there, error) from error
        requests.note(self.ids, self.id)
        places, rse_ids = self._sources(key)
        try:
            try:
                return self._submit(file, wish, places, rse_ids)
            except DrayUsageError as error:
                without = submission.without_wish(wish)
                if wish == without:
                    raise
                # The endpoint may refuse the deadline or the rate that the rule asks for.
                self._logger(logging.WARNING, "dray: rule %s: %s", file.rule_id, error)
                return self._submit(file, without, places, rse_ids)
        except (DrayError, NoPlaceError) as error:
            raise NotSubmittedError(there, error) from error

    def _end_earlier(self) -> None:
        """Cancel the transfers of previous tries and of earlier submissions of these requests.

        Rucio may not know such a transfer. A transfer that still runs would block the files of the
        new transfer. A transfer that also has other submitted requests continues.
        """
        previous = [each.rws.previous_attempt_id for each in self._transfers]
        found = requests.earlier(self.ids, [id for id in previous if id is not None])
        for id in sorted(found - {self.id}):
            if not (is_group(id) and requests.has_others(id, self.ids)):
                end(self._host, id)

    def _wish_of(self, file: submission.File) -> submission.Wish:
        wish = submission.at(wish_of_rule(file.rule_id, self._logger), datetime.now(timezone.utc))
        if wish.passed is not None:
            self._logger(
                logging.WARNING,
                "dray: rule %s: its deadline %s has passed, so request %s gets no promise; the "
                "endpoint starts it after promised transfers, but before others with later "
                "deadlines",
                file.rule_id,
                wish.passed,
                file.request_id,
            )
        return wish

    def _sources(self, key: str) -> tuple[list[Place], list[str]]:
        """Mint a ticket at each source. Return the places of the sources and their RSEs.

        :param key: fingerprint of the destination's endpoint.
        :raises NotSubmittedError: if no source is left. The message has the error of each source.
        """
        there = site_of(self._first.dst.rse)
        places: list[Place] = []
        rse_ids: list[str] = []
        errors: list[NotSubmittedError] = []
        for index, source in enumerate(self._first.sources):
            if len(places) >= hosts.settings.sources_max:
                break
            try:
                here = site_of(source.rse)
                path = self._source_path(here, index)
                if here.authority == there.authority:
                    place = Place(path)
                else:
                    ticket = hosts.ask(here.host, _mint(self.id, path, key))
                    place = Place(here.url(path), ticket.ticket, ticket.key, ticket.address)
            except (DrayError, NoPlaceError) as error:
                # Continue, because another replica is enough.
                errors.append(NotSubmittedError(source.rse.name, error))
                self._logger(logging.WARNING, "dray: a source cannot be used: %s", errors[-1])
                continue
            places.append(place)
            rse_ids.append(source.rse.id)
        if not places:
            request = f"request {self.ids[0]}"
            why = "; ".join(str(error) for error in errors) or f"{request} has no source"
            raise NotSubmittedError(
                self._first.dst.rse.name,
                NoPlaceError(why),
                is_passing=any(error.is_passing for error in errors),
            ) from (errors[-1] if errors else None)
        return places, rse_ids

    def _source_path(self, here: Site, index: int) -> str:
        """Return the API path at a source."""
        # Rucio adds other replicas on disk to a source that needs a recall.
        if index == 0 and self.recalled is not None and self.recalled.to is not None:
            return self.recalled.to
        return here.path(self._path([name_of(each, index) for each in self._transfers]))

    def _path(self, names: Sequence[str]) -> str:
        """Return the path to copy: the file, or the deepest folder that contains all files."""
        return names[0] if len(names) == 1 else folder_of(names)

    def _request(self, request: Request) -> Request:
        """Add the files and the destination to a request for the first file."""
        there = site_of(self._first.dst.rse)
        names = [name_of(each) for each in self._transfers]
        path = self._path(names)
        if len(names) > 1:
            files = {
                name.removeprefix(path): file_of(each)
                for name, each in zip(names, self._transfers, strict=True)
            }
            request = submission.group_request_of(files, request)
        if self.recalled is not None:
            labels = {**(request.labels or {}), submission.RECALL_LABEL: self.recalled.id}
            request = dataclasses.replace(request, labels=labels)
        return dataclasses.replace(request, destination=Place(there.path(path)))

    def _submit(
        self,
        file: submission.File,
        wish: submission.Wish,
        places: list[Place],
        rse_ids: list[str],
    ) -> str:
        """Send the request to the endpoint. Return the id."""
        request = self._request(
            submission.request_of(
                file,
                wish,
                source_rse_ids=rse_ids,
                bound_seconds=hosts.settings.bound_seconds,
                tries=hosts.settings.tries,
                resume=hosts.settings.resume,
            )
        )
        request = dataclasses.replace(request, sources=places[:1], replicas=places[1:] or None)
        try:
            hosts.ask(self._host, lambda client: client.submit(request))
        except DrayError as error:
            if error.kind != "already_exists":
                raise
            # An earlier submission was accepted, but its answer was lost. Since then the list of
            # sources has changed, so the two requests differ.
            found = hosts.ask(self._host, lambda client: client.query([self.id])).get(self.id)
            if found is None:
                raise
            if found.is_terminal:
                # The transfer has just ended. Submitting it again starts a new attempt.
                there = self._first.dst.rse.name
                raise NotSubmittedError(there, error, is_passing=True) from error
        return self.id


def end(host: str, id: str, *, hurried: bool = False) -> Transfer | None:
    """Cancel a transfer, and return it.

    :returns: ``None`` if the transfer had already ended or is unknown. This counts as success.
    """
    try:
        return hosts.ask(host, lambda client: client.cancel(id), hurried=hurried)
    except DrayError as error:
        if error.kind not in OVER_KINDS:
            raise
        return None


def site_of(rse: Any) -> Site:  # noqa: ANN401 - Rucio's RseData
    """Return the endpoint of an RSE.

    :raises NoPlaceError: if an attribute is missing or invalid.
    """
    url = rse.attributes.get(URL_ATTRIBUTE)
    if url is None:
        raise NoPlaceError(f"RSE {rse.name} has no attribute {URL_ATTRIBUTE}")
    pin = rse.attributes.get(PIN_ATTRIBUTE)
    return site(rse.name, str(url), None if pin is None else str(pin))


def name_of(transfer: Any, source: int | None = None) -> str:  # noqa: ANN401 - DirectTransfer
    """Return the path of a file below the prefix of an RSE.

    :param source: index of the source. ``None`` means the destination.
    :raises NoPlaceError: if the PFN is not below the prefix of its protocol.
    """
    if source is None:
        prefix = transfer.dest_protocol().attributes["prefix"]
        return below(transfer.dst.rse.name, prefix, transfer.dest_url)
    at = transfer.sources[source]
    prefix = transfer.source_protocol(at).attributes["prefix"]
    return below(at.rse.name, prefix, transfer.source_url(at))


def file_of(transfer: Any) -> submission.File:  # noqa: ANN401 - Rucio's DirectTransfer
    """Return the relevant fields of the request of a transfer."""
    asked, destination = transfer.rws, transfer.dst.rse
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
        is_verified=is_verified(destination),
        may_overwrite=not destination.is_tape(),
    )


def is_verified(rse: Any) -> bool:  # noqa: ANN401 - Rucio's RseData
    """Return true if the checksums of files at an RSE must match (``verify_checksum``)."""
    return str(rse.attributes.get("verify_checksum")).lower() != "false"


def wish_of_rule(rule_id: str | None, logger: Any) -> submission.Wish:  # noqa: ANN401 - Rucio's
    """Parse the part of a rule's ``meta`` for dray. If it is invalid, only log the error."""
    if rule_id is None or not hosts.settings.heeds_meta:
        return submission.Wish()
    from rucio.core.rule import get_rule

    try:
        return submission.wish_of(get_rule(rule_id).get("meta"))
    except Exception as error:
        # The part may be invalid, or the rule may be deleted. The types of these errors differ.
        logger(logging.WARNING, "dray: rule %s: %s", rule_id, error)
        return submission.Wish()


def _mint(id: str, path: str, key: str) -> Callable[[Client], Ticket]:
    """Return a call that mints a ticket to read a path, for the endpoint with this key."""
    return lambda client: client.mint_ticket(id, "read", [path], key)
