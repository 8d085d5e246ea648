"""Every method of the client, called once against an endpoint that answers anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.client import Client, Policy, Request, StagingRequest, WriteRequest
from dray.testing.scripted import Asked, Reply, json_reply

if TYPE_CHECKING:
    from dray.testing.scripted import ScriptedEndpoint

__all__ = ["every_call"]

REQUEST = Request("dray://b/data/x", "/data/y", id="t")
TRANSFER = {"id": "t", "state": "done"}
STAGED = {"id": "s", "path": "/slow/x", "state": "queued"}
ENTRY = {"path": "/data/x", "name": "x", "type": "file"}
WRITE = {
    "id": "w",
    "tier": "burst",
    "application": "sim",
    "version": 1,
    "state": "waiting",
    "placement": "fast",
    "path": "/fast/sim/1",
}
ANSWER: dict[str, object] = {
    **TRANSFER,
    **STAGED,
    **ENTRY,
    "state": "done",
    "results": [{"transfer": TRANSFER}],
    "next": None,
    "files": {},
    "key": "",
    "version": 1,
    "removed": 1,
    "algorithm": "adler32",
    "checksum": "0",
    "size": 0,
    "total": 0,
    "free": 0,
    "available": 0,
    "decision": "accept",
    "transfers": [],
    "status": "ok",
    "policy": "fair",
}


def every_call(endpoint: ScriptedEndpoint) -> list[tuple[str, str]]:
    """Call every method of the client. Return the HTTP method and path of each request."""

    def answer(asked: Asked) -> Reply:
        lists = {"tickets": "tickets", "list": "entries", "staging": "staging", "files": "files"}
        lists["writes"] = "writes"
        last = asked.path.rpartition("/")[2]
        if asked.path == "/v1/events":
            return Reply(200, {"content-type": "text/event-stream"}, (b'data: {"type": "x"}\n\n',))
        if asked.method == "GET" and last in lists:
            return json_reply({lists[last]: [], "next": None})
        if last == "query":
            return json_reply({"transfers": {}})
        if last == "targets":
            return json_reply({"targets": []})
        if last == "tiers":
            return json_reply({"tiers": []})
        if "writes" in asked.path:
            return json_reply(WRITE)
        if last == "burst":
            return json_reply({"name": "burst"})
        if last == "endpoint":
            return json_reply({"name": "a", "version": "0", "key": ""})
        if last == "live":
            return json_reply({"is_reported": False, "files": [], "folders": []})
        if last == "log":
            return json_reply({"endpoint": None, "log": None, "files": [], "next": None})
        if last == "load":
            return json_reply({"sessions": [], "promises": []})
        if last == "admission":
            return json_reply({"decision": "accept", "transfers": []})
        return json_reply(ANSWER)

    endpoint.otherwise = answer
    with Client(endpoint.url, token=None, policy=Policy(seconds=5, tries=1)) as client:
        client.submit(REQUEST)
        client.submit_batch([REQUEST])
        client.query(["t"])
        client.transfer("t")
        client.live_files("t")
        client.log("t")
        client.receipt("t")
        client.receipt_keys()
        client.wait("t")
        client.cancel("t")
        client.pause("t")
        client.resume("t")
        client.retry("t")
        client.change("t", priority=1)
        client.forget("t")
        client.mint_ticket("t", "read", ["/data/x"], "sha256:" + "0" * 64)
        client.ticket("k")
        client.change_ticket("k", rate_max=1)
        client.revoke_ticket("k")
        client.renew_ticket("drt_x")
        client.stat("/data/x")
        client.mkdir("/data/x")
        client.rm("/data/x")
        client.rename("/data/x", "/data/y")
        client.checksum("/data/x")
        client.space("/data")
        client.admission([REQUEST])
        client.stage_in(StagingRequest("/slow/x"))
        client.stage_out(StagingRequest("/fast/x"))
        client.staging("s")
        client.pin_staging("s", 5)
        client.evict_staging("s")
        client.targets()
        client.tiers()
        client.tier("burst")
        client.request_write("burst", WriteRequest("sim", 1, 5))
        client.write_job("w")
        list(client.writes("burst"))
        client.renew_write("w")
        client.complete_write("w")
        client.delete_write("w")
        client.endpoint()
        client.load()
        client.change_scheduling(policy="fcfs", max_running=None)
        client.health()
        next(client.events())
        for pages in (client.transfers(), client.files("t"), client.tickets(), client.stagings()):
            list(pages)
        list(client.list("/data"))
    assert endpoint.surprises == []
    return sorted({(asked.method, asked.path) for asked in endpoint.asked})
