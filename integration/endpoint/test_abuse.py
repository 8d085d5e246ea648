"""Hostile clients: each kind stays within bounds, others are served, and no resource leaks."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from integration.endpoint.raw import ask, query, trusting
from integration.harness import tree
from integration.wire.peer import hello

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

Json: TypeAlias = Any
KIB, MIB = 1 << 10, 1 << 20
#: Minimum duration of each attack, once it is running.
SIEGE_SECONDS = 4.0
#: Maximum seconds until the effects of an attack end. The limit only detects hangs.
CALM_SECONDS = 60.0
#: Maximum seconds of one call of a normal client. The limit only detects hangs.
CALL_SECONDS = 15.0
CONNECTIONS, PER_ADDRESS = 128, 32
SESSIONS = 8
MEMORY = 64 * MIB
#: Maximum number of threads. A connection holds one thread. Connections count twice, because closed
#: ones may still wait to be accepted. Blocking calls have at most 288 threads.
THREADS = 2 * CONNECTIONS + 4 * SESSIONS + 288 + 32
#: Maximum number of descriptors. Connections count twice, as for the threads.
DESCRIPTORS = 3 * 2 * CONNECTIONS + 64 * SESSIONS + 128
#: Maximum resident memory in bytes. A connection holds at most a body (1 MiB).
RSS = MEMORY + CONNECTIONS * MIB + 128 * MIB


class Sample:
    """The resources that a process uses at one time."""

    def __init__(self, pid: int) -> None:
        """Read the resources that the process uses now."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        self.rss = int(fields["VmRSS"].split()[0]) << 10
        self.threads = int(fields["Threads"])
        self.descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))

    def __str__(self) -> str:
        """Describe the sample in one line."""
        return f"{self.rss >> 20} MiB, {self.threads} threads, {self.descriptors} descriptors"


class Watch:
    """Samples the process of an endpoint and calls its API as a normal client, until closed."""

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        """Start the threads, and take a first sample while the endpoint is idle."""
        self.endpoint, self.token = endpoint, token
        self.rest = Sample(endpoint.pid)
        self.most = Sample(endpoint.pid)
        self.failures: list[str] = []
        self.times: list[float] = []
        self.is_over = False
        self.threads = [
            threading.Thread(target=target, daemon=True) for target in (self._sample, self._call)
        ]
        for thread in self.threads:
            thread.start()

    def _sample(self) -> None:
        while not self.is_over:
            with contextlib.suppress(OSError, KeyError):
                now = Sample(self.endpoint.pid)
                for name in ("rss", "threads", "descriptors"):
                    setattr(self.most, name, max(getattr(self.most, name), getattr(now, name)))
            time.sleep(0.05)

    def _call(self) -> None:
        # Call from another address than the attackers, because limits apply per address.
        while not self.is_over:
            began = time.monotonic()
            try:
                path = f"/v1/storage/stat?{query('/data')}"
                answer = ask(self.endpoint, "GET", path, token=self.token, source="127.0.0.2")
                if answer.code != 200:
                    self.failures.append(f"{answer.code} {answer.text}")
            except (OSError, ValueError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            self.times.append(time.monotonic() - began)
            time.sleep(0.05)

    def close(self) -> None:
        """Stop all threads."""
        self.is_over = True
        for thread in self.threads:
            thread.join(CALM_SECONDS)

    def assert_served(self) -> None:
        """Fail unless every call was answered, and all resources stayed within bounds."""
        times = sorted(self.times)
        slowest = times[-1]
        print(
            f"at rest {self.rest}; at most {self.most}; {len(times)} calls, slowest {slowest:.3f} s"
        )
        assert len(times) >= 5
        assert self.failures == []
        assert slowest < CALL_SECONDS
        assert self.most.rss < RSS, str(self.most)
        assert self.most.threads < THREADS, str(self.most)
        assert self.most.descriptors < DESCRIPTORS, str(self.most)

    def assert_calm_again(self) -> None:
        """Fail unless the endpoint's resources soon return to the amounts at the start."""
        until = time.monotonic() + CALM_SECONDS
        while True:
            now = Sample(self.endpoint.pid)
            is_calm = (
                now.threads <= self.rest.threads + 24
                and now.descriptors <= self.rest.descriptors + 24
                and now.rss <= self.rest.rss + 96 * MIB
            )
            if is_calm:
                print(f"afterwards {now}")
                return
            assert time.monotonic() < until, f"before {self.rest}, afterwards {now}"
            time.sleep(0.2)


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """Let the attackers have thousands of sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Attack:
    """Opens sockets from addresses of this host to an endpoint. Closes all of them at the end."""

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        """Start without sockets."""
        self.host, _, port = endpoint.address.rpartition(":")
        self.port = int(port)
        self.endpoint, self.token = endpoint, token
        self.sockets: list[socket.socket] = []
        self.until = time.monotonic() + SIEGE_SECONDS
        #: First bytes of each answer.
        self.answers: list[bytes] = []

    @property
    def is_on(self) -> bool:
        """True until the time of the attack has passed."""
        return time.monotonic() < self.until

    def dial(self, number: int = 0) -> socket.socket:
        """Connect to the endpoint from one of 100 local addresses."""
        source = f"127.0.1.{number % 100 + 1}"
        made = socket.socket()
        made.settimeout(5)
        made.bind((source, 0))
        made.connect((self.host, self.port))
        self.sockets.append(made)
        return made

    def tls(self, number: int = 0, protocol: str = "http/1.1") -> ssl.SSLSocket:
        """Connect to the endpoint, and do the TLS handshake."""
        context = trusting()
        context.set_alpn_protocols([protocol])
        made = context.wrap_socket(self.dial(number), server_hostname="x")
        self.sockets.append(made)
        return made

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """Return the head of a request, without the empty line at its end."""
        auth = f"Authorization: Bearer {self.token}"
        return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", auth, *lines, ""]).encode()

    def close(self) -> None:
        """Close all sockets."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.close()


def flood(attack: Attack, count: int, first: bytes, addresses: int = 1) -> None:
    """Open connections that send ``first`` and then nothing. Open new ones for closed ones."""
    opened = 0
    # A slow host opens few connections in the time of the attack, so open at least 100.
    while opened <= 100 or (attack.is_on and opened < count):
        try:
            made = attack.dial(opened % addresses)
            if first:
                made.sendall(first)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise
        opened += 1


def never_speaking(attack: Attack) -> None:
    flood(attack, 4000, b"")


def half_open_tls(attack: Attack) -> None:
    flood(attack, 4000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30))


