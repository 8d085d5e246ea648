"""A third-party copy that is interrupted at random moments, and resumes each time.

Until the copy ends, the test uses no report of the copy itself. ``dray log`` reads the durable
data. The source server counts the sent bytes. A thread observes the file name at the destination.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from integration.harness.tree import GIB, MIB, hash_file
from integration.harness.watch import Content, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Ended, Process
    from integration.xrootd.servers import Scene, Xrootd

FULL = os.environ.get("DRAY_FULL") == "1"
#: Number of kills of each kind of victim.
MOMENTS = int(os.environ.get("DRAY_KILLS") or (10 if FULL else 1))
SEED = int(os.environ.get("DRAY_SEED", "1106"))
VICTIMS = ("program", "client", "sink", "source")
#: Whether all kinds of copies are tested, and not only two.
EVERY_WAY = MOMENTS > 1
SIZE = 4 * GIB if FULL else GIB if EVERY_WAY else 160 * MIB
#: Rate of a copy in bytes per second, so low that the test finds the copy running.
RATE = (512 if FULL else 64) * MIB
POOL_BYTES = 32 * MIB
SYNC_GROUP_BYTES = 64 * MIB
#: Maximum bytes of frames, answers and queries, as a fraction of the file.
OVERHEAD = 0.02
#: Fraction of the runs that are interrupted at most ``EARLY_SECONDS`` after their start. The other
#: runs are interrupted after they have written a random number of bytes.
EARLY = 0.25
EARLY_SECONDS = 0.6
#: Maximum bytes of a server's answer to the query of :meth:`Xrootd.sent`.
ANSWER_BYTES = 16 << 10
EMPTY = Content(0, hashlib.sha256().digest())
#: Configuration of dray's program for the copies.
CONFIG = (f"rate = {RATE}", f"pool_bytes = {POOL_BYTES}")


def plans() -> list[tuple[str, ...]]:
    """Return the sequences of victims. With ``FULL``, each has one kind of victim."""
    return [(victim,) * MOMENTS for victim in VICTIMS] if FULL else [VICTIMS * MOMENTS]


def content(path: Path) -> Content:
    """Return the size and hash of a file."""
    return Content(path.stat().st_size, hash_file(path))


def written(job: int) -> int:
    """Return how many bytes the process ``job`` has written, or -1 if it has ended."""
    try:
        with open(f"/proc/{job}/io", encoding="ascii") as file:
            return int(file.read().split("wchar:")[1].split()[0])
    except (OSError, IndexError):
        return -1


def await_end(job: int, seconds: float = 30) -> int:
    """Wait until the copy process ``job`` has ended. Return how many bytes it has written."""
    until = time.monotonic() + seconds
    most = 0
    while os.path.exists(f"/proc/{job}"):
        most = max(most, written(job))
        assert time.monotonic() < until, "it outlives its server"
        time.sleep(0.02)
    return most


@dataclass
class Chain:
    """A copy of the file ``made`` to ``sink``, which is killed and restarted several times."""

    #: Name of the test case. It seeds the random moments.
    about: str
    scene: Scene
    #: Path of the program ``dray``, for ``dray log``.
    dray: Path
    source: Xrootd
    sink: Xrootd
    made: Path
    #: Starts the copy. The argument tells whether the copy must replace an existing file.
    begin: Callable[[bool], Process]
    #: Returns whether an ended client has reported success.
    is_good: Callable[[Ended], bool]
    #: Contents that the destination file may have, in addition to those of ``made``.
    allowed: set[Content]
    name: str = "a"
    #: Whether to restart a killed source before its client ends. False if the client would open the
    #: restarted source again, because a test then expects that the client fails.
    is_back_at_once: bool = True
    #: Descriptions of the kills so far.
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Seed the random moments, and print the seed."""
        self.size = self.made.stat().st_size
        self.chance = random.Random(f"{SEED} {self.about}")
        print(f"\n{self.about}: seed {SEED} (DRAY_SEED replays it)")

    def safe(self, *, verify: bool = False) -> int:
        """Return how many bytes are durable according to the log. ``verify`` also reads them."""
        words = ["verify" if verify else "show", "--json", self.sink.data]
        ended = self.scene.run(self.dray, "log", *words).expect(0)
        files = [file for log in ended.report["logs"] for file in log["files"]]
        assert len(files) <= 1, files
        return int(files[0]["bytes_safe"]) if files else 0

    def sent(self) -> int:
        """Return how many bytes the source has sent, once it sends nothing but this answer."""
        before, now = 0, self.source.sent()
        # The answers to these queries count too: wait until the count grows by at most one answer.
        while now - before > ANSWER_BYTES:
            time.sleep(0.05)
            before, now = now, self.source.sent()
        return now

    def _await_moment(self, client: Process, job: int, safe: int, left: int) -> str:
        """Wait for a random moment, or for the end of the client. Describe the moment."""
        if self.chance.random() < EARLY:
            seconds = self.chance.uniform(0, EARLY_SECONDS)
            time.sleep(seconds)
            return f"{seconds:.3f} s after its beginning"
        most = 2 * (self.size - safe) / (left + 2)
        more = min(self.chance.uniform(0, most), 0.6 * (self.size - safe))
        until = time.monotonic() + 120
        while client.is_running() and 0 <= written(job) < more:
            assert time.monotonic() < until, f"it does not resume:\n{self.sink.said()}"
            time.sleep(0.002)
        return f"when it had written {more / MIB:.0f} MiB"

    def break_off(self, victim: str, left: int) -> bool:
        """Start the copy, and kill ``victim`` at a random moment.

        :param left: number of kills that will follow.
        :returns: false if the copy was complete before the kill.
        """
        safe, sent = self.safe(), self.sent()
        began = time.monotonic()
        client = self.begin(self._is_taken())
        job = self.sink.await_job()
        moment = self._await_moment(client, job, safe, left)
        came = 0
        if not client.is_running():
            ended = client.wait()
            assert self.is_good(ended), f"it failed by itself:\n{ended.out}{ended.words}"
            return False
        if victim == "program":
            if written(job) >= 0:
                os.kill(job, signal.SIGKILL)
        elif victim == "client":
            client.kill()
        else:
            server = self.sink if victim == "sink" else self.source
            came = written(job)
            server.kill()
            if victim == "sink" or self.is_back_at_once:
                server.start()
        ended = client.wait(120)
        if victim == "source" and not self.is_back_at_once:
            self.source.start()
        came = max(came, await_end(job))
        if self.is_good(ended) or self._is_whole():
            # The file was complete before the kill.
            return False
        # A killed source does not report its sent bytes. Use the number of bytes that the copy
        # process has written, which is at most ``POOL_BYTES`` lower.
        sent = came if victim == "source" else self.sent() - sent
        more = self.safe(verify=not FULL) - safe
        assert sent > 0 or more <= POOL_BYTES, "sent bytes are not counted"
        seconds = time.monotonic() - began
        self.done.append(
            f"{victim} killed {moment}: {sent / MIB:.1f} MiB sent, {more / MIB:.1f} of them safe, "
            f"{(safe + more) / MIB:.1f} in all ({seconds:.1f} s)"
        )
        print(self.done[-1])
        assert more >= 0, "durable data was lost"
        excess = sent - more
        assert excess <= POOL_BYTES + SYNC_GROUP_BYTES + OVERHEAD * self.size, self.done[-1]
        return True

    def _is_taken(self) -> bool:
        """Return whether the destination has the server's empty file: --force replaces it."""
        path = self.sink.path(self.name)
        return path.exists() and path.stat().st_size == 0

    def _is_whole(self) -> bool:
        path = self.sink.path(self.name)
        return path.exists() and path.stat().st_size == self.size

    def run(self, victims: tuple[str, ...]) -> bool:
        """Kill each of the victims in turn, then let the copy complete.

        Return false if the copy was complete before one of the kills.
        """
        wanted = content(self.made)
        allowed = {os.fsencode(self.name): {wanted, *self.allowed}}
        with Watcher(self.sink.data, allowed) as watcher:
            lefts = range(len(victims) - 1, -1, -1)
            is_in_time = all(self.break_off(*each) for each in zip(victims, lefts, strict=True))
            if is_in_time:
                self._finish()
        assert len(self.done) > len(victims) // 2, "the copy was whole before it could be killed"
        assert watcher.violations == []
        assert watcher.rounds > 0
        assert content(self.sink.path(self.name)) == wanted
        return is_in_time

    def _finish(self) -> None:
        """Start the copy again. It must succeed, and send only bytes that are not durable."""
        safe, sent = self.safe(), self.sent()
        ended = self.begin(self._is_taken()).wait(600)
        assert self.is_good(ended), ended.out + ended.words
        sent = self.sent() - sent
        said = f"the last one sent {sent / MIB:.1f} MiB, {safe / MIB:.1f} were safe"
        print(said)
        assert sent <= (self.size - safe) + OVERHEAD * self.size, said
