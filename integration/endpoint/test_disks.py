"""A root of an endpoint is spread over several disks (`dirs`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.testing.endpoints import Root
from dray.testing.proxy import Proxy
from integration.endpoint.test_tier import states, tier_of, write
from integration.endpoint.tier_scene import until
from integration.errno_sweep.sweep import Later
from integration.harness import tree
from integration.harness.program import Process
from integration.harness.tree import MIB, hash_file, make_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

#: Size of each of the two large files in bytes.
SIZE = 64 * MIB + 7
#: Rate at which a test can interrupt a transfer in the middle.
RATE = "24MiB"
#: Maximum number of bytes that are sent again after a lost session: a sync group and the data in
#: flight.
TWICE_MAX = 80 * MIB
END_SECONDS = 240.0
MARK = ".dray-disk"


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Make the folders of three disks."""
    made = [tmp_path / f"disk{number}" for number in range(3)]
    for folder in made:
        folder.mkdir()
    return made


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    """End the proxies that a test has started."""
    started: list[Proxy] = []
    yield started
    for proxy in started:
        proxy.close()


def root_of(dirs: list[Path], name: str = "data", **options: object) -> Root:
    """Return a root that is spread over the disks."""
    return Root(name, {"dirs": [str(folder) for folder in dirs], **options})


def merged(dirs: list[Path], below: str, into: Path) -> dict[bytes, tree.Entry]:
    """Return the entries below a folder of all disks. Each file is on one disk only."""
    for folder in dirs:
        if (folder / below).is_dir():
            for path in (folder / below).rglob("*"):
                at = into / path.relative_to(folder / below)
                assert path.is_dir() or not os.path.lexists(at), f"{path} is on two disks"
            copied = ["cp", "-a", f"{folder / below}/.", str(into)]
            into.mkdir(exist_ok=True)
            subprocess.run(copied, check=True)
    return described(into)


def described(top: Path) -> dict[bytes, tree.Entry]:
    """Return the entries below a folder, without the folder. A copy does not set its time."""
    return {path: entry for path, entry in tree.describe(top).items() if path}


def own_names(dirs: list[Path]) -> list[str]:
    """Return dray's own files on the disks, without the marks."""
    names = [name for folder in dirs for name in tree.leftovers(folder)]
    return [name for name in names if not name.endswith(MARK)]


class Pair:
    """An endpoint with a folder, and one with disks. The sink's endpoint drives."""

    def __init__(
        self,
        start: Callable[..., Endpoint],
        proxies: list[Proxy],
        dirs: list[Path],
        folder: Path,
        *,
        into: bool,
    ) -> None:
        """Start both endpoints, and a proxy in front of the source."""
        self.folder = folder
        self.proxy = Proxy("127.0.0.1:1")
        proxies.append(self.proxy)
        behind = {"advertise": self.proxy.address}
        self.near = start("near", config=behind if into else {})
        self.disks = start("disks", roots=[root_of(dirs)], config={} if into else behind)
        self.source, self.sink = (self.near, self.disks) if into else (self.disks, self.near)
        self.proxy.upstream = self.source.address

    def begin(self, source: str, to: str, *more: str) -> Process:
        """Start ``dray cp`` from the source's endpoint to the sink's endpoint."""
        words: list[str | Path] = ["-r", *more]
        for endpoint in (self.source, self.sink):
            token = self.folder / f"{endpoint.name}.token"
            token.write_text(endpoint.token())
            token.chmod(0o600)
            words += ["--token-file", f"{endpoint.address}={token}"]
            words += ["--peer-key", f"{endpoint.address}={endpoint.key}"]
        ends = [self.source.place(source), self.sink.place(to)]
        how = ["--progress", "json", "--json"]
        return Process([self.sink.program, "cp", *how, *ends, *words], self.folder, "cp")

    def sent(self) -> int:
        """Return the bytes that the source has sent through the proxy."""
        return self.proxy.counted()[1]


