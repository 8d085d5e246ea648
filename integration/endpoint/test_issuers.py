"""Issuers that are slow, unreachable, or called for unknown tokens: which tokens are accepted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.authority import Authority
from integration.endpoint.issuer import Issuer, Served
from integration.endpoint.raw import ask, dray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

SLOW_SECONDS = 1.5
#: Maximum seconds of a call without a wait, on a busy host.
QUICK_SECONDS = 1.0
TOKENS = 12


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Yield an issuer whose public keys endpoints must fetch."""
    (tmp_path / "ca").mkdir()
    served = Served(tmp_path, Authority(tmp_path / "ca"))
    try:
        yield served
    finally:
        served.stop()


def called(endpoint: Endpoint, token: str) -> tuple[int, str, float]:
    """Call the endpoint. Return the code and text of the answer, and the duration of the call."""
    start = time.monotonic()
    answer = ask(endpoint, "GET", "/v1/endpoint", token=token)
    return answer.code, answer.text, time.monotonic() - start


def test_valid_tokens_are_accepted_with_one_call_to_a_slow_issuer(
    start_endpoint: Callable[..., Endpoint], served: Served, tmp_path: Path
) -> None:
    served.seconds = SLOW_SECONDS
    known = Issuer(tmp_path)
    endpoint = start_endpoint("a", config={"issuer": [served.config(), known.config()]})
    endpoint.root("x").write_bytes(b"x" * 5000)
    good = [
        served.issuer.token("storage.read:/", sub=f"user{number}", algorithm=algorithm)
        for number in range(TOKENS // 2)
        for algorithm in ("ES256", "RS256")
    ]
    quick = [known.token("storage.read:/"), endpoint.token()]
    # The keys of this issuer are in a file, so they need not be fetched.
    assert called(endpoint, quick[0])[0] == 200
    file = tmp_path / "token"
    file.write_text(good[0], encoding="utf-8")
    file.chmod(0o600)
    options = "--token-file", file, "--peer-key", endpoint.key, "--retries", "0"
    with ThreadPoolExecutor(TOKENS + 1) as pool:
        waiting = [pool.submit(called, endpoint, token) for token in good]
        # A session waits for the keys, as a call does.
        session = pool.submit(dray, "cp", f"{endpoint.url}/data/x", tmp_path / "got", *options)
        while not served.asked:
            time.sleep(0.01)
        for token in quick:
            code, text, seconds = called(endpoint, token)
            assert code == 200, text
            assert seconds < QUICK_SECONDS
        assert not any(each.done() for each in waiting), "the issuer is not slow"
        for each in waiting:
            code, text, _ = each.result()
            assert code == 200, text
        assert session.result().returncode == 0, session.result()
    assert (tmp_path / "got").read_bytes() == b"x" * 5000
    assert len(served.asked) == 2, served.asked


def test_an_issuer_that_is_one_of_many_behind_its_address_is_asked_by_name(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    (tmp_path / "ca").mkdir()
    served = Served(tmp_path, Authority(tmp_path / "ca"), host="localhost")
    try:
        endpoint = start_endpoint("a", config={"issuer": [served.config()]})
        code, text, _ = called(endpoint, served.issuer.token("storage.read:/"))
        assert code == 200, text
    finally:
        served.stop()


def test_unknown_tokens_cause_no_requests_to_an_issuer(
    start_endpoint: Callable[..., Endpoint], served: Served, tmp_path: Path
) -> None:
    stranger = Issuer(tmp_path, served.url, name="stranger")
    endpoint = start_endpoint("a", config={"issuer": [served.config()]})
    good = served.issuer.token("storage.read:/")
    assert called(endpoint, good)[0] == 200
    for number in range(40):
        bad = stranger.token("storage.read:/", header={"kid": f"unknown{number}"})
        answer = ask(endpoint, "GET", "/v1/endpoint", token=bad)
        assert "has no key" in answer.refused(401, "unauthorized")["cause"]
    assert called(endpoint, good)[0] == 200
    assert len(served.asked) == 2, served.asked


def test_an_issuer_unreachable_at_first_use_gives_503_not_401(
    start_endpoint: Callable[..., Endpoint], served: Served
) -> None:
    served.stop()
    endpoint = start_endpoint("a", config={"issuer": [served.config()]})
    token = served.issuer.token("storage.read:/")
    for _ in range(2):
        answer = ask(endpoint, "GET", "/v1/endpoint", token=token)
        error = answer.refused(503, "unreachable")
        assert "failed" in error["cause"]
        assert error["status"] == "temporary"
    expired = served.issuer.token("storage.read:/", exp=int(time.time()) - 300)
    error = ask(endpoint, "GET", "/v1/endpoint", token=expired).refused(401, "unauthorized")
    assert "expired" in error["cause"]


@pytest.mark.slow
def test_cached_keys_stay_valid_for_a_while_without_their_issuer(
    start_endpoint: Callable[..., Endpoint], served: Served
) -> None:
    config = {"issuer": [served.config(cache_seconds=2, stale_seconds=8)]}
    endpoint = start_endpoint("a", config=config)
    token = served.issuer.token("storage.read:/")
    start = time.monotonic()
    assert called(endpoint, token)[0] == 200
    served.stop()
    while (since := time.monotonic() - start) < 8:
        code, text, _ = called(endpoint, token)
        assert code == 200, f"after {since:.1f} s: {text}"
        time.sleep(0.3)
    time.sleep(max(0.0, 11.5 - since))
    answer = ask(endpoint, "GET", "/v1/endpoint", token=token)
    error = answer.refused(503, "unreachable")
    assert "too old" in error["cause"]
    assert "cannot get the issuer's keys" in endpoint.log_text()
