"""A certificate authority of the tests with the protocol ACME (RFC 8555): the program pebble."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING

from integration.endpoint.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NAME", "Pebble"]

#: Name of the host in the certificates. The DNS server of the tests maps each name to 127.0.0.1.
NAME = "dtn.example.org"
READY_SECONDS = 30.0
EXTENSIONS = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1
"""


def free_ports(count: int) -> list[int]:
    """Return different ports of the loopback that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Pebble:
    """pebble, and a DNS server. pebble really connects to the host name to validate it (HTTP-01).

    :param folder: existing folder that only this authority uses.
    """

    def __init__(self, folder: Path) -> None:
        """Start both servers."""
        self.folder = folder
        ports = free_ports(5)
        directory, management, self.http_port, tls, dns = ports
        self.url = f"https://127.0.0.1:{directory}/dir"
        self.management = f"https://127.0.0.1:{management}"
        # The certificate of pebble's own HTTPS, which is not that of the ACME authority.
        self.web = Authority(folder, "web")
        own = self.web.issue("pebble", extensions=EXTENSIONS)
        config = {
            "listenAddress": f"127.0.0.1:{directory}",
            "managementListenAddress": f"127.0.0.1:{management}",
            "certificate": str(own.own),
            "privateKey": str(own.key),
            "httpPort": self.http_port,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": False,
        }
        file = folder / "pebble.json"
        file.write_text(json.dumps({"pebble": config}), encoding="utf-8")
        # pebble validates each order, without a delay. It refuses no good nonce: certbot sends a
        # request only twice.
        environment = {
            **os.environ,
            "PEBBLE_VA_NOSLEEP": "1",
            "PEBBLE_AUTHZREUSE": "0",
            "PEBBLE_WFE_NONCEREJECT": "0",
        }
        resolver = f"127.0.0.1:{dns}"
        off = [word for kind in ("http01", "https01", "tlsalpn01") for word in (f"-{kind}", "")]
        words = ["pebble-challtestsrv", "-defaultIPv6", "", "-dns01", resolver, *off]
        self.log = (folder / "pebble.log").open("wb")
        self.servers = [
            subprocess.Popen(
                each, stdout=self.log, stderr=subprocess.STDOUT, cwd=folder, env=environment
            )
            for each in (
                [*words, "-management", f"127.0.0.1:{free_ports(1)[0]}"],
                ["pebble", "-config", str(file), "-dnsserver", resolver, "-strict"],
            )
        ]
        self.root = folder / "root.pem"
        until = time.monotonic() + READY_SECONDS
        while not self._fetch_root():
            if time.monotonic() > until:
                self.stop()
                message = (folder / "pebble.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(message)
            time.sleep(0.1)

    def _fetch_root(self) -> bool:
        """Fetch the authority's certificate, which pebble makes at each start."""
        trusted = ssl.create_default_context(cafile=str(self.web.file))
        try:
            url = f"{self.management}/roots/0"
            with urllib.request.urlopen(url, context=trusted, timeout=5) as answer:  # noqa: S310
                self.root.write_bytes(answer.read())
        except OSError:
            return False
        return True

    def certbot(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run certbot, with folders in the folder of this authority."""
        folders = [
            word
            for kind in ("config", "work", "logs")
            for word in (f"--{kind}-dir", self.folder / kind)
        ]
        where = ["--server", self.url, "--http-01-address", "127.0.0.1"]
        where += ["--http-01-port", str(self.http_port)]
        program = shutil.which("certbot")
        assert program is not None, "certbot is missing; run tools/bootstrap.sh test"
        return subprocess.run(
            [program, *words, "--non-interactive", *where, *folders],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            # The environment of the tests has other versions of certbot's libraries.
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "REQUESTS_CA_BUNDLE": str(self.web.file),
            },
        )

    def stop(self) -> None:
        """Stop both servers."""
        for each in self.servers:
            each.kill()
            each.wait()
        self.log.close()
