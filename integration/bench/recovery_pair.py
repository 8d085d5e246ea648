"""Copies from ``dray cp`` to ``dray serve``, with eleven emulated targets a side and a watched log.

The stories *overhead* (figures 5 and 6 of FT-LADS), *space* (figure 7) and *threads* use these
copies. Each end emulates targets by ``--target`` and ``--limit-target``.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from integration.bench.recovery_data import OBJECT_BYTES, TARGETS, Set, difference, target_name
from integration.harness.program import Bench
from integration.log import decoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from integration.harness.program import Process, Server, Word

#: Form that stands for a log in memory, which ends with the process: LADS without fault tolerance.
NO_LOG = "none"
#: Each end has this memory for buffers, as in the paper (section VI-A-4).
POOL = "256MiB"
LOOK_SECONDS = 0.02
#: Seconds in addition to several times the pace after which a copy is given up.
PATIENCE_SECONDS = 240.0
MECHANISMS = ("file", "transaction", "universal")
METHODS = ("char", "int", "enc", "binary", "bit8", "bit64")
USUAL = "universal:ranges"


def forms(options: Sequence[str] = ("", ":async")) -> list[str]:
    """List the default form and the 18 forms of the paper, with each of the options."""
    plain = [USUAL, *(f"{one}:{method}" for one in MECHANISMS for method in METHODS)]
    return [f"{form}{option}" for form in plain for option in options]


class LogWatch:
    """Watches the size of the logs of a destination, and keeps a log after its compaction."""

    def __init__(self, sink: Path) -> None:
        """Prepare to watch ``sink/.dray-log``."""
        self._folder = sink / ".dray-log"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before: dict[str, int] = {}
        #: Greatest size of all logs and part logs together, in bytes.
        self.peak = 0
        #: Greatest number of logs and part logs.
        self.files = 0
        #: The largest log that a compaction wrote. Empty without a compaction.
        self.compacted = b""

    def size(self) -> int:
        """Return the current size of all logs and part logs in bytes."""
        return sum(self._sizes().values())

    def _sizes(self) -> dict[str, int]:
        # A log may be removed between the listing and the look at its size.
        try:
            found = list(self._folder.iterdir())
        except FileNotFoundError:
            return {}
        sizes = {}
        for path in found:
            if path.suffix in (".log", ".objects"):
                with contextlib.suppress(FileNotFoundError):
                    sizes[path.name] = path.stat().st_size
        return sizes

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.note()

    def note(self) -> None:
        """Look at the logs once."""
        sizes = self._sizes()
        self.peak = max(self.peak, sum(sizes.values()))
        self.files = max(self.files, len(sizes))
        for name, size in sizes.items():
            if name.endswith(".log") and len(self.compacted) < size < self._before.get(name, 0):
                with contextlib.suppress(FileNotFoundError):
                    self.compacted = (self._folder / name).read_bytes()
        self._before = sizes

    def __enter__(self) -> LogWatch:
        """Start to watch."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._is_over.set()
        self._thread.join()