def test_a_transfer_into_disks_survives_killed_endpoints(
    start_endpoint: Callable[..., Endpoint],
    proxies: list[Proxy],
    dirs: list[Path],
    tmp_path: Path,
) -> None:
    pair = Pair(start_endpoint, proxies, dirs, tmp_path, into=True)
    source = pair.near.root("tree")
    tree.make_tree(source, 60, seed=3)
    for number in range(2):
        make_file(source / f"large{number}", SIZE, seed=number)
    wanted = described(source)
    copy = pair.begin("tree/", "in/", "--rate", RATE)
    pair.proxy.await_bytes(48 * MIB)
    pair.sink.kill()
    pair.sink.start()
    pair.proxy.await_bytes(80 * MIB)
    pair.source.kill()
    pair.source.start()
    ended = copy.wait(END_SECONDS).expect(0)
    assert ended.report["state"] == "done", ended.out
    assert merged(dirs, "in", tmp_path / "merged") == wanted
    used = [sum(path.is_file() for path in (folder / "in").rglob("*")) for folder in dirs]
    assert min(used) > 0, f"files on each disk: {used}"
    assert own_names(dirs) == []
    whole = sum(entry.size for entry in wanted.values() if entry.kind == "file")
    assert pair.sent() < whole + 2 * TWICE_MAX

    # Another version of the tree replaces each file on its own disk.
    (source / "large0").write_bytes(b"short")
    pair.begin("tree/", "in/", "--overwrite", "always").wait(END_SECONDS).expect(0)
    shutil.rmtree(tmp_path / "merged")
    found = merged(dirs, "in", tmp_path / "merged")
    assert found == described(source)
    assert own_names(dirs) == []


def test_a_transfer_out_of_disks_survives_a_killed_endpoint(
    start_endpoint: Callable[..., Endpoint],
    proxies: list[Proxy],
    dirs: list[Path],
    tmp_path: Path,
) -> None:
    for number, folder in enumerate(dirs):
        (folder / "out/below").mkdir(parents=True)
        make_file(folder / f"out/below/large{number}", SIZE // 2, seed=number)
        (folder / f"out/{number}").write_text(f"{number}")
    pair = Pair(start_endpoint, proxies, dirs, tmp_path, into=False)
    copy = pair.begin("out/", "in/", "--rate", RATE)
    pair.proxy.await_bytes(48 * MIB)
    pair.source.kill()
    pair.source.start()
    copy.wait(END_SECONDS).expect(0)
    for number, folder in enumerate(dirs):
        for name in (f"below/large{number}", str(number)):
            assert hash_file(pair.near.root(f"in/{name}")) == hash_file(folder / "out" / name)
    assert len(list(pair.near.root("in").rglob("*"))) == 7
    assert tree.leftovers(pair.near.root()) == []


def test_calls_of_the_api_see_one_tree(
    start_endpoint: Callable[..., Endpoint], dirs: list[Path]
) -> None:
    endpoint = start_endpoint("a", roots=[root_of(dirs)])
    with endpoint.client() as client:
        assert client.mkdir("/data/d/e", parents=True).type == "directory"
        assert all((folder / "d/e").is_dir() for folder in dirs)
        for number, folder in enumerate(dirs):
            (folder / f"d/{number}").write_bytes(b"12345")
        assert [entry.name for entry in client.list("/data/d")] == ["0", "1", "2", "e"]
        assert client.stat("/data/d/2").size == 5
        assert client.checksum("/data/d/1", "adler32").checksum == "02f80100"
        space = client.space("/data/")
        one = shutil.disk_usage(dirs[0])
        # All folders of this test are on one file system, which counts once.
        assert abs(space.total - one.total) < one.total / 10
        with pytest.raises(DrayError):
            client.stat("/data/none")
        client.rm("/data/d", recursive=True)
        assert not any((folder / "d").exists() for folder in dirs)
    assert all((folder / MARK).is_file() for folder in dirs)


def test_a_missing_disk_ends_the_start(
    start_endpoint: Callable[..., Endpoint], dirs: list[Path], tmp_path: Path
) -> None:
    endpoint = start_endpoint("a", roots=[root_of(dirs)])
    (dirs[1] / "file").write_bytes(b"x")
    endpoint.stop()
    # The file system of the disk is not mounted: its folder is empty.
    away = tmp_path / "away"
    dirs[1].rename(away)
    dirs[1].mkdir()
    with pytest.raises(RuntimeError) as caught:
        endpoint.start()
    message = str(caught.value)
    assert "the disk with number 1 of 3 is missing" in message, message
    assert str(dirs[1]) in message, message
    assert "mount the disk" in message, message
    assert list(dirs[1].iterdir()) == []
    dirs[1].rmdir()
    away.rename(dirs[1])
    endpoint.start()
    with endpoint.client() as client:
        assert client.stat("/data/file").size == 1


def test_a_file_moves_to_another_disk_when_its_disk_is_full(
    start_endpoint: Callable[..., Endpoint], proxies: list[Proxy], tmp_path: Path
) -> None:
    dirs = [tmp_path / f"small{number}" for number in range(2)]
    mounted = []
    try:
        for folder in dirs:
            folder.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", "size=96m", "none", str(folder)]
            if subprocess.run(words, check=False, capture_output=True).returncode != 0:
                pytest.skip("this process cannot mount file systems")
            mounted.append(folder)
        pair = Pair(start_endpoint, proxies, dirs, tmp_path, into=True)
        made = pair.near.root("a")
        make_file(made, SIZE, seed=5)
        copy = pair.begin("a", "in/a/", "--rate", RATE)
        pair.proxy.await_bytes(24 * MIB)
        # Another program fills the disk of the partial file.
        partial = [
            (folder, path)
            for folder in dirs
            for path in folder.rglob(".dray-*")
            if path.is_file() and path.name != MARK
        ]
        [disk] = {folder for folder, path in partial if path.stat().st_size == SIZE}
        with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(MIB))
        copy.wait(END_SECONDS).expect(0)
        other = dirs[1 - dirs.index(disk)]
        assert hash_file(other / "in/a/a") == hash_file(made)
        assert not (disk / "in/a/a").exists()
        assert own_names(dirs) == []
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_disks_are_the_slow_root_of_a_tier(
    start_endpoint: Callable[..., Endpoint], dirs: list[Path], tmp_path: Path
) -> None:
    tier = tier_of(watermark=1.0)
    roots = [Root("fast", {"tier": "fast"}), root_of(dirs, "slow", tier="slow")]
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    write(endpoint, "sim", 7)
    wanted = described(endpoint.root("sim/7", root="fast"))
    with endpoint.client() as client:
        until(client, "demoted", lambda tier: states(tier) == {("sim", 7): "demoted"})
    found = merged(dirs, "sim/7", tmp_path / "merged")
    assert {path: entry.size for path, entry in found.items()} == {
        path: entry.size for path, entry in wanted.items()
    }


