"""One endpoint starts, refuses and purges queued transfers as documented."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import dray
from dray.client import Request, StagingRequest
from dray.testing.endpoints import Root
from integration.endpoint.raw import dray as run
from integration.harness import tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = tree.MIB
END_SECONDS = 60.0
FAR = datetime(2099, 1, 1, tzinfo=timezone.utc)


def until(met: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + END_SECONDS
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def request(id: str, to: str = "/data/out/", **more: Any) -> Request:  # noqa: ANN401
    """Return a request to copy the file ``in``."""
    return Request(sources="/data/in", destination=to, id=id, **more)


def begun(client: Client, endpoint: Endpoint, id: str = "t", to: str = "/data/out/") -> None:
    """Submit a copy, and wait until some data is durable."""
    client.submit(request(id, to, rate_max=8 * MIB, durability="object"))
    until(lambda: client.transfer(id).bytes.durable > MIB, "nothing is safe")
    assert tree.leftovers(endpoint.root("out"))


def ended(client: Client, id: str = "t") -> Transfer:
    """Wait until the transfer is cancelled and its partial data is removed."""
    until(lambda: client.transfer(id).state == "cancelled", "it is not cancelled")
    until(
        lambda: any("purge" in said for said in client.transfer(id).notices),
        "no notice of the purge",
    )
    return client.transfer(id)


@pytest.fixture
def endpoint(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Start an endpoint with a file whose copy takes some time."""
    made = start_endpoint("a")
    tree.make_file(made.root("in"), 64 * MIB, seed=5)
    return made


def test_a_long_queue_delays_no_other_owner(start_endpoint: Callable[..., Endpoint]) -> None:
    endpoint = start_endpoint("a", config={"limits": {"transfers_active": 1}})
    endpoint.root("in").write_bytes(b"small")
    with endpoint.client() as alice, endpoint.client(subject="bob") as bob:
        for part in range(3):
            many = [request(f"a{part}-{n}", f"/data/out/{part}-{n}") for n in range(1000)]
            alice.submit_batch(many)
        bob.submit(request("b", "/data/out/b"))
        alice.submit(request("urgent", "/data/out/urgent", class_="realtime"))
        assert bob.wait("b", timeout_seconds=END_SECONDS).state == "done"
        assert alice.wait("urgent", timeout_seconds=END_SECONDS).state == "done"
        # Most of Alice's transfers still wait.
        assert alice.transfer("a2-500").state == "queued"


def test_a_purge_reports_the_deleted_files(endpoint: Endpoint) -> None:
    with endpoint.client() as client:
        begun(client, endpoint)
        client.cancel("t", purge=True)
        message = ended(client).notices[-1]
        assert message.startswith("purged: 1 partial file, "), message
        assert int(message.split()[4]) > MIB, message
        assert tree.leftovers(endpoint.root("out")) == []
        # A second call finds nothing to remove, and reports this.
        client.cancel("t", purge=True)
        until(
            lambda: "no partial data" in client.transfer("t").notices[-1], "no notice of the purge"
        )


def test_a_purge_keeps_data_that_another_transfer_resumed(endpoint: Endpoint) -> None:
    with endpoint.client() as client:
        begun(client, endpoint)
        client.cancel("t")
        until(lambda: client.transfer("t").state == "cancelled", "it still runs")
        client.submit(request("next", rate_max=8 * MIB, durability="object"))
        until(lambda: client.transfer("next").bytes.resumed > 0, "nothing was taken over")
        client.pause("next")
        until(lambda: client.transfer("next").state == "paused", "it still runs")
        kept = tree.leftovers(endpoint.root("out"))
        client.cancel("t", purge=True)
        assert ended(client).notices[-1].startswith("nothing purged: transfer next resumed")
        assert tree.leftovers(endpoint.root("out")) == kept
        client.change("next", rate_max=None)
        client.resume("next")
        assert client.wait("next", timeout_seconds=END_SECONDS).state == "done"
        assert tree.hash_file(endpoint.root("out/in")) == tree.hash_file(endpoint.root("in"))


def test_a_purge_of_an_unstarted_transfer_ends_immediately(endpoint: Endpoint) -> None:
    with endpoint.client() as client:
        client.submit(request("t", not_before=FAR))
        client.cancel("t", purge=True)
        assert "had not started" in ended(client).notices[-1]
        client.forget("t")
        assert not endpoint.root("out").exists()


def test_cancelling_reports_the_end(endpoint: Endpoint) -> None:
    token = endpoint.token()

    def cancel(*words: str) -> str:
        words = ("cancel", "t", "--endpoint", endpoint.address, *words)
        done = run(*words, DRAY_TOKEN=token, DRAY_PEER_KEY=endpoint.key)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with endpoint.client() as client:
        begun(client, endpoint)
        assert cancel().startswith("t cancelled: ")
        client.retry("t")
        until(lambda: client.transfer("t").state == "active", "the path does not begin")
        said = cancel("--purge")
        assert said.startswith("t cancelled: "), said
        assert "\n  purged: 1 partial file, " in said, said
        assert tree.leftovers(endpoint.root("out")) == []
        # The call has nothing to do, so its answer is the present state of the transfer.
        assert "\n  nothing to purge: the transfer had left no partial data" in cancel("--purge")
        assert json.loads(cancel("--json"))["state"] == "cancelled"