def bits_per_object(log: bytes) -> tuple[int, float]:
    """Return the number of objects of unfinished files in a log, and the bits of their records.

    The records that describe files, transfers and commits do not count.
    """
    head, replay, torn = decoder.replay_of(log)
    steps = decoder.walk(log[:torn], 16, head["nonce"], has_sums=head["has_sums"])
    size = sum(
        step.length
        for step in steps
        if step.kind in decoder.RANGES and not step.is_lost and step.value[0] in replay.files
    )
    done = sum(
        -(-(end - begin) // OBJECT_BYTES)
        for file in replay.files.values()
        for begin, (end, _) in file.runs.items()
    )
    return done, size * 8 / done if done else 0.0


@dataclass(frozen=True)
class Ways:
    """Options of the two ends of a copy."""

    #: Form of the log, or ``NO_LOG``.
    form: str = USUAL
    #: Rate of each target at both ends, in bytes per second. 0 without a limit.
    rate: int = 0
    #: Seconds by which each target delays a read or write.
    delay: float = 0.0
    threads: int = 0
    #: True if all files are on one target.
    is_one_target: bool = False
    #: Further options of the client.
    more: tuple[Word, ...] = ()

    def targets(self, top: Path) -> list[Word]:
        """Return the options that emulate targets below ``top``."""
        words: list[Word] = ["--pool", POOL]
        for number in range(TARGETS):
            name = target_name(number)
            on = target_name(0) if self.is_one_target else name
            words += ["--target", f"{top / name}={on}"]
            if (self.rate or self.delay) and (number == 0 or not self.is_one_target):
                limit = f"{on}={self.rate or 1 << 40}"
                limit += f",+{self.delay}" if self.delay else ""
                words += ["--limit-target", limit]
        return [*words, "--threads", str(self.threads)] if self.threads else words

    def log(self) -> list[Word]:
        """Return the options of the server for the log."""
        return ["--log-in-memory"] if self.form == NO_LOG else ["--log", self.form]


@dataclass
class Pair:
    """A server with an empty destination, and the client that pushes a set to it."""

    folder: Path
    program: Path
    one: Set
    data: Path
    ways: Ways
    bench: Bench = field(init=False)
    sink: Path = field(init=False)
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        """Make the destination, and start the server."""
        self.sink = self.folder / "sink"
        self.sink.mkdir(parents=True)
        self.bench = Bench(self.folder, self.program)
        self.serve()

    def serve(self, listen: str = "127.0.0.1:0") -> None:
        """Start the server."""
        words = [*self.ways.targets(self.sink / "data"), *self.ways.log()]
        self.server = self.bench.serve(self.sink, *words, listen=listen)

    def start(self) -> Process:
        """Start the client. Each call starts the same command."""
        words: list[Word] = ["-r", self.data, f"dray://{self.server.address}/"]
        words += ["--object-size", str(OBJECT_BYTES), "--progress", "none"]
        words += [*self.ways.targets(self.data), *self.ways.more]
        return self.bench.start_cp(*words, *self.bench.peer(self.server))

    def close(self) -> None:
        """Kill both ends, and remove all files of the copy."""
        self.bench.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def pair(top: Path, program: Path, one: Set, data: Path, ways: Ways) -> Iterator[Pair]:
    """Make a pair in a new folder, and close it."""
    made = Pair(top / f"pair-{time.monotonic_ns()}", program, one, data, ways)
    try:
        yield made
    finally:
        made.close()


def copy(
    top: Path, program: Path, one: Set, data: Path, ways: Ways, pace: float = 0.0
) -> dict[str, float]:
    """Copy a set once without a fault. Return the measured values by name.

    :raises RuntimeError: if the copy fails, or the destination is not complete.
    """
    with pair(top, program, one, data, ways) as made:
        with LogWatch(made.sink) as log:
            client = made.start()
            until = time.monotonic() + 4 * pace + PATIENCE_SECONDS
            while client.is_running():
                made.server.is_running()
                if time.monotonic() > until:
                    raise RuntimeError(f"no end after {4 * pace + PATIENCE_SECONDS:.0f} s")
                time.sleep(0.01)
            log_end = log.size()
        ended = client.wait()
        if ended.code != 0:
            raise RuntimeError(f"dray cp ended with {ended.code}: {ended.words[-500:]}")
        if wrong := difference(one, made.sink):
            raise RuntimeError(f"the destination has {wrong}")
        served = made.server.stop()
        values = {
            "seconds": ended.seconds,
            "cpu_seconds": ended.cpu_seconds + served.cpu_seconds,
            "source_cpu_seconds": ended.cpu_seconds,
            "sink_cpu_seconds": served.cpu_seconds,
            "source_memory": float(ended.memory_peak),
            "sink_memory": float(served.memory_peak),
            "log_peak": float(log.peak),
            "log_files": float(log.files),
            "log_end": float(log_end),
        }
    if log.compacted:
        done, bits = bits_per_object(log.compacted)
        values |= {
            "compacted_bytes": float(len(log.compacted)),
            "compacted_objects": float(done),
            "compacted_bits": bits,
        }
    return values
