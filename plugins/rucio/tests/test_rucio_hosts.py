"""Tests of the clients of endpoints, and of their credentials."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray import DrayError
from dray.client import Client
from dray_rucio.again import Again
from dray_rucio.hosts import Hosts
from dray_rucio.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

PIN = "sha256:" + "5a" * 32


def nobody() -> str:
    """Return an endpoint's host at which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"dray://127.0.0.1:{taken.getsockname()[1]}#{PIN}"


def test_an_unreachable_endpoint_delays_only_the_first_file() -> None:
    hosts = Hosts(Settings(call_seconds=0.5, away_seconds=60.0))
    host = nobody()
    with pytest.raises(DrayError) as first:
        hosts.ask(host, Client.endpoint)
    since = time.monotonic()
    with pytest.raises(DrayError) as second:
        hosts.ask(host, Client.endpoint)
    assert time.monotonic() - since < 0.1
    assert second.value is first.value
    # The state of each host is separate.
    with pytest.raises(DrayError) as other:
        hosts.ask(nobody(), Client.endpoint)
    assert other.value is not first.value


def test_a_returned_endpoint_is_found_by_a_short_call() -> None:
    hosts = Hosts(Settings(call_seconds=0.2, away_seconds=0.1))
    host = nobody()
    with pytest.raises(DrayError) as first:
        hosts.ask(host, Client.endpoint)
    time.sleep(0.15)
    # The host is still unreachable, so the call itself is not made.
    called: list[Client] = []
    with pytest.raises(DrayError) as second:
        hosts.ask(host, called.append)
    assert second.value is not first.value
    assert called == []
    # A process that listens counts as reachable, whatever it answers. So the call is made.
    number = int(host.partition("#")[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", number)) as listening:
        threading.Thread(target=answer_plainly, args=(listening,), daemon=True).start()
        time.sleep(0.15)
        clear = host.partition("#")[0].replace("dray://", "http://")
        hosts.note(clear, first.value)
        time.sleep(0.15)
        hosts.ask(clear, called.append)
    assert len(called) == 1


def answer_plainly(listening: socket.socket) -> None:
    """Answer one request in a way that no endpoint does."""
    taken, _ = listening.accept()
    with taken:
        taken.recv(65536)
        taken.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_a_call_is_repeated_until_it_is_accepted() -> None:
    again = Again(first_pause=0.01)
    taken, refused = threading.Event(), threading.Event()
    calls = []

    def at_last() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise error("unreachable")
        taken.set()

    def never() -> None:
        refused.set()
        raise error("permission_denied")

    again.add("one", at_last)
    again.add("other", never)
    assert taken.wait(5)
    assert refused.wait(5)
    assert len(calls) == 3
    # The thread ends, and the next call starts another thread.
    until = time.monotonic() + 5
    while any(each.name == "dray-again" for each in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)
    taken.clear()
    again.add("one", taken.set)
    assert taken.wait(5)


def error(kind: Any) -> DrayError:  # noqa: ANN401 - any word
    """Return an error of a call."""
    return DrayError(
        "no",
        kind=kind,
        status="temporary",
        end="network",
        operation="cancel",
        file=None,
        cause="",
        remedy="",
    )


def test_tokens_are_one_file_or_one_for_each_endpoint(tmp_path: Path) -> None:
    alone = tmp_path / "token"
    alone.write_text("t")
    assert Settings(token_file=alone).token_of("dtn1.example:4735") == alone
    assert Settings(token_file=tmp_path).token_of("dtn1.example:4735") == (
        tmp_path / "dtn1.example_4735"
    )
    assert Settings().token_of("dtn1.example:4735") is None


def test_a_client_is_opened_once() -> None:
    hosts = Hosts(Settings())
    assert hosts.of(f"dray://dtn1.example:4735#{PIN}") is hosts.of(
        f"dray://dtn1.example:4735#{PIN}"
    )
