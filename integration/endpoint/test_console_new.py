"""The page that starts transfers in the web console: two panes, the decision, and the start."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.browser import needs_browser
from integration.endpoint.console import (
    REVERSED,
    SCRIPT,
    choose,
    choose_endpoint,
    keep_picture,
    log_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.browser import Browser

RATE = 1 << 18
#: More entries than two pages of the listing.
MANY = 1200
#: Code points of keys in the WebDriver protocol.
ENTER, UP, DOWN = "\ue007", "\ue013", "\ue015"

pytestmark = pytest.mark.server


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with two roots."""
    config = {"ui": {"enabled": True}, "rate": f"{RATE}"}
    return start_endpoint("a", roots=[Root("data"), Root("copies")], config=config)


def set_deadline(chromium: Browser, deadline: dt.datetime) -> None:
    """Set the deadline as a user does; the field shows the time zone of the browser."""
    chromium.run(
        """const date = new Date(arguments[0]);
        const local = new Date(date.getTime() - date.getTimezoneOffset() * 60000);
        const field = document.querySelector('#new-deadline');
        field.value = local.toISOString().slice(0, 19);
        field.dispatchEvent(new Event('input', { bubbles: true }));""",
        deadline.isoformat(),
    )


@needs_browser
def test_files_with_hostile_names_are_chosen_and_moved(chromium: Browser, site: Endpoint) -> None:
    names = [SCRIPT.replace("/", "_"), REVERSED, "100% #1?.txt"]
    source = site.root("run")
    source.mkdir()
    for name in names:
        (source / name).write_bytes(name.encode())
    (source / "deep").mkdir()
    (source / "deep" / "file").write_bytes(b"deep")
    log_in(chromium, site)
    chromium.click("nav a[href='#/new']")
    chromium.click(".pane:first-child .folder")
    chromium.wait_text(names[0])
    assert chromium.run("return document.querySelector('#start').disabled")
    for name in (names[0], "run%E2%80%AEtxt.exe", "100%25 %231%3F.txt", "deep/"):
        choose(chromium, name)
    chromium.wait_text("4 entries chosen")
    # A new folder with characters that a path of the API escapes.
    chromium.type_text(".pane:last-child input[name=name]", "50% <b>new</b>?".replace("/", "_"))
    chromium.click(".pane:last-child form:last-of-type button")
    chromium.wait_text("The copies go into a: /copies/50%25 <b>new<_b>%3F/")
    chromium.wait_text("4 files, ")
    chromium.wait_text("Without a deadline it promises nothing.")
    keep_picture(chromium, "move")
    # A check is not valid for another request.
    chromium.wait("!document.querySelector('#start').disabled")
    choose(chromium, "deep/")
    chromium.wait("document.querySelector('#start').disabled")
    choose(chromium, "deep/")
    chromium.wait("!document.querySelector('#start').disabled")
    chromium.click("#start")
    chromium.wait("document.querySelector('h1 .state.done') !== null")
    copied = site.root("50% <b>new<_b>?", root="copies")
    for name in names:
        assert (copied / name).read_bytes() == name.encode()
    assert (copied / "deep" / "file").read_bytes() == b"deep"
    assert chromium.run("return document.querySelectorAll('#app img, #app b').length") == 0
    assert "\u202e" not in chromium.text()
    assert chromium.run("return document.title") == "dray"
    assert chromium.complaints() == []


@needs_browser
def test_a_chosen_row_keeps_its_colour_below_the_pointer(chromium: Browser, site: Endpoint) -> None:
    for name in ("one", "two"):
        (site.root() / name).write_bytes(b"content")
    log_in(chromium, site)
    chromium.click("nav a[href='#/new']")
    chromium.click(".pane:first-child tbody tr:first-child .name")
    chromium.wait_text("1 entry chosen (/data/one): 1 file, 7 B. The copies go into a: /copies/")
    row = "document.querySelector('.chosen-row')"
    colour = f"return [getComputedStyle({row}).backgroundColor, {row}.matches(':hover')]"
    below, is_below = chromium.run(colour)
    assert is_below
    chromium.click("h1")
    assert chromium.run(colour) == [below, False]


