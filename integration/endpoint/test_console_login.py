"""Logins to the console with a real provider: the flow, sessions, and attempts to abuse them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from integration.endpoint.login_provider import confirm, needs_node
from integration.endpoint.login_scene import LoginScene, agent, begin, come_back, open_login

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

Json: TypeAlias = Any

pytestmark = [pytest.mark.server, needs_node]


@pytest.fixture(scope="module")
def scene() -> Iterator[LoginScene]:
    """Yield one endpoint with a confidential client for all tests of this file."""
    with open_login() as scene:
        yield scene


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    """Yield a client with its own cookies."""
    with agent() as http:
        yield http


def changed(address: str, **values: str | None) -> str:
    """Return an address with other values of parameters; ``None`` removes a parameter."""
    parts = urlsplit(address)
    query = {**dict(parse_qsl(parts.query)), **values}
    kept = {name: value for name, value in query.items() if value is not None}
    return parts._replace(query=urlencode(kept)).geturl()


def refused(answer: httpx.Response, code: int, cause: str) -> None:
    """Fail unless the answer is a page with this cause, and begins no session."""
    assert answer.status_code == code, answer.text
    assert "Login failed" in answer.text
    assert cause in answer.text, answer.text
    assert "<dt>Remedy</dt>" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not any("session" in cookie for cookie in answer.headers.get_list("set-cookie"))


def test_a_login_begins_a_session_with_the_rights_of_its_groups(
    scene: LoginScene, browser: httpx.Client
) -> None:
    answer = come_back(scene, browser, page="#/transfers/a b".replace(" ", "%20"))
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == "/ui/#/transfers/a%20b"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    cookies = [one for one in answer.headers.get_list("set-cookie") if "session" in one]
    assert len(cookies) == 2
    for cookie, path in zip(cookies, ("/v1", "/ui/session"), strict=True):
        for part in ("HttpOnly", "Secure", "SameSite=Strict", f"Path={path}"):
            assert part in cookie.split("; "), cookie
        assert "Domain" not in cookie
    state = browser.get(f"{scene.origin}/ui/session", headers={"Dray-Console": "idle"}).json()
    assert state["user"] == {"name": "Alice Adams"}
    told = browser.get(f"{scene.origin}/v1/endpoint", headers=scene.headers).json()
    assert told["you"] == {
        "principal": f"alice@{scene.provider.url}",
        "owner": "alice",
        "administrator": False,
    }
    assert told["roots"] == [{"name": "data", "read": True, "write": False, "stage": False}]
    path = f"{scene.origin}/v1/storage/mkdir"
    body = {"path": "/data/own/by-login", "parents": True}
    made = browser.post(path, json=body, headers=scene.headers)
    assert made.status_code == 201, made.text
    assert scene.site.root("own/by-login").is_dir()
    denied = browser.post(path, json={"path": "/data/elsewhere"}, headers=scene.headers)
    assert denied.status_code == 403, denied.text
    error = denied.json()["error"]
    assert error["cause"] == "the login does not grant the scope storage.create:/data/elsewhere"
    assert error["remedy"] == "ask the endpoint's administrator for a grant with this scope"
    out = browser.delete(f"{scene.origin}/ui/session", headers=scene.headers)
    assert out.status_code == 204
    assert all("Max-Age=0" in cookie for cookie in out.headers.get_list("set-cookie"))
    # The endpoint has forgotten the session: a copy of the cookie is useless too.
    name, _, value = cookies[0].partition(";")[0].partition("=")
    copy = {"Cookie": f"{name}={value}", **scene.headers}
    late = browser.get(f"{scene.origin}/v1/endpoint", headers=copy)
    assert late.status_code == 401
    assert "has ended" in late.text


def test_the_request_of_a_login_has_state_nonce_and_challenge(
    scene: LoginScene, browser: httpx.Client
) -> None:
    first, second = (parse_qs(urlsplit(begin(scene, browser)).query) for _ in range(2))
    assert first["response_type"] == ["code"]
    assert first["code_challenge_method"] == ["S256"]
    assert first["redirect_uri"] == [f"{scene.start}/done"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) == 43, name
        assert first[name] != second[name], name


def test_an_answer_for_another_login_or_browser_is_refused(
    scene: LoginScene, browser: httpx.Client
) -> None:
    back = confirm(browser, begin(scene, browser), "alice")
    refused(browser.get(changed(back, state="A" * 43)), 401, "belongs to another login (state)")
    refused(browser.get(changed(back, state=None)), 401, "belongs to another login (state)")
    for issuer in ("https://evil.example", None):
        refused(browser.get(changed(back, iss=issuer)), 401, "comes from another provider")
    with agent() as victim:
        refused(victim.get(back), 401, "has not started a login")
        # An attacker lures the victim, who also has begun a login, to the attacker's answer.
        begin(scene, victim)
        refused(victim.get(back), 401, "belongs to another login (state)")
    other = changed(back, code="A" * 43)
    refused(browser.get(other), 401, "refused to confirm the login (invalid_grant")
    answer = browser.get(back)
    assert answer.status_code == 303, answer.text


def test_a_code_is_valid_once(scene: LoginScene, browser: httpx.Client) -> None:
    back = confirm(browser, begin(scene, browser), "alice")
    cookies = {cookie.name: cookie.value or "" for cookie in browser.cookies.jar}
    assert browser.get(back).status_code == 303
    attempt = next(name for name in cookies if name.startswith("__Secure-dray-login"))
    with agent() as thief:
        headers = {"Cookie": f"{attempt}={cookies[attempt]}"}
        refused(thief.get(back, headers=headers), 401, "invalid_grant")


def test_an_id_token_with_another_nonce_is_refused(
    scene: LoginScene, browser: httpx.Client
) -> None:
    address = begin(scene, browser)
    back = confirm(browser, changed(address, nonce="of-another-login"), "alice")
    refused(browser.get(back), 401, "its nonce is missing or different")


def test_a_code_of_another_challenge_is_refused(scene: LoginScene, browser: httpx.Client) -> None:
    address = begin(scene, browser)
    back = confirm(browser, changed(address, code_challenge="A" * 43), "alice")
    refused(browser.get(back), 401, "refused to confirm the login (invalid_grant")


def test_an_error_of_the_provider_is_shown_as_text(
    scene: LoginScene, browser: httpx.Client
) -> None:
    state = parse_qs(urlsplit(begin(scene, browser, "#/new")).query)["state"][0]
    answer = browser.get(
        f"{scene.start}/done",
        params={"error": "access_denied", "error_description": "<b>no</b>", "state": state},
    )
    refused(answer, 401, "access_denied: &lt;b&gt;no&lt;/b&gt;")
    assert 'href="/ui/#/new"' in answer.text


@pytest.mark.parametrize("user", ["mallory", "nobody"])
def test_a_user_without_a_group_is_refused_with_the_reason(
    scene: LoginScene, browser: httpx.Client, user: str
) -> None:
    answer = come_back(scene, browser, user)
    cause = {
        "mallory": "no group of &quot;Mallory &lt;b&gt;Moe&lt;/b&gt;&quot;",
        "nobody": "reports no groups (claim &quot;groups&quot;)",
    }[user]
    refused(answer, 403, cause)
    assert "ask the endpoint&#39;s administrator for a grant" in answer.text


def test_the_audit_log_names_logins_and_contains_no_secret(
    scene: LoginScene, browser: httpx.Client
) -> None:
    address = begin(scene, browser)
    back = confirm(browser, address, "alice")
    assert browser.get(back).status_code == 303
    browser.delete(f"{scene.origin}/ui/session", headers=scene.headers)
    with agent() as other:
        refused(come_back(scene, other, "mallory"), 403, "no group")
    log = (scene.site.folder.parent / "audit.jsonl").read_text(encoding="utf-8")
    lines: list[Json] = [json.loads(line) for line in log.splitlines()]
    done = [line for line in lines if line.get("what") == "GET /ui/login/iam/done"]
    assert any(line["owner"] == "alice" and line["error"] is None for line in done), done
    principal = f"mallory@{scene.provider.url}"
    failed = [line for line in done if line["principal"] == principal]
    assert failed, done
    assert failed[-1]["error"]["kind"] == "permission_denied"
    assert any(line.get("what") == "DELETE /ui/session" for line in lines)
    secrets = [*parse_qs(urlsplit(back).query)["code"], *parse_qs(urlsplit(address).query)["state"]]
    secrets += [cookie.value or "" for cookie in browser.cookies.jar]
    for text in (log, scene.site.log_text()):
        assert not any(secret and secret in text for secret in secrets)


@pytest.mark.parametrize(
    ("is_public", "claims_in_userinfo"), [(True, False), (False, True)], ids=["public", "userinfo"]
)
def test_other_kinds_of_clients_and_claims_work(
    browser: httpx.Client, is_public: bool, claims_in_userinfo: bool
) -> None:
    with open_login(is_public=is_public, claims_in_userinfo=claims_in_userinfo) as scene:
        assert come_back(scene, browser).status_code == 303
        told = browser.get(f"{scene.origin}/v1/endpoint", headers=scene.headers).json()
        assert told["you"]["owner"] == "alice"
        state = browser.get(f"{scene.origin}/ui/session", headers={"Dray-Console": "idle"})
        assert state.json()["user"] == {"name": "Alice Adams"}


def test_a_call_of_another_page_cannot_use_the_session(
    scene: LoginScene, browser: httpx.Client
) -> None:
    assert come_back(scene, browser).status_code == 303
    path = f"{scene.origin}/v1/storage/mkdir"
    for number, headers in enumerate(
        [
            {},
            {"Origin": scene.origin},
            {"Dray-Console": "active"},
            {**scene.headers, "Origin": "https://evil.example"},
            {**scene.headers, "Origin": "null"},
            {**scene.headers, "Sec-Fetch-Site": "cross-site"},
            {**scene.headers, "Sec-Fetch-Site": "same-site"},
        ]
    ):
        body = {"path": f"/data/own/abuse{number}", "parents": True}
        answer = browser.post(path, json=body, headers=headers)
        assert answer.status_code == 401, headers
        assert not scene.site.root(f"own/abuse{number}").exists()
    assert browser.get(f"{scene.origin}/v1/endpoint").status_code == 401
    out = browser.delete(f"{scene.origin}/ui/session")
    assert out.status_code == 401
    # No answer permits scripts of other sites to read it, or to send the header.
    asked = browser.options(
        path,
        headers={
            "Origin": "https://evil.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "dray-console",
        },
    )
    assert not any(name.startswith("access-control") for name in asked.headers)
    assert browser.get(f"{scene.origin}/v1/endpoint", headers=scene.headers).status_code == 200


def test_a_restart_ends_all_sessions(browser: httpx.Client) -> None:
    with open_login() as scene:
        assert come_back(scene, browser).status_code == 303
        scene.site.restart()
        answer = browser.get(f"{scene.origin}/v1/endpoint", headers=scene.headers)
        assert answer.status_code == 401
        assert "has ended" in answer.text
        state = browser.get(f"{scene.origin}/ui/session", headers={"Dray-Console": "idle"})
        assert state.json() == {
            "logins": [{"name": "Test <IAM>", "address": scene.start}],
            "user": None,
            "has_ended": True,
        }


def test_the_end_of_a_session_ends_its_stream_of_events(browser: httpx.Client) -> None:
    with open_login(ui={"idle_seconds": 2}) as scene:
        assert come_back(scene, browser).status_code == 303
        headers = {**scene.headers, "Accept": "text/event-stream"}
        with browser.stream("GET", f"{scene.origin}/v1/events", headers=headers) as answer:
            assert answer.status_code == 200
            # The stream ends at the first check after the end of the session.
            assert all(line == "" or line.startswith(":") for line in answer.iter_lines())
        late = browser.get(f"{scene.origin}/v1/endpoint", headers=scene.headers)
        assert late.status_code == 401


def test_helpers_change_only_the_named_parameters() -> None:
    address = "https://a/b?x=1&y=2"
    assert changed(address, x="3") == "https://a/b?x=3&y=2"
    assert re.fullmatch(r"https://a/b\?y=2", changed(address, x=None))
