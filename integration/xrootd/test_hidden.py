"""Copies to a server with dray's wrapper of its storage: only complete files are visible."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.airflow import free_port
from integration.harness.tree import hash_file, make_file
from integration.xrootd import gsi
from integration.xrootd.cp import begin, cp
from integration.xrootd.files import (
    WRAPPER,
    await_safe,
    copies,
    hiding,
    make,
    set_checksum,
)
from integration.xrootd.http import http_lines
from integration.xrootd.moments import await_end
from integration.xrootd.servers import HERE, exported, give

if TYPE_CHECKING:
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = pytest.mark.server

MIB = 1 << 20
SLOW = f"rate = {24 * MIB}"


def pair(scene: Scene, *config: str, options: str = "") -> tuple[Xrootd, Xrootd]:
    """Start a stock source, and a destination with the wrapper."""
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    return source, hiding(scene, *config, options=options)


class Eye:
    """A thread that records each change of the file at a path."""

    def __init__(self, path: Path) -> None:
        """Start the thread."""
        self.path = path
        self.seen: list[tuple[int, int]] = []
        self.looks = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ends.wait(0.0005):
            self.looks += 1
            try:
                state = self.path.stat()
            except FileNotFoundError:
                found = (0, -1)
            else:
                found = (state.st_ino, state.st_size)
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)

    def close(self) -> list[int]:
        """Stop the thread. Return the sizes that the file had, in order; -1 means no file."""
        self._ends.set()
        self._thread.join()
        assert self.looks > 0
        return [size for _, size in self.seen]


def test_the_name_is_given_to_the_whole_file_only(scene: Scene) -> None:
    """A file of any size gets its name only when it is complete."""
    source, sink = pair(scene)
    for size in (0, 1, 64 * MIB + 17):
        made = make(source, f"in{size}", size, seed=size)
        eye = Eye(sink.path(f"out{size}"))
        try:
            scene.xrdcp("--tpc", "only", source.at(f"in{size}"), sink.at(f"out{size}")).expect(0)
        finally:
            seen = eye.close()
        assert seen[-1] == size
        assert set(seen) <= {-1, size}
        copied = sink.path(f"out{size}")
        assert hash_file(copied) == hash_file(made)
        assert copied.stat().st_mode & 0o777 == 0o644
        assert sink.checksum(f"out{size}", "adler32") == source.checksum(f"in{size}", "adler32")
    assert tree.leftovers(sink.data) == []
    assert sorted(each.name for each in sink.data.iterdir()) == [
        "out0",
        "out1",
        f"out{64 * MIB + 17}",
    ]


@pytest.mark.parametrize("victim", ["program", "client", "sink", "source"])
@pytest.mark.parametrize("old", [0, 3 * MIB, None], ids=["empty", "old", "new"])
def test_a_killed_copy_leaves_the_old_file(scene: Scene, victim: str, old: int | None) -> None:
    """After each kill, the name has the old file or none. The next copy resumes and replaces it."""
    source, sink = pair(scene, SLOW, options="autorm ")
    made = make(source, "a", 64 * MIB, seed=2)
    before = None if old is None else hash_file(make(sink, "a", old, seed=3))
    eye = Eye(sink.path("a"))
    try:
        begun = scene.begin(
            "xrdcp", "--nopbar", "--tpc", "only", "--force", source.at("a"), sink.at("a")
        )
        await_safe(sink, 8 * MIB)
        (job,) = sink.jobs()
        if victim == "program":
            os.kill(job, signal.SIGKILL)
        elif victim == "client":
            begun.send(signal.SIGKILL)
        else:
            server = sink if victim == "sink" else source
            server.kill()
            server.start()
        assert begun.wait(90).code != 0
        await_end(job)
    finally:
        seen = eye.close()
    assert seen == [-1 if old is None else old]
    if before is not None:
        assert hash_file(sink.path("a")) == before
    scene.xrdcp("--tpc", "only", "--force", source.at("a"), sink.at("a")).expect(0)
    sent, resumed = copies(sink)[-1]
    assert resumed > 0
    assert sent == 64 * MIB - resumed
    assert hash_file(sink.path("a")) == hash_file(made)
    assert tree.leftovers(sink.data) == []


@pytest.mark.parametrize("resume", ["verify", "trust"])
def test_bytes_of_an_earlier_copy_are_compared_unless_trusted(
    scene: Scene, ours: Path, resume: str
) -> None:
    """Except with ``resume = "trust"``, dray compares earlier bytes with the source."""
    source, sink = pair(scene, SLOW, f'resume = "{resume}"')
    made = make(source, "a", 64 * MIB, seed=2)
    copy = ("--tpc", "only", "--force", source.at("a"), sink.at("a"))
    begun = scene.begin("xrdcp", "--nopbar", *copy)
    await_safe(sink, 8 * MIB)
    (job,) = sink.jobs()
    os.kill(job, signal.SIGKILL)
    assert begun.wait(90).code != 0
    await_end(job)
    shown = scene.run(ours, "log", "show", "--json", sink.data).expect(0).report
    (file,) = shown["logs"][0]["files"]
    with (sink.data / file["partial"]).open("r+b") as changed:
        changed.seek(file["safe"][0]["offset"])
        byte = changed.read(1)
        changed.seek(-1, os.SEEK_CUR)
        changed.write(bytes([byte[0] ^ 1]))
        os.fsync(changed.fileno())
    scene.xrdcp(*copy).expect(0)
    sent, resumed = copies(sink)[-1]
    assert sent + resumed == 64 * MIB
    assert resumed > 0
    assert (hash_file(sink.path("a")) == hash_file(made)) == (resume == "verify")
    # With ``trust``, dray does not store the checksum of the source. The server then computes the
    # checksum of the wrong bytes, so a client can detect them.
    is_told = sink.checksum("a", "adler32") == source.checksum("a", "adler32")
    assert is_told == (resume == "verify")


def test_a_failed_copy_keeps_the_old_file_and_its_attributes(scene: Scene) -> None:
    """With ``autorm``, the server removes only a file that it has created for the copy."""
    source, sink = pair(scene, options="autorm ")
    set_checksum(make(source, "a", 3 * MIB), 0xDEADBEEF)
    for name, size in (("old", 5 * MIB), ("empty", 0)):
        old = make(sink, name, size, seed=9)
        sums = sink.checksum(name, "adler32")
        kept = os.getxattr(old, "user.XrdCks.adler32")
        state, content = old.stat(), hash_file(old)
        ended = scene.xrdcp("--tpc", "only", "--force", source.at("a"), sink.at(name))
        assert ended.code != 0
        assert "deadbeef" in ended.out + ended.words
        assert (old.stat().st_ino, old.stat().st_mtime) == (state.st_ino, state.st_mtime)
        assert hash_file(old) == content
        assert os.getxattr(old, "user.XrdCks.adler32") == kept
        assert sink.checksum(name, "adler32") == sums
    # --posc: the server removes a file that is not closed properly. It must keep the old file.
    persist = ("--posc", "--tpc", "only", "--force")
    assert scene.xrdcp(*persist, source.at("a"), sink.at("old")).code != 0
    assert sink.path("old").stat().st_size == 5 * MIB
    # A missing source is detected before dray's program starts.
    gone = scene.xrdcp("--tpc", "only", "--force", source.at("none"), sink.at("old"))
    assert gone.code != 0
    assert sink.path("old").stat().st_size == 5 * MIB
    # A removal that a client requests still works.
    scene.run("xrdfs", sink.url, "rm", "/old").expect(0)
    assert not sink.path("old").exists()


def test_other_uploads_to_the_name_of_a_running_copy_are_refused(scene: Scene) -> None:
    """During a copy, the server refuses other uploads to its name. Afterwards they work."""
    port, web_port = free_port(), free_port()
    web = f"http://{HERE}:{web_port}"
    stock = "pgm /usr/bin/xrdcp --server"
    source = scene.server("source", tpc=stock, lines=http_lines(web_port))
    # XRootD 5.5 loads its handler of COPY only if it has a certificate.
    grid = gsi.make(scene)
    other = [
        *http_lines(port),
        f"xrd.tls {grid.host} {grid.host_key}",
        f"xrd.tlsca certdir {grid.trusted}",
        "http.exthandler xrdtpc libXrdHttpTPC.so",
    ]
    sink = hiding(scene, SLOW, lines=other)
    made = make(source, "a", 64 * MIB, seed=2)
    make(source, "b", 2 * MIB, seed=4)
    old = hash_file(make(sink, "a", 3 * MIB, seed=3))
    upload = scene.folder / "upload"
    make_file(upload, 2 * MIB, 4)
    give(upload)
    begun = scene.begin(
        "xrdcp", "--nopbar", "--tpc", "only", "--force", source.at("a"), sink.at("a")
    )
    await_safe(sink, 4 * MIB)
    assert scene.xrdcp("--force", upload, sink.at("a")).code != 0
    # XRootD's own COPY handler does not check whether another client writes the file.
    pull = ["curl", "--silent", "--request", "COPY", "--header", f"Source: {web}/b"]
    output = scene.run(*pull, f"http://{HERE}:{port}/a").out
    assert "success" not in output
    assert "busy" in output
    assert hash_file(sink.path("a")) == old
    assert sink.jobs()
    begun.wait(90).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)
    # After the copy, both uploads succeed.
    scene.xrdcp("--force", upload, sink.at("a")).expect(0)
    assert hash_file(sink.path("a")) == hash_file(upload)
    assert "success" in scene.run(*pull, f"http://{HERE}:{port}/a").out
    assert hash_file(sink.path("a")) == hash_file(source.path("b"))


def test_the_wrapper_leaves_other_opens_unchanged(scene: Scene) -> None:
    """Usual uploads, reads and changes work with the wrapper as without it."""
    sink = hiding(scene)
    small, large = scene.folder / "small", scene.folder / "large"
    for path, size in ((small, MIB + 1), (large, 9 * MIB)):
        make_file(path, size, size)
        give(path)
    scene.xrdcp(large, sink.at("new/folder/a")).expect(0)
    assert scene.xrdcp(small, sink.at("new/folder/a")).code != 0
    assert hash_file(sink.path("new/folder/a")) == hash_file(large)
    scene.xrdcp("--force", small, sink.at("new/folder/a")).expect(0)
    assert hash_file(sink.path("new/folder/a")) == hash_file(small)
    scene.xrdcp("--posc", large, sink.at("b")).expect(0)
    assert hash_file(sink.path("b")) == hash_file(large)
    scene.xrdcp(sink.at("b"), scene.folder / "read").expect(0)
    assert hash_file(scene.folder / "read") == hash_file(large)
    scene.run("xrdfs", sink.url, "mv", "/b", "/c").expect(0)
    scene.run("xrdfs", sink.url, "truncate", "/c", "7").expect(0)
    assert sink.path("c").stat().st_size == 7
    scene.run("xrdfs", sink.url, "rm", "/c").expect(0)
    assert not sink.path("c").exists()


def test_files_stay_in_their_space(scene: Scene) -> None:
    """If the server keeps its files in a space (``oss.space``), copied files are there too."""
    space = scene.folder / "space"
    space.mkdir()
    give(space)
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    sink = hiding(scene, lines=[f"oss.space public {space}"])
    for seed in (1, 2):
        made = make(source, "a", 5 * MIB, seed=seed)
        scene.xrdcp("--tpc", "only", "--force", source.at("a"), sink.at("a")).expect(0)
        assert sink.path("a").is_symlink()
        assert sink.path("a").resolve().is_relative_to(space.resolve())
        assert hash_file(sink.path("a")) == hash_file(made)


def test_drays_own_files_are_hidden_from_clients(scene: Scene) -> None:
    """Clients cannot list, open, change or remove dray's partial files and logs."""
    web = free_port()
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    sink = hiding(scene, SLOW, lines=http_lines(web))
    made = make(source, "a", 64 * MIB, seed=2)
    make(sink, "there", 10, seed=3)
    begun = scene.begin(
        "xrdcp", "--nopbar", "--tpc", "only", "--force", source.at("a"), sink.at("a")
    )
    await_safe(sink, 8 * MIB)
    (job,) = sink.jobs()
    begun.send(signal.SIGKILL)
    assert begun.wait(90).code != 0
    await_end(job)
    own = sorted(
        str(each.relative_to(sink.data)) for each in sink.data.rglob(".dray-*") if each.is_file()
    )
    folders = {str(Path(each).parent) for each in own if "/.dray-" in each}
    parts = [each for each in own if each.endswith(".part")]
    assert parts
    logs = next(each for each in sink.data.rglob(".dray-log"))
    log = str(logs.relative_to(sink.data))
    for words in (["ls", "/"], ["ls", "-l", "/"], ["ls", "-R", "/"], ["ls", "-l", "-R", "/"]):
        output = scene.run("xrdfs", sink.url, *words).expect(0).out
        assert "there" in output
        assert ".dray" not in output
    curl = ["curl", "--silent", "--request"]
    found = [*curl, "PROPFIND", "--header", "Depth: 1", f"http://{HERE}:{web}/"]
    output = scene.run(*found).out
    assert "there" in output
    assert ".dray" not in output
    for name in [*parts, log]:
        out = scene.folder / "read"
        for words in (
            ["stat", f"/{name}"],
            ["rm", f"/{name}"],
            ["rmdir", f"/{name}"],
            ["mv", f"/{name}", "/mine"],
            ["mv", "/there", f"/{name}"],
            ["truncate", f"/{name}", "0"],
            ["chmod", f"/{name}", "rwxrwxrwx"],
            ["ls", f"/{name}"],
            ["mkdir", f"/{name}/new"],
        ):
            ended = scene.run("xrdfs", sink.url, *words)
            assert ended.code != 0, f"{words}: {ended.out}"
        assert scene.xrdcp(sink.at(name), out).code != 0
        assert scene.xrdcp("--force", made, sink.at(name)).code != 0
        for verb in ("GET", "DELETE"):
            ask = [*curl, verb, "--fail", f"http://{HERE}:{web}/{name}"]
            assert scene.run(*ask).code != 0
        assert (sink.data / name).exists()
    assert all((sink.data / each).is_dir() for each in folders)
    assert sink.path("there").stat().st_size == 10
    scene.xrdcp("--tpc", "only", "--force", source.at("a"), sink.at("a")).expect(0)
    sent, resumed = copies(sink)[-1]
    assert resumed > 0
    assert sent == 64 * MIB - resumed
    assert hash_file(sink.path("a")) == hash_file(made)
    assert tree.leftovers(sink.data) == []


def test_dray_writes_through_a_server_that_hides_its_files(scene: Scene, ours: Path) -> None:
    """``dray cp root://`` itself can write partial files and logs, and resumes after a kill."""
    sink = hiding(scene)
    local = scene.folder / "local"
    make_file(local, 48 * MIB, 7)
    give(local)
    killed = begin(scene, ours, "--progress", "json", "--rate", "16MiB", local, sink.at("b"))
    killed.await_durable()
    assert killed.kill().code != 0
    assert list(sink.data.rglob(".dray-*.part"))
    ended = cp(scene, ours, local, sink.at("b")).expect(0)
    assert ended.report["bytes_resumed"] > 0
    assert hash_file(sink.path("b")) == hash_file(local)
    assert tree.leftovers(sink.data) == []


def test_only_the_entry_point_is_exported() -> None:
    """The wrapper exports only the symbols that XRootD loads."""
    assert exported(WRAPPER) == {"XrdOssAddStorageSystem2", "XrdOssAddStorageSystem2_"}
