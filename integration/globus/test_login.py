"""The login of a user: tokens in a file, renewed by the refresh token, and never asked for."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest
from globus_sdk.token_storage import JSONTokenStorage, TokenStorageData

from dray.errors import DrayPermanentError, DrayUsageError
from integration.globus.service import SCOPE, Answer, Fault

if TYPE_CHECKING:
    from integration.globus.conftest import Globus

pytestmark = pytest.mark.server
NATIVE = "5a0e33e8-29a3-4f2c-8a5f-6f3a53a5b1aa"


def log_in(globus: Globus, *, expires_in: int) -> None:
    """Store the tokens of a login, as the SDK does."""
    globus.state.mkdir(exist_ok=True)
    owner = str(uuid.uuid4())
    globus.service.refresh_tokens["refresh"] = owner
    data = TokenStorageData(
        resource_server="transfer.api.globus.org",
        identity_id=owner,
        scope=SCOPE,
        access_token=globus.service.grant(owner),
        refresh_token="refresh",  # noqa: S106 - of the local service
        expires_at_seconds=int(time.time()) + expires_in,
        token_type="Bearer",  # noqa: S106 - no secret
    )
    storage = JSONTokenStorage(str(globus.state / "tokens.json"))
    storage.store_token_data_by_resource_server({"transfer.api.globus.org": data})


@pytest.mark.parametrize("expires_in", [3600, -10])
def test_tokens_of_a_user_are_renewed(globus: Globus, expires_in: int) -> None:
    (globus.here / "f").write_bytes(b"data")
    log_in(globus, expires_in=expires_in)
    executor = globus.executor(client_id=None, client_secret=None, native_client_id=NATIVE)
    id = executor.submit(globus.request("/f", "/f")).id
    globus.service.expire_tokens()
    assert executor.wait(id, 30).state == "done"
    assert "POST /v2/oauth2/token" in globus.service.calls


def test_a_user_without_a_login_gets_the_command(globus: Globus) -> None:
    with pytest.raises(DrayPermanentError, match="python -m dray_globus login") as caught:
        globus.executor(client_id=None, client_secret=None, native_client_id=NATIVE).submit(
            globus.request("/f", "/f")
        )
    assert caught.value.kind == "unauthorized"


def test_no_login_at_all_is_an_invalid_setting(globus: Globus) -> None:
    with pytest.raises(DrayUsageError, match="no client is configured"):
        globus.executor(client_id=None, client_secret=None)


def test_a_missing_consent_is_named(globus: Globus) -> None:
    scope = "urn:globus:auth:scope:transfer.api.globus.org:all[*https://x/data_access]"
    document = {
        "code": "ConsentRequired",
        "message": "Missing required data_access consent",
        "request_id": "abc",
        "required_scopes": [scope],
    }
    globus.service.faults.append(Fault("POST /v0.10/transfer", Answer(403, document)))
    with pytest.raises(DrayPermanentError, match="login --data-access COLLECTION") as caught:
        globus.executor().submit(globus.request("/f", "/f"))
    assert caught.value.kind == "unauthorized"
    assert scope in str(caught.value)
