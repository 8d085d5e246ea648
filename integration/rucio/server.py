"""A real Rucio for tests: REST server, daemons and an SQLite database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from configparser import ConfigParser
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx

from integration.harness.airflow import free_port
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Settings: TypeAlias = Mapping[str, Mapping[str, str]]
ENVIRONMENT = ROOT / ".tools" / "rucio"
#: Folders in PYTHONPATH, in addition to the packages that are installed in ``ENVIRONMENT``.
PYTHON_PATH = (ROOT / "engine" / "python", ROOT / "plugins" / "rucio", ROOT)
READY_SECONDS = 60.0


class Rucio:
    """Rucio's REST server, and a process that runs functions of ``integration.rucio.inside``."""

    def __init__(
        self, folder: Path, settings: Settings, path: Sequence[Path] = PYTHON_PATH
    ) -> None:
        """Create the database, and start the two processes.

        :param settings: sections for ``rucio.cfg``, which override those of :meth:`_write`.
        :param path: import paths, in addition to the packages of Rucio's environment.
        """
        self.folder = folder
        self.log = folder / "log"
        self.log.mkdir(parents=True)
        self.port = free_port()
        self._write(settings)
        self._env = {
            **os.environ,
            "RUCIO_CONFIG": str(folder / "rucio.cfg"),
            "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(str(each) for each in path),
        }
        self._processes: list[subprocess.Popen[str]] = []
        python = ENVIRONMENT / "bin" / "python"
        self._inside = self._start([python, "-m", "integration.rucio.inside"], "inside")
        try:
            self.do("make_database")
            listen = ["-b", f"127.0.0.1:{self.port}", "-w", "1", "--threads", "4"]
            words: list[str | Path] = [python, "-m", "gunicorn", *listen]
            words.append("rucio.web.rest.main:application")
            self._await_rest(self._start(words, "rest"))
        except BaseException:
            self.close()
            raise

    def do(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function of :mod:`integration.rucio.inside`, and return its result.

        :raises AssertionError: with the stack of the other process, if the function fails.
        """
        assert self._inside.stdin is not None
        assert self._inside.stdout is not None
        self._inside.stdin.write(json.dumps([name, words]) + "\n")
        self._inside.stdin.flush()
        line = self._inside.stdout.readline()
        assert line, f"it ended in {name}\n{self.said('inside')}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["ok"]

    def run(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a program of Rucio's environment until it ends."""
        return subprocess.run(
            [ENVIRONMENT / "bin" / words[0], *words[1:]],
            env=self._env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def said(self, name: str) -> str:
        """Return the end of a process's log."""
        text = (self.log / name).read_text(encoding="utf-8", errors="replace")
        return text[-20_000:]

    def close(self) -> None:
        """Stop the processes."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, words: Sequence[str | Path], name: str) -> subprocess.Popen[str]:
        with (self.log / name).open("wb") as out:
            process = subprocess.Popen(
                words,
                env=self._env,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name == "inside" else out,
                stderr=out,
                text=True,
            )
        self._processes.append(process)
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

    def _write(self, settings: Settings) -> None:
        url = f"http://127.0.0.1:{self.port}"
        database = f"sqlite:///{self.folder}/rucio.db"
        own: dict[str, dict[str, str]] = {
            "common": {"logdir": str(self.log), "loglevel": "INFO"},
            "client": {
                "rucio_host": url,
                "auth_host": url,
                "auth_type": "userpass",
                "username": "ddmlab",
                "password": "secret",
                "account": "root",
                "request_retries": "3",
                # By default, all processes of a user share one token file. Concurrent tests would
                # overwrite it.
                "auth_token_file_path": str(self.folder / "token"),
            },
            "database": {"default": database, "pool_reset_on_return": "rollback", "echo": "0"},
            "bootstrap": {
                "userpass_identity": "ddmlab",
                "userpass_pwd": "secret",
                "userpass_email": "root@example.org",
            },
            "monitor": {"enable_metrics": "False"},
            "core": {"default_mail_from": "root@example.org"},
            "conveyor": {"scheme": "file"},
            "policy": {
                "permission": "generic",
                "schema": "generic",
                "lfn2pfn_algorithm_default": "hash",
            },
            "alembic": {"cfg": str(self.folder / "alembic.ini")},
        }
        for section, words in settings.items():
            own.setdefault(section, {}).update(words)
        _write_ini(self.folder / "rucio.cfg", own)
        (site,) = ENVIRONMENT.glob("lib/python3*/site-packages/rucio")
        migrations = {"script_location": str(site / "db/sqla/migrate_repo")}
        # The database migration of Rucio requires the sections about logging.
        handler = {"class": "StreamHandler", "args": "(sys.stderr,)", "formatter": "plain"}
        alembic = {
            "alembic": {**migrations, "sqlalchemy.url": database},
            "loggers": {"keys": "root"},
            "handlers": {"keys": "console"},
            "formatters": {"keys": "plain"},
            "logger_root": {"level": "WARN", "handlers": "console", "qualname": ""},
            "handler_console": handler,
            "formatter_plain": {"format": "%(message)s"},
        }
        _write_ini(self.folder / "alembic.ini", alembic)


def _write_ini(path: Path, sections: Settings) -> None:
    parser = ConfigParser(interpolation=None)
    parser.read_dict(sections)
    with path.open("w", encoding="utf-8") as out:
        parser.write(out)
