"""What the blocking and the awaiting face have in common: who is spoken to, with what patience."""

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
    """Holds what the caller said; opens nothing before the first call."""

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
        """Say whom to speak to; nothing is opened or read yet.

        :param url: ``dray://HOST[:PORT]`` (TLS, port 4735), ``https://...``, or ``http://...`` on
            the loopback alone.
        :param token: a token, the path of a file that holds one (read again when it changes), a
            function that gives one, or ``None``. By default where WLCG's discovery looks:
            ``BEARER_TOKEN``, ``BEARER_TOKEN_FILE``, ``$XDG_RUNTIME_DIR/bt_u<uid>``,
            ``/tmp/bt_u<uid>``; and none if there is none.
        :param ca: file or folder of authorities (PEM) instead of the system's.
        :param certificate: client certificate (PEM); a proxy's file holds the key too.
        :param key: its private key, if in a file of its own.
        :param pin: the endpoint's fingerprint, ``sha256:`` and 64 hexadecimal digits, instead of
            authorities.
        :param policy: time limits and how often to try again.
        :raises DrayUsageError: if that makes no sense.
        """
        self._address = parse_url(url)
        self._tokens = Tokens(token)
        self._trust = Trust(ca, certificate, key, pin)
        self._policy = policy or Policy()
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Set up what the face needs; opens nothing."""

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        return self._address.base

    def __repr__(self) -> str:
        """Say where; never the token."""
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