def test_a_sweep_keeps_the_data_of_running_copies_on_every_disk(
    bench: Bench, dirs: list[Path]
) -> None:
    source = bench.folder / "source"
    source.mkdir()
    for number in range(len(dirs)):
        make_file(source / f"f{number}", SIZE // 2, seed=number)
    disks = f"disks://{','.join(map(str, dirs))}"
    later = Later(bench)
    into_all = bench.start_slow_cp("--rate", RATE, "-r", f"{source}/", f"{disks}//in/")
    into_one = bench.start_slow_cp("--rate", "6MiB", "-r", f"{source}/", f"{dirs[1]}/direct/")

    def swept() -> tuple[int, int, int]:
        """Sweep the disks with a clock that is two days ahead."""
        words = ["log", "sweep", "--json", disks, "--older-than", "1d"]
        ended = bench.start(*words, name="sweep", env=later.env).wait(60).expect(0)
        told = json.loads(ended.out.splitlines()[-1])
        return told["removed"], told["in_use"], told["younger"]

    before = own_names(dirs)
    assert swept() == (0, 2, 0)
    into_all.kill()
    removed, in_use, younger = swept()
    assert (removed > 0, in_use, younger) == (True, 1, 0)
    left = own_names(dirs)
    assert 0 < len(left) < len(before)
    assert all(name.startswith(f"{dirs[1]}") for name in left), left
    into_one.wait(END_SECONDS).expect(0)
    assert tree.differences(described(source), described(dirs[1] / "direct")) == []
    assert own_names(dirs) == []
