"""The web console of a real endpoint in a real browser."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from typing import TYPE_CHECKING

import httpx
import pytest

from dray.client import ListedFile, Request, Selection
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import (
    REVERSED,
    SCRIPT,
    keep_picture,
    log_in,
    page_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
RATE = 32 * MIB
#: Number of transfers of which the page draws only those in view. The page holds 10 000 at most.
MANY = 9_900
#: Maximum number of elements of the page with the list, whatever the number of transfers.
ELEMENTS_MAX = 1500
#: Code points of keys in the WebDriver protocol.
END, LEFT, RIGHT, DOWN = "\ue010", "\ue012", "\ue014", "\ue015"

pytestmark = pytest.mark.server


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with the console."""
    return start_endpoint("a", config={"ui": {"enabled": True}, "rate": f"{RATE}"})


@pytest.fixture
def client(site: Endpoint) -> Iterator[Client]:
    """Yield a client of the endpoint, for the submission of transfers."""
    with site.client() as client:
        yield client


def submit_slow(client: Client, site: Endpoint, id: str = "slow") -> Transfer:
    """Submit a transfer that runs until a test ends it."""
    (site.root() / "big").write_bytes(os.urandom(64 * MIB))
    request = Request("/data/big", f"/data/{id}.copy", id=id, rate_max=MIB)
    return client.submit(request)


