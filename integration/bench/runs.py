"""Runs all tools in turns, each in a new folder with warm memory, and checks each copy."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench import account, check, datasets, machine
from integration.bench.path import Ends, Watch, WidePath
from integration.bench.results import MB, Results, Sample, Set, rotated
from integration.bench.tools import AUTOGROUP, Command, Scene, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integration.bench.datasets import Data

#: Memory in bytes that is warmed in addition to the copy, for buffers and servers.
BESIDE_BYTES = 1 << 30
#: A run counts as disturbed if other processes use more than this fraction of all processors.
DISTURBED = 0.1
#: From this number of files on, copies on a disk stay until all runs of the set are done.
MANY_FILES = 1000
#: Number of processes, in addition to the timed one, whose memory is recorded separately.
OTHERS = 2
CPUS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Asked:
    """The requested runs: tools, data sets, number of rounds and limits."""

    tools: list[Tool]
    sets: list[str]
    scale: float
    rounds: int
    congestions: list[str]
    #: Folders in which the copies are made.
    places: list[Path]
    #: A folder on a tmpfs, through which memory is warmed.
    memory: Path
    #: Maximum seconds of one run.
    limit: float
    #: Maximum number of tries of a run that other processes disturb.
    tries: int
    #: Maximum seconds of the wait for an idle machine before each run.
    wait: float
    #: Number that is added to the niceness of tools and servers while they are timed.
    nice: int
    program: Path
    #: Path between the ends. Without one, both ends are on the loopback.
    path: WidePath | None = None


def await_true(is_so: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds.

    :raises TimeoutError: if it does not hold within ``seconds``.
    """
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"not so within {seconds:g} s")
        time.sleep(0.01)


def say(words: str) -> None:
    """Print a line about the progress."""
    print(words, flush=True)


