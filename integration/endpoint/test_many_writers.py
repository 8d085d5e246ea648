"""Transfers of other files into one folder, between two endpoints, concurrently."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Selection
from integration.endpoint.scene import RATE, words
from integration.harness import tree

if TYPE_CHECKING:
    from integration.endpoint.scene import Scene, Scenes

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

MIB = tree.MIB
PUSH = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])


def only(*patterns: str) -> Selection:
    """Return the selection of the files that match these patterns."""
    return Selection(recursive=True, include=patterns)


def await_durable(scene: Scene, id: str, count: int) -> None:
    """Wait until this many bytes of a transfer are durable."""
    until = time.monotonic() + 120
    while scene.client().transfer(id).bytes.durable < count:
        assert time.monotonic() < until, words(scene.client().transfer(id))
        time.sleep(0.05)


@PUSH
def test_a_finished_transfer_keeps_durable_data_of_a_cancelled_one(
    scenes: Scenes, push: bool
) -> None:
    scenes.seconds(push=push)
    with scenes.make(push=push) as scene, scene.watched():
        scene.submit("va", selection=only("large0"))
        await_durable(scene, "va", 8 * MIB)
        scene.client().cancel("va")
        assert scene.wait("va").state == "cancelled"
        durable = scene.client().transfer("va").bytes.durable
        for id, pattern in (("vb", "large2"), ("vc", "none-of-them")):
            scene.submit(id, selection=only(pattern), files_min=0)
            done = scene.wait(id)
            assert (done.state, done.error) == ("done", None), words(done)
        # Submit the same copy under another id.
        scene.submit("vd", selection=only("large0"))
        done = scene.wait("vd")
        assert (done.state, done.error) == ("done", None), words(done)
        assert done.bytes.resumed >= 8 * MIB, words(done)
        print(f"{durable >> 20} MiB were durable, {done.bytes.resumed >> 20} resumed")
        scene.submit("t")
        scene.check_done()


@PUSH
def test_three_parts_of_a_dataset_move_side_by_side(scenes: Scenes, push: bool) -> None:
    scenes.seconds(push=push)
    config = {"limits": {"memory": "256MiB", "transfers_active": 4}}
    with scenes.make(push=push, config=config) as scene, scene.watched():
        rate = RATE // 6
        began = time.monotonic()
        for number in range(3):
            part = only(f"large{number}")
            scene.submit(f"s{number}", selection=part, rate_max=rate)
        seen: set[frozenset[str]] = set()
        while len(seen) < 1 or max(map(len, seen)) < 2:
            moving = [
                f"s{number}"
                for number in range(3)
                if scene.client().transfer(f"s{number}").bytes.durable > 0
                and not scene.client().transfer(f"s{number}").is_terminal
            ]
            seen.add(frozenset(moving))
            assert time.monotonic() - began < 60, f"never two concurrent transfers: {seen}"
            time.sleep(0.05)
        for number in range(3):
            done = scene.wait(f"s{number}")
            assert (done.state, done.error, done.tries) == ("done", None, 1), words(done)
        print(f"{time.monotonic() - began:.1f} s for three parts")
        scene.submit("t")
        scene.check_done()
