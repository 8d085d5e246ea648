"""Third-party copies are killed at random moments, and resume.

The final name never has a wrong file. With ``DRAY_FULL=1``, a copy has 4 GiB, and gets ten kills of
one kind. With only ``DRAY_KILLS=10``, a copy has 1 GiB, and gets ten kills of each of the four
kinds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import MIB
from integration.harness.watch import Watcher
from integration.xrootd import curl
from integration.xrootd.files import configured, copies, hide, make
from integration.xrootd.http import ALL_ADDRESSES, copying, xrootd
from integration.xrootd.moments import (
    CONFIG,
    EMPTY,
    EVERY_WAY,
    FULL,
    MOMENTS,
    SEED,
    SIZE,
    Chain,
    await_end,
    content,
    plans,
)

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Process
    from integration.xrootd.servers import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(3600)]

PLANS = [pytest.param(plan, id=plan[0] if FULL else "each") for plan in plans()]
#: Kinds of copies: with or without dray's storage wrapper, which hides placeholders, and with or
#: without --force. A short run tests only two of them.
WAYS = [
    pytest.param(False, False, id="bare-plain"),
    pytest.param(True, True, id="wrapper-force"),
    pytest.param(False, True, id="bare-force"),
    pytest.param(True, False, id="wrapper-plain"),
][: 4 if EVERY_WAY else 2]
HIDDEN = [pytest.param(True, id="wrapper"), pytest.param(False, id="bare")][: 2 if EVERY_WAY else 1]


def is_zero(ended: Ended) -> bool:
    return ended.code == 0


@pytest.mark.parametrize(("hidden", "force"), WAYS)
@pytest.mark.parametrize("victims", PLANS)
def test_a_copy_resumes_from_any_moment(
    scene: Scene, ours: Path, victims: tuple[str, ...], hidden: bool, force: bool
) -> None:
    """A killed ``xrdcp`` resumes. Until the copy ends, the destination has no file or the old file.

    Without the storage wrapper that hides placeholders, the destination may also have an empty
    file.
    """
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    lines = [hide(scene)] if hidden else []
    sink = scene.server("sink", tpc=configured(scene, *CONFIG), lines=lines)
    allowed = set() if hidden else {EMPTY}
    if hidden and force:
        allowed = {content(make(sink, "a", 3 * MIB, seed=3))}
    made = make(source, "a", SIZE, seed=2)
    # Let the source compute and store the checksum before the copy.
    source.checksum("a", "adler32")

    def begin(replace: bool) -> Process:
        words = ["xrdcp", "--nopbar", "--tpc", "only"]
        words += ["--force"] if force or (replace and not hidden) else []
        return scene.begin(*words, source.at("a"), sink.at("a"))

    about = f"xrdcp, wrapper {hidden}, force {force}, {victims[0] if FULL else 'each'}"
    chain = Chain(about, scene, ours, source, sink, made, begin, is_zero, allowed)
    if chain.run(victims):
        sent, resumed = copies(sink)[-1]
        assert sent + resumed == SIZE
    for algorithm in ("adler32", "crc32c"):
        assert sink.checksum("a", algorithm) == source.checksum("a", algorithm)
    assert tree.leftovers(sink.data) == []


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("victims", PLANS)
def test_a_pull_resumes_from_any_moment(
    bare: Scene,
    ours: Path,
    plugins: Path,
    certificates: Path,
    victims: tuple[str, ...],
    hidden: bool,
) -> None:
    """A killed ``curl -X COPY`` resumes, with and without the wrapper."""
    configured(bare, ALL_ADDRESSES, *CONFIG)
    settings = ["marker_seconds 1", f"config {bare.folder / 'tpc.toml'}"]
    lines = [hide(bare)] if hidden else []
    sink = copying(bare, plugins, certificates, settings=settings, lines=lines)
    web, source = xrootd(bare, "source")
    made = make(source, "a", SIZE, seed=2)
    # Date the file 10 s back: HTTP has times in whole seconds, so a change within the current
    # second would not change the time.
    os.utime(made, (time.time() - 10, int(time.time()) - 10))
    source.checksum("a", "adler32")

    def begin(_: bool) -> Process:
        return curl.begin(bare, f"{sink.url}/a", f"Source: {web.url}/a")

    def is_good(ended: Ended) -> bool:
        return "success: Created" in ended.out

    about = f"COPY, wrapper {hidden}, {victims[0] if FULL else 'each'}"
    allowed = set() if hidden else {EMPTY}
    chain = Chain(about, bare, ours, source, sink.server, made, begin, is_good, allowed)
    chain.is_back_at_once = False
    if chain.run(victims):
        sent, resumed = curl.sent(sink)[-1]
        assert sent + resumed == SIZE
    assert sink.server.checksum("a", "adler32") == source.checksum("a", "adler32")
    assert tree.leftovers(sink.data) == []


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_short_copy_is_whole_or_not_there(scene: Scene, hidden: bool) -> None:
    """After a kill, the name has the complete file or no file; without the wrapper, maybe empty."""
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    lines = [hide(scene)] if hidden else []
    sink = scene.server("sink", tpc=configured(scene), lines=lines)
    made = make(source, "a", 24 * MIB, seed=2)
    wanted, chance = content(made), random.Random(f"{SEED} short")
    allowed = {wanted} if hidden else {wanted, EMPTY}
    names = [f"{victim}{number}" for victim in ("program", "client") for number in range(MOMENTS)]
    print(f"\nseed {SEED} (DRAY_SEED replays it)")
    with Watcher(sink.data, {name.encode(): allowed for name in names}) as watcher:
        for name in names:
            client = scene.begin(
                "xrdcp", "--nopbar", "--tpc", "only", source.at("a"), sink.at(name)
            )
            job = sink.await_job()
            seconds = chance.uniform(0, 0.3)
            time.sleep(seconds)
            if name.startswith("client"):
                client.kill()
            elif job in sink.jobs():
                os.kill(job, signal.SIGKILL)
            ended = client.wait(60)
            await_end(job)
            print(f"{name} killed after {seconds:.3f} s: code {ended.code}")
            if ended.code != 0:
                scene.xrdcp("--tpc", "only", "--force", source.at("a"), sink.at(name)).expect(0)
            assert content(sink.path(name)) == wanted
    assert watcher.violations == []
    assert tree.leftovers(sink.data) == []
