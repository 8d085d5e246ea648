"""Call Rucio's own code, in a process with Rucio's Python environment.

The process reads one JSON request per line, and writes one JSON answer per line. It runs as long
as the Rucio server, because loading Rucio takes seconds. Functions such as ``submit`` run one pass
of a Rucio daemon.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration.rucio.contents import Words, client, make_database, make_rses

if TYPE_CHECKING:
    from collections.abc import Callable

DATASET_FILES = 400
CONTENTS = 64
"""Number of different contents of the files of one call of :func:`register`."""


def set_attribute(rse: str, key: str, value: str) -> None:
    """Set an attribute of an RSE."""
    client().add_rse_attribute(rse, key, value)


def register_plug_in() -> None:
    """Register the transfertool, as ``python -m dray_rucio`` does."""
    from dray_rucio.register import register

    register()


def limit_recalls(seconds: int) -> None:
    """Set the default of ``[conveyor] bring_online``."""
    from dray_rucio import recall

    recall.ONLINE_SECONDS = seconds


def recalled_paths(names: list[str]) -> list[str]:
    """Return the path at each of these RSEs for a file that the first one has recalled."""
    from types import SimpleNamespace

    from rucio.common.constants import DEFAULT_VO
    from rucio.core.rse import RseData, get_rse_id

    from dray_rucio.sending import Sender, site_of

    rses = [RseData(get_rse_id(name, vo=DEFAULT_VO)) for name in names]
    for rse in rses:
        rse.ensure_loaded(load_name=True, load_attributes=True)
    sources = [SimpleNamespace(rse=rse) for rse in rses]
    hop = SimpleNamespace(
        rws=SimpleNamespace(request_id="r"),
        sources=sources,
        source_protocol=lambda _at: SimpleNamespace(attributes={"prefix": "/rse"}),
        source_url=lambda _at: "root://h//rse/x",
    )
    sender = Sender("dray://h:1", [hop], logging.log)
    sender.recalled = SimpleNamespace(to="/fast/x", id="recall-r")  # type: ignore[assignment]
    return [sender._source_path(site_of(rse), index) for index, rse in enumerate(rses)]


def staging_times(names: list[str]) -> list[bool]:
    """Return for each archived request of these files if it has the times of its recall."""
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    table = models.RequestHistory
    with db_session(DatabaseOperationType.READ) as session:
        rows = session.query(table).filter(table.name.in_(names)).all()
        return [
            bool(row.staging_started_at and row.staging_started_at <= row.staging_finished_at)
            for row in rows
        ]


def set_distance(one: str, other: str) -> None:
    """Set the distance from an RSE to another one."""
    client().add_distance(one, other, {"distance": 1})


def upload(rse: str, dataset: str, folder: str, sizes: dict[str, int]) -> dict[str, str]:
    """Create files of random bytes, upload them as a dataset, and return their adler32 by name."""
    from rucio.client.uploadclient import UploadClient

    sums = {}
    items = []
    for name, size in sizes.items():
        path = Path(folder) / name
        content = os.urandom(size)
        path.write_bytes(content)
        sums[name] = f"{zlib.adler32(content):08x}"
        items.append(
            {
                "path": str(path),
                "rse": rse,
                "did_scope": "mock",
                "did_name": name,
                "dataset_scope": "mock",
                "dataset_name": dataset,
                "register_after_upload": True,
            }
        )
    UploadClient(client()).upload(items)
    return sums


def register(rse: str, dataset: str, root: str, count: int, size: int) -> None:
    """Create files of random bytes in the folder of an RSE, and register them as a dataset.

    If there are many files, the DID is a container of datasets: SQLite refuses the queries with
    which Rucio makes a rule for a dataset of more than a thousand files. This function is much
    faster than an upload of many files. To save space, many files are links to few contents.
    """
    import hashlib

    rucio = client()
    is_large = count > DATASET_FILES
    (rucio.add_container if is_large else rucio.add_dataset)("mock", dataset)
    seeds = []
    for number in range(min(count, CONTENTS)):
        content = os.urandom(size)
        path = Path(root).parent / f"{dataset}.content{number}"
        path.write_bytes(content)
        seeds.append((path, f"{zlib.adler32(content):08x}"))
    files = []
    for number in range(count):
        name = f"{dataset}.f{number}"
        digest = hashlib.md5(f"mock:{name}".encode(), usedforsecurity=False).hexdigest()
        path = Path(root) / "mock" / digest[:2] / digest[2:4] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed, adler32 = seeds[number % CONTENTS]
        os.link(seed, path)
        files.append({"scope": "mock", "name": name, "bytes": size, "adler32": adler32})
    for seed, _ in seeds:
        seed.unlink()
    for first in range(0, count, DATASET_FILES):
        batch = files[first : first + DATASET_FILES]
        rucio.add_replicas(rse, batch)
        part = f"{dataset}.part{first}" if is_large else dataset
        if is_large:
            rucio.add_dataset("mock", part)
        rucio.add_files_to_dataset("mock", part, batch, rse=rse)
        if is_large:
            rucio.attach_dids("mock", dataset, [{"scope": "mock", "name": part}])


def add_rule(name: str, rse: str, **more: Any) -> str:  # noqa: ANN401
    """Add a rule for one copy of a dataset or file. Return the id of the rule."""
    dids = [{"scope": "mock", "name": name}]
    (rule,) = client().add_replication_rule(dids, 1, rse, **more)
    return str(rule)


def rule(id: str) -> Words:
    """Return the state of a rule, its error, and its numbers of locks by state."""
    found = client().get_replication_rule(id)
    keys = ("state", "error", "locks_ok_cnt", "locks_replicating_cnt", "locks_stuck_cnt")
    return {key: found[key] for key in keys}


def end_rule(id: str) -> None:
    """Let the lifetime of a rule end, and run the daemon that deletes the rule."""
    from rucio.daemons.judge import cleaner

    client().update_replication_rule(id, {"lifetime": -10})
    cleaner.rule_cleaner(once=True)


def expire(name: str) -> None:
    """Delete all rules of a file and its DID, so that the reaper deletes its replicas."""
    from rucio.daemons.judge import cleaner

    rucio = client()
    for found in list(rucio.list_did_rules("mock", name)):
        rucio.delete_replication_rule(found["id"], purge_replicas=True)
        rucio.update_replication_rule(found["id"], {"lifetime": -10})
    cleaner.rule_cleaner(once=True)


def space(rse: str) -> list[int]:
    """Return the total and the free bytes of an RSE, as its protocol reports them."""
    from rucio.rse import rsemanager

    done, found = rsemanager.get_space_usage(rsemanager.get_rse_info(rse), scheme="dray")
    assert done, found
    return [found["totalsize"], found["unusedsize"]]


def boost(id: str) -> None:
    """Make the repairer retry a stuck rule immediately."""
    from rucio.daemons.judge import repairer

    client().update_replication_rule(id, {"boost_rule": True})
    repairer.rule_repairer(once=True)


def set_priority(id: str, priority: int) -> None:
    """Change the priority of a rule through the REST server."""
    client().update_replication_rule(id, {"priority": priority})


def requests() -> list[Words]:
    """Return all requests, including ended ones, oldest first."""
    from rucio.core.rse import get_rse_name
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    found: list[Words] = []
    with db_session(DatabaseOperationType.READ) as session:
        for table in (models.Request, models.RequestHistory):
            for row in session.query(table):
                words = {
                    key: getattr(row, key)
                    for key in (
                        "id",
                        "external_id",
                        "external_host",
                        "transfertool",
                        "name",
                        "retry_count",
                        "err_msg",
                    )
                }
                source, target = row.source_rse_id, row.dest_rse_id
                words["state"] = row.state.name
                words["source"] = source and get_rse_name(rse_id=source, session=session)
                words["destination"] = get_rse_name(rse_id=target, session=session)
                words["created_at"] = str(row.created_at)
                found.append(words)
    return sorted(found, key=lambda words: str(words["created_at"]))


def age_requests(days: int) -> None:
    """Make all requests ``days`` days older."""
    import datetime

    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    with db_session(DatabaseOperationType.WRITE) as session:
        for row in session.query(models.Request):
            row.created_at -= datetime.timedelta(days=days)


def cancel_request(id: str) -> None:
    """Cancel the transfer of a request as the deletion of its rule does. The request is removed."""
    from rucio.core import request as requests_of_rucio
    from rucio.core import transfer
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    with db_session(DatabaseOperationType.WRITE) as session:
        row = session.get(models.Request, id)
        found = requests_of_rucio.cancel_request_did(
            row.scope, row.name, row.dest_rse_id, session=session
        )
        transfer.cancel_transfers(found)


def lose_submission(ids: list[str]) -> None:
    """Put requests into the state in which a submitter that was killed two hours ago left them."""
    import datetime

    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType, RequestState
    from rucio.db.sqla.session import db_session

    # Rucio's times are UTC without a zone.
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    before = now - datetime.timedelta(hours=3)
    with db_session(DatabaseOperationType.WRITE) as session:
        for id in ids:
            session.query(models.Request).filter_by(id=id).update(
                {
                    "state": RequestState.SUBMITTING,
                    "updated_at": before,
                }
            )


def lose_answer(ids: list[str]) -> None:
    """Put submitted requests into the state in which the plug-in leaves them without an answer."""
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType, RequestState
    from rucio.db.sqla.session import db_session

    from dray_rucio import requests as requests_of_dray

    with db_session(DatabaseOperationType.WRITE) as session:
        for id in ids:
            found = session.query(models.Request).filter_by(id=id)
            found.update({"state": RequestState.SUBMITTING})
    for id in ids:
        assert requests_of_dray.put_back(id)


def age_updates(hours: int) -> None:
    """Make the last change of all requests ``hours`` hours older."""
    import datetime

    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    with db_session(DatabaseOperationType.WRITE) as session:
        for id, at in session.query(models.Request.id, models.Request.updated_at).all():
            before = at - datetime.timedelta(hours=hours)
            session.query(models.Request).filter_by(id=id).update({"updated_at": before})


def messages() -> list[Words]:
    """Return the payloads of Rucio's messages, oldest first."""
    from rucio.db.sqla import models
    from rucio.db.sqla.constants import DatabaseOperationType
    from rucio.db.sqla.session import db_session

    with db_session(DatabaseOperationType.READ) as session:
        rows = session.query(models.Message).order_by(models.Message.created_at)
        return [json.loads(row.payload or row.payload_nolimit) for row in rows]


