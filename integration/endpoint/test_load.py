"""An endpoint with a full queue and a busy link answers quickly, and stays within its memory.

The queue has 500 transfers with 100 000 files in total, and 50 of the transfers run. The test
prints the response times. It asserts limits for them only with DRAY_FULL=1, on an idle host:

    DRAY_FULL=1 python -m pytest integration/endpoint/test_load.py -s

DRAY_LOAD_SECONDS sets the duration in seconds. The default is 300 with DRAY_FULL=1, otherwise 20.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from integration.endpoint.raw import ask, dial, query

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable
    from multiprocessing.queues import Queue

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(1800)]

Json: TypeAlias = Any
IS_FULL = bool(os.environ.get("DRAY_FULL"))
MIB = 1 << 20
TRANSFERS, RUNNING = 500, 50
TREES, FILES = 25, 4000
FILE_BYTES = 512
MEASURED_SECONDS = float(os.environ.get("DRAY_LOAD_SECONDS", "300" if IS_FULL else "20"))
#: Rate of the transfer of a tree in bytes per second. The two million bytes of a tree then last
#: longer than the measurement.
TREE_RATE = min(24 << 10, int(0.7 * FILES * FILE_BYTES / MEASURED_SECONDS))
WANTED_SECONDS = 0.1
#: Limit of all buffers in bytes (``limits.memory``).
MEMORY = 256 * MIB
#: Maximum resident memory in bytes: the buffers, and the state of the transfers, files and callers.
#: The second part is estimated, not measured.
RSS = MEMORY + 256 * MIB
#: Maximum growth of the memory between the middle and the end of the measurement.
GROWTH = 48 * MIB


def rss(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def make_trees(endpoint: Endpoint) -> None:
    """Make all files. Each tree has folders of 500 small files."""
    data = os.urandom(FILE_BYTES)
    for tree in range(TREES):
        for folder in range(FILES // 500):
            top = endpoint.root(f"tree{tree}/{folder}")
            top.mkdir(parents=True)
            for number in range(500):
                (top / f"{number:03}").write_bytes(data)


def requests(here: Endpoint, there: Endpoint) -> list[Json]:
    """Write the requests: the trees first, then single files until the queue is full."""
    token = there.token()
    listed = [(f"tree{n}", {"recursive": True}) for n in range(TREES)]
    listed += [("large", {"recursive": False})] * (TRANSFERS - TREES)
    body = {
        "transfer": "",
        "direction": "read",
        "paths": ["/data"],
        "peer_key": here.key,
    }
    connection = dial(there.address)
    made = []
    for number, (path, selection) in enumerate(listed):
        id = f"load-{number:03}"
        ticket = call(connection, token, "POST", "/v1/tickets", {**body, "transfer": id})[1]
        place = {name: ticket[name] for name in ("ticket", "key", "address")}
        request = {
            "id": id,
            "sources": [{**place, "url": there.place(path)}],
            "destination": {"url": f"/data/got/{number}/"},
            "selection": selection,
            "labels": {"part": str(number % 10)},
            "streams": 1,
            "durability": "none",
        }
        # Both kinds run for longer than the measurement.
        request["rate_max"] = MIB if path == "large" else TREE_RATE
        made.append(request)
    connection.close()
    return made


def call(
    connection: http.client.HTTPSConnection, token: str, method: str, path: str, body: Json = None
) -> tuple[int, Json]:
    """Make a call on a persistent connection. Return status and body of the answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    return answer.status, json.loads(text)


def measure(address: str, token: str, seconds: float, queue: Queue[Json]) -> None:
    """Call repeatedly, as a remote caller does, and record the durations."""
    times: dict[str, list[float]] = {}
    wrong: list[str] = []
    ids = [f"load-{number:03}" for number in range(TRANSFERS)]
    connection = dial(address)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        new = {
            "id": f"dry-{number}",
            "sources": [{"url": "/data/in"}],
            "destination": {"url": f"/data/out-{number}"},
            "not_before": "2099-01-01T00:00:00Z",
        }
        calls: list[tuple[str, str, str, Json]] = [
            ("show", "GET", f"/v1/transfers/{ids[number * 7 % TRANSFERS]}", None),
            ("list", "GET", "/v1/transfers?limit=100", None),
            ("list-state", "GET", "/v1/transfers?state=live&label=part:3&limit=100", None),
            ("query", "POST", "/v1/transfers/query", {"ids": ids[:100]}),
            ("submit", "POST", "/v1/transfers", new),
            ("stat", "GET", f"/v1/storage/stat?{query('/data')}", None),
        ]
        for name, method, path, body in calls:
            began = time.perf_counter()
            code, answer = call(connection, token, method, path, body)
            times.setdefault(name, []).append(time.perf_counter() - began)
            if code not in (200, 201):
                wrong.append(f"{name}: {code} {answer}")
        call(connection, token, "POST", f"/v1/transfers/{new['id']}/cancel")
        # A normal caller pauses between its calls.
        time.sleep(0.01)
    queue.put({"times": times, "wrong": wrong[:10]})


