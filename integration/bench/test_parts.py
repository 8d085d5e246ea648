"""The parts below the runs: checks of copies, the machine, control groups, data sets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.bench import (
    account,
    ceph_slow_picture,
    datasets,
    jobs,
    machine,
    peers,
    runs,
    sendfile,
)
from integration.bench.__main__ import options
from integration.bench.begin import command
from integration.bench.check import Content, compare
from integration.bench.results import Sample
from integration.bench.tools import Scene, Tool, at_once
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


def make(top: Path) -> Path:
    (top / "folder").mkdir(parents=True)
    (top / "one").write_bytes(b"1")
    (top / ".hidden").write_bytes(b"h")
    (top / "folder" / "two").write_bytes(b"22")
    (top / "link").symlink_to("one")
    (top / "folder-link").symlink_to("folder")
    return top


def copy(tmp_path: Path) -> tuple[Content, Path]:
    source = make(tmp_path / "source")
    shutil.copytree(source, tmp_path / "sink", symlinks=True)
    return Content.of(source), tmp_path / "sink"


def fault(wanted: Content, sink: Path, *, is_lax: bool = False) -> str:
    return compare(wanted, Content.of(sink), hides_dots=is_lax, drops_links=is_lax).fault


def test_an_exact_copy_is_good(tmp_path: Path) -> None:
    wanted, sink = copy(tmp_path)
    verdict = compare(wanted, Content.of(sink), hides_dots=False, drops_links=False)
    assert (verdict.fault, verdict.notes) == ("", ())


def test_another_content_a_lost_file_and_a_strange_one_are_faults(tmp_path: Path) -> None:
    wanted, sink = copy(tmp_path)
    (sink / "one").write_bytes(b"x")
    assert "1 files differ: one" in fault(wanted, sink, is_lax=True)
    (sink / "one").unlink()
    assert "1 files are missing: one" in fault(wanted, sink, is_lax=True)
    (sink / "one").write_bytes(b"1")
    (sink / "three").write_bytes(b"")
    assert "1 files nobody sent: three" in fault(wanted, sink, is_lax=True)


def test_a_hard_link_is_no_copy(tmp_path: Path) -> None:
    wanted, sink = copy(tmp_path)
    (sink / "one").unlink()
    os.link(tmp_path / "source" / "one", sink / "one")
    assert "hard links" in fault(wanted, sink)


def test_documented_omissions_of_a_tool_are_noted_others_are_faults(tmp_path: Path) -> None:
    wanted, sink = copy(tmp_path)
    (sink / ".hidden").unlink()
    assert "missing: .hidden" in fault(wanted, sink)
    (sink / "link").unlink()
    (sink / "folder-link").unlink()
    verdict = compare(wanted, Content.of(sink), hides_dots=True, drops_links=True)
    assert verdict.notes == ("leaves out 1 dot files", "leaves out links")
    (sink / ".hidden").write_bytes(b"h")
    assert "links are missing" in fault(wanted, sink)


def test_followed_links_are_noted(tmp_path: Path) -> None:
    wanted, _ = copy(tmp_path)
    shutil.copytree(tmp_path / "source", tmp_path / "followed")
    verdict = compare(wanted, Content.of(tmp_path / "followed"), hides_dots=False, drops_links=True)
    assert verdict.fault == ""
    assert verdict.notes == ("follows links: 2 files more",)


def test_a_folder_in_place_of_a_link_is_noted(tmp_path: Path) -> None:
    wanted, _ = copy(tmp_path)
    sink = tmp_path / "followed"
    shutil.copytree(tmp_path / "source", sink)
    shutil.rmtree(sink / "folder")
    verdict = compare(wanted, Content.of(sink), hides_dots=False, drops_links=True)
    assert verdict.fault == ""
    assert verdict.notes[0] == "puts 1 files under links to their folders only"
    (sink / "folder-link" / "two").write_bytes(b"x")
    assert "missing: folder/two" in fault(wanted, sink, is_lax=True)


def test_debug_builds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "debug").mkdir()
    (tmp_path / "debug" / "dray").write_bytes(b"")
    (tmp_path / "release").symlink_to("debug")
    with pytest.raises(SystemExit, match="debug build"):
        machine.refuse_debug(tmp_path / "release" / "dray")
    machine.refuse_debug(tmp_path / "dray")


def test_the_file_system_is_named_as_the_kernel_does() -> None:
    mounts = "\n".join(
        [
            "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
            "23 22 0:20 / /dev/shm rw - tmpfs tmpfs rw",
            "24 22 8:1 / /mnt/a\\040b rw master:1 shared:2 - xfs /dev/sda1 rw",
            "25 22 0:30 / /mnt/twice rw - ext3 /dev/sdb rw",
            "26 25 0:31 / /mnt/twice rw - btrfs /dev/sdc rw",
        ]
    )
    for place, kind in {
        "/": "ext4",
        "/home/x": "ext4",
        "/dev/shm/dray-bench-1": "tmpfs",  # noqa: S108
        "/dev/shmem": "ext4",  # noqa: S108
        "/mnt/a b/c": "xfs",
        "/mnt/twice": "btrfs",
    }.items():
        assert machine.file_system(Path(place), mounts) == kind, place
    assert machine.file_system(Path("/x"), "") == "unknown"


def test_a_group_is_made_where_processor_time_is_counted() -> None:
    old = "3:cpuset:/\n2:cpu,cpuacct:/user\n0::/user.slice/me\n"
    root = Path("/sys/fs/cgroup")
    assert account.places(old) == [
        root / "cpu,cpuacct" / "user",
        root / "unified" / "user.slice" / "me",
        root / "user.slice" / "me",
    ]


def test_a_tool_reports_missing_requirements() -> None:
    def never(_: Scene) -> object:
        raise AssertionError

    def tool(**more: object) -> Tool:
        return Tool("x", "x", "clear", never, **more)  # type: ignore[arg-type]

    network = machine.Network()
    assert tool(needs=("sh",)).missing(network) == ""
    assert tool(needs=("sh", "no-such")).missing(network) == "no program no-such on this host"
    assert tool(needs=("no-such",), remedy="make it").missing(network).endswith(": make it")
    assert "all addresses" in tool(is_open=True).missing(network)
    assert tool(is_open=True).missing(machine.OwnNetwork()) == ""
    assert tool(unavailable="lost").missing(machine.OwnNetwork()) == "lost"


def test_every_tool_has_a_name_of_its_own_and_the_base_is_one() -> None:
    names = [tool.name for tool in peers.TOOLS]
    assert len(set(names)) == len(names)
    assert "cp" in names


def test_a_set_that_does_not_fit_is_left_out() -> None:
    assert "MiB of memory" in datasets.missing("a", 1.0, 2**30)
    assert datasets.missing("a", 0.01, 2**30) == ""


#: Starts a daemon whose parent exits before the daemon works, and checks that it is counted.
BURN = """
import subprocess, sys, time
from integration.bench import account
counted = getattr(account, sys.argv[1])()
work = "import time\\nwhile time.process_time() < 0.3: pass\\ntime.sleep(60)"
words = ["sh", "-c", '"$@" & exit 0', "sh", sys.executable, "-c", work]
subprocess.Popen([*counted.wrap, *words]).wait()
until = time.monotonic() + 60
with account.Memory(counted) as memory:
    while counted.cpu_seconds() < 0.2:
        assert time.monotonic() < until, counted.cpu_seconds()
        time.sleep(0.01)
