"""Messages about ended files at a real STOMP broker."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Endpoint
from integration.endpoint.raw import shipped_program
from integration.fts.broker import PASSWORD, Broker, has_broker
from integration.fts.face import Face
from integration.fts.pems import make_pems
from integration.harness.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not has_broker(), reason="no RabbitMQ or no stomp.py; tools/bootstrap.sh test installs both"
    ),
]
A, B = "davs://a.example", "davs://b.example"
WAIT_SECONDS = 60.0


class Bed:
    """A service with two endpoints and a broker."""

    def __init__(self, folder: Path) -> None:
        """Start everything."""
        (folder / "ca").mkdir()
        self.folder = folder
        self.authority, self.pems = make_pems(folder / "ca")
        self.ends: dict[str, Endpoint] = {}
        self.face: Face
        self.broker = Broker(folder / "broker", self.authority.file, self.pems)
        try:
            for name in ("a", "b"):
                end = Endpoint(folder / name, name=f"{name}.example", program=shipped_program())
                self.ends[name] = end.start()
            self.broker.start()
            self.face = self.faced("face", self.authority.file)
        except BaseException:
            self.close()
            raise

    def faced(
        self, name: str, ca: Path, left_out: tuple[str, ...] = (), added: tuple[str, ...] = ()
    ) -> Face:
        """Start a service that publishes with TLS, a certificate and a password.

        :param ca: authority that the service trusts.
        :param left_out: keys to leave out.
        :param added: further lines of the section.
        """
        lines = [*self.broker.face_config(ca).splitlines(), *added]
        more = "\n".join(line for line in lines if line.split(" =")[0] not in left_out)
        return Face(self.folder / name, self.ends, self.authority.file, self.pems, more).start()

    def close(self) -> None:
        """End all processes."""
        face = getattr(self, "face", None)
        for each in (face, self.broker, *self.ends.values()):
            if each is not None:
                each.close()

    def make(self, name: str, size: int = 1000) -> bytes:
        """Write a file to the endpoint ``a``."""
        content = os.urandom(size)
        path = self.ends["a"].root(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return content

    def await_log(self, words: str, face: Face | None = None) -> None:
        """Wait until the log of a service contains some words."""
        until = time.monotonic() + WAIT_SECONDS
        while words not in (face or self.face).said():
            assert time.monotonic() < until, (face or self.face).said()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Yield a running bed."""
    with scratch_folder() as folder, contextlib.closing(Bed(folder)) as made:
        yield made


def pair(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"sources": [f"{A}/{name}"], "destinations": [f"{B}/{name}"], **more}


def test_ended_files_are_reported(bed: Bed) -> None:
    bed.make("m/x", 70_000)
    files = [pair("m/x", metadata={"request_id": "r1", "é": [1]}), pair("m/missing")]
    job_id = bed.face.submit(files, job_metadata={"issuer": "rucio"}, retry=-1)
    assert bed.face.wait(job_id)["job_state"] == "FINISHEDDIRTY"
    found = {each["src_url"]: each for each in bed.broker.read(2)}
    good, bad = found[f"{A}/m/x"], found[f"{A}/m/missing"]
    listed = bed.face.ask("GET", f"/jobs/{job_id}/files").json
    assert [each["file_id"] for each in listed] == [good["file_id"], bad["file_id"]]
    for each in (good, bad):
        assert (each["job_id"], each["endpnt"], each["vo"]) == (job_id, "fts.example", "dteam")
        assert each["job_metadata"] == {"issuer": "rucio"}
        assert each["job_state"] == "UNKNOWN"
        assert each["tr_id"].endswith(f"__a.example__b.example__{each['file_id']}__{job_id}")
        assert (each["protocol"], each["dst_se"]) == ("davs", B)
        assert each["job_m_replica"] is each["job_multihop"] is each["is_archiving"] is False
        now = time.time() * 1000
        assert now - 60_000 < each["tr_timestamp_start"] <= each["tr_timestamp_complete"] <= now
    assert (good["t_final_transfer_state"], good["t_final_transfer_state_flag"]) == ("Ok", 1)
    assert good["file_metadata"] == {"request_id": "r1", "é": [1]}
    assert (good["file_size"], good["tr_bt_transfered"]) == (70_000, 70_000)
    assert (good["t_error_code"], good["t__error_message"]) == (0, "")
    assert (bad["t_final_transfer_state"], bad["t_error_code"]) == ("Error", 2)
    assert (bad["tr_error_scope"], bad["tr_error_category"]) == (
        "SOURCE",
        "NO_SUCH_FILE_OR_DIRECTORY",
    )
    assert bad["t__error_message"] == listed[1]["reason"]


