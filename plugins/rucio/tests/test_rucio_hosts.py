"""Whom to ask, and by which right."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import Client
from dray_rucio.hosts import Hosts
from dray_rucio.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

PIN = "sha256:" + "5a" * 32


def nobody() -> str:
    """Give an endpoint's host where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"dray://127.0.0.1:{taken.getsockname()[1]}#{PIN}"


def test_an_endpoint_that_is_away_is_not_waited_for_by_each_file() -> None:
    hosts = Hosts(Settings(call_seconds=0.5, away_seconds=60.0))
    host = nobody()
    with pytest.raises(DrayError) as first:
        hosts.ask(host, Client.endpoint)
    since = time.monotonic()
    with pytest.raises(DrayError) as second:
        hosts.ask(host, Client.endpoint)
    assert time.monotonic() - since < 0.1
    assert second.value is first.value
    # Another is another's affair.
    with pytest.raises(DrayError) as other:
        hosts.ask(nobody(), Client.endpoint)
    assert other.value is not first.value


def test_tokens_are_one_file_or_one_for_each_endpoint(tmp_path: Path) -> None:
    alone = tmp_path / "token"
    alone.write_text("t")
    assert Settings(token_file=alone).token_of("dtn1.example:4735") == alone
    assert Settings(token_file=tmp_path).token_of("dtn1.example:4735") == (
        tmp_path / "dtn1.example_4735"
    )
    assert Settings().token_of("dtn1.example:4735") is None


def test_a_client_is_opened_once() -> None:
    hosts = Hosts(Settings())
    assert hosts.of(f"dray://dtn1.example:4735#{PIN}") is hosts.of(
        f"dray://dtn1.example:4735#{PIN}"
    )
