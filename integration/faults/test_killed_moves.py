"""A run that is killed while it moves a file to a new partial file leaves nothing behind.

A partial file has one wrong bit. The next run copies the right bytes of this partial file to a new
partial file, and is killed meanwhile. A later run may have to copy the whole file again. But it
must end with the right bytes, and without leftovers.
"""

from __future__ import annotations

import os
import random
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest

from integration.faults.test_changed_between_runs import SIZE, Broken, flip
from integration.harness import supervise, tree
from integration.harness.supervise import KILL, Fault, Key, Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.timeout(7200)]

IS_FULL = os.environ.get("DRAY_FULL") == "1"
#: Calls that change a partial file or the log, and the number of moments of each in a short run.
CHANGES = {
    Key("pwrite64", "part"): 1,
    Key("fdatasync", "part"): 1,
    Key("fsync", "part"): 0,
    Key("pwrite64", "log"): 2,
    Key("fdatasync", "log"): 0,
    Key("openat", "part"): 1,
    Key("unlinkat", "part"): 1,
    Key("unlinkat", "log"): 0,
}
#: The sync of the record that ends the old partial file. At this moment the log has neither the old
#: nor the new partial file.
BETWEEN = (Key("fdatasync", "log"), 2)


def sort(path: str) -> str | None:
    """Return the kind of a file: ``part``, ``log``, or None for other files."""
    name = PurePath(path).name
    if name.startswith(".dray-") and name.endswith(".part"):
        return "part"
    return "log" if ".dray-log" in path and name.endswith(".log") else None


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """Return a supervisor. Skip the test on a host that cannot supervise system calls."""
    if why := supervise.reason_to_skip():
        pytest.skip(why)
    with Supervisor(sort) as made:
        yield made


def broken_by(bench: Bench, number: int) -> Broken:
    """Start a copy in a new folder, kill the client, and flip a bit of the durable data."""
    folder = bench.folder / f"try{number}"
    folder.mkdir()
    made = Broken(bench, "cp", folder)
    flip(made.partial, made.logged[1] + 5)
    return made


@pytest.mark.full
def test_a_kill_while_a_file_moves_leaves_right_bytes_and_nothing_else(
    bench: Bench, supervisor: Supervisor
) -> None:
    whole = broken_by(bench, 0)
    supervisor.arm(None)
    whole.again(wrap=supervisor.wrap)
    counts = supervisor.disarm()
    whole.check()
    moments = [(key, nth) for key in CHANGES for nth in range(1, counts[key] + 1)]
    if not IS_FULL:
        chance = random.Random(int(os.environ.get("DRAY_SEED", "1")))
        moments = [BETWEEN] + [
            (key, nth)
            for key, few in CHANGES.items()
            for nth in chance.sample(range(1, counts[key] + 1), min(few, counts[key]))
        ]
    assert len(moments) > 4, counts
    print(f"{len(moments)} moments of {sum(counts[key] for key in CHANGES)}")
    over = 0
    for number, (key, nth) in enumerate(moments, 1):
        broken = broken_by(bench, number)
        supervisor.arm(Fault(key, nth, KILL))
        killed = broken.start(wrap=supervisor.wrap).wait(120)
        is_hit = supervisor.is_hit
        supervisor.disarm()
        said = f"killed at {key}, no. {nth}"
        assert is_hit == (killed.code != 0), f"{said}: {killed.code}\n{killed.words}"
        report = broken.again().report
        over += report["bytes_sent"] == SIZE
        assert tree.hash_file(broken.sink / "large") == tree.hash_file(broken.source), said
        left = [str(path.relative_to(broken.sink)) for path in broken.sink.rglob("*")]
        assert left == ["large"], f"{said}: {left}"
        broken.remove()
    print(f"{over} files started over")
    assert over > 0