@needs_browser
def test_the_check_offers_another_deadline(chromium: Browser, site: Endpoint) -> None:
    # The endpoint needs four minutes for the file.
    (site.root() / "large").write_bytes(os.urandom(240 * RATE))
    log_in(chromium, site)
    chromium.click("nav a[href='#/new']")
    choose(chromium, "large")
    early = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=2)
    set_deadline(chromium, early)
    chromium.wait_text("The endpoint cannot promise the deadline.")
    chromium.wait_text("The request needs")
    assert chromium.run("return document.querySelector('#start').disabled")
    with site.client() as client:
        assert list(client.transfers()) == []
        keep_picture(chromium, "move-offer")
        chromium.click("#accept-offer")
        chromium.wait_text("The endpoint can promise the deadline.")
        chromium.click("#start")
        chromium.wait_text("The endpoint promises that the transfer ends before its deadline.")
        (transfer,) = client.transfers()
        assert transfer.promised
        assert transfer.request["destination"]["url"] == "/copies/"
        assert transfer.request["bytes_expected"] == 240 * RATE
        client.cancel(transfer.id, purge=True)
    assert chromium.complaints() == []


@needs_browser
def test_a_pane_shows_pages_errors_and_the_rights_of_the_token(
    chromium: Browser, site: Endpoint
) -> None:
    folder = site.root("many")
    folder.mkdir()
    for number in range(MANY):
        (folder / f"n{number:05}").touch()
    log_in(chromium, site, scopes=("storage.read:/data",))
    chromium.click("nav a[href='#/new']")
    chromium.click(".pane:first-child .folder")
    rows = "document.querySelectorAll('.pane:first-child tbody tr').length"
    for shown in (500, 1000, MANY):
        chromium.wait(f"{rows} === {shown}")
        if shown < MANY:
            chromium.click(".pane:first-child .entries > button")
    # The token permits nothing in the other root.
    chromium.run(
        """const field = document.querySelector('.pane:last-child select');
        field.value = 'copies';
        field.dispatchEvent(new Event('change', { bubbles: true }));"""
    )
    chromium.wait("document.querySelector('.pane:last-child [role=alert]') !== null")
    chromium.run("document.querySelector('.pane:first-child [name=path]').value = '/data/none'")
    chromium.click(".pane:first-child .address [type=submit]")
    chromium.wait("document.querySelector('.pane:first-child [role=alert]') !== null")
    chromium.run("document.querySelector('.pane:first-child [name=path]').value = '/data/../x'")
    chromium.click(".pane:first-child .address [type=submit]")
    chromium.wait("document.querySelector('.pane:first-child [role=alert]') !== null")
    chromium.run("document.querySelector('.pane:first-child [name=path]').value = '/data/many/'")
    chromium.click(".pane:first-child .address [type=submit]")
    chromium.wait(f"{rows} === 500")
    choose(chromium, "n00007")
    chromium.wait_text("permission")
    assert chromium.run("return document.querySelector('#start').disabled")
    chromium.resize(390, 800, is_dark=True)
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    keep_picture(chromium, "phone-move")


@needs_browser
def test_the_keyboard_alone_starts_a_transfer(chromium: Browser, site: Endpoint) -> None:
    for name in ("a", "b", "c"):
        (site.root() / name).write_bytes(name.encode())
    log_in(chromium, site)
    chromium.run("document.querySelector(\"nav a[href='#/new']\").focus()")
    chromium.press(ENTER)
    # A page gets the focus like a new document, and the skip link does not change the page.
    chromium.wait("document.activeElement.id === 'content'")
    rows = "document.querySelectorAll('.pane:first-child tbody tr')"
    chromium.wait(f"{rows}.length === 3")
    chromium.run(f"{rows}[0].querySelector('input').focus()")
    for key in (DOWN, DOWN, DOWN, UP, " "):
        chromium.press(key)
    chromium.wait(f"{rows}[1].querySelector('input').checked")
    chromium.wait_text("1 entry chosen")
    chromium.wait("!document.getElementById('start').disabled")
    chromium.run("document.getElementById('start').focus()")
    chromium.press(ENTER)
    chromium.wait("document.querySelector('h1 .state.done') !== null")
    assert (site.root("b", root="copies")).read_bytes() == b"b"
    assert not site.root("a", root="copies").exists()
    assert chromium.complaints() == []