assert memory.peak > 1 << 20, memory.peak
assert len(counted.pids()) == 1, counted.pids()
counted.close()
"""


@pytest.mark.parametrize("way", ["processes", "Processes"])
def test_the_processor_time_of_a_daemon_is_counted_and_it_is_ended(way: str) -> None:
    before = set(pids_of("time.process_time()"))
    subprocess.run([sys.executable, "-c", BURN, way], check=True, cwd=ROOT, timeout=120)
    assert set(pids_of("time.process_time()")) <= before


def pids_of(words: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if words.encode() in line:
            found.append(int(pid))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may go back")
def test_the_priority_of_a_run_is_taken_back() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(ValueError), runs.priority(1):
        assert os.getpriority(os.PRIO_PROCESS, 0) == before + 1
        raise ValueError
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_run_is_disturbed_by_the_part_of_the_machine_that_others_use() -> None:
    run = Sample("a", "tmpfs", "cubic", 0, "cp", 2.0, 1.0, 0, foreign_seconds=0.5 * runs.CPUS)
    assert runs.disturbance(run) == 0.25
    assert runs.disturbance(Sample("a", "tmpfs", "cubic", 0, "cp", 0.0, 0.0, 0, 1.0)) == 0.0


def test_the_command_of_a_page_names_no_folder_of_results() -> None:
    known = options()
    words = ["--sets", "a,c", "--rounds", "1", "--json", "/home/me/x", "--page", "--short"]
    said = command(known.parse_args(words), known)
    assert said == "make bench-peers ARGS='--short --sets a,c --rounds 1'"
    assert command(known.parse_args([]), known) == "make bench-peers"


def test_the_command_of_a_part_names_it_and_its_options() -> None:
    known = jobs.options()
    given = known.parse_args(["--round-trip", "50", "--jobs", "1,8"])
    said = command(given, known, ("jobs",))
    assert said == "make bench-peers ARGS='jobs --jobs 1,8 --round-trip 50.0'"


def test_sets_scale_and_share_content(tmp_path: Path) -> None:
    large = datasets.make(tmp_path, "b", 0.0001)
    assert (large.files, large.size) == (30, 30 * round(200 * 2**20 * 0.0001))
    assert len({path.stat().st_ino for path in large.path.iterdir()}) == 5
    many = datasets.make(tmp_path, "d", 0.004)
    assert (many.files, many.size) == (20, 20 << 20)
    assert datasets.make(tmp_path, "a", 0.0001).is_one_file


@pytest.mark.parametrize("send", [sendfile.copy, sendfile.sendfile])
def test_the_trial_of_sendfile_sends_all_of_a_file(
    tmp_path: Path, send: Callable[[socket.socket, int, int, memoryview], int]
) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(sendfile.OBJECT_BYTES + 12_345))
    buffer = memoryview(bytearray(sendfile.OBJECT_BYTES))
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        file.open("rb") as opened,
        socket.create_connection(listener.getsockname()) as to,
        ThreadPoolExecutor() as pool,
    ):
        taken = pool.submit(lambda: listener.accept()[0].makefile("rb").read())
        offset = 0
        while count := send(to, opened.fileno(), offset, buffer):
            offset += count
        to.shutdown(socket.SHUT_WR)
        assert taken.result() == file.read_bytes()


def test_concurrent_commands_run_and_a_failure_is_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "one's", tmp_path / "two"
    # Each command waits until the other has started. If they ran one after the other, the first
    # command would never end.
    meet = 'touch "$0"; until [ -e "$1" ]; do sleep 0.01; done; exit "$2"'
    for code in (0, 7):
        words = at_once(
            [
                ["sh", "-c", meet, first, second, str(code)],
                ["sh", "-c", meet, second, first, "0"],
            ]
        )
        assert subprocess.run(words, check=False, timeout=30).returncode == code
        first.unlink()
        second.unlink()


def test_sets_of_jobs_and_of_tiny_files_have_the_declared_content(tmp_path: Path) -> None:
    jobs = datasets.make(tmp_path, "j4", 0.0001)
    assert (jobs.files, jobs.size) == (4, 4 * round(datasets.JOB_BYTES * 0.0001))
    assert sorted(path.name for path in jobs.path.iterdir()) == ["job0", "job1", "job2", "job3"]
    few = datasets.make(tmp_path, "f4", 0.15)
    assert (few.files, few.size) == (1500, 1500 * 8)
    assert len(list(few.path.iterdir())) == 2


def test_a_page_of_each_block_is_held_while_memory_is_warm(tmp_path: Path) -> None:
    size = 3 * machine.REPORTED + machine.BLOCK
    before = open_files()
    with machine.warmed(tmp_path, size):
        (number,) = open_files() - before
        status = os.fstat(number)
        assert status.st_size == size
        # The file keeps one page of each block. The file system may add blocks for its metadata.
        assert 4 * machine.PAGE <= status.st_blocks * 512 <= 8 * machine.PAGE
    assert open_files() == before
    assert list(tmp_path.iterdir()) == []


def space(rooms: int, files: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, rooms, rooms, rooms, 10 * files, files, files, 0, 255))


def test_copies_of_many_files_stay_on_a_disk_with_room_for_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"")
    data = datasets.Data("c", "many", tmp_path, size=4096 * 100, files=5000)
    rooms = data.room // 4096
    plenty = space(20 * rooms + 100, 200_000)
    assert runs.keeps("ext4", data, 10, plenty)
    assert not runs.keeps("tmpfs", data, 10, plenty)
    assert not runs.keeps("ext4", dataclasses.replace(data, files=30), 10, plenty)
    assert not runs.keeps("ext4", data, 10, space(19 * rooms, 200_000))
    assert not runs.keeps("ext4", data, 10, space(20 * rooms + 100, 99_000))


def open_files() -> set[int]:
    return {int(each.name) for each in Path("/proc/self/fd").iterdir() if each.exists()}


def test_pictures_of_a_slow_osd_show_the_results() -> None:
    """The pictures in the tree are those of the stored results."""
    folder = ceph_slow_picture.FOLDER
    text = (folder / "schedule.json").read_text(encoding="utf-8")
    for name, content in ceph_slow_picture.files(text).items():
        assert (folder / name).read_text(encoding="utf-8") == content, name
