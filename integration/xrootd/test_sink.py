"""``dray cp`` to a stock XRootD server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import host, tree
from integration.harness.tree import hash_file, make_file
from integration.xrootd.cp import begin, cp
from integration.xrootd.servers import PATIENCE, SHIM, find, give

if TYPE_CHECKING:
    from integration.harness.program import Ended, Process
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = pytest.mark.server

MIB = 1 << 20
#: Options for a copy that takes long enough to be interrupted.
SLOW = ("--progress", "json", "--rate", "48MiB")


def begin_slowly(
    bare: Scene, program: Path, source: Path, size: int
) -> tuple[Xrootd, Path, Process]:
    """Start to copy a new file to a new server. Return when some data is durable."""
    server = bare.server("sink", tpc=None)
    path = source / "a"
    make_file(path, size, seed=1)
    copy = begin(bare, program, *SLOW, path, server.at("a"))
    copy.await_durable()
    return server, path, copy


def assert_there(server: Xrootd, path: Path) -> None:
    """Fail unless the server has a file with the name and content of ``path``."""
    assert hash_file(server.path(path.name)) == hash_file(path)


def said(ended: Ended) -> str:
    """Return all output of a program."""
    return ended.out + ended.words


def own(server: Xrootd) -> list[Path]:
    """Return dray's own files at a server."""
    return [path for path in server.data.rglob("*") if path.name.startswith(".dray-")]


@pytest.fixture
def source(bare: Scene) -> Path:
    """Return an empty folder for source files."""
    folder = bare.folder / "in"
    folder.mkdir()
    return folder


def test_files_of_every_size_arrive(bare: Scene, ours: Path, source: Path) -> None:
    """The copied file has the right bytes and checksum. A second copy sends nothing."""
    server = bare.server("sink", tpc=None)
    for size in (0, 1, 4096, MIB, MIB + 1, 64 * MIB + 13):
        path = source / f"f{size}"
        make_file(path, size, seed=size)
        to = server.at(f"deep/er/{path.name}")
        ended = cp(bare, ours, path, to).expect(0)
        assert ended.report["bytes_sent"] == size
        arrived = server.path(f"deep/er/{path.name}")
        assert hash_file(arrived) == hash_file(path)
        wanted = f"{zlib.adler32(path.read_bytes()):08x}"
        assert server.checksum(f"deep/er/{path.name}", "adler32") == wanted
        inode = arrived.stat().st_ino
        again = cp(bare, ours, path, to).expect(0)
        assert again.report["bytes_sent"] == 0
        assert arrived.stat().st_ino == inode
    assert own(server) == []
    assert [path.name for path in server.data.iterdir()] == ["deep"]


def make_tree(top: Path) -> None:
    """Make a tree of many small and some large files, with an empty folder and blanks in names."""
    for number in range(300):
        folder = top / f"d{number % 7}" / f"deep {number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        make_file(folder / f"f{number}", number * 37, seed=number)
    for number in range(3):
        make_file(top / f"large{number}", (number + 1) * 3 * MIB + number, seed=number)
    (top / "empty").mkdir()


def same(one: Path, other: Path) -> None:
    """Fail unless two trees have the same names and contents."""
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*"))
    assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*"))
    for name in names:
        assert (one / name).is_dir() == (other / name).is_dir()
        assert (one / name).is_dir() or hash_file(one / name) == hash_file(other / name)


def test_a_folder_arrives_and_comes_back(bare: Scene, ours: Path, source: Path) -> None:
    """Copy a tree to the server and back. A repeated copy sends only changed files."""
    server = bare.server("sink", tpc=None)
    make_tree(source / "top")
    cp(bare, ours, "-r", source / "top", f"{server.at('out')}/").expect(0)
    same(source / "top", server.path("out/top"))
    assert own(server) == []
    again = cp(bare, ours, "-r", source / "top", f"{server.at('out')}/").expect(0)
    assert again.report["bytes_sent"] == 0
    changed = source / "top" / "d1" / "deep 1" / "f1"
    make_file(changed, 5000, seed=99)
    third = cp(bare, ours, "-r", source / "top", f"{server.at('out')}/").expect(0)
    assert third.report["bytes_sent"] == 5000
    same(source / "top", server.path("out/top"))
    back = bare.folder / "back"
    cp(bare, ours, "-r", server.at("out/top"), f"{back}/").expect(0)
    same(source / "top", back / "top")


