"""The token of a connection, read again when it may have been renewed. Pure of HTTP.

A task may wait for hours with a token that is valid for one. A job writes a new token into the
connection, or into the file that it names, and the client uses it for its next request. This module
neither makes nor checks tokens; the endpoint checks them.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FileToken", "RenewedToken", "expires_at", "is_expired"]

log = logging.getLogger(__name__)

READ_AGAIN_SECONDS = 60.0
"""Seconds between two reads of a connection; if its token holds an expiry time, only after that."""
READ_EXPIRED_SECONDS = 5.0
"""Seconds between two reads of a connection whose token has expired."""
LEEWAY_SECONDS = 5.0
"""Most seconds that an endpoint's clock may be ahead of ours."""


def expires_at(token: str) -> datetime | None:
    """Read when a token expires; ``None``: it is not a JWT, or holds no time.

    The token is not verified here: the endpoint does that.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
        return datetime.fromtimestamp(float(claims["exp"]), timezone.utc)
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None


def is_expired(token: str) -> bool:
    """Return true if a token has expired by its own time."""
    found = expires_at(token)
    return found is not None and found.timestamp() <= time.time() + LEEWAY_SECONDS


class RenewedToken:
    """Return a connection's password for one request at a time.

    :param token: the present token.
    :param read: reads the connection again and returns its password; may fail.
    """

    def __init__(self, token: str, read: Callable[[], str | None]) -> None:
        """Keep the token; nothing is read yet."""
        self._token = token
        self._read = read
        self._read_at = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Return the token; read an old one again, and keep it if there is no other."""
        with self._lock:
            age = time.monotonic() - self._read_at
            limit = READ_EXPIRED_SECONDS if is_expired(self._token) else READ_AGAIN_SECONDS
            if age >= limit:
                self._read_at = time.monotonic()
                try:
                    self._token = self._read() or self._token
                except Exception as error:
                    log.warning("the connection cannot be read again for its token: %s", error)
            return self._token


class FileToken:
    """Return the token in a file for one request at a time.

    The file may be replaced at any moment: if it cannot be read, the last token is returned.

    :param path: of the file.
    :raises OSError: if it cannot be read now.
    :raises ValueError: if it holds no token now.
    """

    def __init__(self, path: Path) -> None:
        """Read the file once."""
        self._path = path
        self._token = self._read()

    def __call__(self) -> str:
        """Return the token that is in the file now."""
        try:
            self._token = self._read()
        except (OSError, ValueError) as error:
            log.warning("the token in %s cannot be read again: %s", self._path, error)
        return self._token

    def _read(self) -> str:
        words = self._path.read_text(encoding="ascii").split()
        if len(words) != 1:
            raise ValueError(f"the file holds {len(words)} words, a token is one word")
        return words[0]
