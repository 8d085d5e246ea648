"""The web console in a browser: logging in, names that look like scripts, and pictures."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

#: A name that is a script in HTML, and a name whose end would be shown in the reverse order.
SCRIPT = "<img src=x onerror=\"document.title='owned'\">"
REVERSED = "run\u202etxt.exe"
#: Names that a page must show as text: a script, a changed direction, two lines, invisible
#: characters, the longest name.
HOSTILE = (
    SCRIPT.replace("/", "_"),
    REVERSED,
    "two\nlines\t\x1b[31m",
    "soft\u00adhyphen\u200b\U000e0041",
    "w" * 255,
)


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


def visible(name: str) -> str:
    """Return a name as the page shows it: with its invisible characters as text."""
    hidden = {"Cc", "Cf", "Zl", "Zp"}
    return "".join(
        f"\\u{{{ord(each):x}}}" if unicodedata.category(each) in hidden else each for each in name
    )


def assert_harmless(chromium: Browser) -> None:
    """Fail if a hostile name of the page has made an element, or changes or widens the page."""
    assert chromium.run("return document.title") == "dray"
    made = "#app img, #app script, #app i, #app b"
    assert chromium.run("return document.querySelectorAll(arguments[0]).length", made) == 0
    raw = chromium.run(
        r"""const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
        const app = document.getElementById('app');
        const walker = document.createTreeWalker(app, NodeFilter.SHOW_TEXT);
        const texts = [];
        while (walker.nextNode()) texts.push(walker.currentNode.data);
        for (const element of app.querySelectorAll('*')) {
            for (const { name, value } of element.attributes) texts.push(`${name}=${value}`);
        }
        return texts.filter(text => hidden.test(text));"""
    )
    assert raw == []
    wide = "return [document.documentElement.scrollWidth, window.innerWidth]"
    width, most = chromium.run(wide)
    assert width <= most


def keep_picture(chromium: Browser, name: str) -> None:
    """Write a screenshot into ``DRAY_SCREENSHOTS``, if this variable names a folder."""
    folder = os.environ.get("DRAY_SCREENSHOTS")
    if folder:
        chromium.screenshot(Path(folder) / f"{name}.png")
