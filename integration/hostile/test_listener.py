"""A listener that ``dray cp`` dials sends frames that no honest source or sink sends."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from integration.hostile.actors import (
    ABORTED,
    FOLDER,
    FOLDER_END,
    LINK,
    Listener,
    block,
    entry,
    new_files,
    ready,
    segment,
)
from integration.wire.peer import data_of, frame_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Word
    from integration.hostile.actors import Talk

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

POOL = 16 << 20
MEMORY = POOL + (64 << 20)
CAPABILITY = bytes.fromhex("0100000204000000000000000000000000000000")


def list_end(count: int) -> bytes:
    """Write LIST_END."""
    return frame_of(0x11, struct.pack("<Q", count))


class Scene:
    """Run ``dray cp`` with a hostile listener, and check its memory and the files it leaves."""

    def __init__(self, bench: Bench) -> None:
        """Make the local folder."""
        self.bench = bench
        self.here = bench.folder / "here"
        self.here.mkdir()

    def _run(
        self,
        script: Callable[[Listener, Talk], None],
        words: Callable[[str], list[Word]],
    ) -> Ended:
        listener = Listener(self.bench.folder, script)
        usual: list[Word] = ["--pool", "16MiB", "--retries", "0"]
        usual += ["--token-file", self.bench.token, "--peer-key", listener.key]
        try:
            ended = self.bench.cp(*words(f"dray://{listener.address}/"), *usual, seconds=60)
        finally:
            listener.close()
        assert listener.errors == []
        print(ended.code, ended.report["error"], ended.report["files_failed"])
        print(f"peak {ended.memory_peak >> 20} MiB")
        assert "panicked" not in ended.words
        assert ended.memory_peak < MEMORY
        left = {path.name for path in self.bench.folder.iterdir()}
        assert left <= {
            "here",
            "logs",
            "token",
            "hostile.pem",
            "hostile.pem.crt",
            "outside",
            "from",
        }
        return ended

    def pull(self, path: str, script: Callable[[Listener, Talk], None], *words: Word) -> Ended:
        """Copy ``path`` from the listener to the local folder."""
        return self._run(script, lambda url: [*words, f"{url}{path}", f"{self.here}/"])

    def push(self, source: Path, script: Callable[[Listener, Talk], None], *words: Word) -> Ended:
        """Copy ``source`` to the listener."""
        return self._run(script, lambda url: [*words, source, f"{url}to/"])


@pytest.fixture
def scene(bench: Bench) -> Scene:
    """Return the scene of one test."""
    return Scene(bench)


def announcing(*entries: bytes, count: int | None = None) -> Callable[[Listener, Talk], None]:
    """Return the script of a source that announces ``entries`` but sends no data."""

    def script(_: Listener, talk: Talk) -> None:
        talk.until("READY")
        talk.send(new_files(*entries), list_end(len(entries) if count is None else count))
        talk.until("VERDICT")
        talk.send(frame_of(0x35, b""))

    return script


def folder_of(name: bytes, *inside: bytes, first: int = 0) -> tuple[bytes, ...]:
    """Write the entries of a folder and its content."""
    return (entry(first, name, FOLDER), *inside, entry(first, name, FOLDER_END))


def small(name: bytes = b"f", data: bytes = b"abc", **more: Any) -> Callable[..., None]:  # noqa: ANN401
    """Return the script of a source that announces one small file and sends its bytes."""

    def script(listener: Listener, talk: Talk) -> None:
        talk.until("READY")
        talk.send(new_files(entry(0, name, size=len(data), **more)), list_end(1))
        ids = talk.until("FILE_IDS", "FILE_CLOSE", "GO_AWAY")
        if ids["type"] == "FILE_IDS":
            target = ids["fields"]["files"][0]["layout"]["single"]
            if not any(frame["type"] == "CREDIT" for frame in talk.said):
                talk.until("CREDIT")
            listener.stream().send(block(1, target, segment(0, 0, data)))
        talk.until("VERDICT", "GO_AWAY")
        talk.send(frame_of(0x35, b""))

    return script


def names_in(folder: Path) -> set[str]:
    """Return the relative paths of all files below a folder, except dray's own files."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in found if ".dray-" not in name}


def test_an_honest_listener_is_served(scene: Scene) -> None:
    ended = scene.pull("data/f", small(xattrs=[(b"user.a", b"1")], mode=0o600), "--xattrs")
    assert ended.code == 0
    assert (scene.here / "f").read_bytes() == b"abc"
    assert os.getxattr(scene.here / "f", "user.a") == b"1"


@pytest.mark.parametrize(
    "name", [b"security.capability", b"trusted.x", b"user.dray.sums"], ids=bytes.decode
)
def test_a_pull_sets_no_reserved_attribute(scene: Scene, name: bytes) -> None:
    for words in ([], ["--xattrs"]):
        script = small(mode=0o755, xattrs=[(name, CAPABILITY)])
        ended = scene.pull("data/f", script, *words)
        assert ended.report["error"]["kind"] == "protocol"
        assert not (scene.here / "f").exists()


