"""Tests of an endpoint whose sessions run as the local accounts of the transfers' owners.

The tests check the ownership of files, and refused access. They are skipped without root, because
only root may change the account of a process. They use accounts that every host has.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from dray.client import Place, Request, StagingRequest
from dray.errors import DrayError, DrayPermanentError
from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.raw import ask, query, shipped_program
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other accounts"),
]

Json: TypeAlias = Any
MIB = tree.MIB
#: Name of the local account of each subject.
ACCOUNTS = {"alice": "nobody", "bob": "games"}
#: Id of a user that does not exist.
STRANGER = 54_321


class AccountScene(NamedTuple):
    """Endpoint ``a``, whose sessions run as accounts, and ``b``, whose sessions do not."""

    a: Endpoint
    b: Endpoint
    #: Root of ``a``. Every account may write into its folder ``open``.
    data: Path


def numbers(subject: str) -> tuple[int, int]:
    """Return the ids of user and group of a subject's account."""
    account = pwd.getpwnam(ACCOUNTS[subject])
    return account.pw_uid, account.pw_gid


def owners(path: Path) -> tuple[int, int]:
    """Return the ids of user and group that own a file."""
    state = path.lstat()
    return state.st_uid, state.st_gid


def acting(name: str) -> Json:
    """Return the configuration of an endpoint whose sessions run as accounts."""
    rules = [
        {"issuer": f"https://{name}", "subject": subject, "owner": owner}
        for subject, owner in ACCOUNTS.items()
    ]
    return {"setuid": True, "setuid_min": 1, "map": {"rules": rules}}


@pytest.fixture(scope="module")
def scene() -> Iterator[AccountScene]:
    """Start both endpoints. Every account may enter the folders above the root of ``a``."""
    folder = Path(tempfile.mkdtemp(prefix="dray-accounts-"))
    folder.chmod(0o755)
    data = folder / "data"
    (data / "open").mkdir(parents=True)
    (data / "open").chmod(0o1777)
    program = shipped_program()
    root = Root("data", {"path": str(data)})
    a = Endpoint(folder / "a", "a", roots=[root], config=acting("a"), program=program)
    b = Endpoint(folder / "b", "b", program=program)
    try:
        yield AccountScene(a.start(), b.start(), data)
    finally:
        a.close()
        b.close()
        shutil.rmtree(folder, ignore_errors=True)


def pull(scene: AccountScene, subject: str, to: str, **more: Json) -> Json:
    """Let ``a`` fetch a file of ``b``. Return the running transfer."""
    id = to.replace("/", ".")
    with scene.b.client() as there, scene.a.client(subject=subject) as here:
        ticket = there.mint_ticket(id, "read", ["/data/x"], scene.a.key)
        far = Place(scene.b.place("x"), ticket.ticket, ticket.key, ticket.address)
        return here.submit(Request([far], f"/data/{to}", id=id, **more))


def ended(scene: AccountScene, subject: str, to: str) -> Json:
    with scene.a.client(subject=subject) as here:
        return here.wait(to.replace("/", "."), timeout_seconds=60)


@pytest.mark.parametrize("subject", ACCOUNTS)
def test_arrived_and_partial_files_belong_to_the_account(scene: AccountScene, subject: str) -> None:
    tree.make_file(scene.b.root("x"), 6 * MIB, seed=1)
    folder = scene.data / "open"
    to = f"open/of-{subject}/file"
    pull(scene, subject, to, rate_max=2 * MIB, durability="object")
    until = time.monotonic() + 30
    while not tree.leftovers(folder):
        assert time.monotonic() < until, "no partial file appears"
        time.sleep(0.01)
    time.sleep(0.5)
    partial = [Path(each) for each in tree.leftovers(folder)]
    assert partial
    assert {owners(each) for each in partial} == {numbers(subject)}, partial
    done = ended(scene, subject, to)
    assert done.state == "done", done
    assert owners(scene.data / to) == numbers(subject)
    assert owners((scene.data / to).parent) == numbers(subject)
    assert tree.hash_file(scene.data / to) == tree.hash_file(scene.b.root("x"))
    assert tree.leftovers(folder) == []


def test_private_files_of_others_are_neither_read_nor_written(scene: AccountScene) -> None:
    tree.make_file(scene.b.root("x"), MIB, seed=2)
    secret = scene.data / "secret"
    secret.write_bytes(b"a stranger's")
    secret.chmod(0o600)
    os.chown(secret, STRANGER, STRANGER)
    shut = scene.data / "shut"
    shut.mkdir(exist_ok=True)
    os.chown(shut, STRANGER, STRANGER)
    shut.chmod(0o755)
    # Copy a file that the account may not read: within `a`, and from `a` to `b`.
    with scene.a.client() as here:
        here.submit(Request(["/data/secret"], "/data/open/stolen", id="within"))
        done = here.wait("within", timeout_seconds=60)
        assert done.state == "failed", done
        assert done.error is not None
        assert done.error.kind == "permission_denied", done.error
        ticket = here.mint_ticket("out", "read", ["/data/secret"], scene.b.key)
    with scene.b.client() as there:
        far = Place(scene.a.place("secret"), ticket.ticket, ticket.key, ticket.address)
        there.submit(Request([far], "/data/stolen", id="out"))
        done = there.wait("out", timeout_seconds=60)
    assert (done.state, done.error and done.error.kind) == ("failed", "permission_denied"), done
    # Alice's account may not write into the folder `shut`.
    pull(scene, "alice", "shut/new")
    done = ended(scene, "alice", "shut/new")
    assert (done.state, done.error and done.error.kind) == ("failed", "permission_denied"), done
    assert list(shut.iterdir()) == []
    assert not (scene.data / "open/stolen").exists()
    assert not scene.b.root("stolen").exists()


