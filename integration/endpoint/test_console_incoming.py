"""The web console of the endpoint of the destination, and the cause of a late end."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request
from dray.testing.endpoints import Root
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import keep_picture, log_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
RATE = 2 * MIB
SIZE = 40 * MIB
#: The transfer needs 20 s of this time.
DUE_SECONDS = 40
#: Duration of an interruption after which the transfer is late.
LATE_SECONDS = DUE_SECONDS - SIZE / RATE + 5

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


@pytest.fixture
def far(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start the endpoint of the destination."""
    return start_endpoint("b", roots=[Root("store")], config={"ui": {"enabled": True}})


@pytest.fixture
def near(start_endpoint: Callable[..., Endpoint], far: Endpoint) -> Endpoint:
    """Start the endpoint that drives the transfer."""
    config = {
        "ui": {"enabled": True},
        "rate": f"{RATE}",
        "peer": [{"name": "bee", "address": far.address, "key": far.key}],
        "retry": {"interval_seconds": 2, "tries": 40},
    }
    return start_endpoint("a", config=config)


def push(
    near: Endpoint,
    far: Endpoint,
    client: Client,
    seconds: float,
    rate_max: int | None = None,
) -> None:
    """Send a file with a deadline to the other endpoint."""
    near.root("big").write_bytes(os.urandom(SIZE))
    with far.client() as there:
        ticket = there.mint_ticket("push", "write", ["/store/big"], near.key)
    place = Place(far.place("big", root="store"), ticket.ticket, ticket.key, ticket.address)
    request = Request(
        ["/data/big"],
        place,
        id="push",
        object_size=MIB // 4,
        deadline=dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=seconds),
        bytes_expected=SIZE,
        rate_max=rate_max,
    )
    assert client.submit(request).promised


@needs_browser
def test_the_destination_shows_the_sessions_of_other_endpoints(
    chromium: Browser, near: Endpoint, far: Endpoint
) -> None:
    with near.client() as client:
        push(near, far, client, 600, MIB // 4)
        log_in(chromium, far)
        chromium.wait_text("Transfers that other endpoints control")
        row = "document.querySelector('.incoming tbody tr')?.innerText ?? ''"
        chromium.wait(f"/incoming/.test({row}) && /[KM]iB\\/s/.test({row})")
        text = chromium.run(f"return {row}")
        for wanted in ("into /store", "push", "0 of 1", "of 40.0 MiB", "alice"):
            assert wanted in text, (wanted, text)
        # The queue of this endpoint has no transfer of this session.
        assert "There are no transfers yet." in chromium.text()
        keep_picture(chromium, "incoming")
        chromium.resize(390, 800, is_dark=True)
        assert chromium.run("return document.documentElement.scrollWidth") <= 390
        keep_picture(chromium, "phone-incoming")
        # Another owner sees nothing of the session.
        log_in(chromium, far, subject="bob")
        chromium.wait_text("There are no transfers yet.")
        chromium.click("nav a[href='#/site']")
        chromium.wait_text("1 session is not shown.")
        chromium.click("nav a[href='#/']")
        assert "incoming" not in chromium.text()
        log_in(chromium, far)
        chromium.wait("document.querySelector('.incoming') !== null")
        client.cancel("push")
        chromium.wait("document.querySelector('.incoming') === null")
        assert chromium.complaints() == []


@pytest.mark.full  # its times depend on the load of the host
@needs_browser
def test_an_interruption_is_named_as_the_cause_of_a_late_end(
    chromium: Browser, near: Endpoint, far: Endpoint
) -> None:
    with near.client() as client:
        push(near, far, client, DUE_SECONDS)
        log_in(chromium, near)
        chromium.click(".row a")
        chromium.wait("document.querySelector('.show progress')?.value > 0.1")
        far.kill()
        killed = time.monotonic()
        chromium.wait_text("The other endpoint, bee, has been unreachable since")
        chromium.wait_text("The transfer fails after 40 consecutive tries without new data.")
        chromium.wait_text("The endpoint predicts that it cannot keep the promise.")
        chromium.wait("/has been interrupted since 20\\d\\d-/.test(document.body.innerText)")
        keep_picture(chromium, "interrupted-late")
        time.sleep(max(0.0, killed + LATE_SECONDS - time.monotonic()))
        far.start()
        chromium.wait("/was interrupted for \\d+ s/.test(document.body.innerText)", seconds=60)
        # The chart has a gap, and its axis has times of day.
        chromium.wait_text("1 gap without a running session")
        chromium.run("document.querySelector('.chart').scrollIntoView()")
        keep_picture(chromium, "chart-gap")
        # The list shows the whole verdict, also while the transfer is interrupted again.
        far.kill()
        chromium.click("nav a[href='#/']")
        chromium.wait_text("will be missed")
        keep_picture(chromium, "list-late")
        for width in (1280, 390):
            chromium.resize(width, 800)
            cut = chromium.run(
                """return [...document.querySelectorAll('.row .time')].filter(cell =>
                cell.scrollWidth > cell.clientWidth || cell.scrollHeight > cell.clientHeight + 1)
                .map(cell => cell.innerText)"""
            )
            assert cut == []
        chromium.resize(1280, 800)
        chromium.click(".row a")
        far.start()
        chromium.wait("document.querySelector('h1 .state.done') !== null", seconds=90)
        chromium.wait_text("The transfer was not done before its deadline.")
        cause = [note for note in client.transfer("push").notices if "was interrupted for" in note]
        assert cause
        assert chromium.complaints() == []
