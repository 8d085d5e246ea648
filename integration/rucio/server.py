"""A real Rucio for tests: REST server, daemons and an SQLite database."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx

from integration.harness.airflow import free_port
from integration.harness.program import ROOT
from integration.rucio import calls, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from integration.rucio.settings import Settings

ENVIRONMENT = ROOT / ".tools" / "rucio"
#: Folders in PYTHONPATH, in addition to the packages that are installed in ``ENVIRONMENT``.
PYTHON_PATH = (ROOT / "engine" / "python", ROOT / "plugins" / "rucio", ROOT)
READY_SECONDS = 60.0
STOP_SECONDS = 15.0
#: Time for which a process waits for another one that writes to the database.
LOCKED_SECONDS = 60


class Rucio:
    """Rucio's REST server, and a process that runs functions of ``integration.rucio.inside``."""

    def __init__(
        self,
        folder: Path,
        more: Settings,
        path: Sequence[Path] = PYTHON_PATH,
        vos: Sequence[str] = (),
        database: str | None = None,
    ) -> None:
        """Create the database, and start the two processes.

        :param more: sections for ``rucio.cfg``, which override the usual ones.
        :param path: import paths, in addition to the packages of Rucio's environment.
        :param vos: VOs in addition to the base VO, for a Rucio in multi-VO mode.
        :param database: URL of an empty database, by default that of a new SQLite file.
        """
        self.folder = folder
        self.log = folder / "log"
        self.log.mkdir(parents=True)
        self.port = free_port()
        database = database or f"sqlite:///{self._database_file}?timeout={LOCKED_SECONDS}"
        usual = settings.usual(folder, self.log, self.url, database, "secret")
        self._settings = settings.merged(usual, more)
        (site,) = ENVIRONMENT.glob("lib/python3*/site-packages/rucio")
        settings.write_alembic(folder, database, site)
        self._env = {
            **os.environ,
            "RUCIO_CONFIG": str(self._write("rucio", {})),
            "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(str(each) for each in path),
        }
        self._processes: dict[str, subprocess.Popen[str]] = {}
        python = ENVIRONMENT / "bin" / "python"
        self._inside = self._start([python, "-m", "integration.rucio.inside"], "inside")
        try:
            self.do("make_database", vos=list(vos))
            self._permit_readers()
            listen = ["-b", f"127.0.0.1:{self.port}", "-w", "1", "--threads", "4"]
            words: list[str | Path] = [python, "-m", "gunicorn", *listen]
            words.append("rucio.web.rest.main:application")
            self._await_rest(self._start(words, "rest"))
        except BaseException:
            self.close()
            raise

    def do(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function of :mod:`integration.rucio.inside` in the process that runs this module.

        :returns: the result of the function.
        :raises AssertionError: if the function fails. The error has the stack of that process.
        """
        return calls.call(self._inside, name, words, lambda: self.said("inside"))

    def user_of(self, vo: str) -> Callable[..., Any]:
        """Return :meth:`do` for a process whose client belongs to a VO."""
        return self.another(vo, vo=vo)

    def another(self, name: str, **client: str) -> Callable[..., Any]:
        """Return :meth:`do` for another process.

        :param client: settings of the client in this process.
        """
        token = {"auth_token_file_path": str(self.folder / f"token-{name}")}
        name = f"inside-{name}"
        config = self._write(name, {"client": {**client, **token}})
        words = [str(self.programs / "python"), "-m", "integration.rucio.inside"]
        process = self._start(words, name, {"RUCIO_CONFIG": str(config)})
        return lambda call, /, **words: calls.call(process, call, words, lambda: self.said(name))

    def run(
        self, *words: str, seconds: float = 120.0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of Rucio's environment until it ends.

        :param env: variables in addition to those of all processes.
        """
        return subprocess.run(
            [ENVIRONMENT / "bin" / words[0], *words[1:]],
            env={**self._env, **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def daemon(self, name: str, *words: str, more: Settings | None = None) -> None:
        """Start a daemon of Rucio, which runs until :meth:`close`.

        :param name: name of its log, and of its configuration file.
        :param words: the program, and its options.
        :param more: settings of only this daemon. They override the settings of all processes.
        """
        config = self._write(name, more or {})
        program = ENVIRONMENT / "bin" / words[0]
        self._start([program, *words[1:]], name, {"RUCIO_CONFIG": str(config)})

    def ended(self) -> list[str]:
        """Return the names of the processes that have ended by themselves."""
        return [name for name, each in self._processes.items() if each.poll() is not None]

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a program of Rucio's environment. :meth:`close` ends it.

        :param env: variables in addition to those of all processes.
        """
        name = words[-1].rpartition("/")[2].strip("-")
        return self._start([ENVIRONMENT / "bin" / words[0], *words[1:]], name, env)

    def said(self, name: str) -> str:
        """Return the end of a process's log."""
        text = (self.log / name).read_text(encoding="utf-8", errors="replace")
        return text[-20_000:]

    def close(self) -> None:
        """Stop the processes."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(
        self, words: Sequence[str | Path], name: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        with (self.log / name).open("wb") as out:
            process = subprocess.Popen(
                words,
                env={**self._env, **(env or {})},
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name.startswith("inside") else out,
                stderr=out,
                text=True,
            )
        self._processes[name] = process
        return process

    def _await_rest(self, process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/ping", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                assert process.poll() is None, self.said("rest")
            assert time.monotonic() < until, self.said("rest")
            time.sleep(0.1)

    @property
    def programs(self) -> Path:
        """Folder of Rucio's programs."""
        return ENVIRONMENT / "bin"

    @property
    def url(self) -> str:
        """URL of the REST server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def _database_file(self) -> Path:
        return self.folder / "rucio.db"

    def _permit_readers(self) -> None:
        """Let processes read the SQLite file while another process writes to it."""
        if not self._database_file.exists():
            return
        with contextlib.closing(sqlite3.connect(self._database_file)) as database:
            database.execute("PRAGMA journal_mode=WAL")

    def _write(self, name: str, more: Settings) -> Path:
        """Write a configuration file with the settings of all processes and ``more``."""
        path = self.folder / f"{name}.cfg"
        settings.write(path, settings.merged(self._settings, more))
        return path