@pytest.fixture
def far(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start another endpoint."""
    return start_endpoint("b", roots=[Root("store")])


@pytest.fixture
def near(start_endpoint: Callable[..., Endpoint], far: Endpoint) -> Endpoint:
    """Start an endpoint whose configuration names the other one."""
    peers = [{"name": "b", "address": far.address, "key": far.key}]
    config = {"ui": {"enabled": True}, "rate": f"{RATE}", "peer": peers}
    return start_endpoint("a", config=config)


@needs_browser
def test_files_move_between_endpoints_in_both_directions(
    chromium: Browser, near: Endpoint, far: Endpoint
) -> None:
    source, destination = ".pane:first-child", ".pane:last-child"
    (far.root(root="store") / REVERSED).write_bytes(b"from afar")
    (far.root(root="store") / "inbox").mkdir()
    (near.root() / "mine").write_bytes(b"from here")
    log_in(chromium, near)
    chromium.click("nav a[href='#/new']")
    # A token that the other endpoint does not accept does not end the session of the page.
    choose_endpoint(chromium, source, "b")
    chromium.type_text(f"{source} form.peer input", near.token())
    chromium.click(f"{source} form.peer button")
    chromium.wait_text("send a token that the endpoint b accepts")
    chromium.complaints()
    chromium.type_text(f"{source} form.peer input", far.token())
    chromium.click(f"{source} form.peer button")
    choose(chromium, "run%E2%80%AEtxt.exe")
    chromium.wait_text("1 entry chosen")
    chromium.wait_text("Without a deadline it promises nothing.")
    keep_picture(chromium, "move-peer")
    chromium.click("#start")
    chromium.wait("document.querySelector('h1 .state.done') !== null")
    assert (near.root() / REVERSED).read_bytes() == b"from afar"

    # The other direction, with drag and drop into a folder of the other endpoint.
    chromium.click("nav a[href='#/new']")
    # The page still knows the token for the other endpoint.
    choose_endpoint(chromium, destination, "b")
    chromium.wait_text("inbox/")
    chromium.wait(
        """(() => {
            const row = (pane, name) => [...document.querySelectorAll(`${pane} tbody tr`)]
                .find(row => row.querySelector('.name').innerText === name);
            const [from, to] = [row(arguments[0], 'mine'), row(arguments[1], 'inbox/')];
            if (!from || !to) return false;
            const dataTransfer = new DataTransfer();
            const fire = (target, type) => target.dispatchEvent(
                new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
            fire(from, 'dragstart');
            // The browser permits a drop only where this event is cancelled.
            if (fire(to, 'dragover')) return false;
            fire(to, 'drop');
            return true;
        })()""",
        source,
        destination,
    )
    chromium.wait_text("1 entry chosen")
    chromium.wait_text("The copies go into b: /store/inbox/")
    early = dt.datetime.now(dt.timezone.utc) + dt.timedelta(minutes=5)
    set_deadline(chromium, early)
    chromium.wait_text("The endpoint can promise the deadline.")
    chromium.click("#start")
    chromium.wait("document.querySelector('h1 .state.done') !== null")
    copied = far.root("inbox", root="store") / "mine"
    assert copied.read_bytes() == b"from here"
    # The page has connected to its own endpoint only, and no token is in its storage.
    hosts = "return performance.getEntriesByType('resource').map(each => new URL(each.name).host)"
    assert set(chromium.run(hosts)) == {near.address}
    assert chromium.run("return localStorage.length + sessionStorage.length") == 0
    assert chromium.run("return document.cookie") == ""
    assert chromium.complaints() == []
