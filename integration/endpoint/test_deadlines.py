"""Deadlines: promises that are kept, refusals with a valid offer, and predicted misses.

The tests use three tasks of the paper about BigData Express over 10 Gbit/s: T1 (300 GB in 1800 s),
T2 (200 GB in 300 s) and T3 (in the background). Their bytes and times are scaled down. The tests
measure only the data that has arrived.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from dray.client import Place, Request, Retry
from dray.errors import DrayNotAdmittedError
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.client import Client, Transfer
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(240)]

MEGA = 1_000_000
#: Rate of the link in bytes per second, in place of the paper's 1.25 GB/s.
LINK = 6 * MEGA
#: Size of the task in bytes, and seconds until its deadline. T1 and T2 need the same fractions of
#: the link as in the paper about BigData Express.
T1 = (72 * MEGA, 90.0)
T2 = (48 * MEGA, 15.0)
T3 = 40 * MEGA
FULL = os.environ.get("DRAY_FULL") == "1"
KILLS = int(os.environ.get("DRAY_KILLS") or (20 if FULL else 2))
PATIENT = Retry(tries=60, interval_seconds=1)


def now() -> datetime:
    """Return the present time."""
    return datetime.now(timezone.utc)


def make_file(endpoint: Endpoint, size: int, name: str) -> None:
    """Make a file of ``size`` bytes at the source."""
    block = bytes(range(256)) * 4096
    with endpoint.root(name).open("wb") as file:
        for offset in range(0, size, len(block)):
            file.write(block[: size - offset])


class Pair:
    """Two endpoints: ``a`` pulls files from ``b``, and promises deadlines."""

    def __init__(self, start: Callable[..., Endpoint], **config: Any) -> None:  # noqa: ANN401
        """Start both endpoints."""
        self.a = start("a", config={"rate": LINK, **config})
        self.b = start("b")
        self.tickets: dict[str, str] = {}

    def request(self, id: str, size: int, there: Client, **more: Any) -> Request:  # noqa: ANN401
        """Make a file of ``size`` bytes at ``b``. Return a request to pull it."""
        make_file(self.b, size, f"from-{id}")
        ticket = there.mint_ticket(id, "read", [f"/data/from-{id}"], self.a.key)
        self.tickets[id] = ticket.id
        far = Place(self.b.place(f"from-{id}"), ticket.ticket, ticket.key, ticket.address)
        fields: dict[str, Any] = {"bytes_expected": size, "object_size": 256 << 10, **more}
        return Request(far, f"/data/to-{id}", id=id, retry=PATIENT, durability="object", **fields)


def in_seconds(seconds: float) -> datetime:
    """Return the time that is ``seconds`` from now."""
    return now() + timedelta(seconds=seconds)


def done(client: Client, id: str) -> Transfer:
    """Wait until a transfer has ended. Fail unless it is done."""
    ended = client.wait(id, timeout_seconds=120)
    assert ended.state == "done", (ended.error, ended.notices)
    return ended


@pytest.mark.full
def test_a_deadline_is_met_that_an_equal_share_misses(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    late = {}
    for is_promised in (False, True):
        pair = Pair(start_endpoint)
        with pair.a.client() as here, pair.b.client() as there:
            requests = {
                "T1": pair.request("T1", T1[0], there),
                "T2": pair.request("T2", T2[0], there),
                "T3": pair.request("T3", T3, there),
            }
            due = {"T1": in_seconds(T1[1]), "T2": in_seconds(T2[1])}
            for id, wanted in requests.items():
                taken = here.submit(
                    dataclasses.replace(
                        wanted, deadline=due[id] if is_promised and id in due else None
                    )
                )
                assert taken.promised == (is_promised and id in due), taken
            if is_promised:
                refused_and_offered(pair, here, there)
            ended = done(here, "T2").ended_at
            assert ended is not None
            late[is_promised] = (ended - due["T2"]).total_seconds()
            if is_promised:
                t3 = here.transfer("T3")
                print(f"T3 has {t3.bytes.durable / MEGA:.1f} MB when T2 is done")
                finished = done(here, "T1").ended_at
                assert finished is not None
                assert finished <= due["T1"]
                offered = done(here, "T4")
                assert offered.ended_at is not None
                deadline = datetime.fromisoformat(
                    str(offered.request["deadline"]).replace("Z", "+00:00")
                )
                assert offered.ended_at <= deadline, (offered.ended_at, deadline)
                assert tree.hash_file(pair.a.root("to-T2")) == tree.hash_file(
                    pair.b.root("from-T2")
                )
            for id in requests:
                if not here.transfer(id).is_terminal:
                    here.cancel(id, purge=True)
        pair.a.close()
        pair.b.close()
    print(f"T2 is late by {late[False]:.1f} s of equal shares, {late[True]:.1f} s as promised")
    assert late[False] > 0 >= late[True], late


def refused_and_offered(pair: Pair, here: Client, there: Client) -> None:
    """Submit a fourth transfer that does not fit, and then one with the offered deadline."""
    size = 40 * MEGA
    fourth = pair.request("T4", size, there, deadline=in_seconds(9))
    with pytest.raises(DrayNotAdmittedError) as refused:
        here.submit(fourth)
    assert refused.value.admission.earliest_finish is not None, refused.value
    answer = here.admission([fourth])
    assert answer.decision == "refuse"
    (verdict,) = answer.transfers
    print(verdict)
    assert verdict.obstacle is not None
    assert verdict.obstacle.resource == "link"
    assert set(verdict.obstacle.transfers) <= {"T1", "T2"}
    assert verdict.earliest_finish is not None
    offered = dataclasses.replace(fourth, deadline=verdict.earliest_finish)
    assert here.submit(offered).promised


def test_a_miss_is_predicted_with_its_cause_when_the_other_end_slows(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    pair = Pair(start_endpoint)
    with pair.a.client() as here, pair.b.client() as there:
        wanted = pair.request("slow", 60 * MEGA, there, deadline=in_seconds(20))
        assert here.submit(wanted).promised
        until = time.monotonic() + 10
        while here.transfer("slow").bytes.durable < 4 * MEGA:
            assert time.monotonic() < until, here.transfer("slow")
            time.sleep(0.1)
        there.change_ticket(pair.tickets["slow"], rate_max=MEGA)
        began = time.monotonic()
        while (transfer := here.transfer("slow")).miss is None:
            assert time.monotonic() < began + 15, transfer
            time.sleep(0.1)
        print(f"foretold after {time.monotonic() - began:.1f} s: {transfer.miss}")
        assert "does not reach the rate" in transfer.miss.cause, transfer.miss
        assert transfer.miss.earliest_finish is not None
        assert transfer.miss.deadline is not None
        assert transfer.miss.earliest_finish > transfer.miss.deadline
        assert transfer.miss.deadline > now(), "before it is missed"
        assert any("will be missed" in notice for notice in transfer.notices), transfer.notices
        there.change_ticket(pair.tickets["slow"], rate_max=None)
        ended = done(here, "slow")
        print(f"done {ended.ended_at}, promised {transfer.miss.deadline}")


def test_a_kill_keeps_every_promise_and_gives_none_twice(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """Kill ``a`` at random moments while promises are made, given up and planned again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    pair = Pair(start_endpoint)
    promised: dict[str, datetime] = {}
    with pair.b.client() as there:
        for kill in range(KILLS):
            with pair.a.client() as here:
                for number in range(6):
                    id = f"k{kill}-{number}"
                    deadline = in_seconds(draw.uniform(3_600, 7_200))
                    size = draw.randrange(MEGA, 30 * MEGA)
                    # The transfer must not start before the last check of this test.
                    said = int(size + draw.uniform(0.1, 0.5) * LINK * 3_600)
                    wanted = pair.request(
                        id, size, there, deadline=deadline, not_before=in_seconds(1_800)
                    )
                    wanted = dataclasses.replace(wanted, bytes_expected=said)
                    try:
                        taken = here.submit(wanted)
                    except DrayNotAdmittedError:
                        continue
                    assert taken.promised
                    promised[id] = deadline
                    if draw.random() < 0.3:
                        gone = draw.choice(sorted(promised))
                        here.cancel(gone)
                        del promised[gone]
                time.sleep(draw.uniform(0, 0.4))
            pair.a.kill()
            pair.a.start()
            with pair.a.client() as here:
                for each in here.transfers(state=["live"], limit=1000):
                    assert each.promised == (each.id in promised), each
                known = {each.id for each in here.transfers(state=["live"], limit=1000)}
                assert set(promised) <= known
                # After the restart, the promises still reserve the link, so a further request of
                # the same size is refused.
                again = [
                    Request(
                        "/data/none",
                        f"/data/again-{id}",
                        bytes_expected=int(LINK * 7_200),
                        deadline=max(promised.values()),
                    )
                    for id in sorted(promised)[:1]
                ]
                if again:
                    assert here.admission(again).decision == "refuse"
    assert promised, "nothing was ever promised"


