"""Tests of the sources of tokens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import dray
from dray.client import DISCOVER
from dray.client._tokens import TOKEN_BYTES_MAX, Tokens

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    # Use a user number that does not exist, so that no real file in /tmp is read.
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_017)


def test_a_token_comes_from_a_text_a_function_or_nothing() -> None:
    given = iter(["one", "two"])
    tokens = Tokens(lambda: next(given))
    assert (tokens.current(), tokens.current()) == ("one", "two")
    assert Tokens(" text\n").current() == "text"
    assert Tokens(None).current() is None


def test_a_file_is_read_again_when_it_changes_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    tokens = Tokens(path)
    assert tokens.current() == "one"
    state = path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert tokens.current() == "one"
    # Jobs that renew a token write a new file, and rename it to the name of the token file.
    (tmp_path / "new").write_text("three")
    (tmp_path / "new").replace(path)
    assert tokens.current() == "three"
    path.unlink()
    with pytest.raises(dray.DrayPermanentError) as caught:
        tokens.current()
    assert str(path) in str(caught.value)


def test_discovery_looks_in_the_order_of_wlcg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid())
    name = f"bt_u{os.getuid()}"
    (tmp_path / name).write_text("runtime")
    (tmp_path / "named").write_text("named")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert Tokens(DISCOVER).current() == "runtime"
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "named"))
    assert Tokens(DISCOVER).current() == "named"
    monkeypatch.setenv("BEARER_TOKEN", "direct")
    assert Tokens(DISCOVER).current() == "direct"


def test_discovery_without_a_result_sends_no_token() -> None:
    assert Tokens(DISCOVER).current() is None


def test_a_file_that_was_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARER_TOKEN_FILE", "/nothing/here")
    with pytest.raises(dray.DrayPermanentError):
        Tokens(DISCOVER).current()


def test_another_users_file_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bt_u4000000017").write_text("planted")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert Tokens(DISCOVER).current() is None


def test_a_link_is_not_followed_by_discovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid())
    (tmp_path / "there").write_text("linked")
    (tmp_path / f"bt_u{os.getuid()}").symlink_to(tmp_path / "there")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert Tokens(DISCOVER).current() != "linked"


@pytest.mark.parametrize(
    "wrong", ["", " ", "two words", "line\r\nHost: x", "ü", "x" * (TOKEN_BYTES_MAX + 1)]
)
def test_an_invalid_token_is_refused_without_being_shown(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "token").write_text(wrong)
    for source in (wrong, lambda: wrong, tmp_path / "token"):
        with pytest.raises(dray.DrayUsageError) as caught:
            Tokens(source).current()
        assert not wrong.strip() or wrong.strip() not in str(caught.value)
        assert "two words" not in repr(Tokens(source))
