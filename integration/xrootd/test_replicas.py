"""A transfer reads one file from all servers of a cluster that have a replica of the file."""

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
#: Maximum number of bytes that a server sends in addition to the bytes of the file.
MORE = 2 * MIB
#: Time of the file at the first server. Each further replica arrived a day later.
FIRST_TIME = 1_700_000_000
DAY = 86_400


class Replicas(NamedTuple):
    """A cluster in which each server has a replica of one file."""

    head: Xrootd
    data: list[Xrootd]
    source: Path

    def sent(self) -> list[int]:
        """Return the bytes that each server's process has written.

        A server counts its sent bytes only when a connection ends.
        """
        return [written(server) for server in self.data]


def written(server: Xrootd) -> int:
    """Count the bytes that a server's process has written."""
    assert server.process is not None
    counts = Path(f"/proc/{server.process.pid}/io").read_text(encoding="ascii")
    match = re.search(r"^wchar: (\d+)$", counts, re.MULTILINE)
    assert match, counts
    return int(match[1])


def put(server: Xrootd, number: int, size: int = SIZE, seed: int = 1) -> Path:
    """Make the file of one server."""
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
    """Wait until the redirector knows that all of these servers have the file."""
    until = time.monotonic() + 90
    output = ""
    while not all(f":{server.port} " in output for server in data):
        assert time.monotonic() < until, output + head.said()
        time.sleep(0.3)
        output = scene.run("xrdfs", head.url, "locate", path, env=env).out


def replicas(scene: Scene, *others: tuple[int, int]) -> Replicas:
    """Start three servers with the file.

    :param others: sizes and seeds of different files, which the last servers have instead.
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
    """Each sends a part of it concurrently, and no byte is sent twice."""
    cluster = replicas(bare)
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    copy = begin(bare, ours, "--progress", "json", "--rate", "24MiB", cluster.head.at("in/a"), to)
    copy.await_durable(SIZE // 8)
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
    # The first replica is the oldest, so its time is that of the file, whichever server is asked.
    assert int(to.stat().st_mtime) == FIRST_TIME
    again = cp(bare, ours, cluster.head.at("in/a"), to).expect(0)
    assert again.report["bytes_sent"] == 0


def test_the_other_servers_replace_a_dead_one(bare: Scene, ours: Path) -> None:
    """A server that is killed in the middle of a copy costs only speed."""
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


def test_a_stalled_server_is_bypassed(bare: Scene, ours: Path) -> None:
    """A server that neither answers nor closes delays its requests until the timeout."""
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
    """No byte of it is copied or requested, whichever server the redirector chooses."""
    cluster = replicas(bare, (SIZE - 3 * MIB, 2))
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    ended = cp(bare, ours, cluster.head.at("in/a"), to)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    assert given[2] < MORE, given
    if ended.code == 0:
        assert hash_file(to) == hash_file(cluster.source)
    else:
        # The redirector chose the server with the different file for the checksum.
        assert "checksum" in ended.out + ended.words
        assert not to.exists()


def test_replicas_that_differ_are_never_one_file(bare: Scene, ours: Path) -> None:
    """If replicas have one size but different content, the copy fails at the checksum."""
    cluster = replicas(bare, (SIZE, 2))
    to = bare.folder / "out" / "a"
    ended = cp(bare, ours, cluster.head.at("in/a"), to)
    assert ended.code != 0
    assert "checksum" in ended.out + ended.words
    assert not to.exists()


@pytest.mark.parametrize("way", ["range", "folder", "slash"])
def test_a_copy_without_a_checksum_comes_from_one_server(bare: Scene, ours: Path, way: str) -> None:
    """A range, or a file in a folder, has no known checksum. So only one server is read."""
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
        # A slash at the end does not make a file a folder.
        assert ended.code != 0
        assert "in/a" in ended.out + ended.words
    else:
        ended.expect(0)


def test_a_killed_copy_resumes_from_the_remaining_replicas(bare: Scene, ours: Path) -> None:
    """The log identifies the file by no server's own time: durable data is not sent again."""
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


def test_without_a_checksum_to_compare_one_server_is_read(bare: Scene, ours: Path) -> None:
    """Without a checksum two replicas cannot be compared: only the redirector's choice is read."""
    cluster = replicas(bare)
    for server in cluster.data:
        server.kill()
        server.sums = ""
        server.start()
        server.start_manager()
    await_located(bare, cluster.head, cluster.data)
    to = bare.folder / "out" / "a"
    before = cluster.sent()
    # The redirector may choose one server for the time of the file and another for reading. dray
    # reads from the server that gave the time.
    cp(bare, ours, cluster.head.at("in/a"), to).expect(0)
    given = [after - then for after, then in zip(cluster.sent(), before, strict=True)]
    assert sorted(given)[1] < MORE, given
    assert hash_file(to) == hash_file(cluster.source)


def test_a_third_party_copy_comes_from_all_servers(scene: Scene) -> None:
    """With delegated credentials the destination may open the source repeatedly, and anywhere."""
    grid = gsi.make(scene)
    # Accept any name, because certificates contain names, and a cluster's servers are known by
    # their addresses here.
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
    """Files that one server has, and files that several have, large and small.

    Each replica has the time of its arrival. The oldest is the file's time, and that replica is
    read.
    """
    cluster = replicas(bare)
    small = [f"small{number}" for number in range(30)]
    for number, server in enumerate(cluster.data):
        make(server, f"in/only{number}", 70 * MIB if number == 0 else 4096, seed=number)
        for seed, name in enumerate(small):
            make(server, f"in/{name}", 4096, seed)
            # For different files, the oldest replica is at different servers.
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
    # All files have the same times again, so nothing is sent twice.
    again = cp(bare, ours, "-r", cluster.head.at("in/"), f"{to}/").expect(0)
    assert again.report["bytes_sent"] == 0
    for number, server in enumerate(cluster.data):
        assert hash_file(to / f"only{number}") == hash_file(server.path(f"in/only{number}"))