def test_pushed_files_belong_to_the_account_of_the_ticket(scene: AccountScene) -> None:
    tree.make_file(scene.b.root("x"), MIB, seed=3)
    with scene.a.client(subject="bob") as here, scene.b.client() as there:
        ticket = here.mint_ticket("in", "write", ["/data/open/pushed"], scene.b.key)
        far = Place(scene.a.place("open/pushed"), ticket.ticket, ticket.key, ticket.address)
        there.submit(Request("/data/x", far, id="in"))
        done = there.wait("in", timeout_seconds=60)
    assert done.state == "done", done
    assert owners(scene.data / "open/pushed") == numbers("bob")


def test_storage_calls_have_the_permissions_of_the_account(scene: AccountScene) -> None:
    tokens = {subject: scene.a.token(subject=subject) for subject in ACCOUNTS}

    def call(subject: str, method: str, what: str, body: Json = None) -> tuple[int, Json]:
        answer = ask(scene.a, method, f"/v1/storage/{what}", body, token=tokens[subject])
        if answer.code == 403:
            answer.refused(403, "permission_denied")
        return answer.code, answer.json

    mine, other = "/data/open/mine", {"path": "/data/open/mine/x"}
    assert call("alice", "POST", "mkdir", {"path": mine})[0] == 201
    folder = scene.data / "open/mine"
    assert owners(folder) == numbers("alice")
    (folder / "x").write_bytes(b"hello")
    folder.chmod(0o700)
    summed = {**other, "algorithm": "adler32"}
    moved = {"from": f"{mine}/x", "to": f"{mine}/y"}
    calls: list[tuple[str, str, Json]] = [
        ("GET", f"stat?{query(f'{mine}/x')}", None),
        ("GET", f"list?{query(mine)}", None),
        ("GET", f"space?{query(mine + '/x')}", None),
        ("POST", "checksum", summed),
        ("POST", "mkdir", {"path": f"{mine}/sub"}),
        ("POST", "rename", moved),
        ("POST", "rm", {"path": mine, "recursive": True}),
    ]
    # Bob calls first. None of his calls may have an effect.
    for method, what, body in calls:
        assert call("bob", method, what, body)[0] == 403, what
    assert sorted(each.name for each in folder.iterdir()) == ["x"]
    for method, what, body in calls:
        code, answer = call("alice", method, what, body)
        assert code in (200, 201), (what, answer)
        if what == "checksum":
            assert answer["checksum"] == "062c0215"
    assert not folder.exists()
    # The folder has the sticky bit: every account may create files, but may remove only its own.
    theirs = scene.data / "open/theirs"
    theirs.write_bytes(b"root's")
    assert call("alice", "POST", "rm", {"path": "/data/open/theirs"})[0] == 403
    assert theirs.exists()
    # The next call of the endpoint runs as the account of the next caller.
    assert call("bob", "POST", "mkdir", {"path": "/data/open/bobs"})[0] == 201
    assert owners(scene.data / "open/bobs") == numbers("bob")


def test_an_owner_without_an_account_gets_nothing_done(scene: AccountScene) -> None:
    token = scene.a.token(subject="mallory")
    for what in (f"stat?{query('/data/open')}", f"list?{query('/data')}"):
        answer = ask(scene.a, "GET", f"/v1/storage/{what}", token=token)
        assert "which this host does not have" in answer.refused(403, "permission_denied")["cause"]
    tree.make_file(scene.b.root("x"), MIB, seed=4)
    pull(scene, "mallory", "open/mallorys")
    done = ended(scene, "mallory", "open/mallorys")
    assert (done.state, done.error and done.error.kind) == ("failed", "permission_denied"), done
    assert not (scene.data / "open/mallorys").exists()


def test_a_staged_copy_is_freed_by_its_owners_account(scene: AccountScene) -> None:
    folder = scene.data.parent / "tiers"
    for name in ("slow", "fast"):
        (folder / name).mkdir(parents=True)
        # Every account may write there, and remove only its own files.
        (folder / name).chmod(0o1777)
    (folder / "slow/run").mkdir(mode=0o755)
    tree.make_file(folder / "slow/run/x", MIB, seed=4)
    roots = [Root(name, {"path": str(folder / name), "tier": name}) for name in ("slow", "fast")]
    endpoint = Endpoint(folder / "c", "c", roots=roots, config=acting("c"), program=scene.a.program)
    try:
        endpoint.start()
        with endpoint.client(subject="alice") as alice, endpoint.client(subject="bob") as bob:
            staged = alice.stage_in(StagingRequest("/slow/run", recursive=True, id="s"))
            assert alice.wait("s", timeout_seconds=60).state == "done"
            copy = folder / "fast/run"
            assert owners(copy / "x") == numbers("alice")
            with pytest.raises(DrayError):
                bob.evict_staging(staged.id)
            # The folder of the fast copy now belongs to another account, so Alice may not remove
            # the file. The eviction removes no part of the fast copy.
            os.chown(copy, STRANGER, STRANGER)
            with pytest.raises(DrayPermanentError, match="/fast/run/x was kept: Permission denied"):
                alice.evict_staging(staged.id)
            assert (copy / "x").exists()
            os.chown(copy, *numbers("alice"))
            assert alice.evict_staging(staged.id).state == "evicted"
            assert not copy.exists()
            assert (folder / "slow/run/x").exists()
    finally:
        endpoint.close()
