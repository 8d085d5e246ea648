"""The common part of the blocking and the awaiting client: the address and the policy."""

from __future__ import annotations

import dataclasses
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from dray.client._flows import Policy
from dray.client._tls import Trust
from dray.client._tokens import DISCOVER, Tokens, TokenSource
from dray.client._urls import Address, parse_url

if TYPE_CHECKING:
    import os

    from dray.client._requests import Request, StagingRequest, WriteRequest

__all__ = ["Base", "staging_with_id", "with_id", "write_with_id"]


class Base(ABC):
    """Stores the arguments. No connection is opened before the first call."""

    _address: Address
    _policy: Policy
    _tokens: Tokens
    _trust: Trust

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource = DISCOVER,
        ca: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        pin: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Store the address and the credentials. No connection or file is opened yet.

        :param url: ``dray://HOST[:PORT]`` (TLS, port 4735), ``https://...``, or ``http://...``. The
            last form is only accepted for loopback addresses.
        :param token: a token, the path of a file with a token (read again when it changes), a
            function that returns a token, or ``None``. By default, the client uses WLCG's
            discovery: ``BEARER_TOKEN``, ``BEARER_TOKEN_FILE``, ``$XDG_RUNTIME_DIR/bt_u<uid>``,
            ``/tmp/bt_u<uid>``, and no token if all of these are missing.
        :param ca: file or folder with authorities (PEM), instead of those of the system.
        :param certificate: client certificate (PEM). The file of a proxy also has the key.
        :param key: private key of the certificate, if it is in a separate file.
        :param pin: the endpoint's fingerprint, ``sha256:`` and 64 hexadecimal digits. The client
            then uses no authorities.
        :param policy: time limits and numbers of tries.
        :raises DrayUsageError: if an argument is invalid.
        """
        self._address = parse_url(url)
        self._tokens = Tokens(token)
        self._trust = Trust(ca, certificate, key, pin)
        self._policy = policy or Policy()
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Create the state of the subclass. No connection is opened."""

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return self._address.base

    def __repr__(self) -> str:
        """Return the URL, and never the token."""
        return f"{type(self).__name__}({self.url!r})"


def with_id(request: Request) -> Request:
    """Add an id to a request before its first try, so that a second try attaches to the first."""
    if request.id is not None:
        return request
    return dataclasses.replace(request, id=str(uuid.uuid4()))


def staging_with_id(request: StagingRequest) -> StagingRequest:
    """Add an id to a staging request, for the same reason as :func:`with_id`."""
    if request.id is not None:
        return request
    return dataclasses.replace(request, id=str(uuid.uuid4()))


def write_with_id(request: WriteRequest) -> WriteRequest:
    """Add an id to a request to write, for the same reason as :func:`with_id`."""
    if request.id is not None:
        return request
    return dataclasses.replace(request, id=str(uuid.uuid4()))
