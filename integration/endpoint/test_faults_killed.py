"""Callers and endpoints killed at random moments: the transfer continues, and resends little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dray
from integration.endpoint.scene import END_SECONDS, MOMENTS, RATE, Scene, Tally, words
from integration.harness import tree
from integration.harness.program import Process

if TYPE_CHECKING:
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults
    from integration.endpoint.scene import Scenes

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    "victims", [("active",), ("passive",), ("passive", "active")], ids="-and-".join
)
def test_endpoints_killed_at_any_moment_resume_by_themselves(
    scenes: Scenes, fault: Faults, tally: Tally, victims: tuple[str, ...]
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.0, 1.0) * scenes.seconds(push=push)
        print(f"{'push' if push else 'pull'}: {victims} killed after {after:.3f} s")
        with scenes.make(push=push) as scene:
            with scene.watched():
                scene.submit()
                time.sleep(after)
                for victim in victims:
                    scene.end(victim).kill()
                for victim in victims:
                    scene.end(victim).start()
                done, excess = scene.check_done(faults=len(victims))
            assert done.attempt == 1
            tally.add(excess, has_resumed=done.tries > 1)


@pytest.mark.parametrize("victim", ["active", "passive"])
def test_stopped_endpoints_exit_cleanly_and_resume_after_a_restart(
    scenes: Scenes, fault: Faults, tally: Tally, victim: str
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.0, 1.0) * scenes.seconds(push=push)
        print(f"{'push' if push else 'pull'}: {victim} asked to stop after {after:.3f} s")
        with scenes.make(push=push) as scene:
            with scene.watched():
                scene.submit()
                time.sleep(after)
                scene.end(victim).stop()
                assert scene.end(victim).exit_code == 0, scene.end(victim).log_text()
                scene.end(victim).start()
                done, excess = scene.check_done()
            assert done.attempt == 1
            tally.add(excess, has_resumed=done.tries > 1)


def test_both_ends_killed_again_and_again(scenes: Scenes, fault: Faults, tally: Tally) -> None:
    scenes.seconds(push=True)
    for push in (True, False):
        scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit()
            for number in range(6):
                wanted = scene.carried() + fault.chance.randrange(6, 20) * tree.MIB
                while scene.carried() < wanted and not scene.client().transfer("t").is_terminal:
                    time.sleep(0.01)
                victim = scene.end(("active", "passive")[number % 2])
                victim.kill()
                victim.start()
            done, excess = scene.check_done(faults=6)
            tally.add(excess, has_resumed=done.tries > 1)


# --- callers ------------------------------------------------------------------------------------


def command_line(scene: Scene, folder: Path, id: str = "t") -> Process:
    """Start ``dray cp`` from the scene's source to its sink."""
    both = (scene.source, scene.sink)
    credentials: list[str | Path] = []
    for endpoint in both:
        token = folder / f"{endpoint.name}.token"
        token.write_text(endpoint.token())
        token.chmod(0o600)
        credentials += ["--token-file", f"{endpoint.address}={token}"]
        credentials += ["--peer-key", f"{endpoint.address}={endpoint.key}"]
    ends = [scene.source.place("tree"), scene.sink.place("in/")]
    how: list[str | Path] = ["-r", *ends, "--transfer-id", id, "--json", "--rate", str(RATE)]
    return Process([scene.sink.program, "cp", *how, *credentials], folder, "cp")


CALLER = """
import sys
import dray
from dray.client import Request, Retry, Selection, copy
source, source_key, sink, sink_key, active, rate, bound = sys.argv[1:]
source_token, sink_token = sys.stdin.read().split()
request = Request(
    sources=(), destination="", id="t", selection=Selection(recursive=True), rate_max=int(rate),
    bound_seconds=int(bound) or None, retry=Retry(tries=30, interval_seconds=1),
)
with (
    dray.Client(source, token=source_token, pin=source_key) as there,
    dray.Client(sink, token=sink_token, pin=sink_key) as here,
    copy(
        source + "/data/tree", sink + "/data/in/", source=there, destination=here,
        active=active, request=request,
    ) as handle,
):
    print("submitted", flush=True)
    handle.wait().raise_for_failures()
    print("done", flush=True)
"""


class Caller:
    """A Python program that submits a transfer and waits for it."""

    def __init__(self, scene: Scene, *, bound: int = 0) -> None:
        """Start the program."""
        ends: list[str] = []
        for endpoint in (scene.source, scene.sink):
            ends += [endpoint.url, endpoint.key]
        active = "source" if scene.push else "destination"
        self.popen = subprocess.Popen(
            [sys.executable, "-c", CALLER, *ends, active, str(RATE), str(bound)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(dray.__file__).parents[1])},
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(f"{scene.source.token()} {scene.sink.token()}")
        self.popen.stdin.close()

    def await_submitted(self) -> None:
        """Wait until the program reports the submission."""
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == "submitted\n"

    def kill(self) -> None:
        """Kill the program."""
        self.popen.kill()
        self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()


