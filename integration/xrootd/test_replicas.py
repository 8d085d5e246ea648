"""A copy reads one file from all servers of an XRootD cluster that have a replica of it."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration.harness.tree import hash_file, leftovers
from integration.xrootd import gsi
from integration.xrootd.cp import begin, cp
from integration.xrootd.files import make

if TYPE_CHECKING:
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = pytest.mark.server

MIB = 1 << 20
SIZE = 160 * MIB
#: Maximum bytes that the servers send in addition to the bytes of the file.
MORE = 2 * MIB
#: Modification time of the replica at the first server. Each further replica is a day younger.
FIRST_TIME = 1_700_000_000
DAY = 86_400


class Replicas(NamedTuple):
    """A cluster in which each server has a replica of one file."""

    head: Xrootd
    data: list[Xrootd]
    source: Path

    def sent(self) -> list[int]:
        """Return how many bytes each server's process has written.

        XRootD's own count of sent bytes leaves out connections that are still open.
        """
        return [written(server) for server in self.data]


def written(server: Xrootd) -> int:
    """Return how many bytes a server's process has written."""
    assert server.process is not None
    counts = Path(f"/proc/{server.process.pid}/io").read_text(encoding="ascii")
    match = re.search(r"^wchar: (\d+)$", counts, re.MULTILINE)
    assert match, counts
    return int(match[1])


def put(server: Xrootd, number: int, size: int = SIZE, seed: int = 1) -> Path:
    """Make a replica at a server, with a time ``number`` days after ``FIRST_TIME``."""
    path = make(server, "in/a", size, seed)
    seconds = FIRST_TIME + number * DAY
    os.utime(path, (seconds, seconds))
    return path


def await_located(
    scene: Scene,
    head: Xrootd,
    data: list[Xrootd],
    path: str = "/in/a",
    env: dict[str, str] | None = None,
) -> None:
    """Wait until the redirector knows that all servers in ``data`` have the file."""
    until = time.monotonic() + 90
    output = ""
    while not all(f":{server.port} " in output for server in data):
        assert time.monotonic() < until, output + head.said()
        time.sleep(0.3)
        output = scene.run("xrdfs", head.url, "locate", path, env=env).out


def replicas(scene: Scene, *others: tuple[int, int]) -> Replicas:
    """Start a cluster of three servers, each with a replica.

    :param others: size and seed of the different files that the last servers have instead of the
        replica.
    """
    head, data = scene.cluster(3, tpc=None)
    files = [(SIZE, 1)] * (len(data) - len(others)) + list(others)
    paths = [
        put(server, number, size, seed)
        for number, (server, (size, seed)) in enumerate(zip(data, files, strict=True))
    ]
    await_located(scene, head, data)
    return Replicas(head, data, paths[0])


