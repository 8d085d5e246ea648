"""An RSE protocol: Rucio's clients and reaper read, write and delete files at an endpoint.

The ``impl`` of the protocol is ``dray_rucio.protocol.Default``. The program ``dray`` moves the
bytes (:mod:`dray_rucio.copying`), and a client of the endpoint's API makes all other calls.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from rucio.common import exception
from rucio.rse.protocols.protocol import RSEProtocol

from dray import DrayError
from dray.client import DISCOVER, Client, Policy, escape
from dray_rucio import settings
from dray_rucio.copying import CopyError, Credentials, copy
from dray_rucio.places import NoPlaceError, below, site

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import TokenSource
    from dray_rucio.places import Site

__all__ = ["PIN", "Default"]

PIN = "dray_pin"
"""Extended attribute of the protocol: the fingerprint of the endpoint's key.

It is needed if no authority has signed the endpoint's certificate.
"""
T = TypeVar("T")


class Default(RSEProtocol):
    """Moves files between this host and an endpoint.

    The host name and the port of the protocol are the address of the endpoint. The prefix of the
    protocol is the folder at the endpoint, ``/ROOT/FOLDER``.
    """

    _client: Client | None = None

    def connect(self) -> None:
        """Open a client of the endpoint. The endpoint is not called yet.

        :raises RSEAccessDenied: if the protocol names no endpoint, or the credentials are invalid.
        """
        try:
            place, how = self._site(), settings.read()
            self._client = Client(
                f"dray://{place.authority}",
                token=self._token(place, how),
                ca=None if place.pin else how.ca or os.environ.get("DRAY_CA"),
                certificate=how.certificate or os.environ.get("X509_USER_PROXY"),
                key=how.key,
                pin=place.pin,
                policy=Policy(seconds=how.call_seconds),
            )
        except (DrayError, NoPlaceError, ValueError) as error:
            raise exception.RSEAccessDenied(str(error)) from error

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def exists(self, path: str) -> bool:
        """Return true if the endpoint has a file with this PFN."""
        try:
            self._ask(lambda client: client.stat(self._path(path)))
        except exception.SourceNotFound:
            return False
        return True

    def stat(self, path: str) -> dict[str, Any]:
        """Return the size and the adler32 of a file.

        The endpoint stored the checksum when it wrote the file. It reads the file again only if
        its file system has no extended attributes, or if the file has changed.
        """
        found = self._ask(lambda client: client.checksum(self._path(path)))
        return {"filesize": found.size, "adler32": found.checksum}

    def get(self, path: str, dest: str, transfer_timeout: float | str | None = None) -> None:
        """Download a file.

        Rucio deletes the file ``dest`` before each try. The partial file of dray has another name,
        so the next try resumes from it.
        """
        self._copy(self._url(path), os.path.abspath(dest), transfer_timeout)

    def put(
        self,
        source: str,
        target: str,
        source_dir: str | None = None,
        transfer_timeout: float | str | None = None,
    ) -> None:
        """Upload a file. After a failure, the next try resumes, also from another client."""
        local = os.path.abspath(os.path.join(source_dir or "", source))
        self._copy(local, self._url(target), transfer_timeout)

    def delete(self, path: str) -> None:
        """Delete a file.

        :raises SourceNotFound: if the file does not exist.
        """
        self._ask(lambda client: client.rm(self._path(path)))

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file. An existing file is not replaced."""
        old, new = self._path(path), self._path(new_path)
        folder = new.rpartition("/")[0]
        if folder != old.rpartition("/")[0]:
            self._ask(lambda client: client.mkdir(folder))
        self._ask(lambda client: client.rename(old, new))

    def get_space_usage(self) -> tuple[int, int]:
        """Return the total bytes of the file system, and the bytes available to this caller."""
        folder = self._site().folder
        found = self._ask(lambda client: client.space(folder))
        return found.total, found.available

    def _site(self) -> Site:
        """Return the endpoint and the folder of the protocol.

        :raises NoPlaceError: if the protocol or its extended attributes are invalid.
        """
        rse, its = self.rse["rse"], self.attributes
        more = its.get("extended_attributes") or {}
        if isinstance(more, str):
            # Rucio passes a text on if it is not JSON.
            try:
                more = json.loads(more)
            except ValueError as error:
                raise NoPlaceError(
                    f"RSE {rse}: the extended attributes of the protocol are {more!r}; write JSON"
                ) from error
        pin = more.get(PIN)
        url = f"dray://{its['hostname']}:{its['port']}/{its['prefix']}"
        return site(rse, url, None if pin is None else str(pin))

    def _token(self, place: Site, how: settings.Settings) -> TokenSource:
        """Return the source of the token: Rucio's configuration, Rucio's login, or discovery."""
        file = how.token_of(place.authority)
        if file is not None and file.is_file():
            return file
        return self.auth_token or os.environ.get("DRAY_TOKEN") or DISCOVER

    def _path(self, pfn: str) -> str:
        """Return the API path of a PFN."""
        try:
            name = below(self.rse["rse"], str(self.attributes["prefix"]), pfn)
            return f"{self._site().folder}/{escape(name)}"
        except NoPlaceError as error:
            raise exception.RSEFileNameNotSupported(str(error)) from error

    def _url(self, pfn: str) -> str:
        """Return the URL of a PFN for the program ``dray``."""
        return self._site().url(self._path(pfn))

    def _ask(self, what: Callable[[Client], T]) -> T:
        """Call the endpoint. Errors become Rucio's exceptions."""
        if self._client is None:
            self.connect()
        assert self._client is not None  # noqa: S101 - set by `connect`
        try:
            return what(self._client)
        except DrayError as error:
            raise self._translated(error, is_found_here=True) from error

    def _copy(self, source: str, target: str, timeout: float | str | None) -> None:
        """Copy a file with the program ``dray``. Errors become Rucio's exceptions."""
        place, how = self._site(), settings.read()
        token = self._token(place, how)
        using = Credentials(
            pin=place.pin,
            token=token if isinstance(token, str) else None,
            token_file=token if isinstance(token, os.PathLike) else None,
            ca=how.ca,
            certificate=how.certificate,
            key=how.key,
        )
        try:
            done = copy(source, target, using, timeout_seconds=float(timeout or 0) or None)
        except CopyError as error:
            raise self._translated(error, is_found_here=error.end == "source") from error
        self.logger(
            logging.INFO,
            "dray transfer %s: %d bytes sent, %d resumed",
            done.transfer_id,
            done.bytes_sent,
            done.bytes_resumed,
        )

    def _translated(self, error: DrayError | CopyError, *, is_found_here: bool) -> Exception:
        """Return Rucio's exception for an error.

        :param is_found_here: true if an error of the kind ``not_found`` is about the requested
            file, and not about a folder or root of the destination.
        """
        text = f"RSE {self.rse['rse']}, dray://{self._site().authority}: {error}"
        match error.kind:
            case "not_found" if is_found_here:
                found: Exception = exception.SourceNotFound(text)
            case "permission_denied" | "unauthorized":
                found = exception.RSEAccessDenied(text)
            case "not_found" | "no_space" | "read_only":
                found = exception.DestinationNotAccessible(text)
            case "already_exists":
                found = exception.FileReplicaAlreadyExists(text)
            case _:
                found = exception.ServiceUnavailable(text)
        return found
