"""A path between two networks of the benchmark, and the observations of a run."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.bench import account, forward, machine
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

NEAR, FAR = "10.79.0.1", "10.79.0.2"
MB = 1e6
SAMPLE_SECONDS = 0.1
#: Seconds after which the slow start of a connection is over. The measurement of the steady rate
#: starts at this time.
STEADY_SECONDS = 5.0
#: The steady rate is measured until this fraction of the bytes has arrived, because the last bytes
#: cannot fill the path.
ALMOST_ALL = 0.99


@dataclass(frozen=True)
class Ends:
    """Addresses of the two ends of a copy: the client's end, and the server's."""

    here: str = "127.0.0.1"
    there: str = "127.0.0.1"
    #: Command prefix of a program at the far end.
    far: tuple[str, ...] = ()
    #: Id of a process in the network of the far end.
    far_process: str = "self"


@dataclass(frozen=True)
class Seen:
    """The traffic of a path during one run."""

    #: Samples: seconds, and the megabytes that had arrived at the far end by then.
    arrived: tuple[tuple[float, float], ...] = ()
    #: Number of packets that the full queue dropped.
    dropped: int = 0
    #: Longest additional delay of a packet in milliseconds, because the emulator had no processor.
    late_ms: float = 0.0

    @staticmethod
    def read(value: dict[str, Any]) -> Seen:
        """Parse the JSON form of a value of this class."""
        points = tuple((float(x), float(y)) for x, y in value.get("arrived", ()))
        return Seen(points, value.get("dropped", 0), value.get("late_ms", 0.0))


def rate_between(arrived: tuple[tuple[float, float], ...], begin: float, end: float) -> float:
    """Compute MB per second between two times, or 0 if there are no samples."""
    there = [each for each in arrived if begin <= each[0] <= end]
    if len(there) < 2 or there[-1][0] <= there[0][0]:
        return 0.0
    return (there[-1][1] - there[0][1]) / (there[-1][0] - there[0][0])


def steady_rate(arrived: tuple[tuple[float, float], ...]) -> float:
    """Compute MB per second from the fifth second until almost all bytes have arrived."""
    if not arrived:
        return 0.0
    enough = ALMOST_ALL * arrived[-1][1]
    end = next(seconds for seconds, sum in arrived if sum >= enough)
    return rate_between(arrived, STEADY_SECONDS, end)


def rates(
    arrived: tuple[tuple[float, float], ...], seconds: float = 0.5
) -> list[tuple[float, float]]:
    """Compute the line of a picture: at each moment, MB per second over the last ``seconds``."""
    line = [(0.0, 0.0)]
    last = (0.0, 0.0)
    for each in arrived:
        if each[0] - last[0] >= seconds:
            line.append((each[0], (each[1] - last[1]) / (each[0] - last[0])))
            last = each
    return line


class WidePath(machine.OwnNetwork):
    """A path between two networks. Needs root, and a process in a private network."""

    def __init__(self, folder: Path) -> None:
        """Start the path, without a delay and without a bound of the rate.

        :raises SystemExit: if this host does not permit the path.
        """
        shared = folder / "path"
        shared.write_bytes(bytes(forward.SHARED_BYTES))
        with shared.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), forward.SHARED_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._log = folder / "path.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration.bench.forward", NEAR, FAR, str(shared)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                # Ctrl-C on the terminal must reach only the benchmark, which then ends the
                # emulator.
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._pids = [int(word) for word in self._process.stdout.readline().split()]
        if not self._pids:
            log_text = self._log.read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"bench: no path between two networks here: {log_text[-300:].strip()}")
        process = str(self._pids[0])
        far = ("nsenter", f"--net=/proc/{process}/ns/net", "--")
        self.ends = Ends(NEAR, FAR, far, process)
        self.label = ""

    def set(self, round_trip_ms: float, megabits: float) -> None:
        """Set delay and rate. The queue holds the bytes of one round trip, and at least 1 MiB.

        :param megabits: rate in megabits per second in each direction. 0 means no bound.
        """
        bits = round(megabits * 1e6)
        words = self._words
        words[forward.DELAY_NS] = round(round_trip_ms * 1e6 / 2)
        words[forward.QUEUE_BYTES] = max(1 << 20, round(bits / 8 * round_trip_ms / 1e3))
        words[forward.RATE_BITS] = bits
        self.label = f"{round_trip_ms:g} ms"

    def use(self, congestion: str) -> None:
        """Set the congestion control of new connections of both ends."""
        super().use(congestion)
        self._tell_far("tcp_congestion_control", congestion)

    def widen(self, window_bytes: int) -> None:
        """Permit TCP windows of both ends to grow to this size, as on hosts for wide areas."""
        for name in ("tcp_rmem", "tcp_wmem"):
            least, usual, _ = (machine.IPV4 / name).read_text(encoding="ascii").split()
            words = f"{least} {usual} {window_bytes}"
            (machine.IPV4 / name).write_text(words, encoding="ascii")
            self._tell_far(name, words)

    def _tell_far(self, name: str, words: str) -> None:
        script = 'echo "$0" > "$1"'
        asked = [*self.ends.far, "sh", "-c", script, words, str(machine.IPV4 / name)]
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise SystemExit(f"bench: the far end keeps its {name}: {done.stderr.strip()}")

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the emulator."""
        return sum(map(account.cpu_seconds_of, self._pids))

    def there(self, counter: int) -> int:
        """Read a counter of the direction to the far end."""
        return self._words[forward.SETTINGS + counter]

    def back(self, counter: int) -> int:
        """Read a counter of the direction from the far end."""
        return self._words[forward.SETTINGS + forward.COUNTERS + counter]

    def forget_lateness(self) -> None:
        """Reset the longest lateness of both directions."""
        for begin in (forward.SETTINGS, forward.SETTINGS + forward.COUNTERS):
            self._words[begin + forward.LATE_NS] = 0

    def close(self) -> None:
        """End the processes that forward packets."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Watch:
    """Samples how many bytes have arrived at the far end of a path."""

    def __init__(self, path: WidePath) -> None:
        """Prepare to sample this path."""
        self._path = path
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._arrived: list[tuple[float, float]] = []
        self.seen = Seen()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            self._note()

    def _note(self) -> None:
        seconds = time.monotonic() - self._began
        arrived = self._path.there(forward.PAYLOAD) - self._before
        self._arrived.append((round(seconds, 3), round(arrived / MB, 3)))

    def __enter__(self) -> Watch:
        """Start sampling."""
        self._path.forget_lateness()
        self._dropped = self._drops()
        self._before = self._path.there(forward.PAYLOAD)
        self._began = time.monotonic()
        self._thread.start()
        return self

    def _drops(self) -> int:
        return self._path.there(forward.DROPPED) + self._path.back(forward.DROPPED)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling, and store the results in ``seen``."""
        self._is_over.set()
        self._thread.join()
        self._note()
        late = max(self._path.there(forward.LATE_NS), self._path.back(forward.LATE_NS))
        dropped = self._drops() - self._dropped
        self.seen = Seen(tuple(self._arrived), dropped, round(late / 1e6, 1))


@contextlib.contextmanager
def path(network: machine.Network) -> Iterator[WidePath]:
    """Make a path that starts in this process's own network.

    :raises SystemExit: if the network is the host's, or this host permits no path.
    """
    if not network.is_own:
        raise SystemExit("bench: a path needs a network of its own: as root")
    with tempfile.TemporaryDirectory(prefix="dray-bench-path-") as folder:
        made = WidePath(Path(folder))
        try:
            yield made
        finally:
            made.close()