def replicas(name: str) -> dict[str, dict[str, str]]:
    """Return for each file of a dataset the states of its replicas by RSE."""
    found = client().list_replicas([{"scope": "mock", "name": name}], all_states=True)
    return {each["name"]: dict(each["states"]) for each in found}


def pfns(name: str, rse: str) -> dict[str, str]:
    """Return for each file of a dataset its URL at an RSE."""
    found = client().list_replicas([{"scope": "mock", "name": name}], rse_expression=rse)
    return {each["name"]: pfn for each in found for pfn in each["rses"].get(rse, ())}


def submit(tool: str = "dray", bulk: int = 100) -> None:
    """Run the submitter once, for at most ``bulk`` requests."""
    from rucio.daemons.conveyor import submitter

    # The transfertool for FTS submits at most so many files in one job.
    submitter.submitter(
        once=True, partition_wait_time=0, transfertools=[tool], group_bulk=100, bulk=bulk
    )


_SPLIT: list[Any] = []


def split(daemon: str, bulk: int) -> Words:
    """Run a daemon once. Return the seconds of its parts, and the numbers of SQL statements.

    :param daemon: ``submit``, ``poll`` or ``finish``.
    """
    from integration.rucio.split import Split

    if not _SPLIT:
        _SPLIT.append(Split())
    calls: dict[str, Callable[..., None]] = {"submit": submit, "poll": poll, "finish": finish}
    call = calls[daemon]
    return dict(_SPLIT[0].of(lambda: call(bulk=bulk)))


