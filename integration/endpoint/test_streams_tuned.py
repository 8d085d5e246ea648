"""Endpoints tune the number of streams of a transfer, and store the number for the next transfer.

A proxy between the endpoints limits the rate of each connection, as a TCP window does on a long
path. It accepts only a limited number of connections, and counts the bytes of each connection.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.endpoint.scene import Data, Scene, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint
    from dray.testing.proxy import Connection

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FILES = 24
FILE_BYTES = 8 * tree.MIB
#: Rate of one connection in bytes per second.
RATE_BYTES_PER_SECOND = 1.5 * tree.MIB
#: Total rate of an endpoint, if it has a configured rate.
RATED_BYTES_PER_SECOND = 3 * tree.MIB
#: Number of streams that the far side accepts, in addition to the control connection.
STREAMS_MAX = 12
#: Number of streams with which a transfer starts if no number is stored.
STREAMS_FIRST = 4
#: Limits with more buffers than permitted streams.
LIMITS = {"memory": "320MiB", "transfers_active": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make files whose copy takes half a minute on four connections."""
    source = tmp_path_factory.mktemp("tuned") / "served" / "tree"
    source.mkdir(parents=True)
    for number in range(FILES):
        tree.make_file(source / f"{number:02}", FILE_BYTES, seed=number)
    data = Data(source, tree.describe(source))
    yield data
    data.remove()


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make a file that consists of some objects."""
    source = tmp_path_factory.mktemp("few") / "served" / "tree"
    source.mkdir(parents=True)
    tree.make_file(source / "file", FILE_BYTES, seed=1)
    data = Data(source, tree.describe(source))
    yield data
    data.remove()


def streams(scene: Scene) -> list[Connection]:
    """Return all data connections since the start of the proxy, the oldest first."""
    return [each for each in scene.proxy.connections if each.is_data]


def carriers(scene: Scene) -> list[Connection]:
    """Return the data connections that carried objects. Ignore unused spare connections."""
    least = tree.MIB // 4
    return [each for each in streams(scene) if (each.up if scene.push else each.down) > least]


def pairs(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the numbers of streams that an endpoint has stored, each with both ends."""
    file = endpoint.folder / "endpoint" / "state" / "tuner.json"
    if not file.exists():
        return []
    remembered: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["pairs"]
    return remembered


def seen_until_done(scene: Scene, id: str) -> set[int]:
    """Wait for the end of a transfer. Return the numbers of streams that the endpoint reported."""
    said: set[int] = set()
    while True:
        now = scene.client().transfer(id)
        if now.is_terminal:
            assert now.state == "done", words(now)
            assert now.streams is None, "the stored number was removed"
            return said
        if now.streams is not None:
            said.add(now.streams)
        time.sleep(0.1)


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_transfer_begins_with_the_streams_of_an_earlier_one(
    start_endpoint: Callable[..., Endpoint], files: Data, *, push: bool
) -> None:
    scene = Scene(start_endpoint, files, push=push, config={"limits": LIMITS})
    try:
        scene.proxy.rate_bytes_per_second = RATE_BYTES_PER_SECOND
        scene.proxy.connections_max = STREAMS_MAX + 1
        how: dict[str, Any] = {"streams": "auto", "rate_max": None, "durability": "none"}
        scene.submit("first", **how)
        said = seen_until_done(scene, "first")
        scene.check_identical()
        carried = [each.up if push else each.down for each in streams(scene)]
        print(f"\nsaid {sorted(said)}, refused {scene.proxy.refused}, carried {carried}")
        assert 2 * STREAMS_FIRST <= max(said) <= STREAMS_MAX
        # All connections are equally fast, so the share of the first four connections shows how
        # much the others helped. With only four connections, the copy would have taken more than
        # 1.5 times as long (2.4 times on an idle host; on a busy host, connections start later).
        assert sum(carried[:STREAMS_FIRST]) < sum(carried) * 2 / 3
        # The endpoint does not repeat requests for refused connections without limit.
        assert scene.proxy.refused <= 2 * STREAMS_MAX

        (pair,) = pairs(scene.active)
        assert {pair["source"], pair["sink"]} == {"here", scene.passive.key}
        assert (pair["source"] == "here") == push
        found = pair["streams"]
        assert 2 * STREAMS_FIRST <= found <= STREAMS_MAX
        assert pairs(scene.passive) == [], "an endpoint that only serves stores no number"

        scene.active.restart()
        shutil.rmtree(scene.folder / "tree")
        before, carried_before = len(streams(scene)), scene.carried()
        scene.submit("second", **how)
        # Wait until the bytes of half a second have been sent. In this time, the endpoint cannot
        # have tuned the number again, so the streams are those with which the transfer began.
        scene.await_carried(carried_before + int(found * RATE_BYTES_PER_SECOND / 2))
        begun = len(streams(scene)) - before
        print(f"found {pair}; the next one has {begun}")
        assert begun >= found
        scene.client().cancel("second")
        while not scene.client().transfer("second").is_terminal:
            time.sleep(0.02)
        # The transfer was too short to replace the stored number.
        assert pairs(scene.active) == [pair]
    finally:
        scene.close()


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_rate_limited_transfer_records_no_tuning(
    start_endpoint: Callable[..., Endpoint], files: Data, *, push: bool
) -> None:
    config = {"limits": LIMITS, "rate": RATED_BYTES_PER_SECOND}
    scene = Scene(start_endpoint, files, push=push, config=config)
    try:
        scene.submit(streams="auto", rate_max=None, durability="none")
        # In this time, a session without a maximum rate would have found a number of streams.
        scene.await_carried(18 * RATED_BYTES_PER_SECOND)
        said = scene.client().transfer("t").streams
        scene.client().cancel("t")
        while not scene.client().transfer("t").is_terminal:
            time.sleep(0.02)
        assert said == STREAMS_FIRST
        assert len(carriers(scene)) <= STREAMS_FIRST
        assert pairs(scene.active) == []
    finally:
        scene.close()


@pytest.mark.parametrize("end", ["active", "passive"])
@pytest.mark.parametrize("asked", [16, "auto"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_no_session_has_more_streams_than_each_end_allows(
    start_endpoint: Callable[..., Endpoint], small: Data, end: str, asked: int | str, *, push: bool
) -> None:
    most = 3
    few = {"limits": {**LIMITS, "streams_per_session": most}}
    many = {"limits": LIMITS}
    config, passive = (few, many) if end == "active" else (many, few)
    scene = Scene(start_endpoint, small, push=push, config=config, passive=passive)
    try:
        # The rate is so low that all connections are open before the transfer ends.
        scene.proxy.rate_bytes_per_second = RATE_BYTES_PER_SECOND
        scene.submit(streams=asked, rate_max=None, object_size=tree.MIB // 4)
        done = scene.wait()
        assert done.state == "done", words(done)
        scene.check_identical()
        assert len(carriers(scene)) == most
    finally:
        scene.close()


def test_the_configuration_gives_the_default_streams(
    start_endpoint: Callable[..., Endpoint], small: Data
) -> None:
    scene = Scene(start_endpoint, small, push=True, config={"streams": 7, "limits": LIMITS})
    try:
        scene.proxy.rate_bytes_per_second = RATE_BYTES_PER_SECOND
        scene.submit(rate_max=None, object_size=tree.MIB // 4)
        done = scene.wait()
        assert done.state == "done", words(done)
        assert len(carriers(scene)) == 7
        assert "streams" not in done.request, "as it was submitted"
    finally:
        scene.close()
