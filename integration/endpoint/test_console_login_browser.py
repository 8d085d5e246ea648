"""Logins to the console in a real browser, with a real provider."""

from __future__ import annotations

import http.server
import os
import ssl
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from dray.client import Request
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import keep_picture
from integration.endpoint.login_provider import needs_node
from integration.endpoint.login_scene import LoginScene, open_login

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dray.client import Client, Transfer
    from integration.endpoint.browser import Browser

MIB = 1 << 20

pytestmark = [pytest.mark.server, needs_node, needs_browser]

#: A page that calls the API in all ways that pages of other origins have.
ATTACK = """<!doctype html><title>attack</title>
<form method="post" action="ORIGIN/v1/transfers/slow/cancel" enctype="text/plain">
<input name='{"purge": true, "x": "' value='"}'></form>
<script>
  window.tried = [];
  const note = (name) => (value) => window.tried.push(`${name}: ${value.type ?? value}`);
  const tries = [
    ["simple", { method: "POST", mode: "no-cors", body: "{}" }],
    ["header", { method: "POST", body: "{}", headers: { "Dray-Console": "active" } }],
    ["json", { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } }],
  ];
  for (const [name, options] of tries)
    fetch("ORIGIN/v1/transfers/slow/cancel", { ...options, credentials: "include" })
      .then(note(name), note(name));
  fetch("ORIGIN/ui/session", { method: "DELETE", credentials: "include" })
    .then(note("logout"), note("logout"));
  fetch("ORIGIN/v1/endpoint", { credentials: "include" }).then(note("read"), note("read"));
</script>
"""


class Neighbour:
    """Another service of the same host, whose page attacks the console.

    Browsers treat the ports of a host as one site, so they send the cookie of the session even
    though it has ``SameSite=Strict``.
    """

    def __init__(self, scene: LoginScene, certificate: str, body: str) -> None:
        """Start the service. It runs until :meth:`stop`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        page = body.replace("ORIGIN", scene.origin).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, host: str) -> str:
        """Return the address of the page: of the same site (127.0.0.1), or of another one."""
        return f"https://{host}:{self._port}/"

    def stop(self) -> None:
        """Stop the service."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def scene() -> Iterator[LoginScene]:
    """Yield an endpoint with a login, and a provider that does not know the browser."""
    with open_login() as scene:
        yield scene


@pytest.fixture
def client(scene: LoginScene) -> Iterator[Client]:
    """Yield a client of the owner to whom the user of the login is mapped."""
    with scene.site.client() as client:
        yield client


def submit_slow(client: Client, scene: LoginScene) -> Transfer:
    """Submit a transfer that runs until a test ends it."""
    # A transfer does not send the holes of a sparse file.
    (scene.site.root() / "big").write_bytes(os.urandom(64 * MIB))
    return client.submit(Request("/data/big", "/data/copy", id="slow", rate_max=MIB))


def open_console(chromium: Browser, scene: LoginScene, page: str = "") -> None:
    """Open the console, which shows the login."""
    chromium.resize(1280, 800)
    chromium.open("about:blank")
    chromium.complaints()
    chromium.open(f"{scene.origin}/ui/{page}")
    chromium.wait_text("Log in with Test <IAM>")


def log_in(chromium: Browser, user: str = "alice") -> None:
    """Log in at the provider's page, and come back."""
    chromium.click(".login .provider")
    chromium.type_text("[name=login]", user)
    chromium.type_text("[name=password]", "any")
    chromium.click("[type=submit]")
    # The provider asks the user for a consent.
    chromium.wait("document.querySelector('[name=login]') === null")
    chromium.click("[type=submit]")


def is_live(chromium: Browser) -> None:
    """Wait until the console shows the user and the live connection."""
    chromium.wait("document.querySelector('.connection.live') !== null")
    chromium.wait_text("Alice Adams, alice")