@needs_browser
def test_a_user_lists_opens_changes_and_cancels_a_transfer(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    log_in(chromium, site)
    chromium.wait_text("There are no transfers yet.")
    submit_slow(client, site)
    # The page learns of the transfer and of its progress without a reload.
    chromium.wait("[...document.querySelectorAll('.row .id')].some(id => id.innerText === 'slow')")
    chromium.wait("document.querySelector('.row .state.active') !== null")
    chromium.wait("/[KM]iB\\/s/.test(document.querySelector('.row .number').innerText)")
    keep_picture(chromium, "list")
    chromium.click(".row a")
    chromium.wait_text("The transfer has no deadline, so the endpoint promises nothing.")
    # The first seconds of a session give no estimate.
    chromium.wait_text("measuring the rate")
    chromium.wait_text("The highest rate of this transfer is 1.00 MiB/s.")
    chromium.wait("document.querySelector('.chart canvas') !== null")
    chromium.click("#pause")
    chromium.wait("document.querySelector('h1 .state.paused') !== null")
    assert client.transfer("slow").state == "paused"
    chromium.click("#resume")
    chromium.wait("document.querySelector('h1 .state.active') !== null")
    chromium.run("document.querySelector('[name=priority]').value = '7'")
    chromium.click(".change [type=submit]")
    chromium.wait_text("The endpoint has accepted the change.")
    assert client.transfer("slow").request["priority"] == 7
    keep_picture(chromium, "transfer")
    chromium.click(".actions .danger")
    chromium.wait_text("Cancel the transfer big → /data/slow.copy?")
    assert client.transfer("slow").state == "active"
    chromium.click("#cancel-confirm")
    chromium.wait("document.querySelector('h1 .state.cancelled') !== null")
    assert client.transfer("slow").state == "cancelled"
    # A transfer that has ended has a result instead of a bottleneck, and other actions.
    text = chromium.text()
    assert "Average rate" in text
    assert "Bottleneck" not in text
    assert chromium.run("return document.querySelector('#pause')") is None
    assert chromium.run("return document.querySelector('#retry') !== null")
    chromium.wait("document.querySelector('#save-receipt') !== null")
    receipt = client.transfer("slow").receipt
    assert receipt is not None
    chromium.wait_text(receipt.id)
    assert chromium.complaints() == []


@needs_browser
def test_a_hostile_file_name_is_shown_as_text(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    source = site.root("source")
    source.mkdir()
    for name in (SCRIPT, REVERSED):
        (source / name.replace("/", "_")).write_bytes(b"content")
    wrong = [ListedFile(name, 7, "adler32:00000001") for name in (SCRIPT, REVERSED)]
    labels = {"note": SCRIPT}
    client.submit(
        Request(
            "/data/source/",
            "/data/copy/",
            id="hostile",
            files=wrong,
            selection=Selection(recursive=True),
            labels=labels,
        )
    )
    client.wait("hostile", timeout_seconds=60)
    log_in(chromium, site)
    chromium.click(".row a")
    chromium.wait("document.querySelectorAll('.failures li').length === 2")
    text = chromium.text()
    assert SCRIPT in text
    assert "\u202e" not in text
    # The API encodes such characters of a path.
    assert "run%E2%80%AEtxt.exe" in text
    assert "Remedy" in text
    assert "Cause" in text
    assert chromium.run("return document.querySelectorAll('#app img').length") == 0
    assert chromium.run("return document.title") == "dray"
    keep_picture(chromium, "failures")
    assert chromium.complaints() == []
    # If a fault of the page ever made such an element, the policy would still stop its code.
    refused = chromium.run(
        "try { document.body.innerHTML = arguments[0]; return 'set' }"
        " catch (error) { return error.name }",
        SCRIPT,
    )
    assert refused == "TypeError"
    assert any("TrustedHTML" in each for each in chromium.complaints())


@needs_browser
def test_files_under_way_and_folders_are_shown(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    deep = site.root("source") / "deep"
    deep.mkdir(parents=True)
    (site.root("source") / "other").mkdir()
    for name in (SCRIPT.replace("/", "_"), REVERSED):
        (deep / name).write_bytes(os.urandom(8 * MIB))
        (deep / name).with_suffix(".d").mkdir()
        (deep / name).with_suffix(".d").joinpath("small").write_bytes(b"small")
    wanted = Request(
        "/data/source/",
        "/data/copy/",
        id="slow",
        rate_max=MIB,
        object_size=MIB // 4,
        selection=Selection(recursive=True),
    )
    client.submit(wanted)
    log_in(chromium, site)
    chromium.click(".row a")
    chromium.wait("document.querySelector('[role=tree]') !== null")
    # A file under way, whose bar grows with its durable bytes.
    chromium.wait("document.querySelector('td progress')?.value > 0")
    text = chromium.text()
    assert f"deep/{SCRIPT.replace('/', '_')}" in text
    assert "deep/run%E2%80%AEtxt.exe" in text
    assert "moving" in text
    rows = "[...document.querySelectorAll('[role=treeitem]')]"
    names = f"return {rows}.map(row => row.querySelector('.name').innerText)"
    assert chromium.run(names) == ["the whole transfer", "deep/", "other/"]
    # The keyboard opens and closes folders. Only one row at a time can get the focus by Tab.
    chromium.run(f"{rows}[0].focus()")
    for key in (DOWN, RIGHT, RIGHT):
        chromium.press(key)
    chromium.wait(f"{rows}.length === 5")
    assert chromium.run("return document.activeElement.getAttribute('aria-level')") == "3"
    assert chromium.run(f"return {rows}.filter(row => row.tabIndex === 0).length") == 1
    assert "4 files" in chromium.run(f"return {rows}[1].innerText")
    keep_picture(chromium, "files")
    for key in (LEFT, LEFT):
        chromium.press(key)
    chromium.wait(f"{rows}.length === 3")
    chromium.press(END)
    assert (
        chromium.run("return document.activeElement.querySelector('.name').innerText") == "other/"
    )
    assert "\u202e" not in chromium.text()
    assert chromium.run("return document.querySelectorAll('#app img').length") == 0
    chromium.resize(390, 800, is_dark=True)
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    keep_picture(chromium, "phone-files")
    client.cancel("slow", purge=True)
    chromium.wait("document.querySelector('h1 .state.cancelled') !== null")
    assert chromium.run("return document.querySelector('[role=tree]')") is None
    assert chromium.complaints() == []


@needs_browser
def test_a_refused_deadline_gets_a_counter_offer(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    deadline = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=2)
    size = 60 * RATE * 60
    request = Request(
        "/data/later",
        "/data/copy",
        id="promised",
        deadline=deadline,
        not_before=deadline - dt.timedelta(minutes=90),
        bytes_expected=size,
    )
    assert client.submit(request).promised
    log_in(chromium, site)
    chromium.click(".row a")
    chromium.wait_text("The endpoint promises that the transfer ends before its deadline.")
    too_early = (deadline - dt.timedelta(minutes=60)).replace(microsecond=0)
    # The field shows the time zone of the browser.
    chromium.run(
        """const date = new Date(arguments[0]);
        const local = new Date(date.getTime() - date.getTimezoneOffset() * 60000);
        const field = document.querySelector('#change-deadline');
        field.value = local.toISOString().slice(0, 19);
        field.dispatchEvent(new Event('input', { bubbles: true }));""",
        too_early.isoformat(),
    )
    chromium.click(".change [type=submit]")
    chromium.wait_text("The earliest deadline that the endpoint can promise is")
    unchanged = dt.datetime.fromisoformat(
        client.transfer("promised").request["deadline"].replace("Z", "+00:00")
    )
    assert abs(unchanged - deadline) < dt.timedelta(seconds=1)
    keep_picture(chromium, "offer")
    chromium.click("#accept-offer")
    chromium.wait_text("The endpoint has accepted the change.")
    shown = client.transfer("promised")
    assert shown.promised
    agreed = dt.datetime.fromisoformat(shown.request["deadline"].replace("Z", "+00:00"))
    assert too_early < agreed < deadline
    # The browser itself reports the refused call.
    assert all("409" in each for each in chromium.complaints())


@needs_browser
def test_thousands_of_transfers_need_few_elements(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=1)
    requests = [
        Request("/data/a", f"/data/copy{number}", id=f"n{number:05}", not_before=later)
        for number in range(MANY)
    ]
    for start in range(0, MANY, 1000):
        client.submit_batch(requests[start : start + 1000])
    log_in(chromium, site)
    chromium.wait_text(f"{MANY} transfers")
    rows = "document.querySelectorAll('.row:not(.head)').length"
    assert 10 < chromium.run(f"return {rows}") < 60
    elements = "return document.querySelectorAll('*').length"
    assert chromium.run(elements) < ELEMENTS_MAX
    chromium.run("document.querySelector('.body').scrollTop = 1e9")
    chromium.wait("document.querySelector('.space').innerText.includes('n00000')")
    assert chromium.run(f"return {rows}") < 60
    assert chromium.run(elements) < ELEMENTS_MAX
    chromium.type_text("#filter-search", "n00042")
    chromium.wait_text(f"1 of {MANY} transfers")
    # The keyboard alone opens a transfer.
    chromium.wait("document.querySelector('.row a') !== null")
    chromium.run("document.querySelector('.row a').focus()")
    chromium.press("\ue007")
    chromium.wait("location.hash === '#/transfers/n00042'")
    chromium.wait_text("Promise")
    assert chromium.complaints() == []


@needs_browser
def test_the_token_stays_in_memory(chromium: Browser, site: Endpoint, client: Client) -> None:
    chromium.open(page_url(site))
    chromium.type_text("#token", "not.a.token")
    chromium.click("form button")
    chromium.wait("document.querySelector('[role=alert] dd') !== null")
    # A second token replaces the refused one.
    assert chromium.run("return document.querySelector('#token').value") == ""
    assert any("401" in each for each in chromium.complaints())
    token = log_in(chromium, site)
    stored = chromium.run(
        """return JSON.stringify([localStorage.length, sessionStorage.length, document.cookie,
        location.href, history.state, document.documentElement.outerHTML])"""
    )
    assert token not in stored
    assert stored.startswith('[0,0,""')
    urls = chromium.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert any(url.endswith("/v1/endpoint") for url in urls)
    assert not any(token in url for url in urls)
    chromium.open(page_url(site))
    chromium.element("#token")
    log_in(chromium, site)
    chromium.click("#logout")
    chromium.element("#token")
    # Pages of narrow and dark devices.
    submit_slow(client, site)
    log_in(chromium, site)
    chromium.resize(390, 800, is_dark=True)
    chromium.wait("document.querySelector('.row a') !== null")
    width = chromium.run("return document.documentElement.scrollWidth")
    assert width <= 390
    keep_picture(chromium, "phone")
    chromium.click(".row a")
    chromium.wait_text("Promise")
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    keep_picture(chromium, "phone-transfer")


@needs_browser
def test_the_page_continues_after_a_restart_of_the_endpoint(
    chromium: Browser, site: Endpoint, client: Client
) -> None:
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=1)
    shown = "[...document.querySelectorAll('.row .id')].some(id => id.innerText === arguments[0])"
    log_in(chromium, site)
    client.submit(Request("/data/a", "/data/a2", id="before", not_before=later))
    chromium.wait(shown, "before")
    site.stop()
    chromium.wait_text("The connection is lost.")
    chromium.wait("document.querySelector('main [role=alert]') !== null")
    site.start()
    chromium.wait("document.querySelector('.connection.live') !== null")
    # The message of the lost endpoint does not remain.
    chromium.wait("document.querySelector('main [role=alert]') === null")
    client.submit(Request("/data/a", "/data/b", id="after", not_before=later))
    chromium.wait(shown, "after")


def test_the_console_is_served_only_if_it_is_configured(
    site: Endpoint, start_endpoint: Callable[..., Endpoint]
) -> None:
    other = start_endpoint("b")
    trusting = ssl.create_default_context()
    # The connection is tested elsewhere; the certificate is of the endpoint's own key.
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with httpx.Client(verify=trusting, trust_env=False) as caller:
        assert caller.get(page_url(other)).status_code == 404
        page = caller.get(page_url(site))
        assert page.status_code == 200
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        again = caller.get(page_url(site), headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        head = caller.head(page_url(site))
        assert head.content == b""
        assert head.headers["content-length"] == str(len(page.content))
        # The page holds no data: the API still demands a token.
        assert caller.get(f"https://{site.address}/v1/transfers").status_code == 401
