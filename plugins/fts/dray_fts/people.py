"""The people who call: by a client certificate, or by a bearer token that an endpoint checks."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dray import DrayError
from dray_fts.endpoints import LATER_KINDS
from dray_fts.settings import NAME
from dray_fts.tls import CHAIN, owner_of, subject_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from dray_fts.endpoints import Endpoints
    from dray_fts.revoked import Revocations
    from dray_fts.settings import Settings

__all__ = ["NOBODY", "Person", "RefusedError", "identify"]

TOKEN_SECONDS_USUAL = 3600.0


class RefusedError(Exception):
    """A call is refused.

    :param code: HTTP status code.
    """

    def __init__(self, code: int, text: str) -> None:
        """Store the code and the message."""
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Person:
    """A caller.

    :param owner: owner of the caller's jobs.
    :param dn: subject of the certificate, or principal of the token.
    :param token: the bearer token of this call, which is stored nowhere.
    :param token_until: end of the token.
    """

    owner: str
    dn: str
    vo: str
    is_administrator: bool
    token: str | None = field(default=None, repr=False)
    token_until: float | None = None

    @property
    def delegation_id(self) -> str:
        """Id of the caller's delegation."""
        return hashlib.sha256(f"{self.dn} {self.vo}".encode()).hexdigest()[:16]


NOBODY = Person("", "", "", is_administrator=False)
"""The caller of a call that needs no credential."""


def identify(
    request: Request, settings: Settings, endpoints: Endpoints, revocations: Revocations
) -> Person:
    """Return the caller of a request.

    :raises RefusedError: if the caller has no valid credential.
    """
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        if scheme.lower() != "bearer" or not token.strip():
            raise RefusedError(401, "the header Authorization has no bearer token")
        return _by_token(token.strip(), settings, endpoints)
    chain = request.scope.get(CHAIN) or []
    if not chain:
        raise RefusedError(
            401, "no credential; send a client certificate that the service trusts, or a token"
        )
    try:
        # Checked in each call, because a connection may stay open after a revocation.
        revocations.check(chain)
        dn = subject_of(owner_of(chain))
    except ValueError as error:
        raise RefusedError(403, f"the service cannot use the certificate: {error}") from error
    user = settings.users.get(dn)
    if user is None:
        raise RefusedError(
            403, f"no user of the service has the certificate {dn}; ask its administrator"
        )
    return Person(user.owner, dn, user.vo, user.owner in settings.administrators)


def _by_token(token: str, settings: Settings, endpoints: Endpoints) -> Person:
    if settings.tokens_at is None:
        raise RefusedError(401, "the service accepts no tokens; use a client certificate")
    try:
        you = endpoints.whose(settings.tokens_at, token)
    except DrayError as error:
        code = 503 if error.kind in LATER_KINDS else 401
        raise RefusedError(code, f"cannot check the token: {error}") from error
    if you.owner is None or you.principal is None:
        raise RefusedError(
            403,
            f"endpoint {settings.tokens_at} maps the token to no owner; add a rule to the map of "
            "this endpoint",
        )
    if not NAME.fullmatch(you.owner):
        raise RefusedError(
            403,
            f"the token belongs to {you.owner!r}; the service accepts only owners of at most 64 "
            "letters, digits and `._-`",
        )
    return Person(
        owner=you.owner,
        dn=you.principal,
        vo=settings.vo,
        is_administrator=you.administrator or you.owner in settings.administrators,
        token=token,
        token_until=_until(token),
    )


def _until(token: str) -> float:
    """Return the end of a token that the endpoint has accepted."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"])
    except (ValueError, LookupError, TypeError):
        return time.time() + TOKEN_SECONDS_USUAL
