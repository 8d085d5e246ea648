"""A STOMP broker for tests: RabbitMQ with its STOMP plug-in, on loopback ports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from integration.harness.airflow import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DESTINATION", "PASSWORD", "USER", "Broker", "has_broker"]

Json: TypeAlias = Any
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
USER, PASSWORD = "fts", "not-guest"
#: A queue keeps the messages while nobody reads them. A topic does not.
DESTINATION = "/queue/transfer.fts_monitoring_complete"
READY_SECONDS = 60.0
READ_SECONDS = 30.0
END_SECONDS = 10.0


def has_broker() -> bool:
    """Return true if the broker and the library of its clients are installed."""
    return PROGRAM.exists() and find_spec("stomp") is not None


def _output(words: list[str], env: Mapping[str, str]) -> bytes:
    """Run a program. Return everything that it prints."""
    out, err = subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(words, env=env, stdout=out, stderr=err, check=False).stdout


class Broker:
    """A process of RabbitMQ. Its messages survive a kill."""

    def __init__(self, folder: Path, ca: Path, pems: Mapping[str, Path]) -> None:
        """Write the configuration. :meth:`start` starts the process.

        The listener with TLS requires a client certificate and a password.

        :param ca: authority of all certificates.
        :param pems: files with certificate and key: ``server``, and the client ``alice``.
        """
        self._pems = pems
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        self.port, self.tls_port = free_port(), free_port()
        self.password = folder / "password"
        self.password.write_text(f"{PASSWORD}\n", encoding="utf-8")
        (folder / "plugins").write_text("[rabbitmq_stomp].\n", encoding="utf-8")
        settings = {
            "listeners.tcp": "none",
            "stomp.listeners.tcp.1": f"127.0.0.1:{self.port}",
            "stomp.listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": ca,
            "ssl_options.certfile": pems["server"],
            "ssl_options.keyfile": pems["server"],
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
            "default_user": USER,
            "default_pass": PASSWORD,
        }
        lines = (f"{key} = {value}\n" for key, value in settings.items())
        (folder / "rabbit.conf").write_text("".join(lines), encoding="utf-8")
        self._epmd_port = free_port()
        self._env = {
            **os.environ,
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_NODENAME": f"dray{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(folder / "state"),
            "RABBITMQ_LOG_BASE": str(folder / "state"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def face_config(self, ca: Path) -> str:
        """Return the section of a service that publishes with a certificate and a password.

        :param ca: authority that the service trusts.
        """
        return f"""\
[messages]
broker = "127.0.0.1:{self.tls_port}"
destination = "{DESTINATION}"
ca = "{ca}"
certificate = "{self._pems["alice"]}"
key = "{self._pems["alice"]}"
user = "{USER}"
password_file = "{self.password}"
virtual_host = "/"
"""

    def start(self) -> Broker:
        """Start the broker, and wait until it listens."""
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [PROGRAM],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
                start_new_session=True,
            )
        until = time.monotonic() + READY_SECONDS
        while not self._is_listening():
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            assert self._process.poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """Kill the broker, as a crash does."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The process is a script. The kernel may need some time to end the Erlang machine.
        until = time.monotonic() + READY_SECONDS
        while self._is_listening():
            assert time.monotonic() < until
            time.sleep(0.05)

    def _is_listening(self) -> bool:
        """Return true if both listeners accept connections."""
        try:
            for port in (self.port, self.tls_port):
                socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the broker, and the port mapper that it has started."""
        if self._process is not None:
            self.kill()
            words = ["epmd", "-port", str(self._epmd_port), "-kill"]
            until = time.monotonic() + END_SECONDS
            # The mapper refuses to end while the killed node is still registered. The next call
            # after its end cannot connect.
            while b"Cannot connect" not in _output(words, self._env):
                assert time.monotonic() < until, "the port mapper does not end"
                time.sleep(0.1)

    def read(
        self, count: int, seconds: float = READ_SECONDS, destination: str = DESTINATION
    ) -> list[Json]:
        """Remove messages from a queue. Return at least ``count`` of them.

        After these messages, the call waits for a second for others.
        """
        import stomp

        class Listener:
            """Collects the messages."""

            def __init__(self) -> None:
                self.found: list[tuple[Mapping[str, str], Json]] = []

            def on_message(self, frame: Any) -> None:  # noqa: ANN401 - stomp's Frame
                """Store a message."""
                self.found.append((frame.headers, json.loads(frame.body)))

        listener = Listener()
        reader = stomp.Connection12([("127.0.0.1", self.port)], vhost="/")
        reader.set_listener("test", listener)
        reader.connect(USER, PASSWORD, wait=True)
        reader.subscribe(destination, "test", ack="auto", headers={"durable": "true"})
        until = time.monotonic() + seconds
        while len(listener.found) < count:
            assert time.monotonic() < until, listener.found
            time.sleep(0.02)
        time.sleep(1)
        reader.disconnect()
        return [body for _, body in listener.found]