def test_a_wait_right_after_a_start_is_answered(endpoint: Endpoint) -> None:
    with endpoint.client() as client:
        client.submit(request("t"))
        client.wait("t", timeout_seconds=END_SECONDS)
    token = endpoint.token()

    def show(*more: str) -> subprocess.CompletedProcess[str]:
        words = ("show", "t", "--endpoint", endpoint.address, *more)
        return run(*words, DRAY_TOKEN=token, DRAY_PEER_KEY=endpoint.key)

    endpoint.stop()
    assert show().returncode == 4
    with ThreadPoolExecutor(1) as pool:
        shown = pool.submit(show, "--wait")
        time.sleep(1.0)
        assert not shown.done(), shown.result()
        endpoint.start()
        assert shown.result().returncode == 0, shown.result()
        assert shown.result().stdout.startswith("t done: 1 file")


def test_an_error_of_a_file_that_gets_another_name_names_its_source(endpoint: Endpoint) -> None:
    endpoint.root("out").mkdir()
    os.mkfifo(endpoint.root("pipe"))
    with endpoint.client() as client:
        for name, kind in (("nothing", "not_found"), ("pipe", "unsupported")):
            client.submit(Request(sources=f"/data/{name}", destination="/data/out/x", id=name))
            failed = client.wait(name, timeout_seconds=END_SECONDS)
            errors = [failure.error for failure in failed.failures]
            assert [error.kind for error in errors] == [kind], failed
            assert f"(the source file is /data/{name}: " in errors[0].message, errors[0].message
            assert [failure.path for failure in failed.failures] == ["x"]


SOON_SECONDS = 2.0


def narrow(endpoint: Endpoint, roots: tuple[Root, ...], **config: Any) -> None:  # noqa: ANN401
    """Restart an endpoint with other roots and configuration keys."""
    endpoint.stop()
    endpoint._roots = {root.name: root for root in roots}
    endpoint._extra.update(config)
    endpoint.start()


DATA, OUT = Root(), Root("out")


@pytest.mark.parametrize(
    ("roots", "config", "kind", "cause"),
    [
        (
            (Root("data", {"read": ["bob"]}), OUT),
            {},
            "permission_denied",
            "the root data does not permit alice to read",
        ),
        (
            (DATA, Root("out", {"write": ["bob"]})),
            {},
            "permission_denied",
            "the root out does not permit alice to write",
        ),
        (
            (DATA, Root("out", {"read_only": True})),
            {},
            "permission_denied",
            "the root out is read-only",
        ),
        ((DATA,), {}, "not_found", 'no longer exports the root "out"'),
        (
            (DATA, OUT),
            {"name": "other", "aliases": ["a"]},
            "permission_denied",
            "alice@https://a is not confirmed by an issuer",
        ),
        ((DATA, OUT), {}, None, ""),
    ],
    ids=["read", "write", "read-only", "removed", "issuer", "the-same"],
)
def test_a_delayed_transfer_is_checked_again_when_it_begins(
    start_endpoint: Callable[..., Endpoint],
    roots: tuple[Root, ...],
    config: dict[str, Any],
    kind: str | None,
    cause: str,
) -> None:
    endpoint = start_endpoint("a", roots=(DATA, OUT))
    endpoint.root("in").write_bytes(b"small")
    soon = datetime.now(timezone.utc) + timedelta(seconds=SOON_SECONDS)
    with endpoint.client() as client:
        client.submit(request("t", "/out/got", not_before=soon))
    narrow(endpoint, roots, **config)
    rules = [{"issuer": f"https://{config.get('name', 'a')}", "subject": "alice", "owner": "alice"}]
    if config:
        narrow(endpoint, roots, map={"rules": rules})
    with endpoint.client() as client:
        ended = client.wait("t", timeout_seconds=END_SECONDS)
        if kind is None:
            assert ended.state == "done"
            return
        assert ended.state == "failed"
        assert ended.error is not None
        assert (ended.error.kind, ended.error.status) == (kind, "permanent")
        assert cause in ended.error.cause, ended.error
        assert not endpoint.root("got", root="out").exists()


def test_staging_asks_to_stage_and_to_replace(start_endpoint: Callable[..., Endpoint]) -> None:
    slow = Root("slow", {"tier": "slow"})
    endpoint = start_endpoint("a", roots=(slow, Root("fast", {"tier": "fast"})))
    endpoint.root("x", root="slow").write_bytes(b"small")
    for scopes, missing in [
        (("storage.stage:/",), "storage.modify"),
        (("storage.stage:/", "storage.create:/"), "storage.modify"),
        (("storage.read:/", "storage.modify:/"), "storage.stage"),
    ]:
        with endpoint.client(scopes=scopes) as client:
            with pytest.raises(dray.DrayError, match=missing):
                client.stage_in(StagingRequest("/slow/x"))
            assert list(client.stagings()) == []
    with endpoint.client(scopes=("storage.stage:/", "storage.modify:/")) as client:
        client.stage_in(StagingRequest("/slow/x", id="s"))
        assert client.wait("s", timeout_seconds=END_SECONDS).state == "done"
        # The copy needs no permission to read: its permission to stage suffices. The endpoint
        # checks this permission again when the copy starts.
        assert client.staging("s").state == "staged"
    narrow(endpoint, (slow, Root("fast", {"tier": "fast", "read_only": True})))
    with endpoint.client() as client:
        with pytest.raises(dray.DrayError, match="is read-only"):
            client.stage_in(StagingRequest("/slow/x", id="again"))
        with pytest.raises(dray.DrayError, match="is read-only"):
            client.evict_staging("s")
        assert endpoint.root("x", root="fast").exists()
