"""A TCP proxy between two ends. The proxy counts bytes, can record them, and cuts connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 1 << 18
PREAMBLE_BYTES = 8
DATA_CONNECTION = 2
#: Bytes of a piece on a connection with a limited rate.
SLOW_PIECE_BYTES = 1 << 14
#: Length of a burst on a connection with a limited rate, in seconds.
SLOW_BURST_SECONDS = 0.05
#: Polling interval of a frozen connection, in seconds.
FROZEN_SECONDS = 0.02


@dataclass
class Connection:
    """One connection through the proxy."""

    dialler: socket.socket
    listener: socket.socket
    #: Number of bytes from the end that dialled (`dray cp`).
    up: int = 0
    #: Number of bytes from the end that listens (`dray serve`).
    down: int = 0
    preamble: bytes = b""
    kept_up: bytearray = field(default_factory=bytearray)
    kept_down: bytearray = field(default_factory=bytearray)
    #: While set, no byte passes and no connection is closed, like a dead network path.
    is_frozen: bool = False
    #: Set when one direction has ended.
    has_ended: bool = False

    @property
    def is_data(self) -> bool:
        """True if the first bytes from the dialling end are those of a data connection."""
        return len(self.preamble) > 4 and self.preamble[4] == DATA_CONNECTION

    def close(self, *, abruptly: bool) -> None:
        """Close both halves."""
        for half in (self.dialler, self.listener):
            with contextlib.suppress(OSError):
                if abruptly:
                    half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                half.shutdown(socket.SHUT_RDWR)
            if abruptly:
                with contextlib.suppress(OSError):
                    half.close()


class Proxy:
    """Listens on its own port and forwards connections to ``upstream``."""

    def __init__(
        self,
        upstream: str,
        *,
        keep: bool = False,
        bytes_per_second: float | None = None,
        rate_bytes_per_second: float | None = None,
        connections_max: int | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """Start to listen.

        :param keep: record every byte.
        :param bytes_per_second: rate of all data connections together, in each direction. ``None``
            means unlimited. Control connections are not limited.
        :param rate_bytes_per_second: rate of each connection in each direction, like the limit of a
            TCP window on a long path.
        :param connections_max: maximum number of connections. Further connections are refused and
            counted in ``refused``.
        :param listen: address and port. Port 0 means a free port.
        """
        self.upstream = upstream
        self.keep = keep
        self.bytes_per_second = bytes_per_second
        #: Monotonic time until which `bytes_per_second` delays further data.
        self.free_at = 0.0
        self.rate_bytes_per_second = rate_bytes_per_second
        self.connections_max = connections_max
        self.refused = 0
        self.is_refusing = False
        #: Hook that is called with a connection and a piece of data from the listening end, before
        #: the piece is sent on. The hook may change the bytes of the piece.
        self.on_down: Callable[[Connection, memoryview], None] | None = None
        self.lock = threading.Lock()
        self.connections: list[Connection] = []
        self.threads: list[threading.Thread] = []
        self.socket = socket.create_server(listen, backlog=256)
        host, port = self.socket.getsockname()[:2]
        self.address = f"{host}:{port}"
        self.is_closed = False
        self._run(self._accept)

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        with self.lock:
            self.threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                dialler, _ = self.socket.accept()
            except OSError:
                return
            host, _, port = self.upstream.rpartition(":")
            try:
                if self.is_refusing or self.is_closed:
                    raise ConnectionRefusedError
                if self.connections_max is not None and self._alive() >= self.connections_max:
                    self.refused += 1
                    raise ConnectionRefusedError
                listener = socket.create_connection((host, int(port)), timeout=5)
                listener.settimeout(None)
            except OSError:
                dialler.close()
                continue
            connection = Connection(dialler, listener)
            with self.lock:
                self.connections.append(connection)
            self._run(self._carry, connection, True)
            self._run(self._carry, connection, False)

    def _alive(self) -> int:
        with self.lock:
            return sum(not each.has_ended for each in self.connections)

    def _carry(self, connection: Connection, is_up: bool) -> None:
        pair = (connection.dialler, connection.listener)
        source, sink = pair if is_up else pair[::-1]
        for half in pair:
            with contextlib.suppress(OSError):
                half.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kept = connection.kept_up if is_up else connection.kept_down
        rate = self.rate_bytes_per_second
        buffer = memoryview(bytearray(PIECE_BYTES if rate is None else SLOW_PIECE_BYTES))
        due = time.monotonic()
        try:
            while count := source.recv_into(buffer):
                if is_up:
                    if connection.up < PREAMBLE_BYTES:
                        connection.preamble += bytes(buffer[: PREAMBLE_BYTES - connection.up])
                    connection.up += count
                else:
                    connection.down += count
                if self.keep:
                    kept += buffer[:count]
                if self.on_down is not None and not is_up:
                    self.on_down(connection, buffer[:count])
                while connection.is_frozen and not self.is_closed:
                    time.sleep(FROZEN_SECONDS)
                self._wait_for_turn(connection, count)
                if rate is not None:
                    due = max(due, time.monotonic() - SLOW_BURST_SECONDS) + count / rate
                    time.sleep(max(0.0, due - time.monotonic()))
                sink.sendall(buffer[:count])
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close(abruptly=False)
        finally:
            connection.has_ended = True

    def _wait_for_turn(self, connection: Connection, count: int) -> None:
        if self.bytes_per_second is None or not connection.is_data:
            return
        with self.lock:
            now = time.monotonic()
            self.free_at = max(now, self.free_at) + count / self.bytes_per_second
            wait = self.free_at - now
        time.sleep(wait)

    def counted(self) -> tuple[int, int]:
        """Return the bytes of data connections, from the dialling and from the listening end."""
        with self.lock:
            data = [each for each in self.connections if each.is_data]
        return sum(each.up for each in data), sum(each.down for each in data)

    def cut(self, *, data_only: bool = False) -> int:
        """Reset all connections. Return their number."""
        with self.lock:
            live = [each for each in self.connections if each.dialler.fileno() >= 0]
        live = [each for each in live if each.is_data or not data_only]
        for connection in live:
            connection.close(abruptly=True)
        return len(live)

    def freeze_data(self) -> Connection:
        """Stall the data connection with the most bytes, without closing it.

        :raises LookupError: if there is no data connection.
        """
        with self.lock:
            live = [each for each in self.connections if each.is_data and not each.is_frozen]
        if not live:
            raise LookupError("no data connection has passed the proxy")
        busiest = max(live, key=lambda each: each.up + each.down)
        busiest.is_frozen = True
        return busiest

    def await_bytes(self, count: int, seconds: float = 60.0) -> None:
        """Wait until ``count`` bytes of data have passed, in both directions together.

        :raises TimeoutError: after ``seconds``.
        """
        until = time.monotonic() + seconds
        while sum(self.counted()) < count:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{self.counted()} bytes passed the proxy within {seconds} s, instead of "
                    f"{count}"
                )
            time.sleep(0.002)

    def close(self) -> None:
        """Stop the proxy."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.cut()
        for thread in self.threads:
            thread.join(timeout=5)
