"""Emulates a network path with delay, rate and queue in user space, for kernels without netem.

The path connects two network namespaces, and each namespace has a TUN device. For each direction, a
process reads packets from one TUN device and writes them to the other when they are due. Both ends
use TCP of the kernel, so windows, congestion control and round trips are real. The kernel joins
packets up to 64 KiB, as for network cards, so Python can forward a gigabit per second. The emulated
path delays a joined packet as long as its separate segments would take. Packets are lost only if
the queue is full, and are never reordered.

Only the benchmark uses this program. :class:`integration.bench.path.Path` starts it in a separate
network namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x1, 0x1000, 0x4000
#: Work that the kernel leaves to the reader of the device: checksums, and segmentation for IPv4 and
#: IPv6.
OFFLOAD = 0x1 | 0x2 | 0x4
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
SIOCSIFMTU, SIOCSIFTXQLEN = 0x8922, 0x8943
IFF_UP, IFF_RUNNING = 0x1, 0x40
DEVICE = b"path0"
MASK = "255.255.255.0"
MTU = 1500
#: Maximum number of packets that are taken before due packets are sent.
BURST = 32
#: Length in bytes of the kernel's header of a packet (struct virtio_net_hdr).
HEAD = 10
READ_BYTES = 65_535 + HEAD
#: Overhead of an Ethernet frame in bytes: preamble, addresses, checksum and gap.
FRAME = 38
TCP = 6
#: Maximum sleep in seconds if no packet is due.
LOOK_SECONDS = 1.0

#: Indices of the words in the shared memory: first settings, then the counters of each direction.
DELAY_NS, RATE_BITS, QUEUE_BYTES = range(3)
SETTINGS = 8
PACKETS, WIRE, PAYLOAD, DROPPED, LATE_NS = range(5)
COUNTERS = 8
SHARED_BYTES = 8 * (SETTINGS + 2 * COUNTERS)


class Size(NamedTuple):
    """The size of a packet on the wire."""

    #: Bytes of all Ethernet frames of the packet.
    wire: int
    #: Payload bytes of the TCP connection in the packet.
    payload: int


def measure(packet: bytes) -> Size:
    """Return the size of a packet of the kernel on the wire, where it is sent as several segments.

    :param packet: the packet with the header that the kernel adds for a TUN device.
    """
    whole = len(packet) - HEAD
    if whole < 40 or packet[HEAD] >> 4 != 4 or packet[HEAD + 9] != TCP:
        return Size(whole + FRAME, 0)
    ip = (packet[HEAD] & 15) * 4
    heads = ip + (packet[HEAD + ip + 12] >> 4) * 4
    payload = whole - heads
    segment = packet[4] | packet[5] << 8 if packet[1] else 0
    segments = -(-payload // segment) if segment and payload else 1
    return Size(whole + (segments - 1) * heads + segments * FRAME, payload)


class Direction:
    """One direction of the path: a bottleneck with a queue, then a delay. Times in nanoseconds."""

    def __init__(self, settings: memoryview, counters: memoryview) -> None:
        """Start without packets."""
        self._settings = settings
        self._counters = counters
        self._under_way: deque[tuple[int, bytes, int]] = deque()
        #: Time at which the bottleneck will have sent all packets of its queue.
        self._free_at = 0
        self._last_due = 0

    def take(self, packet: bytes, now: int) -> None:
        """Queue a packet, or drop it if the queue is full."""
        settings, counters = self._settings, self._counters
        wire, payload = measure(packet)
        leaves = now
        if rate := settings[RATE_BITS]:
            begins = max(self._free_at, now)
            limit = settings[QUEUE_BYTES]
            if limit and (begins - now) * rate > limit * 8_000_000_000:
                counters[DROPPED] += 1
                return
            leaves = self._free_at = begins + wire * 8_000_000_000 // rate
        # If the delay was shortened, later packets must not overtake earlier ones.
        due = self._last_due = max(self._last_due, leaves + settings[DELAY_NS])
        counters[PACKETS] += 1
        counters[WIRE] += wire
        self._under_way.append((due, packet, payload))

    def give(self, now: int, send: Callable[[bytes], object]) -> None:
        """Send all packets that are due."""
        under_way, counters = self._under_way, self._counters
        while under_way and under_way[0][0] <= now:
            due, packet, payload = under_way.popleft()
            send(packet)
            counters[PAYLOAD] += payload
            if now - due > counters[LATE_NS]:
                counters[LATE_NS] = now - due

    def wait_seconds(self, now: int) -> float:
        """Return the seconds until the next packet is due, at most ``LOOK_SECONDS``."""
        if not self._under_way:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(0, self._under_way[0][0] - now) / 1e9)


def carry(source: int, sink: int, direction: Direction) -> None:
    """Forward the packets of one direction for ever."""
    clock = time.monotonic_ns

    def send(packet: bytes) -> None:
        # A device that has disappeared or is full loses packets, as a cable does.
        with contextlib.suppress(OSError):
            os.write(sink, packet)

    while True:
        direction.give(clock(), send)
        for _ in range(BURST):
            try:
                packet = os.read(source, READ_BYTES)
            except BlockingIOError:
                select.select([source], [], [], direction.wait_seconds(clock()))
                break
            direction.take(packet, clock())


def open_device(address: str) -> int:
    """Open and configure the TUN device in the network namespace of this process."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE, flags))
    fcntl.ioctl(device, TUNSETOFFLOAD, OFFLOAD)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def ask(what: int, value: bytes) -> None:
            fcntl.ioctl(any_socket, what, struct.pack("16s24s", DEVICE, value))

        ask(SIOCSIFTXQLEN, struct.pack("i", 20_000))
        ask(SIOCSIFMTU, struct.pack("i", MTU))
        for what, text in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, MASK)):
            ask(what, struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text)))
        ask(SIOCSIFFLAGS, struct.pack("H", IFF_UP | IFF_RUNNING))
    return device


def _become_punctual() -> None:
    """Get real-time priority, because waiting for a processor would delay packets."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    gc.disable()


def main(near: str, far: str, shared_path: str) -> int:
    """Open both devices, report that they are open, and forward packets until killed.

    :param near: address in the network in which this process was started
    :param far: address in a new network, to which this process moves
    :param shared_path: file with the settings and counters
    """
    near_device = open_device(near)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network of our own")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH22x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, up)
    far_device = open_device(far)
    with open(shared_path, "r+b") as file:
        words = memoryview(mmap.mmap(file.fileno(), SHARED_BYTES)).cast("Q")
    there, back = (
        Direction(words[:SETTINGS], words[begin : begin + COUNTERS])
        for begin in (SETTINGS, SETTINGS + COUNTERS)
    )
    child = os.fork()
    _become_punctual()
    if child == 0:
        carry(far_device, near_device, back)
    print(f"{os.getpid()} {child}", flush=True)
    carry(near_device, far_device, there)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
