"""Third-party copies from an XRootD server with ``dray serve`` beside it."""

from __future__ import annotations

import os
import shutil
import signal
from copy import copy
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file
from integration.xrootd import beside
from integration.xrootd.files import await_safe, configured, copies, make
from integration.xrootd.servers import HERE, give

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Server
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20


class Sites:
    """A source with ``dray serve`` beside it, and a destination that is configured for both."""

    def __init__(self, scene: Scene, program: Path, *config: str) -> None:
        """Start the source, ``dray serve`` and the destination."""
        self.scene = scene
        self.source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
        self.program = program
        self.dray = self.serve(self.source.data)
        self.sink = scene.server("sink", tpc=configured(scene, *config, *self.lines()))

    def serve(self, root: Path, listen: str = f"{HERE}:0") -> Server:
        """Start ``dray serve`` for the folder ``root``."""
        return beside.serve(self.scene, root, self.program, listen)

    def lines(self) -> list[str]:
        """Return the settings of the destination that name ``dray serve``."""
        return beside.settings(self.scene, self.dray, f"{HERE}:{self.source.port}")

    def copy(self, *options: str) -> None:
        """Copy the file ``a`` by ``xrdcp``."""
        words = ["--tpc", "only", *options, self.source.at("a"), self.sink.at("a")]
        self.scene.xrdcp(*words).expect(0)


@pytest.fixture
def endpoints() -> Iterator[list[Server]]:
    """Yield a list. At the end of the test, kill the servers in it."""
    started: list[Server] = []
    yield started
    for server in started:
        server.kill()


def begin(scene: Scene, program: Path, started: list[Server], *config: str) -> Sites:
    """Start the sites, and add their ``dray serve`` to ``started``."""
    sites = Sites(scene, program, *config)
    started.append(sites.dray)
    return sites


def transfers(sites: Sites) -> int:
    """Return the number of sessions that ``dray serve`` has served."""
    return len(sites.dray.transfers())


def test_the_bytes_come_from_dray(scene: Scene, program: Path, endpoints: list[Server]) -> None:
    """``dray serve`` sends the bytes. The copied file and its checksums are correct."""
    sites = begin(scene, program, endpoints)
    made = make(sites.source, "a", 64 * MIB + 5)
    sites.copy()
    assert transfers(sites) == 1
    assert hash_file(sites.sink.path("a")) == hash_file(made)
    for algorithm in ("adler32", "crc32c"):
        assert sites.sink.checksum("a", algorithm) == sites.source.checksum("a", algorithm)
    assert copies(sites.sink) == [(64 * MIB + 5, 0)]
    assert tree.leftovers(sites.sink.data) == []


def test_without_dray_the_server_is_read(
    scene: Scene, program: Path, endpoints: list[Server]
) -> None:
    """If ``dray serve`` dies, its durable data is kept, and the XRootD server sends the rest."""
    sites = begin(scene, program, endpoints, f"rate = {32 * MIB}")
    made = make(sites.source, "a", 64 * MIB)
    client = scene.begin(
        "xrdcp", "--nopbar", "--tpc", "only", sites.source.at("a"), sites.sink.at("a")
    )
    await_safe(sites.sink, 16 * MIB)
    (job,) = sites.sink.jobs()
    sites.dray.kill()
    os.kill(job, signal.SIGKILL)
    assert client.wait(60).code != 0
    sites.copy()
    assert hash_file(sites.sink.path("a")) == hash_file(made)
    ((sent, resumed),) = copies(sites.sink)
    assert resumed > 0
    assert sent + resumed == 64 * MIB


def test_a_lost_session_resumes_behind_a_link(
    scene: Scene, program: Path, endpoints: list[Server]
) -> None:
    """If the exported folder is a symbolic link, a lost session still resumes."""
    sites = begin(scene, program, endpoints, f"rate = {32 * MIB}")
    made = make(sites.source, "a", 64 * MIB)
    real = sites.sink.state / "real"
    sites.sink.data.rename(real)
    sites.sink.data.symlink_to(real)
    (real / "in").mkdir()
    give(real / "in")
    inner = copy(sites.sink)
    inner.data = sites.sink.data / "in"
    client = scene.begin(
        "xrdcp", "--nopbar", "--tpc", "only", sites.source.at("a"), sites.sink.at("in/a")
    )
    await_safe(inner, 16 * MIB)
    sites.dray.kill()
    endpoints.append(again := sites.serve(sites.source.data, sites.dray.address))
    client.wait(120).expect(0)
    assert hash_file(inner.path("a")) == hash_file(made)
    assert len(again.transfers()) == 1
    assert tree.leftovers(real) == []


@pytest.mark.parametrize("fault", ["unreadable", "another root", "another size"])
def test_a_dray_without_the_file_does_not_fail_the_copy(
    scene: Scene, program: Path, endpoints: list[Server], fault: str
) -> None:
    """If ``dray serve`` cannot read the file or has another one, the XRootD server sends it."""
    sites = begin(scene, program, endpoints)
    made = make(sites.source, "a", 8 * MIB)
    other = scene.folder / "elsewhere"
    other.mkdir()
    give(other)
    if fault != "another root":
        shutil.copy(made, other / "a")
        give(other / "a")
        state = made.stat()
        os.utime(other / "a", ns=(state.st_atime_ns, state.st_mtime_ns))
    if fault == "unreadable":
        (other / "a").chmod(0)
    elif fault == "another size":
        os.truncate(other / "a", MIB)
    endpoints.append(elsewhere := sites.serve(other))
    sites.dray.kill()
    sites.dray = elsewhere
    configured(scene, *sites.lines())
    sites.copy()
    assert hash_file(sites.sink.path("a")) == hash_file(made)
    assert "reading from the XRootD server instead" in sites.sink.said()
    # The XRootD server sent all bytes.
    assert copies(sites.sink)[-1] == (8 * MIB, 0)
    assert tree.leftovers(sites.sink.data) == []


def test_a_file_of_another_time_at_dray_is_copied_and_compared(
    scene: Scene, program: Path, endpoints: list[Server]
) -> None:
    """If only the time differs, dray copies the file and compares the checksums."""
    sites = begin(scene, program, endpoints)
    made = make(sites.source, "a", 8 * MIB)
    other = scene.folder / "elsewhere"
    other.mkdir()
    give(other)
    shutil.copy(made, other / "a")
    give(other / "a")
    os.utime(other / "a", (1_000_000_000, 1_000_000_000))
    endpoints.append(elsewhere := sites.serve(other))
    sites.dray.kill()
    sites.dray = elsewhere
    configured(scene, *sites.lines())
    sites.copy()
    assert hash_file(sites.sink.path("a")) == hash_file(made)
    assert "reading from the XRootD server instead" not in sites.sink.said()
    assert tree.leftovers(sites.sink.data) == []


def test_an_unreachable_dray_is_waited_for_once(
    scene: Scene, program: Path, endpoints: list[Server]
) -> None:
    """The first copy tries ``dray serve``. For some minutes, later copies do not try again."""
    sites = begin(scene, program, endpoints)
    made = make(sites.source, "a", MIB)
    sites.dray.kill()
    for _ in range(3):
        sites.copy()
        assert hash_file(sites.sink.path("a")) == hash_file(made)
        sites.sink.path("a").unlink()
    log_text = sites.sink.said()
    assert log_text.count("reading from the XRootD server instead") == 1, log_text
    assert log_text.count("was unreachable a short time ago") == 2
    (known,) = sites.sink.admin.rglob("dray-deaf-servers")
    assert f"dray://{sites.dray.address}\n" in known.read_text(encoding="ascii")
