"""PostgreSQL and Redis as Debian ships them, on loopback, in a folder of the test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness.airflow import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READY_SECONDS = 60.0


def find_postgresql() -> Path:
    """Return the folder of the programs of the newest PostgreSQL.

    :raises FileNotFoundError: if there is no PostgreSQL.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: each.parts)
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise FileNotFoundError("no PostgreSQL; make test-celery installs it")
    return (found[-1] if found else Path(str(on_path))).parent


def await_port(port: int, is_running: Callable[[], bool]) -> bool:
    """Wait until a server listens on the loopback. Return False if it ends or takes too long."""
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if not is_running() or time.monotonic() > until:
                return False
            time.sleep(0.1)
        else:
            return True


class Service:
    """A server process, which :meth:`close` ends together with its child processes."""

    def __init__(self, words: Sequence[str | Path], port: int, log: Path) -> None:
        """Start the service and wait until it listens."""
        self.port = port
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent
            )
        if not await_port(port, lambda: self._popen.poll() is None):
            self.close()
            log_text = log.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{words[0]} does not listen:\n{log_text}")

    def close(self) -> None:
        """Kill the service, because its data is not needed any more."""
        if self._popen.poll() is None:
            # PostgreSQL shuts down immediately on SIGQUIT. Redis also ends on SIGQUIT.
            self._popen.send_signal(signal.SIGQUIT)
            try:
                self._popen.wait(10)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        self._popen.wait()


def start_redis(folder: Path) -> Service:
    """Start a Redis without persistence."""
    folder.mkdir()
    port = free_port()
    words = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    return Service([*words, "--dir", folder], port, folder / "log")


def start_postgresql(folder: Path, database: str) -> Service:
    """Start a PostgreSQL with a database in it, for the user ``postgres``, without a password."""
    programs = find_postgresql()
    folder.mkdir()
    as_user: list[str] = []
    if os.getuid() == 0:
        # PostgreSQL refuses to run as root. Debian's package has created a user for it.
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data = folder / "data"
    common: list[str | Path] = [
        *as_user,
        programs / "initdb",
        "-A",
        "trust",
        "-U",
        "postgres",
        "--no-sync",
    ]
    subprocess.run([*common, "-D", data], check=True, capture_output=True, cwd=folder)
    port = free_port()
    words: list[str | Path] = [*as_user, programs / "postgres", "-D", data, "-p", str(port), "-F"]
    words += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    service = Service(words, port, folder / "log")
    made: list[str | Path] = [programs / "createdb", "-h", "127.0.0.1", "-p", str(port)]
    made += ["-U", "postgres", database]
    until = time.monotonic() + READY_SECONDS
    while subprocess.run(made, check=False, capture_output=True).returncode != 0:
        if time.monotonic() > until:
            service.close()
            raise RuntimeError("PostgreSQL makes no database")
        time.sleep(0.2)
    return service
