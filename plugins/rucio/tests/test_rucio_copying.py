"""Options and errors of copies by the program ``dray``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dray_rucio import copying
from dray_rucio.copying import CopyError, Credentials, copy


def put_program(folder: Path, script: str, patch: pytest.MonkeyPatch) -> None:
    """Put a script in the place of ``dray``, as the only one on the PATH."""
    program = folder / "dray"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patch.setattr("sys.executable", str(folder / "python"))


def test_a_pin_replaces_the_authorities() -> None:
    using = Credentials(pin="sha256:00", ca=Path("/ca"), token_file=Path("/t"))
    assert using.words() == ["--peer-key", "sha256:00", "--token-file", "/t"]


def test_a_separate_key_is_refused() -> None:
    with pytest.raises(CopyError, match="write the certificate and its key in one file"):
        Credentials(certificate=Path("/c"), key=Path("/k")).words()


def test_a_token_is_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = '{"transfer_id": "\'$DRAY_TOKEN\'", "bytes_sent": 2, "bytes_resumed": 1}'
    put_program(tmp_path, f"echo \"$@\" > {tmp_path}/words\necho '{report}'", monkeypatch)
    done = copy("/a", "dray://h:1/b", Credentials(token="secret"))  # noqa: S106
    assert (done.transfer_id, done.bytes_sent, done.bytes_resumed) == ("secret", 2, 1)
    assert "secret" not in (tmp_path / "words").read_text(encoding="utf-8")


def test_the_error_of_the_file_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = '{"kind": "no_space", "message": "full", "end": "sink"}'
    report = f'{{"error": null, "files_failed": [{error}]}}'
    put_program(tmp_path, f"echo '{report}'; exit 1", monkeypatch)
    with pytest.raises(CopyError, match="full") as found:
        copy("/a", "dray://h:1/b", Credentials())
    assert (found.value.kind, found.value.end) == ("no_space", "sink")


def test_a_usage_error_has_the_text_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(tmp_path, "echo 'dray: no such option' >&2; exit 2", monkeypatch)
    with pytest.raises(CopyError, match="dray: no such option"):
        copy("/a", "dray://h:1/b", Credentials())


def test_a_copy_stops_at_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60", monkeypatch)
    with pytest.raises(CopyError, match=r"within 1 s.*--transfer-timeout") as found:
        copy("/a", "dray://h:1/b", Credentials(), timeout_seconds=1.0)
    assert found.value.kind == "timed_out"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def test_a_copy_waits_for_the_end_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = '{"error": {"kind": "lease_held", "message": "held", "end": "sink"}}'
    report = '{"transfer_id": "x", "bytes_sent": 0, "bytes_resumed": 5}'
    script = (
        f"if [ -e {tmp_path}/twice ]; then echo '{report}'; exit 0; fi\n"
        f"touch {tmp_path}/twice; echo '{held}'; exit 3"
    )
    put_program(tmp_path, script, monkeypatch)
    monkeypatch.setattr(copying, "LEASE_PAUSE", 0.0)
    assert copy("/a", "dray://h:1/b", Credentials()).bytes_resumed == 5


def test_the_timeout_includes_the_wait_for_an_earlier_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = '{"error": {"kind": "lease_held", "message": "held", "end": "sink"}}'
    script = (
        f"if [ -e {tmp_path}/twice ]; then exec sleep 60; fi\n"
        f"touch {tmp_path}/twice; echo '{held}'; exit 3"
    )
    put_program(tmp_path, script, monkeypatch)
    with pytest.raises(CopyError, match="cannot copy /a to dray://h:1/b within 2 s"):
        copy("/a", "dray://h:1/b", Credentials(), timeout_seconds=2.0)


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CopyError, match="cannot find the program dray"):
        copy("/a", "dray://h:1/b", Credentials())
