"""Web servers on the loopback: XRootD's own HTTP, and nginx."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness.airflow import free_port
from integration.xrootd.servers import HERE, POLL_SECONDS, READY_SECONDS, give

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.harness.program import Process
    from integration.xrootd.servers import Scene, Xrootd


def http_lines(port: int) -> list[str]:
    """Give the lines of a server's configuration that let it speak HTTP."""
    return [
        f"xrd.protocol XrdHttp:{port} libXrdHttp.so",
        "http.listingdeny no",
        "http.desthttps no",
        "http.selfhttps2http no",
    ]


def await_port(port: int, process: Process) -> None:
    """Wait until a process listens."""
    until = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HERE, port)) == 0:
                return
        assert process.is_running(), "the server ended"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(POLL_SECONDS)


@dataclass
class Web:
    """A server and where its files lie."""

    url: str
    data: Path
    #: what nginx was asked, a request a line
    asked: Path | None = None

    def requests(self) -> list[str]:
        """Give what it was asked so far."""
        return self.asked.read_text(encoding="utf-8").splitlines() if self.asked else []


def xrootd(scene: Scene, name: str = "web") -> tuple[Web, Xrootd]:
    """Start an XRootD server that speaks HTTP."""
    port = free_port()
    server = scene.server(name, tpc=None, lines=http_lines(port))
    return Web(f"http://{HERE}:{port}", server.data), server


def nginx(scene: Scene, name: str = "nginx", places: Sequence[str] = ()) -> Web:
    """Start nginx with a folder of its own.

    :param places: ``location`` blocks of its configuration.
    """
    port = free_port()
    state = scene.folder / name
    data = state / "data"
    for folder in (state, data):
        folder.mkdir()
        give(folder)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        "daemon off; worker_processes 1;",
        f"pid {state}/pid;",
        "events { worker_connections 128; }",
        "http {",
        'log_format asked \'$request_method $uri "$http_range" "$http_authorization" $status\';',
        f"access_log {state}/asked asked;",
        *(f"{kind}_temp_path {state}/{kind};" for kind in kinds),
        f"server {{ listen {HERE}:{port}; root {data};",
        *places,
        "} }",
    ]
    config = state / "nginx.conf"
    config.write_text("\n".join(lines), encoding="utf-8")
    process = scene.begin("nginx", "-e", state / "errors.log", "-c", config)
    await_port(port, process)
    return Web(f"http://{HERE}:{port}", data, state / "asked")
