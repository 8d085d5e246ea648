"""Settings: the login at Globus, the addresses of its services, the site map and the records."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dray_globus.errors import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLES", "Settings"]

PREFIX = "DRAY_GLOBUS_"
VARIABLES = (
    "CLIENT_ID",
    "CLIENT_SECRET",
    "NATIVE_CLIENT_ID",
    "TOKENS",
    "DATA_ACCESS",
    "BASE_URL",
    "AUTH_URL",
    "SITES",
    "STATE",
    "TRIES",
    "RETRY_AFTER_SECONDS_MAX",
)
"""Names of the environment variables, without their prefix ``DRAY_GLOBUS_``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an executor.

    :param client_id: id of a confidential client. The service then logs in by itself.
    :param client_secret: secret of this client.
    :param native_client_id: id of a native client, for the login of a user.
    :param tokens: file for the tokens of a user.
    :param data_access: mapped collections that require the consent ``data_access``.
    :param base_url: address of the Transfer service, instead of that of the SDK's environment.
    :param auth_url: address of Globus Auth, instead of that of the SDK's environment.
    :param sites: the site map (:mod:`dray_globus.sites`).
    :param state: folder for the records of submissions.
    :param tries: maximum number of repetitions of one call. With 0, a busy service is an error
        immediately.
    :param retry_after_seconds_max: maximum ``Retry-After`` that a call waits for.
    :param outage_seconds: time for which :meth:`GlobusExecutor.wait` tolerates a service that does
        not answer.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    native_client_id: str | None = None
    tokens: Path = field(default_factory=lambda: _state() / "tokens.json")
    data_access: tuple[str, ...] = ()
    base_url: str | None = None
    auth_url: str | None = None
    sites: Path | None = None
    state: Path = field(default_factory=lambda: _state() / "records")
    tries: int = 5
    retry_after_seconds_max: float = 300.0
    outage_seconds: float = 300.0

    def __post_init__(self) -> None:
        """Check that the settings name one login only, and that secrets are sent over TLS."""
        if self.client_id and self.native_client_id:
            raise usage(
                "use the settings of Globus",
                "CLIENT_ID and NATIVE_CLIENT_ID are both set",
                "set CLIENT_ID and CLIENT_SECRET for a service, or NATIVE_CLIENT_ID for a user",
            )
        if bool(self.client_id) != bool(self.client_secret):
            raise usage(
                "use the settings of Globus",
                "only one of CLIENT_ID and CLIENT_SECRET is set",
                "set both; https://app.globus.org/settings/developers has the id and the secret",
            )
        for name in ("base_url", "auth_url"):
            url = getattr(self, name)
            if url and not re.match(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/]", url):
                raise usage(
                    "use the settings of Globus",
                    f"{name} is {url!r}, so a token would be sent unencrypted",
                    "write an https:// address",
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables ``DRAY_GLOBUS_...``.

        :raises DrayUsageError: for an unknown or invalid variable.
        """
        environment = os.environ if environment is None else environment
        found = {
            name.removeprefix(PREFIX): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and value
        }
        unknown = sorted(set(found) - set(VARIABLES))
        if unknown:
            raise usage(
                "read the settings of Globus",
                f"unknown variables: {', '.join(PREFIX + name for name in unknown)}",
                f"the known names are {', '.join(PREFIX + name for name in VARIABLES)}",
            )
        return cls.of_texts({name.lower(): value for name, value in found.items()})

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> Settings:
        """Create settings from a mapping of field names to texts.

        :raises DrayUsageError: for an unknown name or an invalid text.
        """
        names = [name.lower() for name in VARIABLES]
        unknown = sorted(set(texts) - set(names))
        if unknown:
            raise usage(
                "use the settings of Globus",
                f"unknown names: {', '.join(unknown)}",
                f"the known names are {', '.join(names)}",
            )
        usual = cls()
        return cls(
            client_id=texts.get("client_id"),
            client_secret=texts.get("client_secret"),
            native_client_id=texts.get("native_client_id"),
            tokens=Path(texts["tokens"]) if "tokens" in texts else usual.tokens,
            data_access=tuple(re.split(r"[,\s]+", texts["data_access"].strip()))
            if texts.get("data_access", "").strip()
            else (),
            base_url=texts.get("base_url"),
            auth_url=texts.get("auth_url"),
            sites=Path(texts["sites"]) if "sites" in texts else None,
            state=Path(texts["state"]) if "state" in texts else usual.state,
            tries=int(_number(texts, "tries", usual.tries)),
            retry_after_seconds_max=_number(
                texts, "retry_after_seconds_max", usual.retry_after_seconds_max
            ),
        )


def _number(texts: Mapping[str, str], name: str, usual: float) -> float:
    text = texts.get(name, str(usual))
    if not re.fullmatch(r"[0-9]{1,9}(\.0)?", text):
        raise usage("use the settings of Globus", f"{name} is {text!r}", "write a whole number")
    return float(text)


def _state() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dray" / "globus"
