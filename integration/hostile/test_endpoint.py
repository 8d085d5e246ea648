"""Hostile peers and callers of an endpoint: its memory stays bounded, and it serves others."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Selection
from dray.errors import DrayError
from integration.endpoint.raw import ask, dial
from integration.harness.program import find_program, peak_memory
from integration.hostile.actors import (
    ABORTED,
    FOLDER,
    SINK,
    SOURCE,
    Driver,
    Listener,
    Options,
    block,
    entry,
    segment,
)
from integration.hostile.actors import new_files as files

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.hostile.actors import Talk

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 1 << 20
MEMORY = 128 * MIB
MOST = MEMORY + 64 * MIB
#: The endpoint's limit of concurrent sessions.
SESSIONS = 16
BUSY = 28
#: Number of data streams that each session asks for.
STREAMS = 12
#: Number of waiting calls of each owner.
WAITS = 64


@pytest.fixture(autouse=True)
def this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make endpoints run the release program of this tree."""
    monkeypatch.setenv("DRAY_PROGRAM", str(find_program()))


@pytest.fixture
def endpoint(start_endpoint: Callable[..., Endpoint]) -> Iterator[Endpoint]:
    """Start an endpoint with ``limits.memory`` 128 MiB. Check its peak memory after the test."""
    made = start_endpoint(
        "a", config={"limits": {"memory": "128MiB", "transfers_active": SESSIONS}}
    )
    yield made
    peak = peak_memory(made.pid)
    print(f"peak {peak / MIB:.0f} MiB")
    assert peak < MOST


def test_patterns_are_counted_before_they_are_compiled(endpoint: Endpoint) -> None:
    token = endpoint.token().encode()
    wild = Options(include=[b"*a" * 1500] * 200)
    drivers = [Driver(endpoint.address, token, SOURCE, b"data/", options=wild) for _ in range(8)]
    for driver in drivers:
        error = driver.error()
        assert error is not None
        assert error["kind"] == 21, error
        assert "wildcards" in error["cause"]


def test_patterns_at_their_bound_are_compiled(endpoint: Endpoint) -> None:
    token = endpoint.token().encode()
    wild = Options(include=[b"*a" * 1300, b"?[!b]*{c,d}" * 200, b"x*" * 300])
    drivers = [
        Driver(endpoint.address, token, SOURCE, b"data/", options=wild).begin() for _ in range(8)
    ]
    for driver in drivers:
        driver.close()


def test_live_entries_of_many_sessions_are_bounded(endpoint: Endpoint) -> None:
    """Each of sixteen sessions announces 66 000 folders with names of 200 bytes."""
    token = endpoint.token().encode()

    def attack(number: int) -> None:
        options = Options(transfer=b"hostile:%d" % number)
        driver = Driver(
            endpoint.address, token, SINK, b"data/evil%d" % number, options=options
        ).begin()
        driver.until("READY")
        with contextlib.suppress(*ABORTED):
            for first in range(0, 66_000, 2000):
                names = (entry(at, b"%0200d" % at, FOLDER) for at in range(first, first + 2000))
                driver.send(files(*names))
        driver.close()

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(SESSIONS)]
    for each in attackers:
        each.start()
    for each in attackers:
        each.join()


def hoard_buffers(driver: Driver, streams: list[Talk]) -> None:
    """Send one object without its last byte on each stream, so that the endpoint keeps a buffer."""
    size = driver.until("READY")["fields"]["object_bytes_max"]
    driver.send(files(entry(0, b"large", size=STREAMS * size)))
    (decided,) = driver.until("FILE_IDS")["fields"]["files"]
    if not any(frame["type"] == "CREDIT" for frame in driver.said):
        driver.until("CREDIT")
    credits = [frame["fields"]["credits"] for frame in driver.said if frame["type"] == "CREDIT"]
    credit = sum(each["objects"] for some in credits for each in some)
    target, data = decided["layout"]["single"], bytes(size)
    filled, number = 0, 0
    while filled < min(driver.accept["streams"], credit) and number < 2 * STREAMS:
        # On a busy host, a stream may fail, because the endpoint accepts it too late.
        with contextlib.suppress(*ABORTED):
            stream = driver.stream(number)
            stream.send(block(number, target, segment(0, filled * size, data))[:-1])
            streams.append(stream)
            filled += 1
        number += 1


def hoard_entries(driver: Driver) -> None:
    """Announce more folders than the endpoint remembers for one session."""
    (ready,) = (frame["fields"] for frame in driver.said if frame["type"] == "READY")
    for first in range(1, 3 * ready["live_entries_max"], 1000):
        names = (entry(at, b"%0200d" % at, FOLDER) for at in range(first, first + 1000))
        driver.send(files(*names))