def test_a_user_logs_in_acts_and_logs_out(
    chromium: Browser, scene: LoginScene, client: Client
) -> None:
    submit_slow(client, scene)
    open_console(chromium, scene, "#/transfers/slow")
    keep_picture(chromium, "login")
    assert urlsplit(scene.provider.url).hostname == "localhost"
    log_in(chromium)
    is_live(chromium)
    keep_picture(chromium, "logged-in")
    # The login returns to the page at which it started.
    assert chromium.run("return location.href") == f"{scene.origin}/ui/#/transfers/slow"
    # Scripts can read neither the cookie nor another copy of a secret.
    assert chromium.run("return document.cookie") == ""
    assert chromium.run("return localStorage.length + sessionStorage.length") == 0
    # A reload keeps the session, in contrast to a token.
    chromium.open("about:blank")
    chromium.open(f"{scene.origin}/ui/#/transfers/slow")
    is_live(chromium)
    chromium.click(".actions .danger")
    chromium.click("#cancel-confirm")
    chromium.wait("document.querySelector('h1 .state.cancelled') !== null")
    assert client.transfer("slow").state == "cancelled"
    # The pages of the provider complain too, because they may not load their font.
    assert not [each for each in chromium.complaints() if each.startswith(scene.origin)]
    chromium.click("#logout")
    chromium.wait_text("You are logged out of this endpoint.")
    code = "return (await fetch('/v1/endpoint', {headers: {'Dray-Console': 'idle'}})).status"
    assert chromium.run(code) == 401


def check_end(chromium: Browser, scene: LoginScene) -> None:
    """Wait until the page reports the end of the session. Log in again from there."""
    chromium.wait_text("Your session has ended. Log in again to return to this page.")
    keep_picture(chromium, "ended")
    assert chromium.run("return location.hash") == "#/site"
    # The provider still knows the user, and asks for nothing.
    chromium.click(".login .provider")
    is_live(chromium)
    assert chromium.run("return location.href") == f"{scene.origin}/ui/#/site"


def test_an_ended_session_is_reported_and_a_login_returns_to_the_page(
    chromium: Browser, scene: LoginScene
) -> None:
    open_console(chromium, scene, "#/site")
    log_in(chromium)
    is_live(chromium)
    scene.site.restart()
    check_end(chromium, scene)


@pytest.mark.full
def test_calls_of_the_page_itself_do_not_keep_a_session(chromium: Browser) -> None:
    with open_login(ui={"idle_seconds": 45}) as scene:
        open_console(chromium, scene, "#/site")
        log_in(chromium)
        is_live(chromium)
        # The page asks for the load every two seconds. A key of the user begins the time again.
        for _ in range(3):
            time.sleep(20)
            chromium.press("a")
        is_live(chromium)
        time.sleep(40)
        check_end(chromium, scene)


def test_a_user_without_a_group_gets_a_page_with_the_reason(
    chromium: Browser, scene: LoginScene
) -> None:
    open_console(chromium, scene, "#/site")
    log_in(chromium, "mallory")
    chromium.wait_text("Login failed")
    text = chromium.text()
    assert 'no group of "Mallory <b>Moe</b>" (subject "mallory") gives access' in text
    keep_picture(chromium, "refused")
    chromium.click("a")
    chromium.wait_text("Log in with Test <IAM>")
    assert chromium.run("return location.href") == f"{scene.origin}/ui/#/site"


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        # The browser sends the cookie, and the endpoint refuses the call.
        ("127.0.0.1", "shows a session, but not the header Dray-Console"),
        # The browser does not send the cookie.
        ("localhost", "a web page of another site sent the request"),
    ],
    ids=["same-site", "cross-site"],
)
def test_a_page_of_another_origin_cannot_act_for_the_user(
    chromium: Browser, scene: LoginScene, client: Client, host: str, cause: str
) -> None:
    submit_slow(client, scene)
    open_console(chromium, scene)
    log_in(chromium)
    is_live(chromium)
    certificate = scene.provider.ca.parent / "provider.pem"
    neighbour = Neighbour(scene, str(certificate), ATTACK)
    try:
        chromium.open(neighbour.url(host))
        chromium.wait("window.tried && window.tried.length === 5")
        tried = chromium.run("return window.tried.sort().join(' ')")
        # Without CORS, the page learns nothing: the browser refuses all calls but the simple one,
        # whose answer it hides.
        assert tried.count("TypeError") == 4, tried
        assert "simple: opaque" in tried
        chromium.run("document.forms[0].submit()")
        chromium.wait_text(cause)
    finally:
        neighbour.stop()
    assert client.transfer("slow").state == "active"
    chromium.open(f"{scene.origin}/ui/")
    is_live(chromium)