def test_a_killed_copy_resumes_and_no_wrong_content_is_visible(
    bare: Scene, ours: Path, source: Path
) -> None:
    """A killed copy resumes. Its name has the old file until the new file is complete."""
    server = bare.server("sink", tpc=None)
    path = source / "a"
    make_file(path, 192 * MIB, seed=1)
    old = server.path("a")
    make_file(old, 1000, seed=2)
    give(old)
    before = hash_file(old)
    killed = begin(bare, ours, *SLOW, path, server.at("a"))
    killed.await_durable()
    assert killed.kill().code != 0
    assert hash_file(old) == before
    rest = begin(bare, ours, *SLOW, path, server.at("a"))
    seen: set[bytes] = set()
    while rest.is_running():
        # Only the old file has 1000 bytes, so do not read it.
        seen.add(before if old.stat().st_size == 1000 else hash_file(old))
        time.sleep(0.01)
    ended = rest.wait(120).expect(0)
    assert ended.report["bytes_resumed"] > 0
    assert ended.report["bytes_sent"] == 192 * MIB - ended.report["bytes_resumed"]
    assert seen <= {before, hash_file(path)}
    assert hash_file(old) == hash_file(path)
    assert own(server) == []


def test_a_dead_server_loses_only_data_that_was_not_durable(
    bare: Scene, ours: Path, source: Path
) -> None:
    """If the server dies, the copy fails. After its restart, the next copy resumes."""
    server, path, copy = begin_slowly(bare, ours, source, 128 * MIB)
    server.kill()
    ended = copy.wait(180)
    assert ended.code != 0
    assert not server.path("a").exists()
    server.start()
    again = cp(bare, ours, path, server.at("a")).expect(0)
    assert again.report["bytes_resumed"] > 0
    assert again.report["bytes_sent"] == 128 * MIB - again.report["bytes_resumed"]
    assert_there(server, path)
    assert own(server) == []


def test_another_content_is_never_mixed_in(bare: Scene, ours: Path, source: Path) -> None:
    """If the source is replaced after a killed copy, the next copy starts from the beginning."""
    server, path, killed = begin_slowly(bare, ours, source, 96 * MIB)
    killed.kill()
    make_file(path, 96 * MIB, seed=2)
    os.utime(path, (time.time() + 10, time.time() + 10))
    ended = cp(bare, ours, path, server.at("a")).expect(0)
    assert ended.report["bytes_resumed"] == 0
    assert_there(server, path)


def test_another_file_with_the_same_inode_is_not_resumed(
    bare: Scene, ours: Path, source: Path
) -> None:
    """A partial file has the logged inode number but another mark: it is not resumed."""
    server, path, killed = begin_slowly(bare, ours, source, 96 * MIB)
    killed.kill()
    (part,) = server.data.glob(".dray-*.part")
    (mark,) = [name for name in os.listxattr(part) if name.endswith("dray.born")]
    # Change the mark, as if another file had got the inode number.
    os.setxattr(part, mark, b"1")
    ended = cp(bare, ours, path, server.at("a")).expect(0)
    assert ended.report["bytes_resumed"] == 0
    assert_there(server, path)


def test_a_log_that_was_replaced_is_not_read(bare: Scene, ours: Path, source: Path) -> None:
    """A reader keeps the replaced log open. The copy fails, and the next copy reads the new log."""
    server, path, killed = begin_slowly(bare, ours, source, 96 * MIB)
    killed.kill()
    (log,) = server.data.glob(".dray-log/*.log")
    script = Path(__file__).with_name("shim.py")
    at = server.at(str(log.relative_to(server.data)))
    words = [sys.executable, str(script), "hold", str(find(SHIM)), at]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **PATIENCE}
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"-1\n"
        anew = log.with_suffix(".copy")
        shutil.copy(log, anew)
        give(anew)
        anew.rename(log)
        refused = cp(bare, ours, path, server.at("a"))
        reader.communicate()
    assert refused.code != 0
    assert "the replaced file" in said(refused)
    ended = cp(bare, ours, path, server.at("a")).expect(0)
    assert ended.report["bytes_resumed"] > 0
    assert_there(server, path)


