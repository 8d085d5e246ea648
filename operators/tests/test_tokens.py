"""Tests of tokens that expire during their use, and of late renewals. Pure."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING

import pytest

from dray_airflow import tokens
from dray_airflow.tokens import FileToken, RenewedToken, expires_at, is_expired

if TYPE_CHECKING:
    from pathlib import Path


def jwt(seconds: float) -> str:
    """Return a text in the form of a token that expires after this time."""
    claims = json.dumps({"exp": int(time.time() + seconds), "sub": "alice"}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


def test_the_expiry_of_a_token_is_read() -> None:
    assert is_expired(jwt(-1))
    assert not is_expired(jwt(60))
    found = expires_at(jwt(3600))
    assert found is not None
    assert found.tzinfo is not None
    for opaque in ("", "opaque", "a.b", "a.b.c", "e30.e30.x", "e30.bnVsbA.x"):
        assert expires_at(opaque) is None
        assert not is_expired(opaque)


def test_an_old_token_is_read_again_and_kept_if_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[str | Exception | None] = [RuntimeError("no API"), None, "new"]

    def read() -> str | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    token = RenewedToken("old", read)
    assert token() == "old"
    assert len(answers) == 3
    monkeypatch.setattr(tokens, "READ_AGAIN_SECONDS", 0.0)
    assert [token(), token(), token()] == ["old", "old", "new"]


def test_an_expired_token_is_read_again_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "READ_EXPIRED_SECONDS", 0.0)
    token = RenewedToken(jwt(-1), lambda: "new")
    assert token() == "new"
    live = jwt(60)
    assert RenewedToken(live, lambda: "new")() == live


def test_a_file_that_is_being_replaced_gives_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(OSError, match="No such file"):
        FileToken(path)
    path.write_text("one\n", encoding="ascii")
    token = FileToken(path)
    path.write_text("", encoding="ascii")
    assert token() == "one"
    path.unlink()
    assert token() == "one"
    path.write_text("two", encoding="ascii")
    assert token() == "two"
