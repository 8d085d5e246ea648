"""Endpoints as separate processes: created in a folder, started, stopped, restarted.

This module sends signals only to processes that it has started. It addresses them by process id.
When an endpoint is closed, the folder of the endpoint is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dray.client import AsyncClient, Client

__all__ = ["ALL_SCOPES", "Endpoint", "Root", "find_program"]

READY_SECONDS = 20.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.005
COMMAND_SECONDS = 60.0
Loose: TypeAlias = Any
ALL_SCOPES = ("storage.read:/", "storage.create:/", "storage.modify:/", "storage.stage:/")
"""Default scopes of tokens in tests."""


def find_program() -> Path:
    """Find ``dray``: ``DRAY_PROGRAM``, ``PATH``, then the folder of this environment's scripts.

    :raises FileNotFoundError: if the program does not exist.
    """
    named = os.environ.get("DRAY_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"DRAY_PROGRAM names {named}, which cannot be run")
        return Path(named)
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("dray") or shutil.which("dray", path=scripts)
    if found is None:
        raise FileNotFoundError(
            "the program dray was not found; install the wheel, or set DRAY_PROGRAM to the "
            "path of the program"
        )
    return Path(found)


@dataclass(frozen=True)
class Root:
    """An exported root.

    :param name: name of the root, and the first part of its API paths.
    :param options: further keys of its ``[[root]]`` table. The text ``{path}`` in a value is
        replaced by the root's folder. With ``store`` or ``dirs``, the root has no folder of its
        own.
    """

    name: str = "data"
    options: Mapping[str, Any] = field(default_factory=dict)


class Endpoint:
    """An endpoint on the loopback interface, with its own state, key, roots and token issuer.

    :param folder: folder for all files of the endpoint. It is created here, and removed by
        :meth:`close`.
    :param config: further keys of the configuration file.
    :param listen: address and port. Port 0 selects a free port.
    :param wrap: words before the program's name in the command, for example for a debugger.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "a",
        *,
        roots: Sequence[Root] = (Root(),),
        config: Mapping[str, Any] | None = None,
        program: Path | None = None,
        listen: str = "127.0.0.1:0",
        wrap: Sequence[str] = (),
    ) -> None:
        """Create the endpoint. :meth:`start` starts it."""
        self.folder = folder
        self.name = name
        self.program = program or find_program()
        self._roots = {root.name: root for root in roots}
        self._popen: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._listen = listen
        self._wrap = tuple(wrap)
        self._extra = dict(config or {})
        #: Fingerprint of the endpoint's key, ``sha256:...``.
        self.key = ""
        #: Host and port, which stay the same after a restart.
        self.address = ""
        folder.mkdir(parents=True)
        self._home = folder / "endpoint"
        for root in roots:
            self.root(root=root.name).mkdir(parents=True)
        words = [f"--root={root.name}={self.root(root=root.name)}" for root in roots]
        self._run("endpoint", "init", self._home, "--name", name, *words)
        self._made = _read_config(self._home / "drayd.toml")

    # --- addresses, tokens and clients ------------------------------------------------------------

    @property
    def url(self) -> str:
        """URL of the endpoint."""
        return f"dray://{self.address}"

    def place(self, path: str, *, root: str = "data") -> str:
        """Return the URL of a path below a root, for another endpoint."""
        return f"{self.url}/{root}/{path}"

    def root(self, path: str = "", *, root: str = "data") -> Path:
        """Return the path of a root's folder, or of ``path`` below it."""
        return self.folder / "roots" / root / path

    def token(
        self,
        *scopes: str,
        subject: str = "alice",
        lifetime: str = "1h",
        audience: str | None = None,
    ) -> str:
        """Mint a token that this endpoint accepts.

        :param scopes: by default :data:`ALL_SCOPES`.
        :param subject: subject of the token, which becomes the owner.
        :param lifetime: lifetime in the form of the option ``--lifetime``, such as ``12h``.
        :param audience: audience of the token, by default this endpoint.
        """
        words = ["--sub", subject, "--scope", " ".join(scopes or ALL_SCOPES)]
        words += ["--lifetime", lifetime, *(("--aud", audience) if audience else ())]
        return self._run("token", "mint", "--dir", self._home, *words).strip()

    def client(
        self, *, scopes: Sequence[str] = (), subject: str = "alice", **options: Loose
    ) -> Client:
        """Return a client with a new token and this endpoint's key. The caller must close it.

        :param scopes: by default :data:`ALL_SCOPES`.
        :param options: further arguments of :class:`dray.Client`.
        """
        from dray.client import Client

        return Client(self.url, **self._credentials(scopes, subject, options))

    def async_client(
        self, *, scopes: Sequence[str] = (), subject: str = "alice", **options: Loose
    ) -> AsyncClient:
        """Return an awaiting client. Otherwise as :meth:`client`."""
        from dray.client import AsyncClient

        return AsyncClient(self.url, **self._credentials(scopes, subject, options))

    def _credentials(
        self, scopes: Sequence[str], subject: str, options: dict[str, Loose]
    ) -> dict[str, Loose]:
        given = {"pin": self.key, **options}
        if "token" not in given:
            given["token"] = self.token(*scopes, subject=subject)
        return given

    # --- its process ------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id of the endpoint. 0 if it does not run."""
        return self._popen.pid if self.is_running and self._popen is not None else 0

    @property
    def is_running(self) -> bool:
        """True if the process exists, suspended or not."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last process. Negative for a signal, ``None`` while the process runs."""
        return None if self._popen is None else self._popen.poll()

    def start(self) -> Endpoint:
        """Start the endpoint and wait until it listens. A restart uses the same address.

        :raises RuntimeError: if the endpoint runs already, exits immediately, or does not listen in
            time.
        """
        if self.is_running:
            raise RuntimeError(f"endpoint {self.name} is already running")
        self._starts += 1
        self._write_config()
        config = self._home / "drayd.toml"
        words: list[str | Path] = [*self._wrap, self.program, "endpoint", "run"]
        words += ["--config", config, "--json"]
        with self._out().open("wb") as out, self._log().open("wb") as log:
            self._popen = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        try:
            said = self._await_listening(time.monotonic() + READY_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.key = said["fingerprint"]
        self.address = said["addresses"][0]
        # The next start uses the same port, so that waiting clients can connect again.
        self._listen = self.address
        return self

    def stop(self) -> None:
        """Ask the endpoint to end, as a service manager does, and wait for its end.

        :raises RuntimeError: if the endpoint does not end in time. It is then killed.
        """
        self._signal(signal.SIGTERM)
        if self._popen is None:
            return
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(
                f"endpoint {self.name} did not end within {STOP_SECONDS:g} s"
            ) from None

    def kill(self) -> None:
        """Kill the process, which has the effect of a crash."""
        self._signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()

    def restart(self) -> Endpoint:
        """Stop the endpoint and start it again."""
        self.stop()
        return self.start()

    def suspend(self) -> None:
        """Suspend the process. Its connections stay open."""
        self._signal(signal.SIGSTOP)
        # Wait until the signal is delivered, because threads may still answer before that.
        while self.is_running and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is None:
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        """Continue the suspended process."""
        self._signal(signal.SIGCONT)

    def log_text(self) -> str:
        """Return the standard error of the processes of all starts."""
        paths = sorted(self.folder.glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)

    def events_said(self) -> list[dict[str, Any]]:
        """Return the JSON lines on the standard output of the processes of all starts."""
        lines = (
            line
            for path in sorted(self.folder.glob("*.out"))
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        )
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def close(self) -> None:
        """Kill the process if it runs, and remove the folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- internals --------------------------------------------------------------------------------

    def _signal(self, number: signal.Signals) -> None:
        # If Popen has already collected the exit status, it sends no signal. So the signal cannot
        # reach another process that has got the same process id.
        if self._popen is not None:
            self._popen.send_signal(number)

    def _out(self) -> Path:
        return self.folder / f"{self._starts:03}.out"

    def _log(self) -> Path:
        return self.folder / f"{self._starts:03}.log"

    def _await_listening(self, until: float) -> dict[str, Any]:
        while True:
            for line in self._out().read_text(encoding="utf-8", errors="replace").splitlines(True):
                if line.endswith("\n") and '"listening"' in line:
                    said: dict[str, Any] = json.loads(line)
                    return said
            if not self.is_running:
                raise RuntimeError(
                    f"endpoint {self.name} ended during its start:\n{self.log_text()}"
                )
            if time.monotonic() > until:
                raise RuntimeError(f"endpoint {self.name} does not listen:\n{self.log_text()}")
            time.sleep(POLL_SECONDS)

    def _run(self, *words: str | Path) -> str:
        done = subprocess.run(
            [self.program, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            # The output is not shown, because it may be a token.
            said = " ".join(str(word) for word in words[:2])
            raise RuntimeError(f"dray {said} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def _write_config(self) -> None:
        # The file that `dray endpoint init` wrote has state, key and issuer. Names, roots and rules
        # are set here.
        config = {
            **self._made,
            "name": self.name,
            "listen": [self._listen],
            "root": [self._root_table(root) for root in self._roots.values()],
            "map": {"rules": [self._rule(subject) for subject in ("alice", "bob", "root")]},
            "administrators": ["root"],
            **self._extra,
        }
        text = "\n".join(_write_table(config)) + "\n"
        (self._home / "drayd.toml").write_text(text, encoding="utf-8")

    def _rule(self, subject: str) -> dict[str, Any]:
        return {"issuer": f"https://{self.name}", "subject": subject, "owner": subject}

    def _root_table(self, root: Root) -> dict[str, Any]:
        path = str(self.root(root=root.name).resolve())
        table = {"name": root.name, "path": path, "read": "*", "write": "*", "stage": "*"}
        if {"store", "dirs"} & root.options.keys():
            del table["path"]
        return {**table, **_filled(dict(root.options), path)}


def _filled(value: Loose, path: str) -> Loose:
    if isinstance(value, str):
        return value.replace("{path}", path)
    if isinstance(value, list):
        return [_filled(each, path) for each in value]
    if isinstance(value, dict):
        return {key: _filled(each, path) for key, each in value.items()}
    return value


def _read_config(path: Path) -> dict[str, Any]:
    # Python 3.10 has no tomllib. pytest installs tomli there.
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
    return found


def _write_table(table: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Write a table as TOML: plain keys first, then tables and lists of tables."""
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    for key, value in plain.items():
        yield f"{key} = {_write_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield f"[{place}{key}]"
            yield from _write_table(value, f"{place}{key}.")
        elif _is_table(value):
            for each in value:
                yield f"[[{place}{key}]]"
                yield from _write_table(each, f"{place}{key}.")


def _is_table(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, dict) for each in value)
    return isinstance(value, dict)


def _write_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_write_value(each) for each in value)}]"
    # The JSON form of text, numbers and booleans is valid TOML, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