def test_one_writer(bare: Scene, ours: Path, source: Path) -> None:
    """While a copy runs, a second copy to the same name is refused."""
    server = bare.server("sink", tpc=None)
    path = source / "a"
    make_file(path, 128 * MIB, seed=1)
    # The first copy takes eight seconds. The second copy waits for it for two seconds.
    first = begin(bare, ours, "--progress", "json", "--rate", "16MiB", path, server.at("a"))
    first.await_durable()
    second = cp(bare, ours, path, server.at("a"))
    assert second.code != 0
    assert "another transfer is writing to the destination" in said(second)
    first.wait(120).expect(0)
    assert_there(server, path)


def test_a_file_the_server_sums_differently_gets_no_name(
    bare: Scene, ours: Path, source: Path
) -> None:
    """If the server's checksum differs from that of the sent bytes, the copy fails."""
    server = bare.server("sink", tpc=None)
    path = source / "a"
    make_file(path, 96 * MIB, seed=1)
    copy = begin(bare, ours, *SLOW, path, server.at("a"))
    copy.await_durable(16 * MIB)
    (part,) = server.data.glob(".dray-*.part")
    # Other users can read neither the partial file nor the log nor the lease.
    open_to = {path.name: path.stat().st_mode & 0o077 for path in own(server) if path.is_file()}
    control = {path.name: path.stat().st_mode & 0o077 for path in server.data.glob(".dray-*/*")}
    assert control
    assert set({**open_to, **control}.values()) == {0}
    with part.open("r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))
    ended = copy.wait(120)
    assert ended.code != 0
    assert "checksum mismatch" in said(ended)
    assert not server.path("a").exists()
    # The next copy completes the file, with the mode of the source.
    path.chmod(0o604)
    cp(bare, ours, path, server.at("a")).expect(0)
    assert_there(server, path)
    assert server.path("a").stat().st_mode & 0o777 == 0o604


def test_refusals_are_reported(bare: Scene, ours: Path, source: Path) -> None:
    """An error names its cause, for example a missing permission. It contains no secret."""
    server = bare.server("sink", tpc=None, lines=["all.export /fixed readonly"])
    path = source / "a"
    make_file(path, 3 * MIB, seed=1)
    shut = server.path("shut")
    shut.mkdir()
    shut.chmod(0o555)
    fixed = server.path("fixed")
    fixed.mkdir()
    give(fixed)
    refused = cp(bare, ours, path, f"{server.at('shut/a')}?authz=se-cret")
    assert refused.code != 0
    assert "permission denied" in said(refused)
    assert "se-cret" not in said(refused)
    unwritable = cp(bare, ours, path, server.at("fixed/a"))
    assert unwritable.code != 0
    assert "read-only" in said(unwritable) or "permission denied" in said(unwritable)
    server.path("b").mkdir()
    give(server.path("b"))
    folder = cp(bare, ours, path, server.at("b"))
    assert folder.code != 0
    assert "is a folder" in said(folder)
    weak = cp(bare, ours, "--durability", "none", path, server.at("c"))
    assert "--durability none" in said(weak)
    server.kill()
    gone = cp(bare, ours, path, server.at("a"))
    assert gone.code != 0
    assert "Connection error" in said(gone)


def test_a_full_server_is_reported_and_durable_data_stays(
    bare: Scene, ours: Path, source: Path
) -> None:
    """On a full disk, the copy fails. With more space, the same command resumes."""
    server = bare.server("sink", tpc=None, start=False)
    path = source / "a"
    make_file(path, 48 * MIB, seed=1)
    with host.small_file_system(server.data, 24 * MIB) as small:
        give(small)
        server.start()
        ended = cp(bare, ours, "--rate", "24MiB", path, server.at("a"))
        assert ended.code != 0
        assert "no space left" in said(ended)
        assert "free some space" in said(ended)
        assert not server.path("a").exists()
        assert os.system(f"mount -o remount,size=128m {small}") == 0  # noqa: S605
        again = cp(bare, ours, path, server.at("a")).expect(0)
        assert again.report["bytes_resumed"] > 0
        assert_there(server, path)
        server.kill()


def barriers(server: Xrootd) -> set[int]:
    """Return the file systems on which the server has an open and deleted partial file of dray."""
    assert server.process is not None
    found = set()
    for handle in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            is_ours = re.search(r"/\.dray-[0-9a-f]{16}\.part \(deleted\)$", str(handle.readlink()))
            if is_ours:
                found.add(handle.stat().st_dev)
    return found


def test_names_are_made_durable_on_each_file_system(bare: Scene, ours: Path, source: Path) -> None:
    """To sync names, dray opens a file on each file system of the copy (see :func:`barriers`)."""
    server = bare.server("sink", tpc=None, start=False)
    for folder in ("one", "other"):
        (source / "top" / folder).mkdir(parents=True)
        for number in range(40):
            make_file(source / "top" / folder / f"f{number}", 64 << 10, seed=number)
    other = server.path("out/top/other")
    other.mkdir(parents=True)
    for made in (server.path("out"), server.path("out/top")):
        give(made)
    with host.small_file_system(other, 24 * MIB) as small:
        give(small)
        server.start()
        to = f"{server.at('out')}/"
        copy = begin(bare, ours, "--rate", "4MiB", "-r", source / "top", to)
        seen: set[int] = set()
        while copy.is_running():
            seen |= barriers(server)
            time.sleep(0.002)
        copy.wait(120).expect(0)
        assert seen == {small.stat().st_dev, server.data.stat().st_dev}
        same(source / "top", server.path("out/top"))
        server.kill()


def test_a_stopped_copy_keeps_durable_data(bare: Scene, ours: Path, source: Path) -> None:
    """After SIGINT, the same command resumes from the durable data."""
    server = bare.server("sink", tpc=None)
    make_tree(source / "top")
    make_file(source / "top" / "a", 96 * MIB, seed=1)
    copy = begin(bare, ours, *SLOW, "-r", source / "top", f"{server.at('out')}/")
    copy.await_durable(8 * MIB)
    copy.send(signal.SIGINT)
    assert copy.wait(60).code != 0
    ended = cp(bare, ours, "-r", source / "top", f"{server.at('out')}/").expect(0)
    assert ended.report["bytes_sent"] < 96 * MIB + 19 * MIB
    same(source / "top", server.path("out/top"))
    assert own(server) == []


def test_a_manager_of_a_cluster_is_refused(bare: Scene, ours: Path, source: Path) -> None:
    """A copy to the redirector of a cluster is refused. The error names the data servers."""
    head, data = bare.cluster(1, tpc=None)
    path = source / "a"
    make_file(path, MIB, seed=1)
    refused = cp(bare, ours, path, head.at("a"))
    assert refused.code != 0
    assert "data servers" in said(refused)
    cp(bare, ours, path, data[0].at("a")).expect(0)
    assert_there(data[0], path)
    assert tree.leftovers(data[0].data) == []


def test_a_plan_of_a_server_changes_nothing(bare: Scene, ours: Path, source: Path) -> None:
    """``dray plan`` counts the files to send, to adopt and to resume. It writes nothing."""
    server = bare.server("sink", tpc=None)
    for number in range(3):
        make_file(source / f"{number}", MIB, seed=number)

    def plan(*words: str | Path) -> dict[str, object]:
        env = {"DRAY_XRDCL": str(find(SHIM))}
        ended = bare.run(ours, "plan", "--layout", "--json", *words, env=env, seconds=60).expect(0)
        last: dict[str, object] = json.loads(ended.out.splitlines()[-1])
        return last

    folder = server.at("made/")
    assert plan("-r", f"{source}/", folder)["files_send"] == 3
    assert not server.path("made").exists()
    cp(bare, ours, "-r", f"{source}/", folder).expect(0)
    make_file(source / "3", 40 * MIB, seed=3)
    slow = ("--progress", "json", "--rate", "8MiB")
    copy = begin(bare, ours, *slow, "-r", f"{source}/", folder)
    copy.await_durable()
    copy.kill()
    found = plan("-r", f"{source}/", folder)
    assert (found["files_adopt"], found["files_resume"]) == (3, 1), found
    back = plan("-r", folder, bare.folder / "back")
    assert back["files_send"] == 3, back
