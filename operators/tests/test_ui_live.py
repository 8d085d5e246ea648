"""Tests of the bounds of the calls to endpoints."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Transfer
from dray.errors import DrayTemporaryError
from dray_airflow.hooks.dray import Settings
from dray_airflow_ui import live
from dray_airflow_ui.live import Reading, Watch, Watches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Site:
    """An endpoint and its connection. Counts the calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.opened = 0
        self.now = 0.0

    def settings_of(self, conn_id: str, team: str | None) -> Any:  # noqa: ANN401 - the settings
        del team
        return Settings(conn_id, "dray://a:1", "a:1", link="https://a/{id}")

    def client_of(self, settings: object) -> Any:  # noqa: ANN401 - a client
        del settings
        self.opened += 1
        return self

    def query(self, ids: Iterable[str]) -> dict[str, Transfer | None]:
        wanted = list(ids)
        self.calls.append(len(wanted))
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return {id: None if id == "lost" else Transfer(id, "active") for id in wanted}

    def close(self) -> None:
        """Close nothing."""


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def watch(site: Site) -> Iterator[Watch]:
    with ThreadPoolExecutor(2) as pool:
        yield Watch(
            "a",
            None,
            settings_of=site.settings_of,
            client_of=site.client_of,
            pool=pool,
            clock=lambda: site.now,
        )
        # The pool waits for a call in flight.
        site.answers.set()


def look(watch: Watch, ids: Iterable[str]) -> Reading:
    """Do what a page does: start a call if the last one is old enough, and read the state."""
    watch.begin(ids)
    return watch.reading()


def test_many_pages_cause_one_call_a_second(site: Site, watch: Watch) -> None:
    for step in range(50):
        site.now = step / 10
        found = look(watch, [f"t{page}" for page in range(20)])
        assert len(found.transfers) == 20
    # 4.9 seconds: a call at 0, and one after each full second.
    assert len(site.calls) == 5
    assert site.opened == 1


def test_a_page_gets_the_last_state_while_an_endpoint_is_silent(
    site: Site, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(watch, ["t"])
    site.answers.clear()
    site.now = 2.0
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.01)
    assert set(look(watch, ["t"]).transfers) == {"t"}
    site.now = 3.0
    assert set(look(watch, ["t", "new"]).transfers) == {"t"}
    # The second page has joined the call that was in flight.
    assert len(site.calls) == 2


def test_an_error_is_shown_with_cause_and_remedy_and_delays_the_next_call(
    site: Site, watch: Watch
) -> None:
    look(watch, ["t"])
    site.now = 2.0
    site.error = DrayTemporaryError(
        "cannot look up transfers at a:1: connection refused",
        kind="unreachable",
        status="temporary",
        end="network",
        operation="look up transfers",
        file=None,
        cause="connection refused",
        remedy="",
    )
    found = look(watch, ["t"])
    assert found.problem is not None
    assert "connection refused" in found.problem.message
    assert "check that drayd runs" in found.problem.remedy
    assert found.transfers["t"] is not None
    site.now = 6.9
    look(watch, ["t"])
    assert len(site.calls) == 2
    site.error, site.now = None, 7.1
    assert look(watch, ["t"]).problem is None


def test_an_unexpected_error_is_not_shown(site: Site, watch: Watch) -> None:
    site.error = RuntimeError("the password is secret")
    problem = look(watch, ["t"]).problem
    assert problem is not None
    assert "secret" not in str(problem)
    assert "RuntimeError" in problem.message


def test_forgotten_transfers_are_not_asked_for(site: Site, watch: Watch) -> None:
    look(watch, ["old"])
    site.now = live.KEPT_SECONDS + 1
    look(watch, ["new", "lost"])
    assert site.calls == [1, 2]
    assert look(watch, ["new", "lost"]).transfers["lost"] is None


def test_many_transfers_need_several_calls_and_then_a_longer_pause(
    site: Site, watch: Watch
) -> None:
    wanted = [f"t{number}" for number in range(live.WANTED_MAX + 100)]
    look(watch, wanted)
    full = live.WANTED_MAX // live.IDS_MAX
    assert site.calls == [live.IDS_MAX] * full
    site.now = full - 0.5
    look(watch, wanted)
    assert len(site.calls) == full


def test_a_page_with_many_silent_endpoints_waits_as_long_as_with_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.5)
    watches = Watches(site.settings_of, site.client_of)
    site.answers.clear()
    begun = time.monotonic()
    readings = watches.look({f"a{number}": ["t"] for number in range(8)}, None)
    took = time.monotonic() - begun
    site.answers.set()
    assert len(readings) == 8
    assert all(reading.as_of is None for reading in readings.values())
    # One after the other, the waits would take 4 seconds.
    assert took < 2


def test_the_number_of_watched_connections_is_limited(site: Site) -> None:
    watches = Watches(site.settings_of, site.client_of)
    for name in (f"a{number}" for number in range(live.WATCHES_MAX)):
        assert watches.look({name: ["t"]}, None)[name].problem is None
    found = watches.look({"one_more": ["t"], "a0": ["t"]}, None)
    assert found["one_more"].problem == live.FULL
    assert found["a0"].problem is None


def test_a_run_with_many_connections_leaves_watches_to_other_runs(site: Site) -> None:
    watches = Watches(site.settings_of, site.client_of)
    found = watches.look({f"a{number}": ["t"] for number in range(live.WATCHES_MAX)}, None)
    shown = [conn_id for conn_id, reading in found.items() if reading.problem is None]
    assert shown == [f"a{number}" for number in range(live.CONNECTIONS_MAX)]
    assert found[f"a{live.CONNECTIONS_MAX}"].problem is live.LEFT_OUT
    assert watches.look({"other": ["t"]}, None)["other"].problem is None


def test_a_connection_that_fails_to_close_does_not_stop_the_calls(
    site: Site, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr(Site, "close", close)
    look(watch, ["t"])
    site.error, site.now = RuntimeError("lost"), 2.0
    assert look(watch, ["t"]).problem is not None
    site.error, site.now = None, 2.0 + live.PAUSE_SECONDS
    assert look(watch, ["t"]).problem is None
