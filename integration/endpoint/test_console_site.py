"""The page of the site in the web console: targets, tiers, promises, owners and sessions."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from dray.testing.endpoints import Root
from integration.endpoint.browser import EFFECT_SECONDS, POLL_SECONDS, needs_browser
from integration.endpoint.console import keep_picture, log_in
from integration.endpoint.tier_scene import MARKER, tier_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
RATE = 32 * MIB
#: Name of a storage target that is a script in HTML. The configuration permits no `=` in it.
TARGET = "<script>alert(1)</script>"
#: Name of an application: its end would be shown in the reverse order.
APPLICATION = "<i>sim\u202egnp"

pytestmark = pytest.mark.server


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with a tier and with storage targets, one of which is slow."""
    targets = {
        "targets": [f"{{path}}/slow={TARGET}", "{path}/fast=fast"],
        "limit_targets": [f"{TARGET}=2MiB/s"],
    }
    roots = [
        Root("data", targets),
        Root("scratch", {"tier": "fast"}),
        Root("archive", {"tier": "slow"}),
    ]
    tier = tier_keys(fast=["scratch"], slow="archive", capacity=64 * MIB)
    config = {
        "ui": {"enabled": True},
        "rate": f"{RATE}",
        "administrators": ["root"],
        "tier": [tier],
    }
    endpoint = start_endpoint("a", roots=roots, config=config)
    for name in ("slow", "fast"):
        endpoint.root(name).mkdir()
    return endpoint


def fill(site: Endpoint) -> None:
    """Start transfers of two owners, promise two, and write a version on the tier."""
    for name in ("slow", "fast"):
        (site.root(name) / "big").write_bytes(os.urandom(64 * MIB))
    version = site.root(f"{APPLICATION}/7", root="scratch")
    version.mkdir(parents=True)
    (version / "part").write_bytes(bytes(3 * MIB))
    (version / MARKER).write_bytes(b"")
    now = dt.datetime.now(dt.timezone.utc)
    with site.client() as client, site.client(subject="bob") as other:
        client.submit(Request("/data/slow/big", "/data/slow/copy", id="slow", rate_max=MIB))
        other.submit(Request("/data/fast/big", "/data/fast/copy", id="bobs", rate_max=3 * MIB))
        for number, minutes in enumerate((20, 45)):
            promise = Request(
                "/data/later",
                f"/data/copy{number}",
                id=f"promised{number}",
                deadline=now + dt.timedelta(minutes=minutes),
                not_before=now + dt.timedelta(minutes=minutes - 15),
                bytes_expected=300 * RATE,
            )
            assert client.submit(promise).promised
        assert len(client.load().promises) == 2
        assert other.load().hidden.promises == 2


def await_targets(client: Client, transfer: str, names: set[str]) -> None:
    """Wait until the sessions of a transfer use these storage targets, and no others."""
    end = time.monotonic() + EFFECT_SECONDS
    while (found := {target.name for target in client.targets(transfer=transfer)}) != names:
        assert time.monotonic() < end, f"{transfer} uses {found}"
        time.sleep(POLL_SECONDS)


@needs_browser
def test_the_site_shows_targets_tiers_promises_and_owners(
    chromium: Browser, site: Endpoint
) -> None:
    fill(site)
    log_in(chromium, site, subject="root")
    chromium.click("nav a[href='#/site']")
    chromium.wait("document.querySelector('nav [aria-current=page]').innerText === 'Site'")
    # A target, which the service time of its objects describes.
    chromium.wait_text(TARGET)
    chromium.wait("/\\d ms/.test(document.body.innerText)")
    # The tier, with the version that the application has written.
    chromium.wait_text("Tier burst")
    chromium.wait_text("64.0 MiB used")
    chromium.wait_text("Written in this period (DWSF)")
    chromium.wait_text("<i>sim\\u{202e}gnp 7")
    # Promises of all owners, and the sessions with their owners.
    chromium.wait_text("promised1")
    for owner in ("alice", "bob"):
        chromium.wait_text(owner)
    chromium.wait("/[1-9][.\\d]* [KM]iB\\/s/.test(document.body.innerText)")
    chromium.wait("document.querySelectorAll('a[href=\"#/transfers/bobs\"]').length === 1")
    keep_picture(chromium, "site")
    bars = "[...document.querySelectorAll('.bar')]"
    assert chromium.run(f"return {bars}.every(bar => bar.getAttribute('aria-label'))")
    # The bar of the later promise begins and ends later.
    lefts = chromium.run(
        f"""return {bars}.filter(bar => bar.getAttribute('aria-label').startsWith('latest start'))
        .map(bar => parseFloat(bar.firstElementChild.style.left))"""
    )
    assert len(lefts) == 2
    assert lefts[0] < lefts[1]
    assert chromium.run("return document.querySelectorAll('#app script, #app i').length") == 0
    assert "\u202e" not in chromium.text()
    chromium.resize(390, 800, is_dark=True)
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    keep_picture(chromium, "phone-site")
    chromium.resize(1280, 800)
    # A link of a promise opens the transfer.
    chromium.click("a[href='#/transfers/promised0']")
    chromium.wait_text("The endpoint promises that the transfer ends before its deadline.")
    assert chromium.complaints() == []


@needs_browser
def test_a_transfer_shows_its_objects_by_target(chromium: Browser, site: Endpoint) -> None:
    fill(site)
    with site.client() as client, site.client(subject="bob") as other:
        await_targets(client, "slow", {TARGET})
        await_targets(other, "bobs", {"fast"})
        # Alice may not see the targets of Bob's transfer.
        assert client.targets(transfer="bobs") == ()
    log_in(chromium, site)
    chromium.click("a[href='#/transfers/slow']")
    chromium.wait("document.querySelectorAll('svg.heat').length === 2")
    # A new column every two seconds.
    chromium.wait("document.querySelector('svg.heat').childElementCount >= 3")
    labels = chromium.run(
        "return [...document.querySelectorAll('svg.heat')].map(e => e.getAttribute('aria-label'))"
    )
    assert all(label.startswith(f"{TARGET}: ") for label in labels), labels
    assert chromium.run("return document.querySelectorAll('#app script').length") == 0
    chromium.run("document.querySelector('svg.heat').scrollIntoView()")
    keep_picture(chromium, "heat")
    with site.client() as client:
        client.cancel("slow")
    chromium.wait("document.querySelector('h1 .state.cancelled') !== null")
    assert chromium.run("return document.querySelectorAll('svg.heat').length") == 0
    assert chromium.complaints() == []


@needs_browser
def test_the_site_hides_transfers_of_other_owners(chromium: Browser, site: Endpoint) -> None:
    fill(site)
    log_in(chromium, site, subject="bob")
    chromium.click("nav a[href='#/site']")
    chromium.wait_text("2 promises are not shown.")
    chromium.wait_text("1 session is not shown.")
    chromium.wait("document.querySelectorAll('a[href=\"#/transfers/bobs\"]').length === 1")
    chromium.wait_text("This tier has no versions that you may see.")
    text = chromium.text()
    assert "promised0" not in text
    assert "alice" not in text
    # After the endpoint has stopped, the page says that its numbers are old.
    site.stop()
    chromium.wait_text("The numbers below are old")
    site.start()
    chromium.wait("!document.body.innerText.includes('The numbers below are old')")