def test_one_file_comes_from_all_its_servers_concurrently(bare: Scene, ours: Path) -> None:
    """Each server sends a part of the file. No byte is sent twice."""
    cluster = replicas(bare)
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    copy = begin(bare, ours, "--progress", "json", "--rate", "24MiB", cluster.head.at("in/a"), to)
    # One of the servers may answer later than the others.
    copy.await_durable(SIZE // 3)
    halfway = cluster.sent()
    copy.wait(120).expect(0)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    early = [after - then for after, then in zip(halfway, before, strict=True)]
    assert sum(early) < SIZE * 3 // 4, "sampled too late"
    assert min(early) > SIZE // 64, early
    assert min(given) > SIZE // 6, given
    assert SIZE <= sum(given) < SIZE + MORE, given
    assert hash_file(to) == hash_file(cluster.source)
    assert leftovers(to.parent) == []
    # The copy gets the time of the oldest replica.
    assert int(to.stat().st_mtime) == FIRST_TIME
    again = cp(bare, ours, cluster.head.at("in/a"), to).expect(0)
    assert again.report["bytes_sent"] == 0


def test_the_other_servers_replace_a_dead_one(bare: Scene, ours: Path) -> None:
    """If a server is killed during a copy, the other servers send its part."""
    cluster = replicas(bare)
    to = bare.folder / "out" / "a"
    copy = begin(bare, ours, "--progress", "json", "--rate", "48MiB", cluster.head.at("in/a"), to)
    copy.await_durable(SIZE // 8)
    cluster.data[1].kill()
    began = time.monotonic()
    ended = copy.wait(120).expect(0)
    assert time.monotonic() - began < 60
    assert ended.report["bytes_sent"] == SIZE
    assert hash_file(to) == hash_file(cluster.source)


@pytest.mark.full
def test_a_stalled_server_is_bypassed(bare: Scene, ours: Path) -> None:
    """A stopped server delays the requests to it until their timeout."""
    cluster = replicas(bare)
    to = bare.folder / "out" / "a"
    copy = begin(bare, ours, "--progress", "json", "--rate", "48MiB", cluster.head.at("in/a"), to)
    copy.await_durable(SIZE // 8)
    stopped = cluster.data[1].process
    assert stopped is not None
    stopped.send(signal.SIGSTOP)
    try:
        copy.wait(180).expect(0)
    finally:
        stopped.send(signal.SIGCONT)
    assert hash_file(to) == hash_file(cluster.source)


def test_a_replica_of_another_size_is_left_out(bare: Scene, ours: Path) -> None:
    """No data is read from a server whose file has another size."""
    cluster = replicas(bare, (SIZE - 3 * MIB, 2))
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    ended = cp(bare, ours, cluster.head.at("in/a"), to)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    assert given[2] < MORE, given
    if ended.code == 0:
        assert hash_file(to) == hash_file(cluster.source)
    else:
        # The redirector got the checksum from the server with the different file.
        assert "checksum" in ended.out + ended.words
        assert not to.exists()


def test_replicas_that_differ_are_never_one_file(bare: Scene, ours: Path) -> None:
    """Two replicas have the same size, but different content: the checksum fails."""
    cluster = replicas(bare, (SIZE, 2))
    to = bare.folder / "out" / "a"
    ended = cp(bare, ours, cluster.head.at("in/a"), to)
    assert ended.code != 0
    assert "checksum" in ended.out + ended.words
    assert not to.exists()


@pytest.mark.parametrize("way", ["range", "folder", "slash"])
def test_a_copy_without_a_checksum_comes_from_one_server(bare: Scene, ours: Path, way: str) -> None:
    """A range, or a file in a folder, has no known checksum. Then dray reads from one server."""
    cluster = replicas(bare)
    words: tuple[str, ...] = ("--range", f"0:{SIZE - MIB}")
    to = bare.folder / "out" / "a"
    if way == "folder":
        words, to = ("-r",), bare.folder / "out"
    asked = cluster.head.at("in/a")
    if way == "slash":
        words, asked = (), asked + "/"
    before = cluster.sent()
    ended = cp(bare, ours, *words, asked, to)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    assert sorted(given)[1] < MORE, given
    if way == "slash":
        # A URL with a slash at its end names a folder, so the copy fails.
        assert ended.code != 0
        assert "in/a" in ended.out + ended.words
    else:
        ended.expect(0)


def test_a_killed_copy_resumes_from_the_remaining_replicas(bare: Scene, ours: Path) -> None:
    """A killed copy resumes from the other servers, although their replicas have other times."""
    cluster = replicas(bare)
    to = bare.folder / "out" / "a"
    words = ("--progress", "json", "--rate", "48MiB", cluster.head.at("in/a"), to)
    killed = begin(bare, ours, *words)
    killed.await_durable(SIZE // 4)
    assert killed.kill().code != 0
    cluster.data[2].kill()
    await_located(bare, cluster.head, cluster.data[:2])
    ended = cp(bare, ours, cluster.head.at("in/a"), to).expect(0)
    assert ended.report["bytes_resumed"] >= SIZE // 4
    assert ended.report["bytes_sent"] == SIZE - ended.report["bytes_resumed"]
    assert hash_file(to) == hash_file(cluster.source)


@pytest.mark.full
def test_without_a_checksum_to_compare_one_server_is_read(bare: Scene, ours: Path) -> None:
    """If the servers compute no checksums, dray cannot compare replicas, and reads one server."""
    cluster = replicas(bare)
    for server in cluster.data:
        server.kill()
        server.sums = ""
        server.start()
        server.start_manager()
    await_located(bare, cluster.head, cluster.data)
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    # The redirector may name different servers for two requests. dray reads from the server that
    # reported the time of the file.
    cp(bare, ours, cluster.head.at("in/a"), to).expect(0)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    assert sorted(given)[1] < MORE, given
    assert hash_file(to) == hash_file(cluster.source)


def test_a_third_party_copy_comes_from_all_servers(scene: Scene) -> None:
    """A destination with delegated credentials may open the source at every server."""
    grid = gsi.make(scene)
    # Accept any name in a certificate: the redirector names its servers by address, and the
    # certificates contain a host name.
    anywhere = {"XrdSecGSISRVNAMES": "*"}
    env, person = {**grid.env, **anywhere}, {**grid.person, **anywhere}
    head, data = scene.cluster(3, tpc=None, lines=grid.lines(), env=env)
    what = f"fcreds gsi =X509_USER_PROXY pgm {scene.programs / 'dray-xrootd-tpc'}"
    sink = scene.server("sink", tpc=what, lines=grid.lines(), env=env)
    made, *_ = [put(server, number) for number, server in enumerate(data)]
    await_located(scene, head, data, env=person)
    words = ("--tpc", "delegate", "only", "-f", head.at("in/a"), sink.at("a"))
    before = [written(server) for server in data]
    scene.xrdcp(*words, env=person).expect(0)
    given = [written(server) - then for server, then in zip(data, before, strict=True)]
    assert min(given) > SIZE // 6, (given, sink.said())
    assert SIZE <= sum(given) < SIZE + MORE, given
    assert hash_file(sink.path("a")) == hash_file(made)


def test_a_folder_with_replicas_arrives_whole(bare: Scene, ours: Path) -> None:
    """Copy a folder with files that one server has, and files that all servers have.

    The replicas of a file have different times. The copy gets the oldest time.
    """
    cluster = replicas(bare)
    small = [f"small{number}" for number in range(30)]
    for number, server in enumerate(cluster.data):
        make(server, f"in/only{number}", 70 * MIB if number == 0 else 4096, seed=number)
        for seed, name in enumerate(small):
            make(server, f"in/{name}", 4096, seed)
            # Each server has the oldest replica of some of the files.
            seconds = FIRST_TIME + (number + seed) % 3 * DAY
            os.utime(server.path(f"in/{name}"), (seconds, seconds))
    for number, server in enumerate(cluster.data):
        await_located(bare, cluster.head, [server], f"/in/only{number}")
    to = bare.folder / "out"
    cp(bare, ours, "-r", cluster.head.at("in/"), f"{to}/").expect(0)
    found = sorted(path.name for path in to.iterdir() if not path.name.startswith("."))
    assert found == ["a", "only0", "only1", "only2", *sorted(small)]
    assert hash_file(to / "a") == hash_file(cluster.source)
    for name in small:
        assert hash_file(to / name) == hash_file(cluster.data[0].path(f"in/{name}")), name
        assert int((to / name).stat().st_mtime) == FIRST_TIME, name
    # The times are the same in a second copy, so it sends nothing.
    again = cp(bare, ours, "-r", cluster.head.at("in/"), f"{to}/").expect(0)
    assert again.report["bytes_sent"] == 0
    for number, server in enumerate(cluster.data):
        assert hash_file(to / f"only{number}") == hash_file(server.path(f"in/only{number}"))
