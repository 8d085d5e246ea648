"""The HTTP set-up of both clients: arguments for httpx, and the conversion of its exceptions."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx

from dray.client._errors import make
from dray.client._steps import Fault, Send

if TYPE_CHECKING:
    from dray.client._tokens import Tokens
    from dray.client._urls import Address

__all__ = ["BROKEN", "arguments", "fault_of", "is_untrusted", "late", "request_words", "too_long"]

CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 32
BROKEN = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError)
"""Exceptions of httpx and of lower layers that mean a broken connection."""


def arguments(address: Address, context: ssl.SSLContext | bool) -> dict[str, Any]:
    """Return the arguments of ``httpx.Client`` and ``httpx.AsyncClient``."""
    return {
        "base_url": address.base,
        "verify": context,
        # Not followed, because a redirect would send the token to another server.
        "follow_redirects": False,
        # Ignore proxies, certificate files and .netrc of the environment. Only the caller's
        # arguments count.
        "trust_env": False,
        "limits": httpx.Limits(
            max_connections=CONNECTIONS_MAX, max_keepalive_connections=8, keepalive_expiry=15.0
        ),
    }


def request_words(step: Send, tokens: Tokens) -> dict[str, Any]:
    """Return the arguments of ``httpx.Client.build_request``.

    :raises DrayError: if the source of the token fails.
    """
    headers = dict(step.headers)
    # No compression, because a small answer could decompress to a very large one.
    headers["accept-encoding"] = "identity"
    headers["user-agent"] = "dray-python"
    token = tokens.current() if step.with_token else None
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return {
        "method": step.method,
        "url": step.target,
        "content": step.body,
        "headers": headers,
        "timeout": httpx.Timeout(step.seconds, connect=min(CONNECT_SECONDS, step.seconds)),
    }


def fault_of(error: Exception, address: Address) -> Fault:
    """Convert an exception of httpx to a fault. The fault contains no part of the request."""
    cause = _cause(error)
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Fault(
            "timed_out",
            f"{address.base} did not accept the connection within the time limit",
            was_sent=False,
        )
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return late(address)
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
        if is_untrusted(error):
            refused = make(
                "unauthorized",
                "permanent",
                "network",
                f"trust {address.base}",
                cause,
                "give the endpoint's authority with ca=, or its key with pin=",
            )
            return Fault("unreachable", cause, was_sent=False, error=refused)
        return Fault("unreachable", f"{address.base}: {cause}", was_sent=False)
    return Fault("unreachable", f"{address.base}: the connection was lost: {cause}", was_sent=True)


def is_untrusted(error: BaseException | None) -> bool:
    """Return true if an untrusted certificate was the cause."""
    for _ in range(8):
        if error is None or isinstance(error, ssl.SSLCertVerificationError):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLCertVerificationError)


def late(address: Address) -> Fault:
    """Return the fault for an answer that took longer than its time limit."""
    return Fault("timed_out", f"{address.base} did not answer within the time limit", was_sent=True)


def too_long(step: Send) -> Fault:
    """Return the fault for an answer that exceeds its maximum size."""
    cause = f"the answer is longer than {step.answer_bytes_max} bytes"
    return Fault("limit_exceeded", cause, was_sent=True)


def _cause(error: BaseException) -> str:
    inner: BaseException | None = error
    for _ in range(8):
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        if inner is None:
            break
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__