def at(times: list[float], share: float) -> float:
    """Return the duration that a fraction ``share`` of the calls did not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def test_calls_are_answered_promptly_under_load_and_memory_stays_flat(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    limits = {
        "transfers_active": RUNNING,
        "per_owner_active": RUNNING,
        "memory": MEMORY,
    }
    a = start_endpoint("a", config={"limits": limits})
    b = start_endpoint("b", config={"limits": limits})
    make_trees(b)
    with b.root("large").open("wb") as file:
        file.write(os.urandom(MIB) * 64)
    a.root("in").write_bytes(b"x")
    token = a.token(lifetime="3h")
    listed = requests(a, b)
    for start in range(0, TRANSFERS, 100):
        batch = {"transfers": listed[start : start + 100], "atomic": True}
        answer = ask(a, "POST", "/v1/transfers/batch", batch, token=token)
        assert answer.code == 200, answer.text[:2000]
        assert all("transfer" in each for each in answer.json["results"]), answer.text[:2000]
    await_running(a, token)
    context = multiprocessing.get_context("spawn")
    queue: Queue[Json] = context.Queue()
    process = context.Process(target=measure, args=(a.address, token, MEASURED_SECONDS, queue))
    process.start()
    samples: list[tuple[float, int, int]] = []
    began = time.monotonic()
    while process.is_alive() and queue.empty():
        samples.append((time.monotonic() - began, rss(a.pid), rss(b.pid)))
        assert time.monotonic() - began < 10 * MEASURED_SECONDS + 60, "it hangs"
        time.sleep(0.25)
    found = queue.get(timeout=60)
    process.join(60)
    counts = states(a, token)
    report(found["times"], samples, counts)
    assert found["wrong"] == []
    assert counts.get("failed", 0) == counts.get("incomplete", 0) == 0, counts
    assert counts["active"] == RUNNING, counts
    for which in (1, 2):
        held = [int(sample[which]) for sample in samples]
        assert max(held) < RSS, f"{max(held) >> 20} MiB"
        middle = max(held[len(held) // 2 : len(held) * 3 // 4])
        assert max(held[len(held) * 3 // 4 :]) - middle < GROWTH, [one >> 20 for one in held[::8]]
    if IS_FULL:
        for name, times in found["times"].items():
            assert at(times, 0.99) < WANTED_SECONDS, f"{name}: {at(times, 0.99):.3f} s"


def await_running(endpoint: Endpoint, token: str) -> None:
    until = time.monotonic() + 60
    while (counts := states(endpoint, token)).get("active", 0) < RUNNING:
        assert time.monotonic() < until, counts
        time.sleep(0.2)


def states(endpoint: Endpoint, token: str) -> dict[str, int]:
    """Return the number of transfers in each state."""
    ids = [f"load-{number:03}" for number in range(TRANSFERS)]
    answer = ask(endpoint, "POST", "/v1/transfers/query", {"ids": ids}, token=token)
    counts: dict[str, int] = {}
    for transfer in answer.json["transfers"].values():
        counts[transfer["state"]] = counts.get(transfer["state"], 0) + 1
    return counts


def report(
    times: dict[str, list[float]], samples: list[tuple[float, int, int]], counts: dict[str, int]
) -> None:
    """Print the durations of calls, the samples of memory, and the states of transfers."""
    print(f"\n{counts}")
    for name, each in times.items():
        shares = ", ".join(
            f"p{share:g} {at(each, share / 100) * 1e3:.1f}" for share in (50, 90, 99)
        )
        print(f"{name:>10}: {len(each)} calls, {shares}, most {max(each) * 1e3:.1f} ms")
    for which, name in ((1, "active"), (2, "passive")):
        held = [int(sample[which]) >> 20 for sample in samples]
        course = ", ".join(str(each) for each in held[:: max(1, len(held) // 12)])
        print(f"{name}: {held[0]} MiB at first, {max(held)} at most; in between {course}")
