"""The network between two endpoints is cut: once, repeatedly, for a while, in parts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Retry
from integration.endpoint.scene import MOMENTS, Tally, words
from integration.harness import tree

if TYPE_CHECKING:
    from dray.testing.faults import Faults
    from integration.endpoint.scene import Scenes

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

CUTS = 6


@pytest.mark.parametrize("data_only", [False, True], ids=["all", "streams"])
def test_a_network_cut_at_any_moment_is_survived(
    scenes: Scenes, fault: Faults, tally: Tally, data_only: bool
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.0, 1.0) * scenes.seconds(push=push)
        print(f"{'push' if push else 'pull'}: cut after {after:.3f} s")
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit()
            time.sleep(after)
            scene.proxy.cut(data_only=data_only)
            done, excess = scene.check_done()
            assert done.attempt == 1
            if data_only:
                # Objects of lost streams are sent over new ones, within the session.
                assert done.tries == 1, words(done)
            tally.add(excess, has_resumed=done.tries > 1)


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_more_cuts_than_tries_are_survived_with_durable_progress(
    scenes: Scenes, fault: Faults, tally: Tally, push: bool
) -> None:
    scenes.seconds(push=push)
    with scenes.make(push=push) as scene, scene.watched():
        retry = Retry(tries=CUTS // 2, interval_seconds=1)
        # Each object is durable immediately. Otherwise a session could be cut before its first
        # sync.
        scene.submit(retry=retry, durability="object")
        for cut in range(CUTS):
            wanted = scene.carried() + fault.chance.randrange(8, 18) * tree.MIB
            while scene.carried() < wanted and not scene.client().transfer("t").is_terminal:
                time.sleep(0.01)
            assert scene.proxy.cut() > 0, f"it was over before cut {cut}"
        done, excess = scene.check_done(faults=CUTS)
        # A new session fails if it starts before the sink has released the session that was cut.
        # The failed session counts as a further try.
        assert done.attempt == 1, words(done)
        assert CUTS + 1 <= done.tries <= 2 * CUTS, words(done)
        tally.add(excess, has_resumed=True)


def test_a_transfer_waits_for_an_unreachable_network(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        part = fault.chance.uniform(0.0, 0.8)
        print(f"{'push' if push else 'pull'}: away at {part:.3f}")
        scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit()
            scene.await_moment(part)
            scene.proxy.is_refusing = True
            scene.proxy.cut()
            # The API shows that the transfer waits, why, and when the next try starts.
            until = time.monotonic() + 30
            while (waiting := scene.client().transfer("t")).state != "waiting":
                assert time.monotonic() < until, words(waiting)
                time.sleep(0.02)
            assert waiting.next_try_at is not None
            assert waiting.error is not None
            assert waiting.error.kind in {"unreachable", "timed_out"}, words(waiting)
            scene.proxy.is_refusing = False
            done, excess = scene.check_done()
            assert done.tries > 1
            tally.add(excess, has_resumed=True)
