"""The token of a connection, read again when it may have been renewed. Does no HTTP.

A task may wait for hours with a token that is valid for one hour. Meanwhile a job writes a new
token into the connection, or into the file that the connection names. The client uses the new token
for its next request. This module neither makes nor checks tokens. The endpoint checks them.
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
"""Seconds between two reads of a connection whose token is not known to have expired."""
READ_EXPIRED_SECONDS = 5.0
"""Seconds between two reads of a connection whose token has expired."""
LEEWAY_SECONDS = 5.0
"""Maximum number of seconds by which an endpoint's clock may be ahead of this host's clock."""


def expires_at(token: str) -> datetime | None:
    """Return the time at which a token expires. ``None`` if it is not a JWT or states no time.

    The token is not verified here, because the endpoint does that.
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
    """Return true if a token has expired by the time that it states."""
    found = expires_at(token)
    return found is not None and found.timestamp() <= time.time() + LEEWAY_SECONDS


class RenewedToken:
    """Returns a token for each request: the password of a connection.

    :param token: the current token.
    :param read: function that reads the connection again and returns its password. It may fail.
    """

    def __init__(self, token: str, read: Callable[[], str | None]) -> None:
        """Store the token. The connection is not read yet."""
        self._token = token
        self._read = read
        self._read_at = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Return the token. If the last read is too old, read the connection again first.

        If the connection cannot be read or has no token now, the last token is returned.
        """
        with self._lock:
            age = time.monotonic() - self._read_at
            limit = READ_EXPIRED_SECONDS if is_expired(self._token) else READ_AGAIN_SECONDS
            if age >= limit:
                self._read_at = time.monotonic()
                try:
                    self._token = self._read() or self._token
                except Exception as error:
                    log.warning("cannot read the connection again for a new token: %s", error)
            return self._token


class FileToken:
    """Returns the token in a file for each request.

    The file may be replaced at any moment. If it cannot be read, the last token is returned.

    :param path: path of the file.
    :raises OSError: if the file cannot be read now.
    :raises ValueError: if the file has no token now.
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
            log.warning("cannot read the token in %s again: %s", self._path, error)
        return self._token

    def _read(self) -> str:
        words = self._path.read_text(encoding="ascii").split()
        if len(words) != 1:
            raise ValueError(f"the file has {len(words)} words, but a token is one word")
        return words[0]
