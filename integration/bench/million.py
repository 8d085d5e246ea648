"""Resume a transfer of 10^6 objects, and an interrupted listing of 10^6 entries.

``python -m integration.bench million`` pushes from ``dray cp`` to ``dray serve``, and kills
``dray cp`` at half of the work. Then it runs the same command again under ``strace``. The system
calls of the source show which bytes the source reads, which folders it lists, and when it sends the
first data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench.begin import catch_signals, find_engine
from integration.bench.million_calls import Calls, traced
from integration.harness.program import ROOT, Bench
from integration.log import decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.harness.program import Process, Server, Word

OBJECT_BYTES = 4096
FILES = 100
FOLDERS = 1000
#: Seconds after which a copy is given up.
LIMIT_SECONDS = 1800.0
#: Minimum duration in seconds that the first copy would have without the kill.
FIRST_SECONDS = 4
RESULTS = ROOT / "integration" / "out" / "million" / "results.json"


@dataclass
class Resumed:
    """The resumed run of a transfer of many objects."""

    objects: int
    durable_objects: int
    #: Seconds from the start of the command to the first read of a source file.
    first_read_seconds: float
    #: Seconds from the start of the command to the first data on the network.
    first_send_seconds: float
    read_bytes: int
    missing_bytes: int
    #: Bytes that were durable before this run, and were read nevertheless.
    read_again_bytes: int
    log_bytes: int
    seconds: float


@dataclass
class Listed:
    """The second run of a copy of many empty files."""

    entries: int
    kind: str
    #: Calls that read the names in a folder, and calls that read the attributes of an entry.
    folders_read: int
    attributes_read: int
    checkpoint_bytes: int
    seconds: float


@dataclass
class Pair:
    """A server with an empty destination, and a client that pushes a folder to it."""

    top: Path
    program: Path
    source: Path
    words: list[Word]
    bench: Bench = field(init=False)
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        """Start the server."""
        self.sink = self.top / "sink"
        self.sink.mkdir()
        self.bench = Bench(self.top, self.program)
        self.server = self.bench.serve(self.sink)

    def start(self, *more: Word, wrap: list[str] | None = None) -> Process:
        """Start the client. All calls start the same command, except for the options ``more``."""
        words: list[Word] = ["-r", self.source, f"dray://{self.server.address}/"]
        words += ["--progress", "json", *self.words, *more, *self.bench.peer(self.server)]
        return self.bench.start_cp(*words, wrap=wrap or [])

    def kill(self, client: Process) -> None:
        """Kill the client, and wait until the server has ended the session."""
        before = len(self.server.transfers())
        client.kill()
        until = time.monotonic() + 120
        while len(self.server.transfers()) == before:
            if time.monotonic() > until:
                raise RuntimeError("the server has not ended the session of the killed client")
            time.sleep(0.05)

    def log(self) -> Path:
        """Return the only object log of the destination."""
        (found,) = (self.sink / ".dray-log").glob("*.log")
        return found


@contextlib.contextmanager
def pair(folder: Path, program: Path, source: Path, words: list[Word]) -> Iterator[Pair]:
    """Make a pair in a new folder. Kill its processes and remove its files at the end."""
    top = Path(tempfile.mkdtemp(dir=folder))
    made = Pair(top, program, source, words)
    try:
        yield made
    finally:
        made.bench.close()
        shutil.rmtree(top)


def durable_ranges(log: Path, source: Path) -> dict[str, list[tuple[int, int]]]:
    """Read the durable ranges of each source file from the log by the independent decoder.

    A file without an entry in the log is complete if it has its final name.
    """
    described = decoder.describe(log)
    assert described is not None
    return {
        str(source.parent / file["path"]): [(at, at + length) for at, length, *_ in file["done"]]
        for file in described["files"]
    }


def resume(folder: Path, program: Path, objects: int) -> Resumed:
    """Kill a copy when half of the objects are durable, and measure the second run."""
    source = folder / "data"
    source.mkdir()
    size = objects // FILES * OBJECT_BYTES
    for number in range(FILES):
        with (source / f"{number:03}").open("wb") as file:
            block = number.to_bytes(4, "big") * (1 << 18)
            for at in range(0, size, len(block)):
                file.write(block[: size - at])
    words: list[Word] = ["--object-size", str(OBJECT_BYTES)]
    with pair(folder, program, source, words) as made:
        # Without a limit, a small copy ends before it is killed.
        rate = max(1, size * FILES // FIRST_SECONDS >> 20)
        client = made.start("--rate", f"{rate}MiB")
        client.await_durable(size * FILES // 2, LIMIT_SECONDS)
        made.kill(client)
        done = durable_ranges(made.log(), source)
        for path in (made.sink / "data").glob("[0-9]*"):
            done[str(source / path.name)] = [(0, size)]
        log_bytes = made.log().stat().st_size
        calls = measured(made, Calls.of_data)
        durable = sum(end - begin for ranges in done.values() for begin, end in ranges)
        result = Resumed(
            objects=size // OBJECT_BYTES * FILES,
            durable_objects=durable // OBJECT_BYTES,
            first_read_seconds=calls.first_read - calls.began,
            first_send_seconds=calls.first_send - calls.began,
            read_bytes=calls.read_bytes,
            missing_bytes=size * FILES - durable,
            read_again_bytes=calls.overlap(done),
            log_bytes=log_bytes,
            seconds=calls.seconds,
        )
        for path in sorted(source.iterdir()):
            if path.read_bytes() != (made.sink / "data" / path.name).read_bytes():
                raise RuntimeError(f"the copy of {path.name} differs from its source")
    shutil.rmtree(source)
    return result


def measured(made: Pair, read: Callable[[Path, Path], Calls]) -> Calls:
    """Run the command again under strace, and read its system calls.

    :raises RuntimeError: if the command fails.
    """
    trace = made.top / "trace"
    began = time.time()
    client = made.start(wrap=traced(trace))
    ended = client.wait(LIMIT_SECONDS)
    if ended.code != 0:
        raise RuntimeError(f"dray cp ended with {ended.code}: {ended.words[-500:]}")
    calls = read(trace, made.source)
    calls.began, calls.seconds = began, ended.seconds
    return calls


def listing(folder: Path, program: Path, entries: int, *, has_checkpoint: bool) -> Listed:
    """Kill a copy of empty files at half, and count the calls of the second run that list."""
    source = folder / "data"
    each = entries // FOLDERS
    for number in range(FOLDERS):
        inner = source / f"{number:04}"
        inner.mkdir(parents=True)
        for name in range(each):
            (inner / f"{name:04}").touch()
    # The source records only folders that have not changed for two seconds.
    time.sleep(2.5)
    checkpoint = folder / "checkpoint"
    words: list[Word] = ["--listing-checkpoint", checkpoint] if has_checkpoint else []
    with pair(folder, program, source, words) as made:
        client = made.start()
        half = made.sink / "data" / f"{FOLDERS // 2:04}"
        until = time.monotonic() + LIMIT_SECONDS
        while not half.exists():
            if not client.is_running() or time.monotonic() > until:
                raise RuntimeError("the copy has ended before half of the folders were copied")
            time.sleep(0.02)
        made.kill(client)
        size = checkpoint.stat().st_size if has_checkpoint else 0
        calls = measured(made, Calls.of_listing)
        kind = "with a checkpoint" if has_checkpoint else "without a checkpoint"
        result = Listed(each * FOLDERS, kind, calls.folders, calls.attributes, size, calls.seconds)
    shutil.rmtree(source)
    return result


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    known = argparse.ArgumentParser(
        prog="python -m integration.bench million",
        description="Measure the resume of 10^6 objects, and of a listing of 10^6 entries.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parts = ("resume", "listing")
    known.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    known.add_argument("--count", type=int, default=1_000_000, help="objects, and entries")
    known.add_argument("--json", type=Path, default=RESULTS, help="file for the results")
    known.add_argument("--folder", type=Path, default=None, help="folder for the copied files")
    return known


def main(arguments: list[str]) -> int:
    """Measure, and print one JSON object for each result."""
    given = options().parse_args(arguments)
    if shutil.which("strace") is None:
        raise SystemExit("bench: strace is missing; as root: apt-get install strace")
    program = find_engine()
    catch_signals()
    results: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="dray-million-", dir=given.folder) as name:
        folder = Path(name)
        if "resume" in given.only:
            results.append(asdict(resume(folder, program, given.count)))
            print(json.dumps(results[-1]), flush=True)
        if "listing" in given.only:
            for has_checkpoint in (True, False):
                one = listing(folder, program, given.count, has_checkpoint=has_checkpoint)
                results.append(asdict(one))
                print(json.dumps(results[-1]), flush=True)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0