def test_starts_and_states_are_reported(bed: Bed) -> None:
    bed.make("m/seen", 70_000)
    queues = {kind: f"/queue/transfer.fts_monitoring_{kind}" for kind in ("start", "state")}
    lines = tuple(f'destination_{kind} = "{queue}"' for kind, queue in queues.items())
    face = bed.faced("all-kinds", bed.authority.file, added=lines)
    try:
        files = [pair("m/seen", metadata={"é": 1}, filesize=70_000), pair("m/unseen")]
        job_id = face.submit(files, job_metadata={"issuer": "rucio"}, retry=-1)
        assert face.wait(job_id)["job_state"] == "FINISHEDDIRTY"
        ended = {each["src_url"]: each for each in bed.broker.read(2)}
        started = {
            each["src_url"]: each for each in bed.broker.read(1, destination=queues["start"])
        }
        states = bed.broker.read(4, destination=queues["state"])
    finally:
        face.close()
    start, end = started[f"{A}/m/seen"], ended[f"{A}/m/seen"]
    assert start["transfer_id"] == end["tr_id"]
    assert start["timestamp"] == end["tr_timestamp_start"]
    assert (start["job_id"], start["endpnt"], start["vo"]) == (job_id, "fts.example", "dteam")
    assert (start["file_metadata"], start["job_metadata"]) == ({"é": 1}, {"issuer": "rucio"})
    assert start["is_archiving"] is False
    for name, last in (("seen", "FINISHED"), ("unseen", "FAILED")):
        found = [each for each in states if each["src_url"] == f"{A}/m/{name}"]
        names = [each["file_state"] for each in found]
        # The service may see a short copy only after its end.
        assert names in (["READY", "ACTIVE", last], ["READY", last])
        assert {each["job_metadata"]["issuer"] for each in found} == {"rucio"}
        assert {each["vo_name"] for each in found} == {"dteam"}
        assert found[0]["timestamp"] <= found[-1]["timestamp"]
        assert found[-1]["reason"] == ended[f"{A}/m/{name}"]["t__error_message"]
    assert states[0]["submit_time"] <= states[0]["timestamp"]
    assert states[-1]["job_state"] == "FINISHEDDIRTY"
    assert {each["user_filesize"] for each in states} == {70_000, 0}


def test_a_failed_alternative_is_active_while_another_follows(bed: Bed) -> None:
    bed.make("m/second")
    file = {
        "sources": [f"{A}/m/none", f"{A}/m/second"],
        "destinations": [f"{B}/m/alternative"],
    }
    assert bed.face.wait(bed.face.submit([file], retry=-1))["job_state"] == "FINISHED"
    found = [(each["t_final_transfer_state"], each["job_state"]) for each in bed.broker.read(2)]
    # Rucio ignores a message with the job state ACTIVE.
    assert found == [("Error", "ACTIVE"), ("Ok", "FINISHED")]


def test_a_canceled_file_is_reported(bed: Bed) -> None:
    bed.ends["b"].kill()
    job_id = bed.face.submit([pair("m/canceled")])
    assert bed.face.ask("DELETE", f"/jobs/{job_id}").code == 200
    (found,) = bed.broker.read(1)
    bed.ends["b"].start()
    assert (found["job_id"], found["t_final_transfer_state"]) == (job_id, "Abort")


def test_a_broker_that_is_down_delays_no_transfer(bed: Bed) -> None:
    bed.broker.kill()
    for number in range(3):
        bed.make(f"m/down{number}")
    job_id = bed.face.submit([pair(f"m/down{number}") for number in range(3)])
    assert bed.face.wait(job_id, 30)["job_state"] == "FINISHED"
    bed.await_log("cannot publish messages at the broker 127.0.0.1")
    assert "Connection refused" in bed.face.said()
    # A kill between the end of the files and the publication.
    bed.face.kill()
    bed.face.start()
    bed.broker.start()
    found = bed.broker.read(3)
    assert [each["job_id"] for each in found] == [job_id] * 3
    assert {each["t_final_transfer_state"] for each in found} == {"Ok"}
    assert len({each["file_id"] for each in found}) == 3


def test_stored_messages_survive_the_broker(bed: Bed) -> None:
    bed.make("m/stored")
    job_id = bed.face.submit([pair("m/stored")])
    bed.face.wait(job_id)
    time.sleep(2)
    bed.broker.kill()
    bed.broker.start()
    assert [each["job_id"] for each in bed.broker.read(1)] == [job_id]


def test_a_wrong_password_and_a_wrong_authority_are_named(bed: Bed) -> None:
    bed.make("m/refused")
    bed.broker.password.write_text("wrong", encoding="utf-8")
    face = bed.faced("wrong-password", bed.authority.file)
    try:
        job_id = face.submit([pair("m/refused")])
        assert face.wait(job_id)["job_state"] == "FINISHED"
        bed.await_log("the broker answered: Bad CONNECT: Access refused", face)
        # The service reads the file again.
        bed.broker.password.write_text(PASSWORD, encoding="utf-8")
        assert [each["job_id"] for each in bed.broker.read(1)] == [job_id]
    finally:
        bed.broker.password.write_text(PASSWORD, encoding="utf-8")
        face.close()
    (bed.folder / "other").mkdir()
    stranger, _ = make_pems(bed.folder / "other")
    face = bed.faced("wrong-authority", stranger.file)
    try:
        face.wait(face.submit([pair("m/refused")], overwrite=True))
        bed.await_log("certificate verify failed", face)
    finally:
        face.close()


def test_a_missing_certificate_is_named(bed: Bed) -> None:
    bed.make("m/anonymous")
    face = bed.faced("anonymous", bed.authority.file, ("certificate", "key"))
    try:
        face.wait(face.submit([pair("m/anonymous")]))
        bed.await_log("alert certificate required", face)
        # The service ends on request, although it has messages that the broker does not accept.
        assert face.stop() == 0
    finally:
        face.close()


def test_a_connection_that_was_closed_is_opened_again(bed: Bed) -> None:
    for name in ("m/idle1", "m/idle2"):
        bed.make(name)
        job_id = bed.face.submit([pair(name)])
        assert [each["job_id"] for each in bed.broker.read(1)] == [job_id]
        # The library closes a connection without traffic after 20 s.
        time.sleep(21 if name == "m/idle1" else 0)
    # An open connection does not delay the end of the service.
    began = time.monotonic()
    assert bed.face.stop() == 0
    assert time.monotonic() - began < 10
    bed.face.start()
