"""Copies of one file between this host and an endpoint, by the program ``dray``."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Copied", "CopyError", "Credentials", "copy"]

STOP_SECONDS = 30.0
"""Time in which ``dray`` makes written data durable and ends, after a timeout."""
LEASE_SECONDS = 60.0
"""Time for which a copy waits for the end of an earlier copy of the same file.

If a client is killed, its copy ends a few seconds later.
"""
LEASE_PAUSE = 1.0
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Credentials:
    """Options with which ``dray`` connects. Without an option, ``dray`` uses its own default.

    :param pin: fingerprint of the endpoint's key.
    :param token: a token. It is passed in the environment, because all users can read arguments.
    """

    pin: str | None = None
    token: str | None = None
    token_file: os.PathLike[str] | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def words(self) -> list[str]:
        """Return the options of ``dray cp``."""
        if self.certificate is not None and self.key not in (None, self.certificate):
            raise CopyError(
                "invalid_request",
                f"cannot copy with the certificate {self.certificate}: [dray] key of rucio.cfg "
                "names another file; write the certificate and its key in one file, and remove "
                "key",
            )
        named = {
            "--peer-key": self.pin,
            "--token-file": self.token_file,
            "--ca": None if self.pin else self.ca,
            "--cert": self.certificate,
        }
        return [
            word
            for name, value in named.items()
            if value is not None
            for word in (name, str(value))
        ]


@dataclass(frozen=True, slots=True)
class Copied:
    """The counts of a finished copy."""

    transfer_id: str
    bytes_sent: int
    bytes_resumed: int


class CopyError(Exception):
    """A copy has failed. The next copy with the same source and target resumes it.

    :ivar kind: kind of dray's error.
    :ivar end: place of the error: ``source``, ``sink``, ``network`` or ``here``.
    """

    def __init__(self, kind: str, text: str, end: str = "here") -> None:
        """Store the kind, the message and the place."""
        super().__init__(text)
        self.kind = kind
        self.end = end


def copy(
    source: str, target: str, using: Credentials, *, timeout_seconds: float | None = None
) -> Copied:
    """Copy a file from a local path to a URL, or from a URL to a local path.

    An existing file at the target is replaced if it differs from the source. The target's storage
    keeps the checksum with the file.

    :raises CopyError: if the copy fails, or takes longer than ``timeout_seconds``.
    """
    began = time.monotonic()
    words = [_program(), "cp", "--quiet", "--json", "--links", "follow", "--checksum-attributes"]
    words += [*using.words(), source, target]
    env = dict(os.environ) if using.token is None else {**os.environ, "DRAY_TOKEN": using.token}
    while True:
        left = None if timeout_seconds is None else timeout_seconds - (time.monotonic() - began)
        try:
            return _once(words, env, left)
        except subprocess.TimeoutExpired:
            raise CopyError(
                "timed_out",
                f"cannot copy {source} to {target} within {timeout_seconds:.0f} s; the next try "
                "resumes (raise --transfer-timeout)",
            ) from None
        except CopyError as error:
            if error.kind != "lease_held" or time.monotonic() - began > LEASE_SECONDS:
                raise
            time.sleep(LEASE_PAUSE)


def _once(words: list[str], env: dict[str, str], seconds: float | None) -> Copied:
    running = subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_end_with_parent(),
    )
    try:
        out, said = running.communicate(timeout=None if seconds is None else max(seconds, 0.1))
    except BaseException:
        _stop(running)
        raise
    try:
        report = json.loads(out)
    except ValueError:
        report = {}
    if running.returncode == 0:
        return Copied(report["transfer_id"], report["bytes_sent"], report["bytes_resumed"])
    raise _error_of(report, said.decode(errors="replace").strip(), running.returncode)


def _error_of(report: dict[str, Any], said: str, code: int) -> CopyError:
    """Return the error of the file, or of the whole copy."""
    error = report.get("error") or next(iter(report.get("files_failed", ())), None)
    if error is None:
        return CopyError("other", said or f"dray cp ended with exit code {code}")
    return CopyError(error["kind"], error["message"], error["end"])


def _stop(running: subprocess.Popen[bytes]) -> None:
    """End a copy. After SIGINT, ``dray`` keeps durable data."""
    running.send_signal(signal.SIGINT)
    try:
        running.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()


def _end_with_parent() -> Callable[[], object] | None:
    """Return a function after which the kernel ends this process if its parent is killed.

    The copy would otherwise continue, and its lease would block the next try.
    """
    if sys.platform != "linux":
        return None
    # Loaded here, because the function runs after a fork, where no lock may be taken.
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def _program() -> str:
    """Return the program ``dray``: that of this Python's environment, or that on the PATH."""
    beside = Path(sys.executable).parent / "dray"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("dray")
    if found is None:
        raise CopyError(
            "unsupported",
            f"cannot find the program dray in {beside.parent} or on the PATH; install dray's wheel",
        )
    return found
