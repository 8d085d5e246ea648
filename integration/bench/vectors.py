"""Compare the cost per GB of single reads and of vector reads (``kXR_readv``) of XRootD.

``python -m integration.bench.vectors FOLDER`` starts an XRootD server in a private network, for
files below ``FOLDER``. It reads the files with XrdCl, with one request for each piece or for many
pieces. It measures three shapes of reads:

- *objects*: consecutive pieces of 1 MiB, as dray reads them, with one read for each piece, or one
  vector for four or sixteen pieces;
- *pieces*: pieces of 4 KiB, one in each 64 KiB;
- *wide*: reads of 1 MiB and pieces of 4 KiB, over a path with a round trip of ``--round-trip``
  milliseconds.

The program needs root for the private network, a C++ compiler and ``libxrootd-client-dev``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from integration.bench import machine
from integration.bench.path import Ends, path
from integration.harness.tree import make_file
from integration.xrootd.servers import as_user, give, usual_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_suffix(".cc")
KIB, MIB = 1 << 10, 1 << 20
GB = 1e9
FILE_BYTES = 512 * MIB
READY_SECONDS = 20.0
TICKS = os.sysconf("SC_CLK_TCK")


class Way(NamedTuple):
    """One way to read the file, and the arguments of the program for it."""

    shape: str
    title: str
    #: ``reads`` or ``vectors``.
    way: str
    #: Bytes of a piece.
    piece: int
    #: Bytes from the start of one piece to the start of the next.
    step: int
    #: Number of pieces of a request.
    pieces: int
    #: Number of concurrent requests.
    at_once: int
    is_wide: bool = False

    @property
    def requests(self) -> int:
        """Return the number of requests that read the file once."""
        return FILE_BYTES // (self.step * self.pieces)


WAYS = (
    Way("objects", "one read of 1 MiB", "reads", MIB, MIB, 1, 4),
    Way("objects", "a vector of 4", "vectors", 256 * KIB, 256 * KIB, 4, 4),
    Way("objects", "a vector of 16", "vectors", 64 * KIB, 64 * KIB, 16, 4),
    Way("pieces", "a read for each, 64 at once", "reads", 4 * KIB, 64 * KIB, 16, 4),
    Way("pieces", "vectors of 16", "vectors", 4 * KIB, 64 * KIB, 16, 4),
    Way("pieces", "vectors of 256", "vectors", 4 * KIB, 64 * KIB, 256, 4),
    Way("pieces", "all between them too, in objects", "reads", MIB, MIB, 1, 4),
    Way("wide", "one read of 1 MiB", "reads", MIB, MIB, 1, 4, is_wide=True),
    Way("wide", "a vector of 16", "vectors", 64 * KIB, 64 * KIB, 16, 4, is_wide=True),
    Way("wide", "pieces: a read for each", "reads", 4 * KIB, 64 * KIB, 16, 4, is_wide=True),
    Way("wide", "pieces: vectors of 16", "vectors", 4 * KIB, 64 * KIB, 16, 4, is_wide=True),
)


def compile_to(program: Path) -> None:
    """Compile the program that reads with XrdCl.

    :raises SystemExit: if it does not compile.
    """
    include = os.environ.get("XROOTD_INCLUDE", "/usr/include/xrootd")
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-isystem", include]
    words = ["c++", *flags, "-o", str(program), str(SOURCE), "-lXrdCl", "-pthread"]
    built = subprocess.run(words, check=False, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        missing = "is libxrootd-client-dev there?"
        raise SystemExit(f"vectors: it does not compile; {missing}\n{built.stderr}")


@contextlib.contextmanager
def server(place: Path, port: int, ends: Ends) -> Iterator[int]:
    """Run an XRootD server at the far end. Yield its process id.

    :raises SystemExit: if the server does not listen.
    """
    config = place / "xrootd.cf"
    config.write_text("\n".join([*usual_lines(port, place, place), ""]), encoding="utf-8")
    words = [*ends.far, *as_user(), "xrootd", "-I", "v4", "-c", str(config), "-n", "vectors"]
    with (place / "log").open("wb") as log:
        started = subprocess.Popen(words, stdout=log, stderr=log, cwd=place)
    try:
        until = time.monotonic() + READY_SECONDS
        while not machine.listens(port, str(started.pid)):
            if started.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"vectors: no server: {(place / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield started.pid
    finally:
        started.kill()
        started.wait()


def used(process: int) -> float:
    """Return the processor seconds of a running process."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(program: Path, url: str, way: Way, process: int) -> tuple[float, float, float]:
    """Read the file once. Return seconds, CPU seconds of the client, CPU seconds of the server."""
    numbers = (way.piece, way.step, way.pieces, way.at_once, way.requests)
    before = used(process)
    words = [str(program), url, way.way, *map(str, numbers)]
    output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(output[0]), float(output[1]), used(process) - before


def main(words: list[str]) -> None:
    """Read in all ways in turn, and print the medians."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.bench.vectors",
        description="Read one file of an XRootD server by reads and by vector reads, by turns.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the file lies; /dev/shm: in memory")
    parser.add_argument("--rounds", type=int, default=5, help="of all ways")
    parser.add_argument("--round-trip", type=float, default=20.0, help="milliseconds, of 'wide'")
    asked = parser.parse_args(words)
    found: dict[Way, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(machine.network(["cubic"]))
        wide = stack.enter_context(path(own))
        wide.set(asked.round_trip, 1000)
        place = Path(tempfile.mkdtemp(prefix="dray-vectors-", dir=asked.folder))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        place.chmod(0o755)
        give(place)
        make_file(place / "file", FILE_BYTES, 1)
        (place / "file").chmod(0o644)
        program = place / "vectors"
        compile_to(program)
        each = {}
        for is_wide, ends in ((False, Ends()), (True, wide.ends)):
            folder = place / ("far" if is_wide else "near")
            folder.mkdir()
            give(folder)
            os.link(place / "file", folder / "file")
            port = machine.free_port()
            process = stack.enter_context(server(folder, port, ends))
            each[is_wide] = (f"root://{ends.there}:{port}//file", process)
        for _ in range(asked.rounds):
            for way in WAYS:
                found[way].append(run(program, each[way.is_wide][0], way, each[way.is_wide][1]))
    sys.stdout.write(
        "shape    way                                seconds  client CPU  server CPU\n"
    )
    for way, samples in found.items():
        columns = [statistics.median(column) for column in zip(*samples, strict=True)]
        numbers = f"{columns[0]:7.3f}  {columns[1]:10.3f}  {columns[2]:10.3f}"
        sys.stdout.write(f"{way.shape:8} {way.title:34} {numbers}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