def test_attributes_of_storage_systems_are_left_out_and_reported(scene: Scene) -> None:
    script = small(xattrs=[(b"user.XrdCks.adler32", b"forged")])
    ended = scene.pull("data/f", script, "--xattrs").expect(0)
    assert os.listxattr(scene.here / "f") == []
    assert "user.XrdCks.adler32" in "".join(ended.report["notices"])


#: By name: the requested path, options of ``dray cp``, and entries that the request excludes.
UNASKED: dict[str, tuple[str, list[str], tuple[bytes, ...]]] = {
    "another-name": ("data/f", [], (entry(0, b".bashrc"),)),
    "a-folder": ("data/f", [], folder_of(b"f", entry(1, b"x", parent=0))),
    "a-folder-of-another-name": ("data/d", ["-r"], folder_of(b".ssh", entry(1, b"x", parent=0))),
    "excluded": (
        "data/d",
        ["-r", "--exclude", ".ssh"],
        folder_of(b"d", *(entry(1, b".ssh", LINK, parent=0, target=b"/root"),)),
    ),
    "not-included": (
        "data/",
        ["-r", "--include", "*.root"],
        (entry(0, b"a.sh"),),
    ),
    "excluded-folder": (
        "data/",
        ["-r", "--exclude", ".ssh"],
        (
            entry(0, b".ssh", FOLDER),
            entry(1, b"authorized_keys", parent=0),
            entry(0, b".ssh", FOLDER_END),
        ),
    ),
    "a-link": ("data/f", ["--links", "follow"], (entry(0, b"f", LINK, target=b"/etc/passwd"),)),
    "no-links": ("data/f", ["--links", "refuse"], (entry(0, b"f", LINK, target=b"/etc/passwd"),)),
    "another-size": ("data/f", ["--range", "0:10"], (entry(0, b"f", size=11),)),
}


@pytest.mark.parametrize("what", UNASKED)
def test_a_pull_takes_only_what_was_asked_for(scene: Scene, what: str) -> None:
    path, words, entries = UNASKED[what]
    count = len({each[:8] for each in entries})
    ended = scene.pull(path, announcing(*entries, count=count), *words)
    assert ended.code != 0
    assert names_in(scene.here) <= {"d"}, what


NAMES = {
    "dot-dot": b"..",
    "slash": b"../evil",
    "absolute": b"/tmp/evil",
    "zero": b"a\0b",
    "too-long": b"n" * 256,
}


@pytest.mark.parametrize("name", NAMES)
def test_invalid_names_end_the_session(scene: Scene, name: str) -> None:
    ended = scene.pull("data/", announcing(entry(0, NAMES[name])), "-r")
    assert ended.report["error"]["kind"] in {"protocol", "limit_exceeded"}
    assert names_in(scene.here) == set()


def test_a_pull_writes_through_no_link(scene: Scene) -> None:
    outside = scene.bench.folder / "outside"
    outside.mkdir()
    entries = (
        entry(0, b"way", LINK, target=os.fsencode(outside)),
        entry(1, b"way", FOLDER),
        entry(2, b"file", parent=1),
        entry(1, b"way", FOLDER_END),
    )
    ended = scene.pull("data/", announcing(*entries, count=3), "-r")
    assert ended.code != 0
    assert list(outside.iterdir()) == []


def test_a_wrong_payload_is_never_published(scene: Scene) -> None:
    def script(listener: Listener, talk: Talk) -> None:
        talk.until("READY")
        talk.send(new_files(entry(0, b"f", size=3)), list_end(1))
        ids = talk.until("FILE_IDS")["fields"]["files"][0]
        if not any(frame["type"] == "CREDIT" for frame in talk.said):
            talk.until("CREDIT")
        wrong = segment(0, 0, b"abc", sums=(1, 2))
        listener.stream().send(block(1, ids["layout"]["single"], wrong))
        assert talk.until("BLOCK_SYNC")["fields"]["blocks"][0]["state"] == "nack"
        talk.close()

    assert scene.pull("data/f", script).code != 0
    assert names_in(scene.here) == set()


# Frames that a sink must not send.


def sinking(
    *frames: Callable[[dict[str, Any]], bytes], before: bytes | None = None
) -> Callable[[Listener, Talk], None]:
    """Return the script of a sink that answers the first entry with ``frames``."""

    def script(_: Listener, talk: Talk) -> None:
        talk.send(before or ready())
        first = talk.until("NEW_FILES")["fields"]["entries"][0]
        for frame in frames:
            talk.send(frame(first))
        talk.until("GO_AWAY")

    return script


