"""The web console while the other endpoint of a transfer is down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import choose, choose_endpoint, keep_picture, log_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

MIB = 1 << 20
RATE = 4 * MIB
SIZE = 64 * MIB

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]


@pytest.fixture
def far(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start the endpoint of the destination."""
    return start_endpoint("b", roots=[Root("store")])


@pytest.fixture
def near(start_endpoint: Callable[..., Endpoint], far: Endpoint) -> Endpoint:
    """Start the endpoint of the page and of the source."""
    config = {
        "ui": {"enabled": True},
        "rate": f"{RATE}",
        "peer": [{"name": "bee", "address": far.address, "key": far.key}],
        "retry": {"interval_seconds": 5, "tries": 20},
    }
    return start_endpoint("a", config=config)


@needs_browser
def test_a_folder_is_copied_by_its_deadline_although_the_destination_is_killed(
    chromium: Browser, near: Endpoint, far: Endpoint
) -> None:
    folder = near.root("run7")
    folder.mkdir()
    content = {f"part{number}": os.urandom(SIZE // 4) for number in range(4)}
    for name, data in content.items():
        (folder / name).write_bytes(data)
    log_in(chromium, near)
    chromium.wait_text("There are no transfers yet.")
    chromium.click("#new")
    choose(chromium, "run7/")
    # While the other endpoint is not connected, its pane shows no folder of this endpoint.
    destination = ".pane:last-child"
    choose_endpoint(chromium, destination, "bee")
    chromium.element(f"{destination} form.peer")
    assert chromium.run(f"return document.querySelector('{destination} .entries')") is None
    assert "The copies go into" not in chromium.text()
    assert chromium.run("return document.querySelector('#start').disabled")
    chromium.type_text(f"{destination} form.peer input", far.token())
    chromium.click(f"{destination} form.peer button")
    chromium.type_text(f"{destination} input[name=name]", "inbox")
    chromium.click(f"{destination} form:last-of-type button")
    chromium.wait_text("The copies go into bee: /store/inbox/")
    chromium.wait_text("4 files, 64.0 MiB")
    chromium.click(".order .deadline button:nth-of-type(1)")
    chromium.wait_text("The endpoint can promise the deadline.")
    chromium.click("#start")
    chromium.wait_text("bee: /store/inbox/")
    chromium.wait("document.querySelector('.show progress')?.value > 0.05")
    chromium.wait_text("All transfers of the endpoint a together may use 4.00 MiB/s.")

    far.kill()
    chromium.wait_text("The other endpoint, bee, has been unreachable since")
    chromium.wait_text("The endpoint tries again automatically in")
    text = chromium.text()
    assert "will not be sent again" in text
    assert "The endpoint promised the deadline before the interruption" in text
    promises = "The endpoint promises that the transfer ends before its deadline."
    for outdated in ("Bottleneck", "Estimated end", "submit the same transfer", promises):
        assert outdated not in text, outdated
    keep_picture(chromium, "interrupted")
    chromium.click("nav a[href='#/']")
    chromium.wait("document.querySelector('.row .interrupted') !== null")
    chromium.click(".row a")
    far.start()
    chromium.wait("document.querySelector('h1 .interrupted') === null", seconds=60)
    chromium.wait("document.querySelector('h1 .state.done') !== null", seconds=90)
    chromium.wait_text("Average rate")
    chromium.wait_text("The transfer was done before its deadline.")
    keep_picture(chromium, "result")
    copied = far.root("inbox/run7", root="store")
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == content


@needs_browser
def test_the_token_of_the_login_opens_a_peer_that_accepts_it(
    chromium: Browser, start_endpoint: Callable[..., Endpoint], near: Endpoint, far: Endpoint
) -> None:
    log_in(chromium, near)
    chromium.click("#new")
    choose_endpoint(chromium, ".pane:last-child", "bee")
    chromium.click(".own-token")
    # This peer trusts its own tokens only. The refused token is not kept.
    chromium.wait_text("send a token that the endpoint bee accepts")
    assert chromium.run("return document.querySelector('form.peer input').value") == ""
    assert any("403" in each for each in chromium.complaints())