def test_all_limits_reached_concurrently_stay_bounded(endpoint: Endpoint) -> None:
    """Each of sixteen sessions fills its patterns, its buffers and its list of live folders."""
    token = endpoint.token().encode()
    wild = [b"*a" * 2000, b"?[!b]*{c,d}" * 350, b"*"]
    #: A session sends objects only after all sessions have ``begun``. It announces folders only
    #: after all sessions have ``filled`` their buffers.
    begun, filled, full = (threading.Barrier(SESSIONS) for _ in range(3))
    buffers: list[Talk] = []
    sessions: list[Driver] = []

    def attack(number: int) -> None:
        options = Options(include=wild, transfer=b"hostile:%d" % number, streams=STREAMS)
        sink = b"data/full%d" % number
        # Dial from a different address for each session: the endpoint limits the connections of one
        # address.
        here = f"127.0.0.{number + 10}"
        driver = Driver(endpoint.address, token, SINK, sink, options=options, source=here)
        answer = driver.until("ACCEPT", "REFUSE", "GO_AWAY")
        is_in = answer["type"] == "ACCEPT"
        begun.wait(120)
        if is_in:
            sessions.append(driver)
            driver.accept = answer["fields"]
            hoard_buffers(driver, buffers)
        filled.wait(120)
        if is_in:
            with contextlib.suppress(*ABORTED):
                hoard_entries(driver)
        full.wait(120)
        driver.close()

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(SESSIONS)]
    for each in attackers:
        each.start()
    for each in attackers:
        each.join()
    print(f"{len(sessions)} of {SESSIONS} sessions began, with {len(buffers)} buffers")
    assert len(sessions) > SESSIONS // 2
    assert len(buffers) >= 8 * len(sessions)
    assert not any(barrier.broken for barrier in (begun, filled, full))
    for talk in buffers:
        talk.close()


def test_patterns_of_many_sessions_have_one_bound(endpoint: Endpoint) -> None:
    """The patterns of sixteen sessions exceed the endpoint's limit: it refuses some as busy."""
    token = endpoint.token().encode()
    wild = Options(include=[b"*a" * 2000, b"?[!b]*{c,d}" * 350])
    drivers = [
        Driver(endpoint.address, token, SOURCE, b"data/", options=wild) for _ in range(SESSIONS)
    ]
    begun = 0
    for driver in drivers:
        answer = driver.until("ACCEPT", "REFUSE", "GO_AWAY")
        begun += answer["type"] == "ACCEPT"
        if answer["type"] != "ACCEPT":
            error = answer["fields"]["error"]
            assert error["kind"] == BUSY, error
            assert error["status"] == "temporary", error
            assert "patterns with wildcards" in error["cause"]
    assert 0 < begun < SESSIONS
    print(f"{begun} of {SESSIONS} sessions began")
    for driver in drivers:
        driver.close()
    # Wait until the endpoint has freed the patterns of the closed sessions, and accepts a new one.
    until = time.monotonic() + 20
    while True:
        last = Driver(endpoint.address, token, SOURCE, b"data/", options=wild)
        if last.until("ACCEPT", "REFUSE", "GO_AWAY")["type"] == "ACCEPT":
            break
        assert time.monotonic() < until
        time.sleep(0.2)
    last.close()


def test_the_memory_of_pulled_entries_is_bounded(endpoint: Endpoint, tmp_path: Path) -> None:
    """The endpoint pulls from a listener that announces 66 000 folders in each session."""

    def announce(_: Listener, talk: Talk) -> None:
        with contextlib.suppress(*ABORTED):
            for first in range(0, 66_000, 2000):
                names = (entry(at, b"%0200d" % at, FOLDER) for at in range(first, first + 2000))
                talk.send(files(*names))
            talk.rest()

    listener = Listener(tmp_path, announce)
    with endpoint.client() as client:
        made = [
            client.submit(
                Request(
                    sources=[
                        Place(
                            url=f"dray://{listener.address}/data/",
                            ticket=f"drt_{'A' * 43}",
                            key=listener.key,
                        )
                    ],
                    destination=Place(url=f"/data/pulled{number}/"),
                    selection=Selection(recursive=True),
                )
            )
            for number in range(8)
        ]
        until = time.monotonic() + 60
        while listener.sessions < len(made) and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(3)
        for each in made:
            with contextlib.suppress(DrayError):
                client.cancel(each.id)
    print(f"{listener.sessions} sessions")
    listener.close()
    assert listener.sessions


def test_waiting_calls_do_not_block_other_calls(endpoint: Endpoint) -> None:
    """Four owners use up the connections of one address with calls that wait.

    The endpoint still answers ``/healthz``, ``/metrics`` and a cancellation from this address. It
    refuses other calls from this address with 503 and ``Retry-After``.
    """
    waiting: list[http.client.HTTPSConnection] = []
    client = endpoint.client()
    owners = [endpoint.token(subject=f"owner{number}") for number in range(4)]
    for owner in owners:
        body = {
            "sources": [{"url": "/data/none"}],
            "destination": {"url": "/data/copy"},
            "not_before": "2099-01-01T00:00:00Z",
        }
        made = ask(endpoint, "POST", "/v1/transfers", body, token=owner, source="127.0.0.9")
        assert made.code == 201, made.text
        for _ in range(WAITS):
            connection = dial(endpoint.address)
            waiting.append(connection)
            with contextlib.suppress(OSError):
                path = f"/v1/transfers/{made.json['id']}/wait?timeout=60"
                connection.request("GET", path, headers={"Authorization": f"Bearer {owner}"})
    time.sleep(1)
    try:
        assert ask(endpoint, "GET", "/healthz").code == 200
        assert ask(endpoint, "GET", "/metrics", token=owners[0]).code in {200, 403}
        refused = ask(endpoint, "GET", "/v1/transfers", token=owners[3])
        assert refused.code == 503, refused.text
        assert refused.headers["retry-after"]
        cancel = f"/v1/transfers/{made.json['id']}/cancel"
        assert ask(endpoint, "POST", cancel, {}, token=owners[3]).code in {200, 202}
        elsewhere = ask(endpoint, "GET", "/v1/transfers", token=owners[3], source="127.0.0.9")
        assert elsewhere.code in {200, 429}
        log_text = endpoint.log_text()
        assert "connections_per_address" in log_text
        assert log_text.count("connections_per_address") < 10
    finally:
        for connection in waiting:
            connection.close()
        client.close()
