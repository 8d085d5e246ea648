"""The accessibility of all pages of the web console, and the budget of their first paint."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import re
import ssl
from typing import TYPE_CHECKING

import httpx
import pytest

from dray.client import Request, Selection
from dray.testing.endpoints import Root
from integration.endpoint.audit import serious_faults
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import (
    SCRIPT,
    choose,
    choose_endpoint,
    keep_picture,
    log_in,
    page_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
LOADS_MAX = 10
PAINT_MS_MAX = 1000
BUNDLE_BYTES_MAX = 300_000

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with a peer that is down."""
    far = start_endpoint("b", roots=[Root("store")])
    config = {
        "ui": {"enabled": True},
        "rate": f"{32 * MIB}",
        "peer": [{"name": "bee", "address": far.address, "key": far.key}],
    }
    return start_endpoint("a", config=config)


def fill(site: Endpoint) -> None:
    """Start a slow transfer with folders, a promised one, a failed one and a done one."""
    deep = site.root("run") / "deep"
    deep.mkdir(parents=True)
    for number in range(3):
        (deep / f"part{number}").write_bytes(os.urandom(16 * MIB))
    (site.root("run") / "small").write_bytes(b"small")
    later = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=30)
    with site.client() as client:
        client.submit(Request("/data/run/small", "/data/copy", id="done", labels={"note": SCRIPT}))
        client.submit(Request("/data/none", "/data/none2", id="failed"))
        for id in ("done", "failed"):
            client.wait(id, timeout_seconds=60)
        client.submit(
            Request(
                "/data/run/",
                "/data/slow/",
                id="slow",
                rate_max=MIB,
                object_size=MIB // 4,
                deadline=later,
                bytes_expected=48 * MIB,
                selection=Selection(recursive=True),
            )
        )


def pages(chromium: Browser, site: Endpoint) -> Iterator[str]:
    """Open the pages one after the other, and yield the name of each."""
    chromium.open("about:blank")
    chromium.open(page_url(site))
    chromium.type_text("#token", "not.a.token")
    yield "login"
    chromium.click("form button")
    chromium.wait("document.querySelector('[role=alert] dd') !== null")
    yield "login-refused"
    chromium.type_text("#token", site.token())
    chromium.click("form button")
    chromium.wait("document.querySelectorAll('.row:not(.head)').length === 3")
    yield "list"
    chromium.type_text("#filter-search", "no such words")
    chromium.wait_text("No transfer matches the filters.")
    yield "list-empty"
    go = "location.hash = arguments[0]"
    chromium.run(go, "#/transfers/slow")
    chromium.wait("document.querySelector('[role=tree] [aria-expanded]') !== null")
    chromium.wait("document.querySelector('svg.heat') !== null")
    yield "live-files"
    chromium.click(".actions .danger")
    chromium.wait("document.querySelector('dialog[open]') !== null")
    yield "cancel"
    chromium.run("document.querySelector('dialog').close()")
    for id in ("done", "failed"):
        chromium.run(go, f"#/transfers/{id}")
        chromium.wait_text("Average rate")
        yield f"transfer-{id}"
    chromium.run(go, "#/site")
    chromium.wait_text("Running sessions")
    chromium.wait("/\\d ms/.test(document.body.innerText)")
    yield "site"
    chromium.run(go, "#/new")
    choose(chromium, "run/")
    chromium.click(".order .deadline button:nth-of-type(2)")
    chromium.wait_text("The endpoint can promise the deadline.")
    yield "new"
    choose_endpoint(chromium, ".pane:last-child", "bee")
    chromium.element("form.peer")
    yield "peer"


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_an_audit_of_each_page_finds_no_serious_fault_of_accessibility(
    chromium: Browser, site: Endpoint, width: int, is_dark: bool
) -> None:
    fill(site)
    chromium.resize(width, 800, is_dark=is_dark)
    faults = {}
    for name in pages(chromium, site):
        faults[name] = serious_faults(chromium)
        assert chromium.run("return document.documentElement.scrollWidth") <= width, name
        keep_picture(chromium, f"{name}-{width}-{'dark' if is_dark else 'light'}")
    assert len(faults) == 11
    assert {name: found for name, found in faults.items() if found} == {}


@needs_browser
def test_the_first_paint_and_the_files_stay_within_their_budget(
    chromium: Browser, site: Endpoint
) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with httpx.Client(verify=trusting, trust_env=False) as caller:
        page = caller.get(page_url(site))
        names = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(names) >= 3
        files = [page, *(caller.get(page.url.join(name)) for name in names)]
        assert {each.status_code for each in files} == {200}
    size = sum(len(gzip.compress(each.content)) for each in files)
    print(f"{size} bytes compressed")
    assert size < BUNDLE_BYTES_MAX
    log_in(chromium, site)
    # Other programs may delay one load of the page, but hardly each of many.
    took = first_paint(chromium)
    loads = 1
    while took >= PAINT_MS_MAX and loads < LOADS_MAX:
        chromium.run("window.isOld = true; location.reload()")
        took = min(took, first_paint(chromium))
        loads += 1
    print(f"first contentful paint after {took:.0f} ms in the fastest of {loads} loads")
    assert took < PAINT_MS_MAX


def first_paint(chromium: Browser) -> float:
    """Return the time from the start of the last load to its first paint, in milliseconds."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    took: float = chromium.wait(f"!window.isOld && document.readyState === 'complete' && {paint}")
    return took
