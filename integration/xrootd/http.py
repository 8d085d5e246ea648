"""Web servers on the loopback: XRootD with HTTP, and nginx."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness.airflow import free_port
from integration.xrootd.servers import HERE, POLL_SECONDS, PROGRAM, READY_SECONDS, give

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from integration.harness.program import Process, Word
    from integration.xrootd.servers import Scene, Xrootd


#: Setting of dray's program without which it refuses the loopback addresses of these servers.
ALL_ADDRESSES = "deny_addresses = []\n"


def http_lines(port: int) -> list[str]:
    """Return the configuration lines that enable HTTP on an XRootD server.

    :param port: port for HTTP. 0: the port of the server itself.
    """
    return [
        f"xrd.protocol http{f':{port}' if port else ''} libXrdHttp.so",
        "http.listingdeny no",
        "http.desthttps no",
        "http.selfhttps2http no",
    ]


def make_certificates(folder: Path) -> None:
    """Make an authority in ``authorities``, and a certificate for a server on the loopback."""
    authorities = folder / "authorities"
    authorities.mkdir()
    authority, key = folder / "ca.pem", folder / "ca.key"
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", key, "-out", authority, "-days", "2", "-subj", "/O=dray/CN=authority",
    )  # fmt: skip
    host, request = folder / "host.pem", folder / "host.csr"
    _openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", folder / "host.key", "-out", request, "-subj", "/O=dray/CN=localhost",
    )  # fmt: skip
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="ascii")
    _openssl(
        "x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial",
        "-days", "2", "-out", host, "-extfile", names,
    )  # fmt: skip
    name = _openssl("x509", "-in", authority, "-noout", "-hash").strip()
    shutil.copy(authority, authorities / f"{name}.0")
    for path in [folder, authorities, *folder.iterdir(), *authorities.iterdir()]:
        give(path)


def _openssl(*words: Word) -> str:
    ended = subprocess.run(
        ["openssl", *words], check=True, capture_output=True, timeout=60, text=True
    )
    return ended.stdout


@dataclass
class Copying:
    """An XRootD server whose HTTP third-party copies dray makes. ``port`` is that of HTTP."""

    server: Xrootd
    port: int
    settings: Path

    @property
    def url(self) -> str:
        """The HTTP URL of the server."""
        return f"http://{HERE}:{self.port}"

    @property
    def secure_url(self) -> str:
        """The HTTPS URL of the server."""
        return f"https://localhost:{self.port}"

    @property
    def data(self) -> Path:
        """The folder that the server exports."""
        return self.server.data


def copying(
    scene: Scene,
    plugins: Path,
    certificates: Path,
    *,
    name: str = "sink",
    lines: Sequence[str] = (),
    settings: Sequence[str] = (),
    env: dict[str, str] | None = None,
    own_port: bool = True,
    tpc: str | None = None,
) -> Copying:
    """Start an XRootD server with dray's HTTP plug-in.

    :param lines: additional lines of the server's configuration.
    :param settings: additional lines of the plug-in's configuration. Without a line ``config``,
        the program copies from and to all addresses.
    :param own_port: whether HTTP has a separate port.
    :param tpc: arguments of ``ofs.tpc`` for copies between ``root://`` URLs. None disables them.
    """
    port = free_port() if own_port else 0
    own = scene.folder / f"{name}.cf"
    own_lines = [f"program {plugins / PROGRAM}", *settings]
    if not any(line.startswith("config ") for line in settings):
        config = scene.folder / f"{name}-tpc.toml"
        config.write_text(ALL_ADDRESSES, encoding="ascii")
        config.chmod(0o644)
        own_lines.append(f"config {config}")
    own.write_text("\n".join([*own_lines, ""]), encoding="utf-8")
    server = scene.server(
        name,
        tpc=tpc,
        lines=[
            # A cmsd reads the same configuration, and must ignore the lines up to `fi`.
            "if exec xrootd",
            *http_lines(port),
            f"xrd.tls {certificates}/host.pem {certificates}/host.key",
            f"xrd.tlsca certdir {certificates}/authorities",
            f"http.exthandler dray {plugins}/libDrayXrdHttpTPC.so {own}",
            "http.header2cgi Authorization authz",
            "fi",
            *lines,
        ],
        env={"X509_CERT_DIR": str(certificates / "authorities"), **(env or {})},
    )
    return Copying(server, port or server.port, own)


def await_port(port: int, process: Process) -> None:
    """Wait until a process listens on the port."""
    until = time.monotonic() + READY_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HERE, port)) == 0:
                return
        assert process.is_running(), "the server ended"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(POLL_SECONDS)


#: File name of dray's HTTP plug-in. A server's configuration names it without the number.
PLUGIN = "libDrayXrdHttpTPC-5.so"


@dataclass
class Web:
    """A web server, and the folder with its files."""

    url: str
    data: Path
    #: Log of nginx, with one line for each request. None: the server has no such log.
    asked: Path | None = None

    def requests(self) -> list[str]:
        """Return the logged requests."""
        return self.asked.read_text(encoding="utf-8").splitlines() if self.asked else []


def xrootd(scene: Scene, name: str = "web") -> tuple[Web, Xrootd]:
    """Start an XRootD server that speaks HTTP."""
    port = free_port()
    server = scene.server(name, tpc=None, lines=http_lines(port))
    return Web(f"http://{HERE}:{port}", server.data), server


def nginx(scene: Scene, name: str = "nginx", places: Sequence[str] = ()) -> Web:
    """Start nginx with a new folder.

    :param places: additional ``location`` blocks of the configuration.
    """
    port = free_port()
    state = scene.folder / name
    data = state / "data"
    for folder in (state, data):
        folder.mkdir()
        give(folder)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        # A kill of a master process would leave its worker.
        "daemon off; master_process off;",
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
