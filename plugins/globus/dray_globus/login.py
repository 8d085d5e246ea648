"""Logins at Globus. A service uses its client's secret, and a user logs in with a browser.

The SDK renews an access token when it expires, and after an answer 401. So a token that expires in
the middle of a transfer is renewed without the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import globus_sdk
from globus_sdk.token_storage import JSONTokenStorage
from globus_sdk.transport import RetryConfig

from dray_globus.errors import LOGIN_REMEDY, of_sdk, usage

if TYPE_CHECKING:
    from dray_globus.settings import Settings

__all__ = ["open_app", "open_client"]

NAME = "dray"


def open_app(settings: Settings) -> globus_sdk.GlobusApp:
    """Return the application that holds the tokens. No call is made.

    :raises DrayUsageError: if the settings contain no client id.
    """
    if settings.client_id is not None:
        # In memory only: a service can request a new token at any time, so no token is stored.
        return globus_sdk.ClientApp(
            NAME,
            login_client=globus_sdk.ConfidentialAppAuthClient(
                settings.client_id,
                settings.client_secret or "",
                base_url=settings.auth_url,
            ),
            config=globus_sdk.GlobusAppConfig(token_storage="memory"),  # noqa: S106 - no secret
        )
    if settings.native_client_id is None:
        raise usage("log in at Globus", "no client is configured", LOGIN_REMEDY)
    settings.tokens.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return globus_sdk.UserApp(
        NAME,
        login_client=globus_sdk.NativeAppAuthClient(
            settings.native_client_id, base_url=settings.auth_url
        ),
        config=globus_sdk.GlobusAppConfig(
            token_storage=JSONTokenStorage(str(settings.tokens)),
            request_refresh_tokens=True,
            # A call must never wait for a person. Only the command `login` starts a login.
            token_validation_error_handler=None,
        ),
    )


def open_client(
    settings: Settings, app: globus_sdk.GlobusApp | None = None
) -> globus_sdk.TransferClient:
    """Return a client of the Transfer service.

    :raises DrayError: if no login is configured, or if a user has not logged in.
    """
    try:
        client = globus_sdk.TransferClient(
            app=app or open_app(settings),
            base_url=settings.base_url,
            # The SDK shortens every pause to `max_sleep`, also a pause that the service requests
            # with Retry-After. Its default is 10 s.
            retry_config=RetryConfig(
                max_retries=settings.tries, max_sleep=settings.retry_after_seconds_max
            ),
        )
        if settings.data_access:
            client.add_app_data_access_scope(list(settings.data_access))
    except globus_sdk.GlobusError as error:
        raise of_sdk(error, "log in at Globus") from None
    return client
