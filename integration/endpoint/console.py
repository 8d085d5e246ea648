"""The web console in a browser: logging in, names that look like scripts, and pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

#: A name that is a script in HTML, and a name whose end would be shown in the reverse order.
SCRIPT = "<img src=x onerror=\"document.title='owned'\">"
REVERSED = "run\u202etxt.exe"


def page_url(site: Endpoint) -> str:
    """Return the address of the console."""
    return f"https://{site.address}/ui/"


def log_in(
    chromium: Browser, site: Endpoint, subject: str = "alice", scopes: Sequence[str] = ()
) -> str:
    """Open the console, paste a token, and return it."""
    token = site.token(*scopes, subject=subject)
    chromium.resize(1280, 800)
    # Another page first: a change of the part after `#` alone loads nothing, and the page of the
    # last test may complain that its endpoint has stopped.
    chromium.open("about:blank")
    chromium.complaints()
    chromium.open(page_url(site))
    chromium.type_text("#token", token)
    chromium.click("form button")
    chromium.wait_text("Transfers")
    chromium.wait("document.querySelector('.connection.live') !== null")
    return token


def choose(chromium: Browser, name: str) -> None:
    """Choose an entry of the source."""
    chromium.wait(
        """(() => {
            const rows = [...document.querySelectorAll('.pane:first-child tbody tr')];
            const row = rows.find(row => row.querySelector('.name').innerText === arguments[0]);
            row?.querySelector('input').click();
            return row !== undefined;
        })()""",
        name,
    )


def choose_endpoint(chromium: Browser, pane: str, name: str) -> None:
    """Choose the endpoint of a pane."""
    chromium.element(f"{pane} [name=endpoint]")
    chromium.run(
        """const field = document.querySelector(`${arguments[0]} [name=endpoint]`);
        field.value = arguments[1];
        field.dispatchEvent(new Event('change', { bubbles: true }));""",
        pane,
        name,
    )


def keep_picture(chromium: Browser, name: str) -> None:
    """Write a screenshot into ``DRAY_SCREENSHOTS``, if this variable names a folder."""
    folder = os.environ.get("DRAY_SCREENSHOTS")
    if folder:
        chromium.screenshot(Path(folder) / f"{name}.png")
