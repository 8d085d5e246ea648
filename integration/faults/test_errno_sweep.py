"""A copy whose system calls fail, one at a time: no wrong byte, no hang, no leftovers."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from integration.errno_sweep import cases
from integration.errno_sweep.catalog import SCENES, scene
from integration.errno_sweep.scenes import Data, Ran
from integration.errno_sweep.sweep import Later, run, sweep
from integration.harness.program import Process
from integration.harness.supervise import KILL, Fault, Key, Supervisor, reason_to_skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from integration.errno_sweep.cases import Case
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(3600)]

FULL = os.environ.get("DRAY_FULL") == "1"
SEED = int(os.environ.get("DRAY_SEED", "1106"))
#: Number of cases of each scene. `make test` runs only the scenes in FAST.
CASES = 120 if FULL else 8
FAST = ("local-object", "push-server", "tpc-pull-sink", "xrootd-beside")


@pytest.fixture(autouse=True)
def supervised(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let endpoints run the program. Skip the test if system calls cannot be supervised."""
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setenv("DRAY_PROGRAM", str(program))


@pytest.mark.parametrize("name", list(SCENES) if FULL else FAST)
def test_after_any_failed_call_the_same_command_ends_well(bench: Bench, name: str) -> None:
    print(f"\nseed {SEED} (DRAY_SEED replays it), {CASES} cases")

    def choose(found: Iterable[Case]) -> Sequence[Case]:
        return cases.sample(found, CASES, SEED)

    outcomes = list(sweep([name], bench, choose))
    assert len(outcomes) == CASES
    bad = [f"{each.case}: {each.faults}; it said: {each.words}" for each in outcomes if each.faults]
    assert bad == []
    # A run may make fewer calls than the counted runs, so that the call of a case does not happen.
    assert sum(each.is_hit for each in outcomes) >= CASES * 3 // 4


#: Cases that failed in earlier versions: a lease or a log remained, or a lock of the queue was not
#: released.
FOUND = (
    "tpc-push-sink/fcntl/lease/1+/EINVAL",
    "tpc-push-sink/openat/log/1/ENOSPC",
    "tpc-push-sink/fsync/sink-file/1/ENOSPC",
    "tpc-push-sink/fcntl/state/6/EINTR",
)


def test_faults_that_were_found_stay_mended(bench: Bench) -> None:
    found = [cases.parse(text) for text in FOUND]
    outcomes = list(sweep(["tpc-push-sink"], bench, lambda _: found))
    bad = [f"{each.case}: {each.faults}; it said: {each.words}" for each in outcomes if each.faults]
    assert bad == []
    assert len(outcomes) == len(FOUND)


def test_the_supervisor_fails_the_call_that_is_named_and_no_other(
    bench: Bench, tmp_path: Path
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for name in ("first", "second", "third"):
        (top / name).touch()
    key = Key("unlinkat", "file")
    with Supervisor(lambda path: "file" if path.startswith(f"{top}/") else None) as supervisor:
        supervisor.arm(Fault(key, 2, errno.EBUSY))
        files = [str(top / name) for name in ("first", "second", "third")]
        ended = _run(bench, [*supervisor.wrap, "/usr/bin/rm", *files])
        assert ended[0] == 1
        assert "second" in ended[1]
        assert "busy" in ended[1]
        assert supervisor.disarm() == {key: 3}
        assert supervisor.hit_path == str(top / "second")
        assert [path.name for path in top.iterdir()] == ["second"]
        supervisor.arm(Fault(key, 1, KILL))
        assert _run(bench, [*supervisor.wrap, "/usr/bin/rm", str(top / "second")])[0] == -9
        assert (top / "second").exists()


def _run(bench: Bench, words: list[str]) -> tuple[int, str]:
    ended = Process(words, bench.logs, "supervised").wait(10)
    return ended.code, ended.words


def test_the_judge_finds_a_byte_that_turned(bench: Bench) -> None:
    data = Data(bench.folder / "data")
    with scene("local", bench, data) as made:
        copy = made.run

        def copy_and_spoil() -> Ran:
            ran = copy()
            with (made.copied() / "m" / "large").open("r+b") as file:
                file.write(b"not these bytes")
            return ran

        made.run = copy_and_spoil  # type: ignore[method-assign]
        case = cases.parse("local/unlinkat/lease/1/EIO")
        outcome = run(made, case, data, Later(bench))
    assert any("wrong content" in each for each in outcome.faults)


def test_a_case_reads_as_it_is_written() -> None:
    for text in ("local/fsync/sink-file/2/EIO", "tpc-pull-sink/pwrite64/state/3+/ENOSPC"):
        assert str(cases.parse(text)) == text
    assert cases.parse("local/openat/lease/1/KILL").fault.code == KILL
