"""The object log of a transfer in the web console, and hostile names in the parts beside it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Selection
from dray.testing.endpoints import Root
from integration.endpoint.browser import EFFECT_SECONDS, POLL_SECONDS, needs_browser
from integration.endpoint.console import (
    HOSTILE,
    REVERSED,
    SCRIPT,
    assert_harmless,
    keep_picture,
    log_in,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
#: The name of the folder of the copies, in the form of URLs.
FOLDER = f"{SCRIPT} run%E2%80%AEtxt%0A"
#: Makes the page wait for answers about the object log until `window.release()`.
HOLD = """
    const real = window.fetch;
    const held = [];
    window.fetch = async (...call) => {
        const answer = await real(...call);
        if (!String(call[0]).includes('/log?')) return answer;
        await new Promise(done => { held.push(done); window.held = held.length; });
        return answer;
    };
    window.release = () => {
        window.fetch = real;
        held.forEach(done => done());
        return new Promise(done => setTimeout(() => requestAnimationFrame(done), 500));
    };
"""

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with the console."""
    return start_endpoint("a", config={"ui": {"enabled": True}})


def submit(client: Client, site: Endpoint, names: tuple[str, ...], folder: str) -> None:
    """Submit a slow copy of files with these names, and wait until its log has safe ranges."""
    source = site.root("source")
    source.mkdir()
    for name in names:
        (source / name).write_bytes(os.urandom(4 * MIB))
    client.submit(
        Request(
            "/data/source/",
            f"/data/{folder}/",
            id="t",
            rate_max=MIB,
            object_size=MIB // 4,
            selection=Selection(recursive=True),
        )
    )
    until = time.monotonic() + EFFECT_SECONDS
    while sum(file.bytes_trusted for file in client.log("t").files) < MIB:
        assert time.monotonic() < until, client.transfer("t")
        time.sleep(POLL_SECONDS)


def open_transfer(chromium: Browser, site: Endpoint, subject: str = "alice") -> None:
    """Log in, and open the page of the first transfer."""
    log_in(chromium, site, subject=subject)
    chromium.click(".row a")
    chromium.element("#read-log")


@needs_browser
def test_an_answer_about_an_earlier_attempt_is_not_shown(chromium: Browser, site: Endpoint) -> None:
    with site.client() as client:
        submit(client, site, ("one", "two"), "copy")
        client.cancel("t")
        client.wait("t", timeout_seconds=30)
        open_transfer(chromium, site)
        chromium.run(HOLD)
        chromium.click("#read-log")
        chromium.wait("window.held === 1")
        chromium.click("#retry")
        chromium.wait("document.querySelector('h1 .state.active') !== null")
        assert client.transfer("t").attempt == 2
        chromium.run("return window.release()")
        # The page shows no log: the button for the first reading is there, and works.
        assert chromium.run("return document.querySelector('.log dl')") is None
        assert (
            chromium.run("return document.querySelector('#read-log').innerText") == "Read the log"
        )
        chromium.click("#read-log")
        chromium.wait_text("Last written by transfer")
        chromium.wait_text("Read the log again")
        client.cancel("t", purge=True)
        assert chromium.complaints() == []


@needs_browser
def test_the_log_and_the_dialog_show_hostile_names_as_text(
    chromium: Browser, site: Endpoint
) -> None:
    with site.client() as client:
        submit(client, site, HOSTILE, FOLDER)
        open_transfer(chromium, site)
        chromium.click(".actions .danger")
        chromium.wait_text(f"Cancel the transfer source → /data/{FOLDER}/?")
        assert_harmless(chromium)
        chromium.run("document.querySelector('dialog').close()")
        client.pause("t")
        chromium.wait("document.querySelector('h1 .state.paused') !== null")
        chromium.click("#read-log")
        chromium.wait("document.querySelectorAll('.log tbody tr').length > 0")
        files = {file.path for file in client.log("t").files}
        assert files
        shown = chromium.run(
            "return [...document.querySelectorAll('.log tbody th')].map(each => each.innerText)"
        )
        assert set(shown) == {visible(path) for path in files}
        place = "return document.querySelector('.log dd').innerText"
        assert chromium.run(place).startswith(f"/data/{FOLDER}/.dray-log/")
        for width, is_dark in ((1280, False), (390, True)):
            chromium.resize(width, 800, is_dark=is_dark)
            assert_harmless(chromium)
            chromium.run("document.querySelector('.log').scrollIntoView()")
            keep_picture(chromium, f"log-{width}")
        # The list with its tooltips.
        chromium.resize(1280, 800)
        chromium.click("nav a[href='#/']")
        chromium.element(".row a")
        title = chromium.run("return document.querySelector('.row a').title")
        assert title == f"/data/source/ → /data/{FOLDER}/"
        assert_harmless(chromium)
        client.cancel("t", purge=True)


@needs_browser
def test_incoming_transfers_and_interruptions_show_hostile_names_as_text(
    chromium: Browser, start_endpoint: Callable[..., Endpoint]
) -> None:
    # Two known endpoints have the address of the endpoint that drives the transfer.
    peers = [
        {"name": name, "address": f"127.0.0.1:{number}"}
        for number, name in enumerate(("ay", "bee"), start=1)
    ]
    far = start_endpoint(
        "far", roots=[Root("store")], config={"ui": {"enabled": True}, "peer": peers}
    )
    near = start_endpoint(
        "near", config={"ui": {"enabled": True}, "retry": {"interval_seconds": 2, "tries": 40}}
    )
    # The subject of a token becomes the owner.
    subject = f"{SCRIPT}{REVERSED}"
    near.root("big").write_bytes(os.urandom(16 * MIB))
    with near.client(subject=subject) as client, far.client(subject=subject) as there:
        ticket = there.mint_ticket("t", "write", [f"/store/{FOLDER}"], near.key)
        place = Place(far.place(FOLDER, root="store"), ticket.ticket, ticket.key, ticket.address)
        wanted = Request(
            ["/data/big"],
            place,
            id="t",
            rate_max=MIB // 4,
            labels={"note": REVERSED},
        )
        client.submit(wanted)
        log_in(chromium, far, subject=subject)
        chromium.wait("document.querySelector('.incoming tbody tr') !== null")
        row = chromium.run("return document.querySelector('.incoming tbody tr').innerText")
        assert "ay or bee (127.0.0.1)" in row
        assert SCRIPT in row
        assert_harmless(chromium)
        chromium.click("nav a[href='#/site']")
        chromium.wait_text("ay or bee (127.0.0.1) → far: /store")
        chromium.wait_text(SCRIPT)
        assert_harmless(chromium)
        open_transfer(chromium, near, subject)
        far.kill()
        chromium.wait_text(f"The other endpoint, {far.address}, has been unreachable since")
        chromium.wait_text("The endpoint tries again automatically in")
        chromium.wait_text(visible(REVERSED))
        assert_harmless(chromium)
        chromium.resize(390, 800, is_dark=True)
        assert_harmless(chromium)
        client.cancel("t")
