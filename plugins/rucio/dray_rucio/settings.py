"""What a site says in the section ``[dray]`` of its ``rucio.cfg``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SECTION", "Settings", "read"]

SECTION = "dray"


@dataclass(frozen=True, slots=True)
class Settings:
    """How endpoints are asked.

    :param token_file: holds the token; read again when it changes. One for all endpoints, or
        ``FOLDER/HOST_PORT`` for each where it is a folder.
    :param ca: file or folder of authorities instead of the system's.
    :param certificate: client certificate, or a proxy with everything in one file.
    :param key: its key.
    :param call_seconds: for one call with all its repetitions.
    :param away_seconds: so long an endpoint that was not reached is not tried again with another
        submission: each file of a rule would wait for it.
    :param bound_seconds: a transfer that nobody has asked for so long is cancelled: whose rule was
        deleted where this plug-in is not loaded. Must be well above the poller's interval.
    :param tries: sessions without anything new being safe before Rucio hears that it failed.
    """

    token_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    call_seconds: float = 60.0
    away_seconds: float = 30.0
    bound_seconds: int = 6 * 3600
    tries: int | None = None

    def token_of(self, authority: str) -> Path | None:
        """Give the file with the token for an endpoint."""
        if self.token_file is not None and self.token_file.is_dir():
            return self.token_file / authority.replace(":", "_")
        return self.token_file


def read() -> Settings:
    """Read them as Rucio reads its own."""
    from rucio.common.config import config_get, config_get_float, config_get_int

    def path(name: str) -> Path | None:
        text = config_get(SECTION, name, raise_exception=False, default=None)
        return Path(text) if text else None

    usual = Settings()
    tries = config_get_int(SECTION, "tries", raise_exception=False, default=0)
    return Settings(
        token_file=path("token_file"),
        ca=path("ca"),
        certificate=path("certificate"),
        key=path("key"),
        call_seconds=config_get_float(
            SECTION, "call_seconds", raise_exception=False, default=usual.call_seconds
        ),
        away_seconds=config_get_float(
            SECTION, "away_seconds", raise_exception=False, default=usual.away_seconds
        ),
        bound_seconds=config_get_int(
            SECTION, "bound_seconds", raise_exception=False, default=usual.bound_seconds
        ),
        tries=tries or None,
    )
