"""The answers of the local test service have the same fields as the answers of Globus itself.

The SDK of Globus contains recorded answers, and the tests compare with them. The SDK has no
recorded event lists, pause rules, ``ls`` answers and skipped errors, so these are not compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import globus_sdk
import pytest
from globus_sdk.testing import RegisteredResponse, get_response_set

from dray_globus.login import open_client
from dray_globus.report import task_of
from integration.globus.conftest import HERE, THERE

if TYPE_CHECKING:
    from integration.globus.conftest import Globus

pytestmark = pytest.mark.server


def recorded(name: str, case: str = "default") -> dict[str, Any]:
    """Return the document of a recorded answer."""
    found = get_response_set(f"transfer.{name}").lookup(case)
    assert isinstance(found, RegisteredResponse)
    assert isinstance(found.json, dict)
    return found.json


def shape(value: object) -> object:
    """Return the names and types of a document. An absent value has the type of any other."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return "any" if value is None else type(value).__name__


def assert_alike(ours: object, theirs: object, at: str = "") -> None:
    """Compare two shapes."""
    if "any" in (ours, theirs):
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        assert set(ours) == set(theirs), at
        for name, each in ours.items():
            assert_alike(each, theirs[name], f"{at}.{name}")
        return
    if isinstance(ours, list) and isinstance(theirs, list) and ours and theirs:
        assert_alike(ours[0], theirs[0], f"{at}[0]")
        return
    assert type(ours) is type(theirs), at
    assert ours == theirs or not isinstance(ours, str), at


def task(client: globus_sdk.TransferClient, source: str = "/f") -> str:
    data = globus_sdk.TransferData(HERE, THERE)
    data.add_item(source, "/f")
    return str(client.submit_transfer(data)["task_id"])


def test_answers_have_the_recorded_fields(globus: Globus) -> None:
    (globus.here / "f").write_bytes(b"12345")
    client = open_client(globus.settings())
    data = globus_sdk.TransferData(HERE, THERE)
    data.add_item("/f", "/f")
    submitted = client.submit_transfer(data)
    assert_alike(shape(submitted.data), shape(recorded("submit_transfer")))
    id = str(submitted["task_id"])
    while not client.task_wait(id, timeout=1, polling_interval=1):
        time.sleep(0.02)
    calls = {
        "get_submission_id": client.get_submission_id(),
        "task_list": client.task_list(),
        "cancel_task": client.cancel_task(task(client)),
        "operation_mkdir": client.operation_mkdir(HERE, "/made"),
        "operation_stat": client.operation_stat(HERE, "/f"),
        "endpoint_manager_task_successful_transfers": client.task_successful_transfers(id),
    }
    for name, answer in calls.items():
        assert_alike(shape(answer.data), shape(recorded(name)), name)


def test_refusals_have_the_recorded_fields(globus: Globus) -> None:
    client = open_client(globus.settings())
    with pytest.raises(globus_sdk.TransferAPIError) as empty:
        client.submit_transfer(globus_sdk.TransferData(HERE, THERE))
    assert_alike(shape(empty.value.raw_json), shape(recorded("submit_transfer", "failure")))
    assert empty.value.code == "ClientError.BadRequest.NoTransferItems"
    with pytest.raises(globus_sdk.TransferAPIError) as missing:
        client.operation_stat(HERE, "/missing")
    assert_alike(shape(missing.value.raw_json), shape(recorded("operation_stat", "not_found")))


def test_a_recorded_task_is_read(globus: Globus) -> None:
    del globus
    document = recorded("task_list")["DATA"][0]
    found = task_of(document)
    assert (found.status, found.bytes_transferred, found.files) == ("SUCCEEDED", 4, 1)
    assert (found.source, found.destination) == (
        document["source_endpoint_id"],
        document["destination_endpoint_id"],
    )
    assert found.ended_at is not None
    assert found.ended_at.isoformat() == document["completion_time"]


def test_a_task_document_has_the_fields_of_a_listed_one(globus: Globus) -> None:
    (globus.here / "f").write_bytes(b"12345")
    client = open_client(globus.settings())
    document = dict(client.get_task(task(client)).data)
    assert document.pop("DATA_TYPE") == "task"
    assert_alike(shape(document), shape(recorded("task_list")["DATA"][0]))
