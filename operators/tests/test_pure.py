"""Tests of decisions without an endpoint: ids, values, errors, waits, connections."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.client import FileCounts, FileOutcome, Transfer
from dray.errors import DrayError, DrayPermanentError, DrayTemporaryError
from dray_airflow import assets, values
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, of_error, of_transfer
from dray_airflow.hooks.dray import settings_of
from dray_airflow.identity import transfer_id
from dray_airflow.retries import LONGEST_SECONDS, WAITS, delay
from dray_airflow.triggers.file import DrayFileTrigger, DrayFolderTrigger
from dray_airflow.triggers.transfer import DrayTransferTrigger
from dray_airflow.version_compat import check

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from airflow.triggers.base import BaseTrigger

Loose: TypeAlias = Any
words = st.text(max_size=250)


# --- ids ------------------------------------------------------------------------------------------


@given(words, words, words, st.integers(-1, 10_000))
def test_ids_are_valid_for_an_endpoint(dag: str, run: str, task: str, index: int) -> None:
    id = transfer_id(dag, run, task, index)
    assert re.fullmatch(r"[A-Za-z0-9._:-]{1,60}", id)
    assert id == transfer_id(dag, run, task, index)


def test_ids_differ_by_each_part() -> None:
    key: dict[str, Loose] = {"dag_id": "d", "run_id": "r", "task_id": "t"}
    several = [
        transfer_id(**key),
        transfer_id(**key, map_index=0),
        transfer_id(**key, map_index=1),
        transfer_id(**key, namespace="n"),
        transfer_id(**key, part="p"),
        *(transfer_id(**{**key, name: "other"}) for name in key),
        transfer_id("d", "rt", ""),
    ]
    assert len(set(several)) == len(several)


# --- values ---------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_label_is_cut_between_characters_where_the_api_counts_bytes(text: str) -> None:
    cut = values.label_text(text)
    assert text.startswith(cut)
    assert len(cut.encode()) <= 256
    # The label is cut no shorter than necessary.
    rest = text[len(cut) :]
    assert not rest or len((cut + rest[0]).encode()) > 256


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("12", 12),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1.5 GiB", 3 << 29),
        ("200GB", 200 * 10**9),
        ("100MiB/s", 100 << 20),
        ("", None),
        ("None", None),
        (7, 7),
        (None, None),
    ],
)
def test_sizes_are_read(text: Loose, bytes: int | None) -> None:
    assert values.size("rate_max", text) == bytes


@pytest.mark.parametrize("text", ["fast", "-1", "1 2", "1XB", 1.5, True, [1]])
def test_an_invalid_size_is_refused_by_name(text: Loose) -> None:
    with pytest.raises(
        DrayTaskFailure, match=r"cannot use rate_max: .* after its templates were rendered"
    ):
        values.size("rate_max", text)


def test_times_say_their_zone() -> None:
    begin = dt.datetime(2026, 11, 21, 17, tzinfo=dt.timezone.utc)
    assert values.time("deadline", "2026-11-21T17:00:00Z") == begin
    assert values.time("deadline", "2026-11-21T18:00:00+01:00") == begin
    assert values.time("deadline", dt.timedelta(hours=1), begin) == begin + dt.timedelta(hours=1)
    assert values.time("deadline", "") is None
    for wrong in ("tomorrow", "2026-11-21T17:00:00", 5, begin.replace(tzinfo=None)):
        with pytest.raises(DrayTaskFailure, match="cannot use deadline"):
            values.time("deadline", wrong)


def test_lengths_of_time_are_rounded_up() -> None:
    assert values.seconds("pin", dt.timedelta(milliseconds=1500)) == 2
    assert values.seconds("pin", 1.1) == 2
    assert values.seconds("pin", "60") == 60
    with pytest.raises(DrayTaskFailure, match="at least 0 seconds"):
        values.seconds("pin", -1)


def test_an_empty_argument_is_refused_by_name() -> None:
    with pytest.raises(
        DrayTaskFailure,
        match="cannot use destination: its value is '' after its templates were rendered",
    ):
        values.text("destination", "")
    with pytest.raises(DrayTaskFailure, match=r"cannot use sources\[1\]: its value is 'None'"):
        values.texts("sources", ["/a/b", "None"])


# --- errors ---------------------------------------------------------------------------------------


def make_error(status: str, kind: str = "io", message: str = "it went wrong") -> DrayError:
    of = DrayPermanentError if status == "permanent" else DrayTemporaryError
    fields: dict[str, Loose] = {"kind": kind, "status": status, "end": "sink"}
    return of(message, **fields, operation="x", file="f", cause="", remedy="")


def test_permanent_errors_fail_immediately_and_others_are_retried() -> None:
    assert isinstance(of_error(make_error("permanent")), DrayTaskFailure)
    for status in ("temporary", "exhausted"):
        error = of_error(make_error(status, "no_space", "two\nlines"), "transfer t")
        assert isinstance(error, DrayTaskRetry)
        assert (str(error), error.kind) == ("transfer t: two lines", "no_space")


def ended(state: Loose, error: DrayError | None = None) -> Transfer:
    return Transfer("t", state, files=FileCounts(listed=9, failed=2), error=error)


def outcome(status: str, message: str) -> FileOutcome:
    return FileOutcome("f", "failed", error=make_error(status, message=message))


def test_one_file_that_may_come_later_causes_a_retry() -> None:
    assert of_transfer(ended("done")) is None
    several = [outcome("permanent", "never"), outcome("temporary", "later")]
    error = of_transfer(ended("incomplete"), several)
    assert isinstance(error, DrayTaskRetry)
    assert str(error) == "transfer t: 2 of 9 files failed; first error: later"
    assert isinstance(of_transfer(ended("incomplete"), several[:1]), DrayTaskFailure)
    assert isinstance(of_transfer(ended("failed", make_error("exhausted"))), DrayTaskRetry)
    assert isinstance(of_transfer(ended("failed", make_error("permanent"))), DrayTaskFailure)
    assert "durable data is kept" in str(of_transfer(ended("cancelled")))


# --- waits ----------------------------------------------------------------------------------------


@given(st.sampled_from([*WAITS, "other"]), st.integers(1, 1000))
def test_waits_grow_to_a_bound(kind: str, tries: int) -> None:
    now, next = delay(kind, tries), delay(kind, tries + 1)
    assert dt.timedelta(0) < now <= next <= dt.timedelta(seconds=LONGEST_SECONDS)


def test_a_full_disk_is_given_more_time_than_a_restart() -> None:
    assert delay("no_space", 1) > 10 * delay("unreachable", 1)


def test_the_policy_leaves_other_errors_to_the_task() -> None:
    from airflow.sdk import RetryAction

    from dray_airflow.retries import DrayRetryPolicy

    policy = DrayRetryPolicy()
    found = policy.evaluate(DrayTaskRetry("x", "no_space"), 2, 5)
    assert (found.action, found.retry_delay) == (RetryAction.RETRY, dt.timedelta(seconds=1200))
    assert policy.evaluate(ValueError("x"), 1, 5).action is RetryAction.DEFAULT


# --- connections ----------------------------------------------------------------------------------


def connection(**fields: Loose) -> Connection:
    from airflow.sdk import Connection

    extra = fields.pop("extra", None)
    text = extra if isinstance(extra, str) or extra is None else json.dumps(extra)
    return Connection(conn_id="c", conn_type="dray", extra=text, **fields)


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "dtn.example.org"}, "dray://dtn.example.org:4735"),
        ({"host": "dtn.example.org", "port": 99}, "dray://dtn.example.org:99"),
        ({"host": "dray://dtn.example.org:99"}, "dray://dtn.example.org:99"),
        ({"host": "10.0.0.1:99"}, "dray://10.0.0.1:99"),
        ({"host": "::1"}, "dray://[::1]:4735"),
        ({"host": "[::1]:99"}, "dray://[::1]:99"),
        ({"host": "dtn.example.org", "schema": "https"}, "https://dtn.example.org:443"),
    ],
)
def test_connections_name_an_endpoint(fields: dict[str, Loose], url: str) -> None:
    assert settings_of(connection(**fields)).url == url


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "the host '' is not a host name or an IP address; give the name"),
        ({"host": "a b"}, "the host 'a b' is not a host name"),
        (
            {"host": "h", "schema": "ftp"},
            "the scheme 'ftp' is not supported; write one of dray, https, http",
        ),
        ({"host": "h:1", "port": 2}, "write the port as a number, in one field only"),
        ({"host": "h", "extra": "[]"}, "the extra field is not a JSON object"),
        (
            {"host": "h", "extra": {"pim": "x"}},
            "the extra field has unknown keys: pim; the allowed keys are pin, ca",
        ),
        ({"host": "h", "extra": {"seconds": "soon"}}, "seconds is 'soon'"),
        ({"host": "h", "extra": {"seconds": -1}}, "seconds is -1"),
        (
            {"host": "h", "extra": {"pin": 5}},
            "the value of pin is 5, which is not a text; write a text",
        ),
        (
            {"host": "h", "password": "t", "extra": {"token_file": "/t"}},
            "the connection has a password and a token_file",
        ),
    ],
)
def test_an_invalid_setting_is_named_with_its_connection(
    fields: dict[str, Loose], said: str
) -> None:
    with pytest.raises(DrayTaskFailure, match="cannot use connection 'c': ") as caught:
        settings_of(connection(**fields))
    assert said in str(caught.value)


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(settings_of(connection(host="h", password="secret")))  # noqa: S106


def test_a_certificate_is_shown_instead_of_a_token() -> None:
    plain = settings_of(connection(host="h", extra={"certificate": "/tmp/p"}))  # noqa: S108
    assert plain.arguments()["token"] is None
    with_token = settings_of(connection(host="h", password="t", extra={"certificate": "/p"}))  # noqa: S106
    assert with_token.arguments()["token"] == "t"  # noqa: S105


# --- assets, versions -----------------------------------------------------------------------------


def test_a_place_is_one_asset_however_it_is_written() -> None:
    from urllib.parse import urlsplit

    one = "dray://dtn.example.org/data/run1"
    for text in ("dray://DTN.example.org:4735/data/run1/", one):
        assert assets.sanitize_uri(urlsplit(text)).geturl() == one
    assert assets.create_asset(host="dtn.example.org:4735", path="/data/run1/").uri == one
    for wrong in ("dray:///data", "dray://host/", "dray://host"):
        with pytest.raises(ValueError, match="dray://HOST"):
            assets.sanitize_uri(urlsplit(wrong))


def test_an_older_airflow_is_refused_in_one_line() -> None:
    assert check("3.1.0") == (3, 1)
    assert check("4.0.0rc1") == (4, 0)
    for old in ("3.0.6", "2.11.0"):
        with pytest.raises(
            RuntimeError, match=rf"needs Airflow 3.1 or later, but this is Airflow {old}; "
        ):
            check(old)


# --- bases ----------------------------------------------------------------------------------------


def test_an_incomplete_waiting_operator_cannot_be_made() -> None:
    from dray_airflow.operators.waiting import WaitingOperator

    class Half(WaitingOperator):
        def _recall(self, context: Loose) -> None:
            del context

    with pytest.raises(TypeError, match="abstract"):
        Half(task_id="half")  # type: ignore[abstract]


@pytest.mark.parametrize("of", [DrayFileTrigger, DrayFolderTrigger, DrayTransferTrigger])
def test_a_trigger_travels_with_all_that_it_was_made_with(of: type[BaseTrigger]) -> None:
    parameters = list(inspect.signature(of).parameters)
    words: dict[str, Loose] = {name: f"its {name}" for name in parameters}
    assert of(**words).serialize() == (f"{of.__module__}.{of.__name__}", words)


def test_comparing_many_files_takes_no_memory_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    from dray.client import Checksum
    from dray_airflow.operators import verify

    def answer(tree: Loose, below: str, algorithm: str) -> Checksum:
        del tree
        return Checksum(below, algorithm, "adler32:00000001", 1, "read")

    monkeypatch.setattr(verify._Tree, "sum", answer)
    end: Loose = verify._Tree(None, "/data", "there")  # type: ignore[arg-type]
    one = verify.DrayVerifyOperator(task_id="v", source="/data/x", destination="/data/y")
    names = [str(number) for number in range(20_000)]
    tracemalloc.start()
    try:
        assert one._compare(end, end, names, {}) == 40_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20, f"{peak >> 20} MiB"
