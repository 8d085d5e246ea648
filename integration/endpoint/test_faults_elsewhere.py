"""Transfers that another endpoint continues or disturbs, and transfers that use a replica."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.client import Place, Request, Retry, Selection
from integration.endpoint.scene import MOMENTS, PATIENT, RATE, Data, Tally, make_data, words
from integration.harness import tree
from integration.log import decoder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dray.client import Transfer
    from dray.testing.endpoints import Endpoint
    from dray.testing.faults import Faults
    from integration.endpoint.scene import Scene, Scenes

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

MIB = tree.MIB

Snapshot = dict[bytes, tuple[int, int, int]]

# Maximum number of files that a holder may change after it was frozen and lost the lease. Each of
# its threads may have compared the lease just before, and then makes one change.
UNDER_WAY = 8


def test_another_endpoint_of_the_same_storage_resumes(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    for moment in range(MOMENTS):
        push = moment % 2 == 0
        after = fault.chance.uniform(0.1, 1.0) * scenes.seconds(push=push)
        print(f"{'push' if push else 'pull'}: killed for good after {after:.3f} s")
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit()
            time.sleep(after)
            scene.active.kill()
            third = scene.twin()
            before = scene.carried()
            scene.submit(active=third)
            done, excess = scene.check_done(active=third)
            assert done.attempt == 1
            tally.add(excess, has_resumed=scene.carried() - before < 100 * MIB)


def test_a_transfer_resumes_from_a_replica_after_the_source_died(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    scenes.seconds(push=False)
    for _ in range(MOMENTS):
        part = fault.chance.uniform(0.0, 0.8)
        print(f"source killed for good at {part:.3f}")
        with scenes.make(push=False) as scene, scene.watched():
            replica, _ = scene.replica()
            scene.submit(passives=(scene.passive, replica))
            scene.await_moment(part)
            scene.passive.kill()
            done, excess = scene.check_done()
            assert (done.attempt, done.source) == (1, 1), words(done)
            tally.add(excess, has_resumed=done.tries > 1)


def test_a_submission_of_another_id_from_a_replica_resumes(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    scenes.seconds(push=False)
    for _ in range(MOMENTS):
        part = fault.chance.uniform(0.1, 0.8)
        print(f"cancelled and source killed at {part:.3f}")
        with scenes.make(push=False) as scene, scene.watched():
            scene.submit()
            scene.await_moment(part)
            scene.passive.kill()
            scene.client().cancel("t")
            replica, proxy = scene.replica()
            scene.submit("other", passives=(replica,))
            done, excess = scene.check_done("other")
            sent = proxy.counted()[1]
            has_resumed = done.files.adopted > 0 or done.bytes.resumed > 0
            tally.add(excess, has_resumed=has_resumed and sent < 120 * MIB)


# --- concurrent writers -------------------------------------------------------------------------


@pytest.fixture
def changed(scenes: Scenes, tmp_path: Path) -> Iterator[Data]:
    """Make data with the same names, but with other content in the large files."""
    other = make_data(tmp_path / "served", seed=9, files=300)
    for number, entry in enumerate(sorted(other.source.glob("large*"))):
        tree.make_file(entry, entry.stat().st_size, seed=500 + number)
    yield Data(other.source, tree.describe(other.source))
    other.remove()


def ended(scene: Scene, id: str, endpoint: Endpoint) -> Transfer:
    """Wait until a transfer at an endpoint has ended."""
    return scene.wait(id, active=endpoint)


def pull(scene: Scene, id: str, at: Endpoint, of: Endpoint, *, retry: Retry = PATIENT) -> Transfer:
    """Let ``at`` fetch the tree of ``of``."""
    place = scene.place(id, active=at, passive=of)
    more = {"selection": Selection(recursive=True), "retry": retry, "rate_max": RATE}
    return scene.client(at).submit(Request([place], "/data/in/", id=id, **more))  # type: ignore[arg-type]


def push_to(scene: Scene, id: str, at: Endpoint, *, retry: Retry = PATIENT) -> Transfer:
    """Let ``at`` send its tree to the sink."""
    ticket = scene.client(scene.sink).mint_ticket(id, "write", ["/data/in/"], at.key)
    place = Place(scene.sink.place("in/"), ticket.ticket, ticket.key, ticket.address)
    more = {"selection": Selection(recursive=True), "retry": retry, "rate_max": RATE}
    return scene.client(at).submit(Request("/data/tree", place, id=id, **more))  # type: ignore[arg-type]


def await_writing(scene: Scene, count: int = 4 * MIB) -> None:
    """Wait until the transfer in progress has sent ``count`` more bytes, so it has the lease."""
    before = scene.carried()
    scene.await_carried(before + count)


def rivals(scene: Scene, where: str, other: Data) -> tuple[Endpoint, Endpoint]:
    """Return the driver of the second transfer, and the endpoint of its source."""
    if where == "pushed":
        rival = scene.another("rival", other.served)
        return rival, rival
    source = scene.another("other", other.served)
    if where == "one":
        return scene.sink, source
    return scene.another("rival", scene.sink.root()), source


def begin_rival(
    scene: Scene, where: str, rival: Endpoint, source: Endpoint, *, retry: Retry = PATIENT
) -> Transfer:
    """Submit the second transfer, whose id is ``u``."""
    if where == "pushed":
        return push_to(scene, "u", rival, retry=retry)
    return pull(scene, "u", rival, source, retry=retry)


#: Drivers of the two transfers: ``one``: the sink's endpoint drives both. ``two``: two endpoints
#: on the sink's storage. ``pushed``: the two sources.
WHERE = pytest.mark.parametrize("where", ["one", "two", "pushed"])


@WHERE
def test_the_second_of_two_is_refused_by_name_and_changes_nothing(
    scenes: Scenes, changed: Data, where: str
) -> None:
    push = where == "pushed"
    scenes.seconds(push=push)
    with scenes.make(push=push) as scene, scene.watched():
        rival, source = rivals(scene, where, changed)
        scene.submit()
        await_writing(scene)
        begin_rival(scene, where, rival, source, retry=Retry(tries=0, interval_seconds=1))
        refused = ended(scene, "u", rival)
        assert not scene.client().transfer("t").is_terminal, "the two did not overlap"
        assert refused.state == "failed", words(refused)
        assert refused.error is not None
        assert refused.error.kind == "lease_held", words(refused)
        assert "transfer t" in str(refused.error), words(refused)
        scene.check_done(faults=0)


@WHERE
def test_the_second_of_two_waits_and_adopts_the_files_of_the_first(
    scenes: Scenes, where: str
) -> None:
    push = where == "pushed"
    scenes.seconds(push=push)
    with scenes.make(push=push) as scene, scene.watched():
        rival, source = rivals(scene, where, Data(scene.data.replica() / "tree", {}))
        scene.submit()
        await_writing(scene)
        begin_rival(scene, where, rival, source)
        second = ended(scene, "u", rival)
        assert (second.state, second.error) == ("done", None), words(second)
        assert second.bytes.sent < MIB, words(second)
        assert second.files.adopted + second.files.skipped > 300, words(second)
        # Check the first transfer last, because the log of the second one existed until now.
        scene.check_done(faults=0)


@WHERE
def test_two_concurrent_transfers_never_mix_their_bytes(
    scenes: Scenes, fault: Faults, changed: Data, where: str
) -> None:
    push = where == "pushed"
    whole = scenes.seconds(push=push)
    for _ in range(MOMENTS):
        after = fault.chance.uniform(0.0, 1.0) * whole
        print(f"{where}: the second begins after {after:.3f} s")
        with scenes.make(push=push) as scene, scene.watched(changed):
            rival, source = rivals(scene, where, changed)
            scene.submit()
            time.sleep(after)
            begin_rival(scene, where, rival, source)
            for id, endpoint in (("t", scene.active), ("u", rival)):
                last = ended(scene, id, endpoint)
                assert last.state == "done", words(last)
            # The last transfer has replaced all differing files. So all files of the folder come
            # from one source version.
            entries = tree.describe(scene.folder / "tree")
            versions = (scene.data.wanted, changed.wanted)
            mixed = [
                path for path in entries if all(v.get(path) != entries[path] for v in versions)
            ]
            # Ignore folders: the modification time of a folder is the time of its last change.
            assert [path for path in mixed if entries[path].kind == "file"] == []
            large = {path for path in entries if path.startswith((b"large", b"rest"))}
            of = [all(entries[path] == v[path] for path in large) for v in versions]
            assert any(of), "files of both versions"
            assert tree.leftovers(scene.sink.root()) == []


# --- frozen and fenced holders ------------------------------------------------------------------


@pytest.mark.full
def test_a_thawed_driver_is_refused_after_another_resumed(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    scenes.seconds(push=True)
    # Each case takes more than a minute.
    for _ in range(max(1, MOMENTS // 5)):
        part = fault.chance.uniform(0.1, 0.8)
        print(f"push: frozen at {part:.3f}")
        with scenes.make(push=True) as scene, scene.watched():
            third = scene.twin()
            scene.submit()
            scene.await_moment(part)
            with fault.suspended(scene.active):
                scene.submit("u", active=third)
                # The sink gives the silent holder up after a minute, and no sooner.
                scene.check_done("u", active=third)
            before = scene.carried()
            awake, excess = scene.check_done(faults=1)
            # The resumed endpoint may request the state of the sink. It sends no more data than was
            # in flight when it was suspended.
            assert scene.carried() - before < 8 * MIB, words(awake)
            tally.add(excess, has_resumed=True)


def test_a_frozen_sink_with_the_lock_excludes_other_writers(
    scenes: Scenes, fault: Faults, tally: Tally
) -> None:
    scenes.seconds(push=False)
    for _ in range(MOMENTS):
        part = fault.chance.uniform(0.1, 0.8)
        print(f"pull: frozen at {part:.3f}")
        with scenes.make(push=False) as scene, scene.watched():
            third = scene.twin()
            scene.submit()
            scene.await_moment(part)
            with fault.suspended(scene.active):
                scene.submit("u", active=third, retry=Retry(tries=0, interval_seconds=1))
                refused = ended(scene, "u", third)
                assert refused.state == "failed", words(refused)
                assert refused.error is not None
                assert refused.error.kind == "lease_held", words(refused)
                assert "transfer t" in str(refused.error), words(refused)
            _, excess = scene.check_done()
            tally.add(excess, has_resumed=False)


def fence(lease: Path) -> int:
    """Write another holder into the lease, as a host without file locks. Return its epoch."""
    data = lease.read_bytes().ljust(2048, b"\0")
    now = decoder.read_lease(data)
    assert now is not None
    epoch = int(now["epoch"]) + 1
    slot = decoder.write_lease(
        epoch, b"\x07" * 16, "orphan", "dray pid 1 on elsewhere", "elsewhere"
    )
    with lease.open("r+b") as file:
        file.seek(1024 * (epoch % 2))
        file.write(slot)
    return epoch


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_fenced_holder_writes_nothing_more(
    scenes: Scenes, fault: Faults, tally: Tally, push: bool
) -> None:
    scenes.seconds(push=push)
    for _ in range(MOMENTS):
        part = fault.chance.uniform(0.1, 0.8)
        print(f"{'push' if push else 'pull'}: fenced at {part:.3f}")
        with scenes.make(push=push) as scene, scene.watched():
            scene.submit()
            scene.await_moment(part)
            with fault.suspended(scene.sink):
                (lease,) = scene.sink.root().rglob("*.lease")
                fence(lease)
                before = snapshot(scene)
            lost = ended(scene, "t", scene.active)
            assert lost.state == "failed", words(lost)
            assert lost.error is not None
            assert lost.error.kind == "lease_lost", words(lost)
            only_finished(before, snapshot(scene))
            # A retry takes the lease again, and resumes.
            scene.client().retry("t")
            _, excess = scene.check_done()
            tally.add(excess, has_resumed=True)


def only_finished(before: Snapshot, after: Snapshot) -> None:
    """Fail if a holder wrote between two snapshots, although it had lost its lease.

    Only partial files may change, and only by writes that were in progress at the first snapshot.
    """
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    own = {path for path in changed if path.rsplit(b"/", 1)[-1].startswith(b".dray-")}
    assert changed == {path for path in own if path.endswith(b".part")}, "a fenced holder wrote"
    assert len(changed) <= UNDER_WAY, "a fenced holder continued to write"


def snapshot(scene: Scene) -> Snapshot:
    """Describe all files at the sink, including dray's own."""
    top = bytes(scene.sink.root())
    found = {}
    for path in scene.sink.root().rglob("*"):
        state = path.lstat()
        if path.suffix != ".lease":
            found[bytes(path)[len(top) :]] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found