def test_a_promised_transfer_begins_in_time_though_all_slots_are_taken(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    pair = Pair(start_endpoint, limits={"transfers_active": 1})
    with pair.a.client() as here, pair.b.client() as there:
        here.submit(pair.request("long", 120 * MEGA, there))
        until = time.monotonic() + 10
        while here.transfer("long").state != "active":
            assert time.monotonic() < until, here.transfer("long")
            time.sleep(0.05)
        begin, deadline = in_seconds(2), in_seconds(7)
        wanted = pair.request("reserved", 12 * MEGA, there, deadline=deadline, not_before=begin)
        assert here.submit(wanted).promised
        assert here.submit(pair.request("behind", MEGA, there)).state == "queued"
        ended = done(here, "reserved")
        assert ended.started_at is not None
        assert ended.ended_at is not None
        assert begin <= ended.started_at
        assert ended.ended_at <= deadline, (ended.ended_at, deadline)
        assert here.transfer("behind").state == "queued"
        for id in ("behind", "long"):
            here.cancel(id, purge=True)


def run(pair: Pair, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``dray`` as alice, whom both endpoints know."""
    from dray.testing.endpoints import find_program

    environment = dict(os.environ)
    ends = (pair.a, pair.b)
    keys = [f"--peer-key={end.address}={end.key}" for end in ends]
    tokens = []
    for end in ends:
        file = end.folder / "token"
        file.write_text(end.token(), encoding="ascii")
        tokens.append(f"--token-file={end.address}={file}")
    return subprocess.run(
        [find_program(), *words, *keys, *tokens],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def test_the_program_asks_submits_and_shows(start_endpoint: Callable[..., Endpoint]) -> None:
    pair = Pair(start_endpoint)
    make_file(pair.b, 20 * MEGA, "x")
    copy = [pair.b.place("x"), pair.a.place("to-x"), "--bytes=20MB"]
    soon = run(pair, "plan", *copy, "--deadline=2s")
    assert soon.returncode == 3, soon
    assert "would be refused" in soon.stdout
    assert "the earliest deadline that could be promised" in soon.stdout
    refused = run(pair, "cp", *copy, "--deadline=2s", "--detach")
    assert refused.returncode == 3, refused
    assert "cannot be promised" in refused.stderr
    with pair.b.client() as there:
        assert [ticket.revoked for ticket in there.tickets()] == [True]
    later = run(pair, "plan", *copy, "--deadline=1m")
    assert later.returncode == 0, later
    assert "would be promised" in later.stdout
    taken = run(pair, "cp", *copy, "--deadline=1m", "--detach", "--transfer-id=x")
    assert taken.returncode == 0, taken
    top = run(pair, "top", pair.a.address, "--once")
    assert top.returncode == 0, top
    print(top.stdout)
    assert "1 transfer" in top.stdout
    assert "kept" in top.stdout
    seen = json.loads(run(pair, "top", pair.a.address, "--json").stdout)
    assert seen["owners"]["alice"]["transfers"] == 1
    assert seen["transfers"][0]["promised"] is True
    shown = run(pair, "show", "x", f"--endpoint={pair.a.address}")
    assert "promise: done by" in shown.stdout, shown
    local = run(pair, "plan", "/none", "/nothing", "--deadline=1m")
    assert local.returncode == 2, local


def test_a_deadline_without_time_is_refused_without_a_size_too(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    pair = Pair(start_endpoint)
    make_file(pair.b, MEGA, "x")
    begin = in_seconds(3_600)
    late: list[tuple[dict[str, Any], str]] = [
        ({"deadline": in_seconds(-60)}, "has passed"),
        ({"deadline": in_seconds(1_800), "not_before": begin}, "leaves no time"),
    ]
    with pair.a.client() as here, pair.b.client() as there:
        for number, (times, words) in enumerate(late):
            wanted = dataclasses.replace(
                pair.request(f"late-{number}", MEGA, there, **times), bytes_expected=None
            )
            with pytest.raises(DrayNotAdmittedError, match=words):
                here.submit(wanted)
            # A request without a required promise is accepted, with a notice.
            taken = here.submit(dataclasses.replace(wanted, admission="best_effort"))
            assert taken.notices, taken
        # A change is judged like a submission.
        wanted = dataclasses.replace(
            pair.request("later", MEGA, there, not_before=begin), bytes_expected=None
        )
        here.submit(wanted)
        with pytest.raises(DrayNotAdmittedError, match="leaves no time"):
            here.change("later", deadline=in_seconds(-60))
    # The deadlines on the command line count from now, and so do the start times.
    copy = [pair.b.place("x"), pair.a.place("to-x")]
    past = (datetime.now(timezone.utc) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for command in ("plan", "cp"):
        ended = run(pair, command, *copy, f"--deadline={past}", *(["--detach"] * (command == "cp")))
        assert ended.returncode == 3, ended
        assert "has passed" in ended.stdout + ended.stderr, ended