def stage() -> None:
    """Run the stager once, as ``python -m dray_rucio rucio-conveyor-stager`` does."""
    from rucio.daemons.conveyor import stager

    from dray_rucio.__main__ import use_for_stager

    use_for_stager()
    stager.stager(once=True)


def poll(tool: str = "dray", bulk: int = 1000) -> None:
    """Run the poller once."""
    from rucio.daemons.conveyor import poller

    poller.poller(once=True, partition_wait_time=0, older_than=0, transfertool=tool, db_bulk=bulk)


def finish(bulk: int = 1000) -> None:
    """Run the finisher once."""
    from rucio.daemons.conveyor import finisher

    finisher.finisher(once=True, partition_wait_time=0, db_bulk=bulk)


def update_rule(id: str, options: Words) -> None:
    """Change a rule through the REST server."""
    client().update_replication_rule(id, options)


def beat(daemon: str) -> None:
    """Store a heartbeat of a daemon, as the daemon does in each of its cycles."""
    import socket
    import threading

    from rucio.core import heartbeat

    heartbeat.live(daemon, socket.getfqdn(), os.getpid(), threading.current_thread())


def stop_beating(daemon: str) -> None:
    """Remove a heartbeat, as a daemon does when it ends."""
    import socket
    import threading

    from rucio.core import heartbeat

    heartbeat.die(daemon, socket.getfqdn(), os.getpid(), threading.current_thread())


def examine(command: str, rule: str) -> list[Any]:
    """Run ``why`` or ``eta``. Return the exit code and the printed object."""
    import io

    from dray_rucio.why import eta_main, why_main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = (why_main if command == "why" else eta_main)([rule, "--json"])
    return [code, json.loads(said.getvalue())]


KNOWN = (
    make_database,
    make_rses,
    set_attribute,
    limit_recalls,
    register_plug_in,
    set_distance,
    recalled_paths,
    staging_times,
    upload,
    register,
    add_rule,
    rule,
    end_rule,
    expire,
    space,
    boost,
    set_priority,
    requests,
    age_requests,
    cancel_request,
    lose_submission,
    lose_answer,
    age_updates,
    messages,
    replicas,
    pfns,
    submit,
    split,
    stage,
    poll,
    finish,
    update_rule,
    beat,
    stop_beating,
    examine,
)


def main() -> None:
    """Answer requests until the input ends."""
    # Rucio writes to standard output too: send its output to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    by_name = {each.__name__: each for each in KNOWN}
    for line in sys.stdin:
        name, words = json.loads(line)
        try:
            answer = {"ok": by_name[name](**words)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