def was_submitted(scene: Scene) -> bool:
    """Return whether the caller submitted the transfer before it was killed."""
    return scene.client().query(["t"])["t"] is not None


def test_a_transfer_survives_its_command_line_killed_at_any_moment(
    scenes: Scenes, fault: Faults, tally: Tally, tmp_path: Path
) -> None:
    whole = scenes.seconds(push=False)
    for moment in range(MOMENTS):
        after = fault.chance.uniform(0.0, 1.0) * whole
        folder = tmp_path / str(moment)
        folder.mkdir()
        with scenes.make(push=False) as scene, scene.watched():
            caller = command_line(scene, folder)
            time.sleep(after)
            ended = caller.kill()
            assert ended.code in {-signal.SIGKILL, 0}, ended.words
            if not was_submitted(scene):
                assert ended.code != 0
                assert tree.leftovers(scene.sink.root()) == []
                # The same command succeeds. No state of the killed process prevents this.
                command_line(scene, folder).wait(END_SECONDS).expect(0)
            done, excess = scene.check_done(faults=0)
            tally.add(excess, has_resumed=False)
            assert (done.attempt, done.tries) == (1, 1), words(done)


def test_the_command_line_waits_and_reports_the_end(scenes: Scenes, tmp_path: Path) -> None:
    scenes.seconds(push=False)
    with scenes.make(push=False) as scene:
        ended = command_line(scene, tmp_path).wait(END_SECONDS).expect(0)
        assert ended.report["state"] == "done"
        scene.check_done(faults=0)
        # A second run finds all data, and sends none of it again.
        before = scene.carried()
        command_line(scene, tmp_path, "again").wait(END_SECONDS).expect(0)
        assert scene.carried() - before < tree.MIB
        scene.check_done("again", faults=0)


def test_a_transfer_survives_its_python_caller_killed_at_any_moment(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.0, 1.0) * scenes.seconds(push=push)
        with scenes.make(push=push) as scene, scene.watched():
            caller = Caller(scene)
            try:
                caller.await_submitted()
                time.sleep(after)
            finally:
                caller.kill()
            done, excess = scene.check_done(faults=0)
            tally.add(excess, has_resumed=False)
            assert (done.attempt, done.tries) == (1, 1), words(done)


def test_a_bound_transfer_is_cancelled_and_keeps_durable_data(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.3, 0.9) * scenes.seconds(push=push)
        with scenes.make(push=push) as scene:
            with scene.watched():
                caller = Caller(scene, bound=3)
                try:
                    caller.await_submitted()
                    # Reduce the rate, so that the transfer is not done before its bound has passed.
                    scene.client().change("t", rate_max=RATE // 16)
                    time.sleep(after)
                finally:
                    caller.kill()
                # Do not query the transfer, because a query would keep it alive.
                await_cancelled(scene, scene.active)
                ended = scene.client().transfer("t")
                assert (ended.state, ended.attempt) == ("cancelled", 1), words(ended)
                kept = ended.bytes.durable
                scene.submit()
                done, excess = scene.check_done()
            assert done.attempt == 2
            left = tree_bytes(scene) - kept
            assert done.bytes.sent <= left, f"{kept} bytes were durable: {words(done)}"
            tally.add(excess, has_resumed=kept > 0)


def tree_bytes(scene: Scene) -> int:
    """Return the total size of the files of the scene."""
    return sum(entry.size for entry in scene.data.wanted.values())


def await_cancelled(scene: Scene, endpoint: Endpoint) -> None:
    """Wait, without a query, until no data is sent any more."""
    until = time.monotonic() + 60
    before, since = scene.carried(), time.monotonic()
    # A pause of a busy host is shorter than six seconds.
    while time.monotonic() - since < 6:
        assert time.monotonic() < until, f"it never ends at {endpoint.name}"
        time.sleep(0.2)
        if scene.carried() != before:
            before, since = scene.carried(), time.monotonic()


def test_a_caller_that_queries_keeps_its_transfer_alive(scenes: Scenes) -> None:
    scenes.seconds(push=False)
    with scenes.make(push=False) as scene:
        scene.submit(bound_seconds=1)
        done, _ = scene.check_done(faults=0)
        assert done.state == "done"
        with pytest.raises(dray.DrayPermanentError):
            scene.client().cancel("t")
