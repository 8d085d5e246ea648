"""Bytes of a partial file change between two runs. The second run sends these bytes again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process, Server, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

OBJECT = tree.MIB
SIZE = 40 * tree.MIB + 123
RATE = "16MiB"
#: Minimum number of durable bytes when the first run is killed.
SAFE = 12 * tree.MIB


class Broken:
    """A copy whose client was killed after a part of the data."""

    def __init__(self, bench: Bench, way: str, folder: Path | None = None) -> None:
        """Start the copy in ``folder``, and kill the client when a part of the data is durable."""
        self.bench, self.way = bench, way
        self.folder = folder or bench.folder
        self.source = self.folder / "source"
        tree.make_file(self.source, SIZE, seed=11)
        self.sink = self.folder / "sink"
        self.sink.mkdir()
        self.server: Server | None = None
        if way != "cp":
            self.server = bench.serve(self.sink if way == "serve" else self.folder)
        first = bench.start_cp(*self._words("--rate", RATE, "--progress", "json"))
        first.await_durable(SAFE)
        first.kill()
        if self.server is not None and way == "serve":
            self.server.kill()
            self.server = bench.serve(self.sink, listen=self.server.address)
        shown = subprocess.run(
            [bench.program, "log", "show", "--json", self.sink],
            check=True,
            capture_output=True,
            text=True,
        )
        [file] = json.loads(shown.stdout)["logs"][0]["files"]
        self.partial = self.sink / file["partial"]
        self.safe = int(file["bytes_safe"])
        assert SAFE <= self.safe < SIZE
        runs = [(run["offset"], run["offset"] + run["length"]) for run in file["safe"]]
        #: Offsets of the objects in the log.
        self.logged = [
            at
            for at in range(0, SIZE, OBJECT)
            if any(start <= at and min(at + OBJECT, SIZE) <= end for start, end in runs)
        ]

    def _words(self, *more: Word) -> list[Word]:
        places: list[Word] = [self.source, self.sink / "large"]
        if self.server is not None:
            peer = self.bench.peer(self.server)
            far = f"dray://{self.server.address}"
            places = [self.source, f"{far}/large", *peer]
            if self.way == "pull":
                places = [f"{far}/source", self.sink / "large", *peer]
        return [*more, "--object-size", str(OBJECT), *places]

    def start(self, *more: Word, wrap: Sequence[str] = ()) -> Process:
        """Start the same command again."""
        return self.bench.start_cp(*self._words(*more), wrap=wrap)

    def again(self, *more: Word, wrap: Sequence[str] = ()) -> Ended:
        """Run the same command again, and wait until it succeeds."""
        return self.start(*more, wrap=wrap).wait(120).expect(0)

    def remove(self) -> None:
        """Remove the source file and the destination folder."""
        shutil.rmtree(self.sink)
        self.source.unlink()

    def check(self) -> None:
        """Check that the copy equals the source, and that no partial file remains."""
        assert tree.hash_file(self.sink / "large") == tree.hash_file(self.source)
        assert list(self.sink.glob(".dray-*.part")) == []


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file. Its size and time do not change."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        os.fsync(file.fileno())


@pytest.mark.parametrize("way", ["cp", "serve"])
def test_a_flipped_byte_costs_its_object(bench: Bench, way: str) -> None:
    broken = Broken(bench, way)
    flip(broken.partial, broken.logged[2] + 77)
    ended = broken.again()
    broken.check()
    report = ended.report
    assert report["bytes_resumed"] == broken.safe - OBJECT
    assert report["bytes_sent"] == SIZE - broken.safe + OBJECT
    if way == "cp":
        notice = (
            f"{OBJECT} of the {broken.safe} logged bytes of the partial file do not match "
            "the checksums in the log"
        )
        assert notice in str(report["notices"])


@pytest.mark.parametrize("way", ["cp", "serve"])
def test_a_file_that_was_cut_and_extended_is_sent_from_there(bench: Bench, way: str) -> None:
    broken = Broken(bench, way)
    length = broken.partial.stat().st_size
    cut = broken.logged[len(broken.logged) // 2]
    os.truncate(broken.partial, cut)
    os.truncate(broken.partial, length)
    report = broken.again().report
    broken.check()
    kept = sum(min(OBJECT, SIZE - at) for at in broken.logged if at < cut)
    assert report["bytes_resumed"] <= kept
    assert report["bytes_sent"] == SIZE - report["bytes_resumed"]


@pytest.mark.parametrize("way", ["cp", "serve"])
def test_nothing_is_sent_twice_when_nothing_has_changed(bench: Bench, way: str) -> None:
    broken = Broken(bench, way)
    report = broken.again().report
    broken.check()
    assert report["bytes_resumed"] == broken.safe
    assert report["bytes_sent"] == SIZE - broken.safe
    assert report["notices"] == []


@pytest.mark.parametrize("way", ["cp", "serve", "pull"])
def test_trusted_bytes_are_not_reported_as_verified(bench: Bench, way: str) -> None:
    broken = Broken(bench, way)
    flip(broken.partial, broken.logged[0])
    report = broken.again("--resume", "trust", "--checksum-attributes").report
    assert report["bytes_resumed"] == broken.safe
    assert report["notices"] == []
    # Data that this run has added to an earlier run's file is read back anyway.
    assert report["bytes_read_back"] == (0 if way == "serve" else SIZE - broken.safe)
    large = broken.sink / "large"
    assert "user.dray.sums" not in os.listxattr(large)
    large.unlink()
    broken.again("--checksum-attributes")
    assert "user.dray.sums" in os.listxattr(large)
    broken.check()