def half_a_preamble(attack: Attack) -> None:
    flood(attack, 4000, b"DRA")


def from_everywhere(attack: Attack) -> None:
    """Open more connections than the endpoint has slots, from many addresses."""
    half = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30)
    opened = 0
    while attack.is_on or opened <= 4 * CONNECTIONS:
        with contextlib.suppress(OSError):
            attack.dial(opened).sendall(half)
        opened += 1
        time.sleep(0.002)


def bad_preambles(attack: Attack) -> None:
    bad = [b"DRAY\x07\x00\x00\x00", b"DRAY\x01\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(64)]
    bad += [b"DRAY\x02\x00\x00\x00" + bytes(500), b"\xff" * 64, b"SSH-2.0-x\r\n", b"DRAX" * 10]
    number = 0
    while attack.is_on:
        with contextlib.suppress(OSError):
            made = attack.dial()
            made.sendall(bad[number % len(bad)])
        number += 1
        if number % 500 == 0:
            attack.close()
            attack.sockets.clear()


def slow_headers(attack: Attack) -> None:
    made = []
    for number in range(160):
        with contextlib.suppress(OSError):
            one = attack.tls(number % 4)
            one.sendall(attack.head("GET", "/v1/transfers"))
            made.append(one)
    while attack.is_on:
        for one in made:
            with contextlib.suppress(OSError):
                one.sendall(b"X-A: b\r\n")
        time.sleep(0.3)


def slow_bodies(attack: Attack) -> None:
    made = []
    for number in range(160):
        with contextlib.suppress(OSError):
            one = attack.tls(number % 4)
            length = "Content-Length: 1000000"
            one.sendall(attack.head("POST", "/v1/transfers", length) + b"\r\n")
            made.append(one)
    while attack.is_on:
        for one in made:
            with contextlib.suppress(OSError):
                one.sendall(b" " * 100)
        time.sleep(0.3)


def huge_bodies(attack: Attack) -> None:
    """Send bodies that never end, with and without an announced length."""
    number = 0
    piece = b" " * (256 * KIB)
    while attack.is_on:
        number += 1
        chunked = number % 2
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {1 << 40}"
        with contextlib.suppress(OSError):
            one = attack.tls()
            one.sendall(attack.head("POST", "/v1/transfers", length) + b"\r\n")
            for _ in range(200):
                one.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n" if chunked else piece)
        with contextlib.suppress(OSError):
            attack.answers.append(one.recv(100))
    assert any(b" 413 " in each for each in attack.answers), attack.answers[:5]


def deep_json(attack: Attack) -> None:
    deep = [b"[" * 500_000, b'{"a":' * 150_000, b'{"labels":' + b"[" * 400_000]
    deep += [b'{"sources":[' + b'{"url":"/data/x"},' * 40_000, b'{"id":"' + b"\\u0041" * 150_000]
    deep += [b"1" * 1_000_000, b'"' + b"\xff" * 1_000_000, b'{"weight":1e' + b"9" * 900_000 + b"}"]
    number = 0
    while attack.is_on or number < len(deep):
        body = deep[number % len(deep)]
        for path in ("/v1/transfers", "/v1/transfers/batch", "/v1/tickets"):
            answer = ask(attack.endpoint, "POST", path, raw=body, token=attack.token)
            assert answer.code in (400, 413), answer.text
            assert len(answer.text) < 4000
        number += 1


def listeners(attack: Attack) -> None:
    """Open thousands of event streams. Most are refused, and the others use little memory."""
    opened = 0
    while opened <= 50 or (attack.is_on and opened < 2000):
        opened += 1
        with contextlib.suppress(OSError):
            one = attack.tls(opened % 4)
            accept = "Accept: text/event-stream"
            one.sendall(attack.head("GET", "/v1/events", accept) + b"\r\n")
            if opened % 10 == 0:
                one.settimeout(1)
                attack.answers.append(one.recv(40))
    kinds = {each[:12] for each in attack.answers if each}
    assert kinds <= {b"HTTP/1.1 200", b"HTTP/1.1 429"}, kinds


def slow_readers(attack: Attack) -> None:
    """Request large answers on many connections, and read none of them."""
    path = f"/v1/storage/list?{query('/data/many', limit=1000)}"
    whole = attack.head("GET", path) + b"\r\n"
    made = []
    for number in range(96):
        with contextlib.suppress(OSError):
            one = attack.tls(number % 4)
            one.settimeout(0.2)
            made.append(one)
    while attack.is_on:
        for one in made:
            with contextlib.suppress(OSError):
                one.sendall(whole * 50)
        time.sleep(0.1)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + body


def text_of(data: bytes) -> bytes:
    """Return a string of HPACK without Huffman coding (RFC 7541, section 5.2)."""
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, number = len(data) - 127, b"\x7f"
    while rest >= 128:
        number += bytes([rest % 128 + 128])
        rest //= 128
    return number + bytes([rest]) + data


def headers_of(token: str, path: str = "/v1/events?timeout=30") -> bytes:
    """Write the HTTP/2 headers of a GET: first indexed fields, then literal fields."""
    block = b"\x82\x87\x04" + text_of(path.encode())
    return block + b"\x01" + text_of(b"x") + b"\x0f\x08" + text_of(f"Bearer {token}".encode())


def rapid_resets(attack: Attack) -> None:
    """Open and reset streams, as fast as possible (CVE-2023-44487)."""
    block = headers_of(attack.token, "/v1/transfers?limit=1000")
    total = 0
    while attack.is_on:
        with contextlib.suppress(OSError):
            one = attack.tls(protocol="h2")
            one.sendall(PREFACE + frame(4, 0, 0))
            for base in range(0, 4000, 100):
                pieces = []
                for number in range(base, base + 100):
                    stream = 2 * number + 1
                    pieces += [frame(1, 5, stream, block), frame(3, 0, stream, bytes(4))]
                one.sendall(b"".join(pieces))
                total += 100
    assert total > 500


def many_streams(attack: Attack) -> None:
    """Start long polls on all permitted streams, and on further streams."""
    block = headers_of(attack.token)
    for _ in range(8):
        with contextlib.suppress(OSError):
            one = attack.tls(protocol="h2")
            streams = [frame(1, 5, 2 * number + 1, block) for number in range(500)]
            one.sendall(PREFACE + frame(4, 0, 0) + b"".join(streams))
    while attack.is_on:
        time.sleep(0.1)


def no_window(attack: Attack) -> None:
    """Request large answers on streams with a zero window (RFC 9113, section 6.9.2)."""
    settings = frame(4, 0, 0, struct.pack(">HI", 4, 0))
    path = f"/v1/storage/list?{query('/data/many', limit=1000)}"
    # Any client may request the document any number of times.
    blocks = headers_of(attack.token, path), headers_of("", "/v1/openapi.json")
    for number in range(128):
        with contextlib.suppress(OSError):
            one = attack.tls(number % 4, protocol="h2")
            streams = [frame(1, 5, 2 * each + 1, blocks[each % 2]) for each in range(64)]
            one.sendall(PREFACE + settings + b"".join(streams))
    while attack.is_on:
        time.sleep(0.1)


def endless_headers(attack: Attack) -> None:
    """Send a block of headers that never ends (CONTINUATION without END_HEADERS)."""
    while attack.is_on:
        with contextlib.suppress(OSError):
            one = attack.tls(protocol="h2")
            one.sendall(PREFACE + frame(4, 0, 0))
            one.sendall(frame(1, 1, 1, headers_of(attack.token)))
            piece = b"\x00" + text_of(b"x-padding") + text_of(b"y" * 10_000)
            for _ in range(500):
                one.sendall(frame(9, 0, 1, piece))


def pings_and_settings(attack: Attack) -> None:
    """Send frames that require an answer, and read no answers."""
    while attack.is_on:
        with contextlib.suppress(OSError):
            one = attack.tls(protocol="h2")
            one.settimeout(0.5)
            one.sendall(PREFACE + frame(4, 0, 0))
            for _ in range(200):
                one.sendall((frame(6, 0, 0, bytes(8)) + frame(4, 0, 0)) * 200)


def guessed_tickets(attack: Attack) -> None:
    """Use random tickets in sessions and in calls of the API."""
    number = 0
    context = trusting()
    while attack.is_on:
        number += 1
        guess = f"drt_{number:043d}"
        answer = ask(attack.endpoint, "POST", "/v1/tickets/renew", {"ticket": guess})
        answer.refused(401, "unauthorized")
        with contextlib.suppress(OSError):
            plain = attack.dial()
            plain.sendall(b"DRAY\x01\x00\x00\x00")
            one = context.wrap_socket(plain)
            attack.sockets.append(one)
            one.sendall(hello(guess.encode()))
            attack.answers.append(one.recv(100)[4:5])
    assert number > 10
    # Each answer is a REFUSE. No answer is a HELLO.
    assert {each for each in attack.answers if each} <= {b"\x04"}, set(attack.answers)


def hello_without_end(attack: Attack) -> None:
    """Announce a frame of a huge length, before any authentication."""
    context = trusting()
    while attack.is_on:
        with contextlib.suppress(OSError):
            plain = attack.dial()
            plain.sendall(b"DRAY\x01\x00\x00\x00")
            one = context.wrap_socket(plain)
            attack.sockets.append(one)
            one.sendall(struct.pack("<IBBHI", 0x7FFFFFFF, 1, 0, 0, 0) + bytes(64 * KIB))


ATTACKS: list[Callable[[Attack], None]] = [
    never_speaking,
    half_open_tls,
    half_a_preamble,
    from_everywhere,
    bad_preambles,
    slow_headers,
    slow_bodies,
    huge_bodies,
    deep_json,
    listeners,
    slow_readers,
    rapid_resets,
    many_streams,
    no_window,
    endless_headers,
    pings_and_settings,
    guessed_tickets,
    hello_without_end,
]


@pytest.fixture
def besieged(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    limits = {
        "connections": CONNECTIONS,
        "connections_per_address": PER_ADDRESS,
        "transfers_active": SESSIONS,
        "per_owner_active": SESSIONS,
        "memory": MEMORY,
    }
    endpoint = start_endpoint("a", config={"limits": limits})
    many = endpoint.root("many")
    many.mkdir()
    for number in range(1000):
        (many / f"{number:04}-{'x' * 100}").touch()
    return endpoint


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_hostile_client_stays_within_bounds_and_others_are_served(
    besieged: Endpoint, start_endpoint: Callable[..., Endpoint], attack: Callable[[Attack], None]
) -> None:
    source = start_endpoint("b")
    size = 12 * MIB
    tree.make_file(source.root("x.dat"), size, seed=1)
    normal, hostile = besieged.token(), besieged.token(subject="bob")
    body = {
        "transfer": "t",
        "direction": "read",
        "paths": ["/data/x.dat"],
        "peer_key": besieged.key,
    }
    ticket = ask(source, "POST", "/v1/tickets", body, token=source.token()).json
    place = {name: ticket[name] for name in ("ticket", "key", "address")}
    request = {
        "id": "t",
        "sources": [{**place, "url": source.place("x.dat")}],
        "destination": {"url": "/data/x.dat"},
        # With this rate, the transfer lasts longer than the attack.
        "rate_max": 2 * MIB,
    }
    near: Json = {"token": normal, "source": "127.0.0.3"}
    # Let one-time allocations happen before the first sample: pools, threads, a session.
    for _ in range(5):
        assert ask(besieged, "GET", f"/v1/storage/stat?{query('/data')}", **near).code == 200
    assert ask(besieged, "POST", "/v1/transfers", request, **near).code == 201
    time.sleep(0.5)
    watch = Watch(besieged, normal)
    made = Attack(besieged, hostile)
    try:
        attack(made)
        while made.is_on:
            time.sleep(0.05)
    finally:
        watch.close()
        made.close()
    assert besieged.is_running, besieged.log_text()[-3000:]
    watch.assert_served()
    assert "panicked" not in besieged.log_text()
    until = time.monotonic() + CALM_SECONDS
    while True:
        answer = ask(besieged, "GET", "/v1/transfers/t/wait?timeout=5", **near).json
        if answer["state"] not in ("active", "queued", "waiting"):
            break
        assert time.monotonic() < until, answer
    assert answer["state"] == "done", answer
    assert answer["tries"] == 1, answer
    assert besieged.root("x.dat").read_bytes() == source.root("x.dat").read_bytes()
    watch.assert_calm_again()
