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

    from dray.client._requests import Request, StagingRequest

__all__ = ["Base", "staging_with_id", "with_id"]


class Base(ABC):
    """Stores the arguments; opens nothing before the first call."""

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
        """Store the address and the credentials; nothing is opened or read yet.

        :param url: ``dray://HOST[:PORT]`` (TLS, port 4735), ``https://...``, or ``http://...`` only
            on loopback.
        :param token: a token, the path of a file that holds one (read again when it changes), a
            function that returns one, or ``None``. By default WLCG's discovery: ``BEARER_TOKEN``,
            ``BEARER_TOKEN_FILE``, ``$XDG_RUNTIME_DIR/bt_u<uid>``, ``/tmp/bt_u<uid>``, else no
            token.
        :param ca: file or folder of authorities (PEM) instead of the system's.
        :param certificate: client certificate (PEM); a proxy's file also holds the key.
        :param key: its private key, if in a separate file.
        :param pin: the endpoint's fingerprint, ``sha256:`` and 64 hexadecimal digits, instead of
            authorities.
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
        """Set up the client's own state; opens nothing."""

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return self._address.base

    def __repr__(self) -> str:
        """Return the URL; never the token."""
        return f"{type(self).__name__}({self.url!r})"


def with_id(request: Request) -> Request:
    """Give the request an id before its first try, so that a second try finds the first."""
    if request.id is not None:
        return request
    return dataclasses.replace(request, id=str(uuid.uuid4()))


def staging_with_id(request: StagingRequest) -> StagingRequest:
    """Do the same for a staging request."""
    if request.id is not None:
        return request
    return dataclasses.replace(request, id=str(uuid.uuid4()))