def want(layout: bytes, object_bytes: int = 1 << 20) -> bytes:
    """Write FILE_IDS: the sink wants entry 0."""
    return frame_of(0x13, struct.pack("<IQBQ", 1, 0, 1, object_bytes) + layout)


def single(target: int = 0) -> bytes:
    """Write the layout of a file on one target."""
    return struct.pack("<BI", 1, target)


def striped(stripe_bytes: int, targets: range) -> bytes:
    """Write the layout of a file that is striped over ``targets``."""
    head = struct.pack("<BQI", 2, stripe_bytes, len(targets))
    return head + struct.pack(f"<{len(targets)}I", *targets)


def credit(targets: range, count: int = 1) -> bytes:
    """Write CREDIT."""
    pairs = b"".join(struct.pack("<II", target, count) for target in targets)
    return frame_of(0x20, struct.pack("<I", len(targets)) + pairs)


@pytest.fixture
def large(scene: Scene) -> Path:
    """Make a sparse file of 1 TiB."""
    source = scene.bench.folder / "from"
    with source.open("wb") as file:
        file.truncate(1 << 40)
        file.write(b"begin")
    return source


def test_tiny_objects_over_many_targets_are_bounded(scene: Scene, large: Path) -> None:
    """The sink asks for 2^40 objects of one byte, in turn on 4 096 targets."""

    def script(_: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("NEW_FILES")
        talk.send(want(striped(1, range(4096)), object_bytes=1), credit(range(4096)))
        talk.tls.settimeout(5)
        talk.rest()

    assert scene.push(large, script).code != 0


def test_targets_without_end_are_refused(scene: Scene, large: Path) -> None:
    def script(_: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("NEW_FILES")
        try:
            for at in range(40):
                talk.send(credit(range(at * 10_000, (at + 1) * 10_000)))
        except ABORTED:
            pass
        talk.until("GO_AWAY")

    ended = scene.push(large, script)
    assert ended.report["error"]["kind"] == "limit_exceeded"


def test_credit_without_end_is_not_remembered_block_by_block(scene: Scene, large: Path) -> None:
    """The sink grants endless credit for objects of 64 bytes, and acknowledges no object."""

    def script(listener: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("NEW_FILES")
        talk.send(want(single(), object_bytes=64), credit(range(1), 2**32 - 1))
        stream = listener.stream()
        stream.tls.settimeout(4)
        try:
            for _ in range(2000):
                stream.take(1 << 16)
        except (*ABORTED, TimeoutError):
            pass
        talk.close()

    assert scene.push(large, script).code != 0


SAYS: dict[str, list[bytes]] = {
    "no-object": [want(single(), object_bytes=2**63)],
    "twice": [want(single()), want(single())],
    "done-past-the-end": [frame_of(0x12, struct.pack("<QIQQ", 0, 1, 1 << 50, 1))],
    "bye-first": [frame_of(0x36, b"")],
    "a-source-s-word": [list_end(1)],
    "second-ready": [ready()],
}


@pytest.mark.parametrize("what", SAYS)
def test_an_invalid_message_of_a_sink_ends_the_session(
    scene: Scene, large: Path, what: str
) -> None:
    said = SAYS[what]
    ended = scene.push(large, sinking(*(lambda _, frame=frame: frame for frame in said)))
    assert ended.report["error"]["kind"] in {"protocol", "limit_exceeded"}, ended.report["error"]


# A sink reports a file as done that it has not stored. A source that believed it would lose data.


def verdict(*counts: int) -> bytes:
    """Write VERDICT."""
    return frame_of(0x34, struct.pack("<6Q", *counts))


def closed(index: int) -> bytes:
    """Write FILE_CLOSE of a stored entry."""
    return frame_of(0x14, struct.pack("<IQBIIQ", 1, index, 1, 0, 1, 0))


def given_up(index: int) -> bytes:
    """Write FILE_CLOSE of a failed entry."""
    error = struct.pack("<HBBB", 0, 0, 1, 0) + data_of(b"write") + data_of(b"full") + data_of(b"")
    return frame_of(0x14, struct.pack("<IQB", 1, index, 2) + error + struct.pack("<Q", 0))


def answer(state: int) -> bytes:
    """Write BLOCK_SYNC of block 0. State 1 is written, 2 is durable."""
    return frame_of(0x21, struct.pack("<IQB", 1, 0, state))


#: The six counts of VERDICT, for one file of 5 bytes, one file of 3 MiB, and no file.
DONE, DONE_LARGE, NOTHING = (1, 0, 0, 0, 0, 5), (1, 0, 0, 0, 0, 3 << 20), (0,) * 6

#: By name: the size of the file, the frames of a sink that receives no data, and words in the
#: error of the source.
EARLY: dict[str, tuple[int, list[bytes], str]] = {
    "at-once": (5, [verdict(*DONE)], "but 1 of 1 entries have not ended"),
    "of-nothing": (5, [verdict(*NOTHING)], "but 1 of 1 entries have not ended"),
    "wanted": (5, [want(single()), verdict(*DONE)], "but 1 of 1 entries have not ended"),
    "closed": (5, [want(single()), closed(0), verdict(*DONE)], "0 of its 5 bytes are sent"),
    "not-wanted": (5, [closed(0), verdict(*DONE)], "not requested"),
    "large": (
        3 << 20,
        [want(single()), closed(0), verdict(*DONE_LARGE)],
        "0 of its 3145728 bytes are durable",
    ),
    "answered-before-it-was-sent": (
        5,
        [want(single()), answer(1), answer(2), closed(0), verdict(*DONE)],
        "0 of its 5 bytes are sent",
    ),
    "a-failure-as-a-success": (
        5,
        [given_up(0), verdict(*DONE)],
        "verdict of the sink counts 1 files",
    ),
    "a-failure-left-out": (
        5,
        [given_up(0), verdict(*NOTHING)],
        "verdict of the sink counts 0 failures",
    ),
    "more-than-it-said": (0, [want(single()), closed(0), verdict(9, 0, 0, 0, 0, 0)], "9 files"),
}


@pytest.mark.parametrize("what", EARLY)
def test_a_sink_that_reports_done_too_early_is_not_trusted(scene: Scene, what: str) -> None:
    size, said, cause = EARLY[what]
    source = scene.bench.folder / "from"
    source.write_bytes(b"x" * size)

    def script(_: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("LIST_END")
        talk.send(*said)
        talk.until("VERDICT_STORED", "GO_AWAY")
        talk.send(frame_of(0x36, b""))

    ended = scene.push(source, script)
    assert ended.code == 5, ended.words
    error = ended.report["error"]
    assert error["kind"] == "protocol", error
    assert error["end"] == "sink"
    assert cause in error["cause"], error


def test_counts_of_a_verdict_are_compared(scene: Scene) -> None:
    source = scene.bench.folder / "from"
    source.write_bytes(b"")

    def script(_: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("LIST_END")
        talk.send(frame_of(0x34, struct.pack("<6Q", *([2**64 - 1] * 6))))
        talk.until("VERDICT_STORED")
        talk.send(frame_of(0x36, b""))

    assert scene.push(source, script).code != 0


@pytest.mark.parametrize("answers", [[1], [1, 2]], ids=["written", "one-durable"])
def test_a_large_file_is_published_when_all_its_bytes_are_durable(
    scene: Scene, answers: list[int]
) -> None:
    """The source has sent three objects. The sink reports at most one of them as durable."""
    source = scene.bench.folder / "from"
    source.write_bytes(b"x" * (3 << 20))

    def script(listener: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("LIST_END")
        talk.send(want(single()), credit(range(1), 3))
        listener.stream().take(3 << 20)
        talk.send(*map(answer, answers), closed(0), verdict(*DONE_LARGE))
        talk.until("VERDICT_STORED", "GO_AWAY")
        talk.send(frame_of(0x36, b""))

    ended = scene.push(source, script, "--streams", "1")
    assert ended.code == 5, ended.words
    assert ended.report["error"]["kind"] == "protocol"
    assert "bytes are durable" in ended.report["error"]["cause"]


def test_an_honest_sink_is_accepted(scene: Scene) -> None:
    source = scene.bench.folder / "from"
    source.write_bytes(b"hello")

    def script(listener: Listener, talk: Talk) -> None:
        talk.send(ready())
        talk.until("LIST_END")
        talk.send(want(single()), credit(range(1), 1))
        listener.stream().take(5)
        talk.send(closed(0), answer(2), verdict(*DONE))
        talk.until("VERDICT_STORED")
        talk.send(frame_of(0x36, b""))

    scene.push(source, script, "--streams", "1").expect(0)


# Frames of a source whose list contradicts itself.

LISTS: dict[str, tuple[bytes, ...]] = {
    "more-entries": (new_files(entry(0, b"a", size=1)), list_end(1), new_files(entry(1, b"b"))),
    "a-second-end": (new_files(entry(0, b"a", size=1)), list_end(1), list_end(1)),
    "a-folder-without-end": (new_files(entry(0, b"d", FOLDER)), list_end(1)),
    "fewer": (new_files(entry(0, b"a")), list_end(2)),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_list_that_contradicts_itself_ends_the_session(scene: Scene, what: str) -> None:
    def script(_: Listener, talk: Talk) -> None:
        talk.until("READY")
        talk.send(*LISTS[what])
        talk.until("GO_AWAY", "VERDICT")

    ended = scene.pull("data/", script, "-r")
    assert ended.report["error"]["kind"] == "protocol", ended.report
