"""Sessions in which some frames of a peer are mutated. The peer is a driver or a listener.

A mutation changes, repeats, moves, removes or truncates a frame. A seed determines all mutations
of a session. Repeat the session of seed 7 with
``DRAY_SEED=7 python -m pytest integration/hostile/test_fuzzed.py``.
"""

from __future__ import annotations

import os
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from integration.harness.program import peak_memory
from integration.hostile.actors import (
    ABORTED,
    FOLDER,
    FOLDER_END,
    LINK,
    SINK,
    SOURCE,
    Driver,
    Listener,
    Options,
    block,
    entry,
    new_files,
    ready,
    segment,
)
from integration.wire.peer import decoder, frame_of

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Server
    from integration.hostile.actors import Talk

FULL = os.environ.get("DRAY_FULL") == "1"
pytestmark = [pytest.mark.server, pytest.mark.timeout(3000 if FULL else 120)]

SEEDS = 2000 if FULL else 24
#: Number of seeds for sessions with ``dray cp``. Each session starts a process, which takes time.
CLIENT_SEEDS = 200 if FULL else 4
POOL = 16 << 20
MEMORY = POOL + (64 << 20)
#: Integers that programs often handle wrongly.
EDGES = [0, 1, 2, 255, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


def seeds(count: int) -> list[int]:
    """Return the seed in ``DRAY_SEED``, or ``count`` seeds: new ones with ``DRAY_FULL=1``."""
    named = os.environ.get("DRAY_SEED")
    if named:
        return [int(named)]
    first = random.SystemRandom().randrange(1 << 40) if FULL else 1
    return list(range(first, first + count))


class Fuzz:
    """Draw mutations of frames from one seed."""

    def __init__(self, seed: int) -> None:
        """Seed the generator."""
        self.draw = random.Random(seed)

    def body(self, frame: bytes) -> bytes:
        """Mutate the body of a frame. The prefix of the result fits the new body."""
        if len(frame) < decoder.PREFIX_BYTES:
            return frame
        number, body = frame[4], bytearray(frame[decoder.PREFIX_BYTES :])
        how = self.draw.randrange(5)
        if not body or how == 0:
            body += self.draw.randbytes(self.draw.randrange(1, 9))
        elif how == 1:
            del body[self.draw.randrange(len(body)) :]
        elif how == 2:
            body[self.draw.randrange(len(body))] ^= 1 << self.draw.randrange(8)
        else:
            width = self.draw.choice([1, 2, 4, 8])
            at = self.draw.randrange(len(body))
            value = self.draw.choice(EDGES) % (1 << (8 * width))
            body[at : at + width] = value.to_bytes(width, "little")
        return frame_of(number, bytes(body))

    def frames(self, script: list[bytes]) -> list[bytes]:
        """Return the script with one to four mutations."""
        frames = list(script)
        for _ in range(self.draw.randrange(1, 5)):
            if not frames:
                break
            at = self.draw.randrange(len(frames))
            how = self.draw.randrange(7)
            if how <= 2:
                frames[at] = self.body(frames[at])
            elif how == 3:
                frames.insert(self.draw.randrange(len(frames) + 1), frames[at])
            elif how == 4:
                frames.insert(self.draw.randrange(len(frames)), frames.pop(at))
            elif how == 5:
                del frames[at]
            else:
                frames[at] = frames[at][: self.draw.randrange(len(frames[at]))]
        return frames


def as_source(draw: random.Random) -> list[bytes]:
    """Return the control frames of an honest source."""
    pairs = [(b"user.a", b"1" * draw.randrange(50))]
    entries = [
        entry(0, b"d", FOLDER),
        entry(1, b"f", parent=0, size=3, xattrs=pairs),
        entry(2, b"large", parent=0, size=3 << 20),
        entry(3, b"link", LINK, parent=0, target=b"f"),
        entry(0, b"d", FOLDER_END, mode=0o755),
    ]
    error = struct.pack("<HBB", 27, 1, 0) + b"\0" + struct.pack("<I", 0) * 3
    return [
        *(new_files(each) for each in entries),
        frame_of(0x16, struct.pack("<I", 1) + error),
        frame_of(0x15, struct.pack("<Q", 2) + error),
        frame_of(0x11, struct.pack("<Q", 4)),
        frame_of(0x20, struct.pack("<III", 1, 0, 0)),
        frame_of(0x22, struct.pack("<IIQ", 0, 1, 1)),
        frame_of(0x23, struct.pack("<BQ", 1, 1 << 20)),
        frame_of(0x30, struct.pack("<Q", 5)),
        frame_of(0x35, b""),
    ]


def as_sink() -> list[bytes]:
    """Return the control frames of an honest sink."""
    layout = struct.pack("<BI", 1, 0)
    want = struct.pack("<QBQ", 0, 1, 1 << 20) + layout
    closed = struct.pack("<QBIIQ", 0, 1, 0, 1, 0)
    return [
        ready(),
        frame_of(0x12, struct.pack("<QIQQ", 0, 1, 0, 1)),
        frame_of(0x13, struct.pack("<I", 1) + want),
        frame_of(0x20, struct.pack("<III", 1, 0, 8)),
        frame_of(0x21, struct.pack("<IQB", 1, 0, 1)),
        frame_of(0x21, struct.pack("<IQB", 1, 0, 2)),
        frame_of(0x81, struct.pack("<I", 1)),
        frame_of(0x23, b"\0"),
        frame_of(0x14, struct.pack("<I", 1) + closed),
        frame_of(0x34, struct.pack("<6Q", 1, 0, 0, 0, 0, 3)),
        frame_of(0x36, b""),
    ]


def blocks(draw: random.Random) -> list[bytes]:
    """Return the stream frames of an honest source."""
    target = draw.choice([0, 0, 0, 7])
    return [
        block(1, target, segment(1, 0, b"abc")),
        block(2, target, segment(2, 0, bytes(1 << 16))),
        block(3, target, segment(2, 1 << 20, 1 << 20)),
    ]


def speak(talk: Talk, frames: list[bytes]) -> None:
    """Send the frames, then read answers until none arrives for 0.3 s."""
    talk.tls.settimeout(0.3)
    try:
        for frame in frames:
            talk.send(frame)
        talk.rest()
    except (*ABORTED, TimeoutError):
        pass


def assert_sound(server: Server, bench: Bench, seed: int) -> None:
    """Check that the server runs, used less than ``MEMORY``, and reported no defect of its own."""
    assert server.is_running(), seed
    log_text = server.log_path.read_text(encoding="utf-8", errors="replace")
    log_text += server.out_path.read_text(encoding="utf-8", errors="replace")
    assert "panicked" not in log_text, f"seed {seed}: {log_text}"
    assert '"internal"' not in log_text, f"seed {seed}: {log_text}"
    assert peak_memory(server.pid) < MEMORY, seed
    assert list((bench.folder / "outside").iterdir()) == []


@pytest.mark.parametrize("role", [SINK, SOURCE], ids=["sink", "source"])
def test_sessions_that_a_hostile_driver_begins(bench: Bench, token: bytes, role: int) -> None:
    root = bench.folder / "root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "f").write_bytes(b"abc")
    (bench.folder / "outside").mkdir()
    server = bench.serve(root, "--pool", "16MiB")
    for seed in seeds(SEEDS):
        fuzz = Fuzz(seed)
        options = Options(xattrs=fuzz.draw.random() < 0.5, transfer=b"fuzz:%d" % seed)
        path = b"evil%d" % seed if role == SINK else b"data/"
        try:
            driver = Driver(server.address, token, role, path, options=options).begin()
            if role == SINK:
                stream = driver.stream()
                stream.tls.settimeout(0.3)
                for frame in fuzz.frames(blocks(fuzz.draw)) if fuzz.draw.random() < 0.7 else []:
                    stream.send(frame)
                speak(driver, fuzz.frames(as_source(fuzz.draw)))
                stream.close()
            else:
                speak(driver, fuzz.frames(as_sink()))
            driver.close()
        except (*ABORTED, TimeoutError) as error:
            print(f"seed {seed}: {error}")
        assert_sound(server, bench, seed)
    print(f"peak {peak_memory(server.pid) >> 20} MiB")
    bench.cp(root / "data" / "f", f"dray://{server.address}/good", *bench.peer(server)).expect(0)


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_sessions_with_a_hostile_listener(bench: Bench, push: bool) -> None:
    here, outside = bench.folder / "here", bench.folder / "outside"
    here.mkdir()
    outside.mkdir()
    (here / "from").write_bytes(b"abc" * 1000)
    for seed in seeds(CLIENT_SEEDS):
        fuzz = Fuzz(seed)
        frames = fuzz.frames(as_sink() if push else as_source(fuzz.draw))

        def script(listener: Listener, talk: Talk, frames: list[bytes] = frames) -> None:
            if not push:
                talk.until("READY")
            speak(talk, frames)
            talk.close()
            del listener

        listener = Listener(bench.folder, script)
        url = f"dray://{listener.address}/d"
        into = here / f"into{seed}"
        words: list[Any] = [here / "from", url] if push else ["-r", url, f"{into}/"]
        words += ["--pool", "16MiB", "--retries", "0", "--token-file", bench.token]
        try:
            ended = bench.cp(*words, "--peer-key", listener.key, seconds=60)
        finally:
            listener.close()
        print(f"seed {seed}: {ended.code}, {ended.memory_peak >> 20} MiB")
        assert ended.code >= 0, f"seed {seed}: {ended.words}"
        assert "panicked" not in ended.words, f"seed {seed}: {ended.words}"
        assert (ended.report["error"] or {}).get("kind") != "internal", f"seed {seed}"
        assert ended.memory_peak < MEMORY, seed
        assert list(outside.iterdir()) == []
        _no_foreign(here, into)


def _no_foreign(here: Path, into: Path) -> None:
    """Fail if a pull of the folder ``d`` wrote any other file below ``here``."""
    if into.exists():
        found = {path.name for path in into.iterdir()}
        assert {name for name in found if not name.startswith(".dray-")} <= {"d"}, found
    assert (here / "from").read_bytes() == b"abc" * 1000
