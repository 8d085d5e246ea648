"""Measure whether ``sendfile`` would save processor time at a source.

``python -m integration.bench.sendfile FILE`` sends the objects of a file over loopback TCP,
alternately in two ways. ``copy`` reads each object into a buffer and sends the buffer, as dray
does. ``sendfile`` reads each object into a buffer only for the checksum, and the kernel sends the
object from the page cache. The program prints the processor time of both ends in seconds per GB.
The other end writes nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
OBJECT_BYTES = MIB
#: Number of bytes of one read. They fit into the processor's cache, and so stay there until their
#: checksum is computed or they are sent.
PIECE_BYTES = 256 << 10
GB = 1e9


def used() -> float:
    """Return the processor seconds of this process and of the ended receivers."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in each)


def copy(to: socket.socket, file: int, offset: int, buffer: memoryview) -> int:
    """Read an object and send the buffer."""
    count = os.preadv(file, [buffer], offset)
    to.sendall(buffer[:count])
    return count


def sendfile(to: socket.socket, file: int, offset: int, buffer: memoryview) -> int:
    """Read an object piece by piece, and send it from the file."""
    piece, count = buffer[:PIECE_BYTES], 0
    while count < len(buffer) and (got := os.preadv(file, [piece], offset + count)):
        count += got
    sent = 0
    while sent < count:
        sent += os.sendfile(to.fileno(), file, offset + sent, count - sent)
    return count


def receive(listener: socket.socket) -> None:
    """Read all data of a connection into one buffer, and drop it."""
    with listener.accept()[0] as stream:
        buffer = bytearray(PIECE_BYTES)
        while stream.recv_into(buffer):
            pass


def run(
    send: Callable[[socket.socket, int, int, memoryview], int], file: int, congestion: str
) -> float:
    """Send a whole file. Return CPU seconds per GB."""
    before = used()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            receive(listener)
            os._exit(0)
        with socket.create_connection(listener.getsockname()) as to:
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
            buffer = memoryview(bytearray(OBJECT_BYTES))
            offset = 0
            while count := send(to, file, offset, buffer):
                offset += count
        _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"sendfile: the receiver ended with {status}")
    return (used() - before) / (offset / GB)


def main(words: list[str]) -> None:
    """Send the file in both ways in turn, and print the medians."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.bench.sendfile", description=__doc__
    )
    parser.add_argument("file", help="what to send; on tmpfs it stays in memory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--congestion", default="reno", help="TCP's congestion control")
    asked = parser.parse_args(words)
    ways = {"copy": copy, "sendfile": sendfile}
    found: dict[str, list[float]] = {name: [] for name in ways}
    file = os.open(asked.file, os.O_RDONLY)
    try:
        for _ in range(asked.rounds):
            for name, send in ways.items():
                found[name].append(run(send, file, asked.congestion))
    finally:
        os.close(file)
    for name, each in found.items():
        print(
            f"{name:10} {statistics.median(each):.2f} CPU s/GB ({min(each):.2f} to {max(each):.2f})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
