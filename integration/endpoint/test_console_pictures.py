"""The pictures of the web console in the manual.

`make screenshots` writes the pictures to docs/how-to/console.

Every run takes the pictures, and checks that they are small enough for the repository. Without
``DRAY_SCREENSHOTS`` the test writes them to a temporary folder.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import choose, log_in
from integration.harness import tree
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client
    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = tree.MIB
RATE = 64 * MIB
PICTURE_BYTES_MAX = 150_000
PICTURES = ("transfers", "site", "new-dark", "transfer-phone")

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def submit(client: Client, site: Endpoint) -> None:
    """Submit transfers in several states: done, failed, active with a promise, and queued."""
    now = dt.datetime.now(dt.timezone.utc)
    for number in (39, 40):
        tree.make_file(site.root(f"run{number}"), MIB, seed=number)
        name = f"run{number}"
        client.submit(Request(f"/data/{name}", f"/data/archive/{name}", id=name))
        assert client.wait(name, timeout_seconds=60).state == "done"
    client.submit(Request("/data/run38", "/data/archive/run38", id="run38"))
    assert client.wait("run38", timeout_seconds=60).state == "failed"
    tree.make_file(site.root("run41"), 256 * MIB, seed=41)
    for number, rate in ((41, 8 * MIB), (42, 3 * MIB)):
        name = f"run{number}"
        wanted = Request(
            "/data/run41",
            f"/data/archive/{name}",
            id=name,
            deadline=now + dt.timedelta(minutes=30),
            bytes_expected=256 * MIB,
            rate_max=rate,
        )
        assert client.submit(wanted).promised, name
    later = now + dt.timedelta(hours=2)
    client.submit(Request("/data/run43", "/data/archive/run43", id="run43", not_before=later))


@needs_browser
def test_the_pictures_of_the_manual_are_made_and_small(
    chromium: Browser, start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    config = {"ui": {"enabled": True}, "rate": f"{RATE}", "administrators": ["root"]}
    site = start_endpoint("a", config=config)
    site.root("archive").mkdir()
    folder = Path(os.environ.get("DRAY_SCREENSHOTS") or tmp_path)
    with site.client() as client:
        submit(client, site)
        log_in(chromium, site, subject="root")
        chromium.resize(1280, 510)
        chromium.wait("document.querySelectorAll('.row:not(.head)').length === 6")
        chromium.wait("/[1-9][.\\d]* MiB\\/s/.test(document.body.innerText)")
        chromium.screenshot(folder / "transfers.png")
        chromium.resize(1100, 700)
        chromium.click("nav a[href='#/site']")
        chromium.wait_text("run42")
        chromium.wait("/\\d ms/.test(document.body.innerText)")
        # The page computes rates from two answers.
        chromium.wait("!/\\b0 B\\/s/.test(document.body.innerText)")
        chromium.screenshot(folder / "site.png")
        chromium.resize(1100, 700, is_dark=True)
        chromium.click("nav a[href='#/new']")
        choose(chromium, "run41")
        chromium.click(".order .deadline button:nth-of-type(2)")
        chromium.wait_text("The endpoint can promise the deadline.")
        chromium.screenshot(folder / "new-dark.png")
        chromium.resize(390, 800, is_dark=True)
        chromium.run("location.hash = '#/transfers/run41'")
        chromium.wait_text("at the latest")
        chromium.screenshot(folder / "transfer-phone.png")
    for name in PICTURES:
        data = (folder / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG"), name
        assert len(data) < PICTURE_BYTES_MAX, name


def test_pages_show_every_picture() -> None:
    page = (ROOT / "docs" / "how-to" / "console.md").read_text(encoding="utf-8")
    stored = {path.stem for path in (ROOT / "docs" / "how-to" / "console").glob("*.png")}
    assert stored == set(PICTURES), "run `make screenshots`"
    for name in PICTURES:
        assert f"](console/{name}.png)" in page, name
