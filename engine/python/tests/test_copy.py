import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import get_args

import pytest

import dray
from dray.transfer import Stage

MIB = 1 << 20
OBJECT = 64 * 1024


def write(path: Path, size: int, seed: int = 1) -> bytes:
    content = random.Random(seed).randbytes(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return content


def make_tree(at: Path) -> None:
    for index in range(40):
        write(at / f"small-{index}", index * 97, index)
    write(at / "deep/er/large", 3 * MIB + 1, 99)
    (at / "empty").mkdir()
    (at / "link").symlink_to("small-1")
    Path(os.fsdecode(os.fsencode(at) + b"/\xff\\name")).write_bytes(b"bytes")


def picture(at: Path) -> dict[str, object]:
    """Return a description of everything in a tree that a copy must preserve."""
    found: dict[str, object] = {}
    for path in sorted(at.rglob("*")):
        state = path.lstat()
        content: object = path.readlink() if path.is_symlink() else None
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        found[str(path.relative_to(at))] = (state.st_mode, state.st_mtime_ns, content)
    return found


class Enough(Exception):
    pass


def stop_midway(source: Path, destination: Path) -> tuple[dray.Progress, Enough]:
    """Copy until a part of the data is durable. Return the last counters and the exception."""
    seen: list[dray.Progress] = []

    def stop(progress: dray.Progress) -> None:
        seen.append(progress)
        if progress.bytes_durable >= MIB:
            raise Enough

    with pytest.raises(Enough) as caught:
        dray.copy(
            source,
            destination,
            recursive=True,
            durability="object",
            object_size=OBJECT,
            rate=8 * MIB,
            progress=stop,
        )
    return seen[-1], caught.value


def test_the_bottleneck_of_a_copy_is_named(tmp_path: Path) -> None:
    write(tmp_path / "data", 2 * MIB, 5)
    # The rate is so low that it is the bottleneck on a busy host too.
    result = dray.copy(tmp_path / "data", tmp_path / "slow", object_size=OBJECT, rate=MIB)
    assert result.bottleneck == "rate"
    waited = result.profile.source["rate"]
    assert 0.2 < waited < sum(result.profile.source.values()) <= result.seconds
    assert result.profile.sink["arrival"] > 0.5 * waited
    assert set(result.profile.source) | set(result.profile.sink) <= set(get_args(Stage))


def test_a_tree_arrives_identical(tmp_path: Path) -> None:
    make_tree(tmp_path / "run")
    files = sum(path.is_file() and not path.is_symlink() for path in (tmp_path / "run").rglob("*"))
    size = sum(path.lstat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    result = dray.copy(tmp_path / "run", tmp_path / "out", recursive=True, verify=True)
    assert picture(tmp_path / "out/run") == picture(tmp_path / "run")
    assert (result.state, result.files) == ("done", files)
    assert result.bytes == result.bytes_sent + result.bytes_resumed
    assert result.bytes <= size
    assert result.files_failed == ()
    assert result.objects == result.objects_sent > 0
    assert result.seconds > 0
    result.raise_for_failures()
    assert dray.find_logs(tmp_path / "out") == ()

    again = dray.copy(tmp_path / "run", tmp_path / "out", recursive=True)
    assert (again.files_adopted, again.bytes_sent) == (files, 0)
    # The same request gives the same transfer id, so a run after a fault finds its log.
    assert again.transfer_id == result.transfer_id
    (tmp_path / "other").mkdir()
    other = dray.copy(tmp_path / "run", tmp_path / "other", recursive=True)
    assert other.transfer_id != result.transfer_id


def test_the_spelling_of_the_destination_decides_its_meaning(tmp_path: Path) -> None:
    write(tmp_path / "run/a", 10)
    source, out = str(tmp_path / "run"), str(tmp_path / "out")
    for _ in range(2):  # the second time it exists
        dray.copy(f"{source}/a", f"{out}/name")
        dray.copy(f"{source}/a", f"{out}/folder/")
        dray.copy(source, f"{out}/tree", recursive=True)
        dray.copy(f"{source}/", f"{out}/contents", recursive=True)
        dray.copy([f"{source}/a", f"{source}/"], f"{out}/several", recursive=True)
        found = {str(p.relative_to(out)) for p in Path(out).rglob("*") if p.is_file()}
        assert found == {"name", "folder/a", "tree/run/a", "contents/a", "several/a"}


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_paths_are_text_bytes_or_pathlike(tmp_path: Path, kind: type) -> None:
    content = write(tmp_path / "a", 10)
    result = dray.copy([kind(str(tmp_path / "a"))], kind(str(tmp_path / "b")), transfer_id="x:1")
    # Several sources make the destination a folder. A list with one source does not.
    assert (tmp_path / "b").read_bytes() == content
    assert result.transfer_id == "x:1"


def test_names_that_are_no_text_are_reported_unchanged(tmp_path: Path) -> None:
    write(tmp_path / "run/a", 10)
    name = os.fsdecode(b"\xff\xfe")
    (tmp_path / "run/a").rename(tmp_path / "run" / name)
    events: list[dray.Event] = []
    dray.copy(f"{tmp_path}/run/", tmp_path / "out", recursive=True, on_event=events.append)
    assert [event.path for event in events if isinstance(event, dray.FileDone)] == [name]
    assert (tmp_path / "out" / name).exists()


def test_options_reach_the_engine(tmp_path: Path) -> None:
    make_tree(tmp_path / "run")
    result = dray.copy(
        f"{tmp_path}/run/",
        tmp_path / "out",
        recursive=True,
        include="small-*",
        exclude=["small-1?"],
        order="random:7",
        object_size=4096,
        durability="none",
        pool_bytes=4 * MIB,
    )
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert names == {f"small-{index}" for index in [*range(10), *range(20, 40)]}
    assert result.state == "done"

    (tmp_path / "out/small-5").write_bytes(b"mine")
    kept = dray.copy(
        f"{tmp_path}/run/", tmp_path / "out", recursive=True, include="small-5", overwrite="never"
    )
    assert kept.files_skipped == 1
    assert (tmp_path / "out/small-5").read_bytes() == b"mine"


def test_links_are_kept_followed_or_refused(tmp_path: Path) -> None:
    content = write(tmp_path / "run/a", 10)
    (tmp_path / "run/link").symlink_to("a")
    source = f"{tmp_path}/run/"
    dray.copy(source, tmp_path / "keep", recursive=True)
    assert (tmp_path / "keep/link").readlink() == Path("a")
    dray.copy(source, tmp_path / "follow", recursive=True, links="follow")
    assert not (tmp_path / "follow/link").is_symlink()
    assert (tmp_path / "follow/link").read_bytes() == content
    refused = dray.copy(source, tmp_path / "refuse", recursive=True, links="refuse")
    assert [failed.path for failed in refused.files_failed] == ["link"]
    assert refused.files == 1


def test_a_demanded_checksum_is_checked(tmp_path: Path) -> None:
    content = write(tmp_path / "a", 3 * OBJECT)
    sums = dray.checksum(content)
    dray.copy(tmp_path / "a", tmp_path / "b", checksum=f"adler32:{sums.adler32:08x}")
    wrong = dray.copy(tmp_path / "a", tmp_path / "c", checksum=f"crc32c:{sums.crc32c ^ 1:08x}")
    assert wrong.state == "failed"
    assert [failed.error.kind for failed in wrong.files_failed] == ["checksum_mismatch"]
    assert not (tmp_path / "c").exists()


def test_entries_that_fail_are_in_the_result_and_the_rest_arrives(tmp_path: Path) -> None:
    write(tmp_path / "a", 10)
    events: list[dray.Event] = []
    missing = tmp_path / "missing"
    result = dray.copy([missing, tmp_path / "a"], tmp_path / "out", on_event=events.append)
    assert (result.state, result.files, result.files_failed_total) == ("failed", 1, 1)
    (failed,) = result.files_failed
    assert (failed.path, failed.error.kind, failed.error.end) == ("missing", "not_found", "source")
    assert [event.path for event in events if isinstance(event, dray.FailedFile)] == ["missing"]
    done = [event for event in events if isinstance(event, dray.FileDone)]
    assert [(event.path, event.size) for event in done] == [("a", 10)]
    assert done[0].sums == dray.checksum((tmp_path / "a").read_bytes())
    with pytest.raises(dray.DrayPermanentError, match="missing"):
        result.raise_for_failures()


def test_without_any_source_the_destination_is_not_touched(tmp_path: Path) -> None:
    events: list[dray.Event] = []
    result = dray.copy(tmp_path / "missing", tmp_path / "out/", on_event=events.append)
    assert (result.state, result.files_failed_total) == ("failed", 1)
    (failed,) = result.files_failed
    (event,) = events
    assert isinstance(event, dray.FailedFile)
    assert (event.path, str(event.error)) == (failed.path, str(failed.error))
    assert failed.error.kind == "not_found"
    assert not (tmp_path / "out").exists()


def test_progress_is_rate_limited_and_ends_with_the_final_state(tmp_path: Path) -> None:
    write(tmp_path / "a", 2 * MIB)
    seen: list[dray.Progress] = []
    result = dray.copy(
        tmp_path / "a", tmp_path / "b", object_size=OBJECT, rate=4 * MIB, progress=seen.append
    )
    assert result.seconds > 0.2
    # The first call of the callback comes immediately, and the last one at the end.
    assert 3 <= len(seen) <= result.seconds * 10 + 2
    last = seen[-1]
    assert (last.files_done, last.bytes_durable, last.is_listing_done) == (1, 2 * MIB, True)
    assert (last.files_remaining, last.bytes_remaining, last.seconds_remaining) == (0, 0, 0)
    assert [each.bytes_durable for each in seen] == sorted(each.bytes_durable for each in seen)
    assert last.bytes_per_second <= 6 * MIB


def test_a_stopped_copy_keeps_durable_data_and_the_next_resumes(tmp_path: Path) -> None:
    size = 6 * MIB
    write(tmp_path / "run/a", size)
    last, _ = stop_midway(tmp_path / "run", tmp_path / "out")
    assert 0 < last.bytes_durable < size
    assert not (tmp_path / "out/run/a").exists()
    (log,) = dray.find_logs(tmp_path / "out")
    logged = dray.read_log(log).bytes_done
    assert last.bytes_durable <= logged < size

    result = dray.copy(tmp_path / "run", tmp_path / "out", recursive=True, object_size=OBJECT)
    assert result.bytes_resumed == logged
    assert result.bytes_sent == result.bytes_read == size - logged
    assert result.objects_resumed == logged // OBJECT
    assert (tmp_path / "out/run/a").read_bytes() == (tmp_path / "run/a").read_bytes()
    assert dray.find_logs(tmp_path / "out") == ()


@pytest.mark.parametrize("durability", ["none", "file", "object"])
def test_data_written_before_the_stop_is_not_resent(
    tmp_path: Path, durability: dray.transfer.Durability
) -> None:
    size = 4 * MIB
    write(tmp_path / "a", size)
    bytes_sent = 0

    def stop(progress: dray.Progress) -> None:
        nonlocal bytes_sent
        bytes_sent = progress.bytes_sent
        if bytes_sent >= MIB:
            raise Enough

    with pytest.raises(Enough):
        dray.copy(
            tmp_path / "a",
            tmp_path / "b",
            durability=durability,
            object_size=OBJECT,
            rate=8 * MIB,
            progress=stop,
        )
    result = dray.copy(tmp_path / "a", tmp_path / "b", object_size=OBJECT)
    assert bytes_sent <= result.bytes_resumed == size - result.bytes_sent
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("resume", ["verify", "trust"])
def test_bytes_of_an_earlier_copy_are_read_back_unless_trusted(
    tmp_path: Path, resume: dray.transfer.ResumeMode
) -> None:
    size = 6 * MIB
    write(tmp_path / "run/a", size)
    stop_midway(tmp_path / "run", tmp_path / "out")
    (log,) = dray.find_logs(tmp_path / "out")
    (file,) = dray.read_log(log).files
    logged = file.bytes_done
    (partial,) = (tmp_path / "out/run").glob(".dray-*.part")
    first = file.done[0].offset
    with partial.open("r+b") as changed:
        changed.seek(first)
        byte = changed.read(1)
        changed.seek(-1, os.SEEK_CUR)
        changed.write(bytes([byte[0] ^ 1]))
    seen: list[dray.Progress] = []
    result = dray.copy(
        tmp_path / "run",
        tmp_path / "out",
        recursive=True,
        object_size=OBJECT,
        resume=resume,
        progress=seen.append,
    )
    is_same = (tmp_path / "out/run/a").read_bytes() == (tmp_path / "run/a").read_bytes()
    if resume == "trust":
        assert not is_same
        assert result.bytes_resumed == logged
        # Data that this copy adds to a resumed file is read back even with `trust`.
        assert result.bytes_read_back == size - logged
    else:
        assert is_same
        assert result.bytes_resumed == logged - OBJECT
        assert result.bytes_read_back >= logged
    assert seen[-1].bytes_read_back == result.bytes_read_back


def test_a_source_that_changed_is_noticed_and_never_mixed(tmp_path: Path) -> None:
    write(tmp_path / "run/a", 6 * MIB)
    stop_midway(tmp_path / "run", tmp_path / "out")
    content = write(tmp_path / "run/a", 6 * MIB, seed=2)
    events: list[dray.Event] = []
    result = dray.copy(tmp_path / "run", tmp_path / "out", recursive=True, on_event=events.append)
    assert (result.state, result.bytes_resumed) == ("done", 0)
    assert (tmp_path / "out/run/a").read_bytes() == content
    notices = [event.error for event in events if isinstance(event, dray.Notice)]
    assert [(notice.kind, notice.file) for notice in notices] == [("source_changed", "run/a")]


def test_callbacks_run_in_the_calling_thread(tmp_path: Path) -> None:
    write(tmp_path / "a", 10)
    callers: list[int] = []

    def note(_: object) -> None:
        callers.append(threading.get_ident())

    dray.copy(tmp_path / "a", tmp_path / "b", progress=note, on_event=note)
    assert len(callers) >= 2
    assert set(callers) == {threading.get_ident()}


def test_an_exception_of_the_event_callback_stops_too(tmp_path: Path) -> None:
    make_tree(tmp_path / "run")
    calls = []

    def fail(event: dray.Event) -> None:
        calls.append(event)
        raise Enough

    with pytest.raises(Enough):
        dray.copy(tmp_path / "run", tmp_path / "out", recursive=True, on_event=fail)
    assert len(calls) == 1
    # The lease is free again, so the next copy succeeds.
    dray.copy(tmp_path / "run", tmp_path / "out", recursive=True)
    assert picture(tmp_path / "out/run") == picture(tmp_path / "run")


def test_two_copies_to_one_destination_are_refused_by_name(tmp_path: Path) -> None:
    # The first copy takes longer than the second waits for the lease.
    write(tmp_path / "a", 32 * MIB)
    refused: list[dray.DrayError] = []

    def copy_too(_: dray.Progress) -> None:
        if not refused:
            with pytest.raises(dray.DrayTemporaryError) as caught:
                dray.copy(tmp_path / "a", tmp_path / "b")
            refused.append(caught.value)

    dray.copy(
        tmp_path / "a",
        tmp_path / "b",
        object_size=OBJECT,
        rate=8 * MIB,
        transfer_id="first",
        progress=copy_too,
    )
    assert refused[0].kind == "lease_held"
    assert "transfer first" in str(refused[0])
    assert (tmp_path / "b").exists()


def test_other_threads_run_while_copying(tmp_path: Path) -> None:
    write(tmp_path / "a", 2 * MIB)
    ticks_meanwhile = 0
    is_done = threading.Event()

    def tick() -> None:
        nonlocal ticks_meanwhile
        while not is_done.wait(0.001):
            ticks_meanwhile += 1

    thread = threading.Thread(target=tick)
    thread.start()
    result = dray.copy(tmp_path / "a", tmp_path / "b", object_size=OBJECT, rate=4 * MIB)
    is_done.set()
    thread.join()
    assert ticks_meanwhile > result.seconds * 20


def test_copies_run_in_threads_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "a", MIB)
    results: list[dray.TransferResult] = []

    def run(index: int) -> None:
        results.append(dray.copy(tmp_path / "a", tmp_path / f"out-{index}/a", pool_bytes=16 * MIB))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.state for result in results] == ["done"] * 4


CHILD = """
import signal
import sys
import dray

# A shell that puts the tests in the background makes them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def report(progress):
    if progress.bytes_durable >= 1 << 20:
        print("moving", flush=True)

try:
    dray.copy(sys.argv[1], sys.argv[2], recursive=True, durability="object",
              object_size=64 * 1024, rate=2 << 20, progress=report)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


def test_ctrl_c_stops_and_keeps_durable_data(tmp_path: Path) -> None:
    size = 16 * MIB
    write(tmp_path / "run/a", size)
    package = Path(dray.__file__).parent.parent
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "run"), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "moving\n"
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=30)
    assert out.endswith("interrupted\n"), error
    assert "KeyboardInterrupt" in error
    assert child.returncode == -signal.SIGINT

    (log,) = dray.find_logs(tmp_path / "out")
    logged = dray.read_log(log).bytes_done
    assert MIB <= logged < size
    result = dray.copy(tmp_path / "run", tmp_path / "out", recursive=True, object_size=OBJECT)
    assert result.bytes_resumed == logged
    assert (tmp_path / "out/run/a").read_bytes() == (tmp_path / "run/a").read_bytes()
