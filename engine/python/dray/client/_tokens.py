"""Sources of the token: a text, a file, a function, or WLCG's discovery.

A token is read again for each request and sent only to the endpoint. It is checked only for
characters that would break the request. No message and no ``repr`` contains the token.
"""

from __future__ import annotations

import os
import re
import stat
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from dray.client._errors import make, usage

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DISCOVER", "Discover", "TokenSource", "Tokens"]

TOKEN_BYTES_MAX = 64 << 10
#: A visible word without spaces, which includes the tokens of RFC 6750, section 2.1.
_TOKEN = re.compile(r"[!-~]+")


class Discover(Enum):
    """The type of :data:`DISCOVER`."""

    DISCOVER = "discover"


DISCOVER: Final = Discover.DISCOVER
"""Use WLCG's bearer token discovery.

The sources are ``BEARER_TOKEN``, the file that ``BEARER_TOKEN_FILE`` names,
``$XDG_RUNTIME_DIR/bt_u<uid>`` and ``/tmp/bt_u<uid>``. If no source has a token, no token is sent.
"""

TokenSource: TypeAlias = "str | os.PathLike[str] | Callable[[], str] | Discover | None"
"""A token, the path of a file with a token, a function that returns a token, or no token."""


class Tokens:
    """Returns the token for each request."""

    __slots__ = ("_path", "_seen", "_source", "_text")

    def __init__(self, source: TokenSource) -> None:
        """Store the source. The token is not read yet."""
        self._source = source
        self._path: Path | None = None
        self._seen: tuple[int, ...] = ()
        self._text = ""

    def __repr__(self) -> str:
        """Return the type of the source without the token."""
        source = self._source
        if isinstance(source, str):
            return "Tokens(a text)"
        return f"Tokens({source.name if isinstance(source, Discover) else type(source).__name__})"

    def current(self) -> str | None:
        """Return the current token. A file is read again if it has changed.

        :raises DrayUsageError: if the source gives no token.
        :raises DrayPermanentError: if a file cannot be read.
        """
        source = self._source
        if source is None:
            return None
        if isinstance(source, Discover):
            return self._discover()
        if isinstance(source, str):
            return _checked(source, "the token")
        if isinstance(source, os.PathLike):
            return self._read(Path(source))
        return _checked(source(), "the result of the token function")

    def _discover(self) -> str | None:
        text = os.environ.get("BEARER_TOKEN", "").strip()
        if text:
            return _checked(text, "BEARER_TOKEN")
        named = os.environ.get("BEARER_TOKEN_FILE", "").strip()
        if named:
            return self._read(Path(named))
        name = f"bt_u{os.geteuid()}"
        # The last location of the discovery. The owner of the file is checked below.
        places = [Path("/tmp", name)]  # noqa: S108
        if runtime := os.environ.get("XDG_RUNTIME_DIR", "").strip():
            places.insert(0, Path(runtime, name))
        for place in places:
            try:
                state = place.lstat()
            except OSError:
                continue
            # Only a file of this user is accepted, because any user may write to /tmp. With another
            # user's token, the calls would act for that user.
            if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid():
                return self._read(place)
        return None

    def _read(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                state = os.fstat(file.fileno())
                seen = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
                if path != self._path or seen != self._seen:
                    data = file.read(TOKEN_BYTES_MAX + 1)
                    self._text = _checked(data.decode("ascii", "replace"), f"the file {path}")
                    self._path, self._seen = path, seen
        except OSError as error:
            raise make(
                "permission_denied" if isinstance(error, PermissionError) else "not_found",
                "permanent",
                "here",
                f"read the token from {path}",
                error.strerror or type(error).__name__,
                "write a token into this file, or give another file",
            ) from None
        return self._text


def _checked(text: object, place: str) -> str:
    word = text.strip() if isinstance(text, str) else ""
    if len(word) > TOKEN_BYTES_MAX or _TOKEN.fullmatch(word) is None:
        raise usage(f"{place} is not a token", "a token is one word of visible ASCII characters")
    return word
