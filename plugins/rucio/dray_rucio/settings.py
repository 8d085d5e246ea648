"""The section ``[dray]`` of a site's ``rucio.cfg``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["SECTION", "Settings", "read"]

SECTION = "dray"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for calls to endpoints.

    :param token_file: a folder with a token file ``HOST_PORT`` for each endpoint, or one token
        file. Files are read again when they change. The token of a single file is sent to every
        endpoint that an RSE names.
    :param ca: file or folder of authorities, instead of those of the system.
    :param certificate: client certificate. The file of a proxy certificate also contains the
        private key.
    :param key: private key of the certificate, if it is in a separate file.
    :param call_seconds: maximum time for one call with all its retries.
    :param away_seconds: time for which an endpoint that did not answer is not called again. Without
        this pause, each file of a rule would wait for the endpoint.
    :param wait_seconds: maximum time for which a try stays in Rucio's queue while its endpoint is
        unreachable or busy. The try then fails.
    :param bound_seconds: time after which an endpoint cancels a transfer if no caller has queried
        it. Rucio stops its queries, for example, if a process without this plug-in deletes the rule
        of the transfer. ``None`` means never.
    :param sources_max: maximum number of sources of a transfer. Further sources are not used. A
        source at another endpoint needs a ticket from that endpoint.
    :param group_files: maximum number of files in one transfer. With 1, each file has its own
        transfer.
    :param group_file_bytes: maximum size of a file that shares a transfer with other files.
    :param heeds_meta: true if rules may ask for deadlines and rates in their ``meta``.
    :param resume: ``verify`` or ``trust`` the durable data of an earlier try. The endpoint's
        default is ``verify``.
    :param tries: number of sessions without new durable data after which the transfer fails in
        Rucio.
    """

    token_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    call_seconds: float = 60.0
    away_seconds: float = 5.0
    wait_seconds: float = 21600.0
    bound_seconds: int | None = 3 * 86400
    sources_max: int = 3
    group_files: int = 400
    group_file_bytes: int = 1_000_000_000
    heeds_meta: bool = True
    resume: Literal["verify", "trust"] | None = None
    tries: int | None = None

    def token_of(self, authority: str) -> Path | None:
        """Return the path of the token file for an endpoint."""
        if self.token_file is not None and self.token_file.is_dir():
            return self.token_file / authority.replace(":", "_")
        return self.token_file


def read() -> Settings:
    """Read the settings from Rucio's configuration."""
    from rucio.common.config import (
        config_get,
        config_get_bool,
        config_get_float,
        config_get_int,
    )

    def path(name: str) -> Path | None:
        text = config_get(SECTION, name, raise_exception=False, default=None)
        return Path(text) if text else None

    usual = Settings()

    def count(name: str, default: int | None) -> int | None:
        found = config_get_int(SECTION, name, raise_exception=False, default=default or 0)
        return found or None

    def resume() -> Literal["verify", "trust"] | None:
        text = config_get(SECTION, "resume", raise_exception=False, default=None)
        match text:
            case None | "":
                return usual.resume
            case "verify" | "trust":
                return "verify" if text == "verify" else "trust"
            case _:
                raise ValueError(f"[{SECTION}] resume is {text!r}; write verify or trust")

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
        wait_seconds=config_get_float(
            SECTION, "wait_seconds", raise_exception=False, default=usual.wait_seconds
        ),
        bound_seconds=count("bound_seconds", usual.bound_seconds),
        sources_max=count("sources_max", usual.sources_max) or 1,
        group_files=count("group_files", usual.group_files) or 1,
        group_file_bytes=config_get_int(
            SECTION, "group_file_bytes", raise_exception=False, default=usual.group_file_bytes
        ),
        heeds_meta=config_get_bool(
            SECTION, "heeds_meta", raise_exception=False, default=usual.heeds_meta
        ),
        resume=resume(),
        tries=count("tries", usual.tries),
    )