def run_all(
    asked: Asked, network: machine.Network, results: Results, keep: Callable[[], None]
) -> None:
    """Run all tools in all rounds. Call ``keep`` after each run."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    for place in asked.places:
        where = machine.file_system(place.resolve(), mounts)
        for name in asked.sets:
            with _folder(place) as folder:
                say(f"\n{where}: making set {name}")
                data = datasets.make(folder, name, asked.scale)
                say(f"set {name}: {data.title}")
                if all(each.name != name for each in results.sets):
                    results.sets.append(Set(name, data.title, data.size, data.files))
                copies = asked.rounds * len(asked.congestions) * len(asked.tools) * asked.tries
                stays = keeps(where, data, copies, os.statvfs(folder))
                _run_set(asked, network, results, keep, _Ground(folder, where, data, stays))


@dataclass(frozen=True)
class _Ground:
    """A data set, and the folder for its copies."""

    folder: Path
    where: str
    data: Data
    #: True if copies stay until all runs of the set are done.
    keeps: bool = False


def _run_set(
    asked: Asked,
    network: machine.Network,
    results: Results,
    keep: Callable[[], None],
    ground: _Ground,
) -> None:
    wanted = check.Content.of(ground.data.path)
    set_name = ground.data.name
    by_name = {tool.name: tool for tool in asked.tools if set_name in (tool.sets or set_name)}
    missing = {row.name for row in results.rows if row.missing}
    lost: set[tuple[str, str]] = set()
    for turn in range(asked.rounds):
        for congestion in asked.congestions:
            network.use(congestion)
            names = [name for name in by_name if name not in missing]
            for name in rotated(names, turn, asked.rounds):
                if (name, congestion) in lost:
                    continue
                sample = _run_quietly(asked, by_name[name], ground, wanted)
                where = asked.path.label if asked.path else ground.where
                sample = replace(sample, where=where, congestion=congestion, round=turn)
                results.samples.append(sample)
                _tell(ground.data, sample)
                if sample.error:
                    # Do not run this tool in later rounds: it would probably fail again.
                    lost.add((name, congestion))
                keep()


def _tell(data: Data, sample: Sample) -> None:
    head = f"{sample.where} {sample.set} {sample.congestion} {sample.round + 1} {sample.tool:15}"
    if sample.error:
        say(f"{head} FAILED: {sample.error}")
        return
    say(
        f"{head} {sample.seconds:7.2f} s {data.size / MB / sample.seconds:6.0f} MB/s"
        f" {sample.cpu_seconds:6.2f} CPU s {sample.memory_peak >> 20:5} MiB"
        f" foreign {sample.foreign_seconds:.2f} s {'; '.join(sample.notes)}"
    )


def _run_quietly(asked: Asked, tool: Tool, ground: _Ground, wanted: check.Content) -> Sample:
    """Run a tool. Repeat a run that other processes disturbed, and return the quietest run."""
    tried = []
    for _ in range(asked.tries):
        machine.await_quiet(asked.wait)
        tried.append(_run(asked, tool, ground, wanted))
        if tried[-1].error or disturbance(tried[-1]) <= DISTURBED:
            break
    best = min(tried, key=lambda sample: (bool(sample.error), disturbance(sample)))
    if len(tried) > 1:
        note = f"{len(tried) - 1} disturbed run{'s' if len(tried) > 2 else ''} not counted"
        best = replace(best, notes=(*best.notes, note))
    return best


def disturbance(sample: Sample) -> float:
    """Return the fraction of all CPU time that other processes have used during a run."""
    return sample.foreign_seconds / (sample.seconds * CPUS) if sample.seconds else 0.0


def _run(asked: Asked, tool: Tool, ground: _Ground, wanted: check.Content) -> Sample:
    """Run a tool once, in a new folder, and check its copy."""
    data = ground.data
    sample = Sample(data.name, ground.where, "", 0, tool.name, 0.0, 0.0, 0, 0.0)
    with contextlib.ExitStack() as at_end:
        folder = at_end.enter_context(_folder(ground.folder, keep=ground.keeps))
        sink = folder / "sink"
        sink.mkdir()
        sink.chmod(0o777)
        processes = account.processes()
        at_end.callback(processes.close)
        nice = asked.nice if AUTOGROUP.exists() else 0
        ends = asked.path.ends if asked.path else Ends()
        scene = Scene(data, sink, folder, processes, asked.program, at_end, nice, ends)
        with priority(asked.nice):
            try:
                command = tool.prepare(scene)
            except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
                return replace(sample, error=f"its servers do not start: {_first(error)}")
            if ground.where != "tmpfs":
                # Write pending data of earlier runs now, so that it does not delay this run.
                os.sync()
            watch = Watch(asked.path) if asked.path else None
            with (
                machine.warmed(
                    asked.memory, data.room + BESIDE_BYTES, holds=ground.where == "tmpfs"
                ),
                watch or contextlib.nullcontext(),
            ):
                sample = _measure(asked, scene, command, sample)
            if watch:
                sample = replace(sample, seen=watch.seen)
        if tool.is_checked and not sample.error:
            found = check.Content.of(sink / command.below)
            verdict = check.compare(
                wanted, found, hides_dots=tool.hides_dots, drops_links=tool.drops_links
            )
            sample = replace(sample, error=verdict.fault, notes=verdict.notes)
        return sample


def _measure(asked: Asked, scene: Scene, command: Command, sample: Sample) -> Sample:
    """Measure the time, CPU time and memory that a command and its servers use."""
    log = scene.folder / "command.log"
    is_durable = sample.where != "tmpfs"
    of, path, limit = scene.processes, asked.path, asked.limit
    with account.Memory(of) as memory:
        busy, own = account.busy_seconds(), _own_seconds(path)
        cpu = of.cpu_seconds()
        began = time.monotonic()
        process = scene.start(log, command.words, command.env)
        code = _await(process, limit)
        if is_durable and code == 0:
            # Data counts as arrived only when it is on stable storage. dray waits for this by
            # itself, but other tools do not. So the measured time includes a sync.
            code = _await(scene.start(log, ["sync", "-f", scene.sink], {}), limit)
        seconds = time.monotonic() - began
        cpu = of.cpu_seconds() - cpu
        busy, own = account.busy_seconds() - busy, _own_seconds(path) - own
    log_text = log.read_text(encoding="utf-8", errors="replace")
    if code is None:
        there = sum(len(files) for _, _, files in os.walk(scene.sink))
        return replace(
            sample, error=f"stopped after {limit:.0f} s: {there} of {scene.data.files} files there"
        )
    if code != 0:
        return replace(sample, error=f"ended with {code}: {log_text[-300:].strip()}")
    waited = 0.0
    if command.seconds is not None:
        waited, seconds = seconds, command.seconds(log_text)
    summing = command.summing(log_text) if command.summing else 0.0
    foreign = max(0.0, busy - cpu - own)
    return replace(
        sample,
        seconds=seconds,
        cpu_seconds=cpu,
        memory_peak=memory.peak,
        peaks=_peaks(memory, process.pid),
        foreign_seconds=foreign,
        waited=waited,
        summing=summing,
    )


def _peaks(memory: account.Memory, timed: int) -> tuple[int, ...]:
    others = sorted((size for pid, size in memory.peaks.items() if pid != timed), reverse=True)
    return (memory.peaks.get(timed, 0), *others[:OTHERS])


def _own_seconds(path: WidePath | None) -> float:
    """Return the CPU seconds that the measurement itself has used."""
    return account.own_seconds() + (path.cpu_seconds() if path else 0.0)


def _await(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for a process, and end it after a time limit.

    Return the exit code of the process, or ``None`` if it was ended. The function does not use
    ``Popen.wait`` with a timeout, because ``Popen.wait`` then polls too rarely.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        ready = select.select([descriptor], [], [], seconds)[0]
    finally:
        os.close(descriptor)
    if ready:
        return process.wait()
    # The process has a separate session and process group. So the signal reaches only this process
    # and the processes that it has started.
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(account.END_SECONDS)
        return None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return None


@contextlib.contextmanager
def priority(nice: int) -> Iterator[None]:
    """Add ``nice`` to the niceness of this thread and of the processes that it starts."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    if nice == 0:
        yield
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before + nice)
        _session(nice)
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        _session(0)


def _session(nice: int) -> None:
    with contextlib.suppress(OSError):
        AUTOGROUP.write_text(f"{nice}", encoding="ascii")


def keeps(where: str, data: Data, copies: int, space: os.statvfs_result) -> bool:
    """Return whether all copies of a set stay on the disk until the set is done.

    They stay if the set has many files, the disk is no tmpfs, and all copies fit on the disk. The
    reason: ext4 without a journal does not reuse an inode that was freed in the last minutes
    (``recently_deleted``). It checks each such inode, so creating many files after many removals
    may take ten times as long.

    :param copies: maximum number of copies of the set
    """
    if where == "tmpfs" or data.files < MANY_FILES:
        return False
    # Require twice the space and inodes of the copies. Some file systems do not report how many
    # inodes they have.
    has_names = not space.f_files or space.f_favail > 2 * copies * data.files
    return has_names and space.f_bavail * space.f_frsize > 2 * copies * data.room


@contextlib.contextmanager
def _folder(place: Path, *, keep: bool = False) -> Iterator[Path]:
    """Make a folder, which servers of other users may enter. Remove it at the end of the block.

    :param keep: do not remove the folder. The owner of ``place`` removes it.
    """
    path = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=place))
    try:
        path.chmod(0o755)
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
