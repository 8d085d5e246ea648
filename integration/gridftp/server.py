"""A stock GridFTP server on the loopback, with certificates and proxies of its own authority."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from integration.harness.program import Process
from integration.harness.services import await_port
from integration.xrootd import gsi
from integration.xrootd.servers import USER, as_user, give

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "globus-gridftp-server"
#: Debian's PATH does not contain the folders of server programs.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
#: Extension of a proxy certificate (RFC 3820): the proxy has all rights of the person.
PROXY_INFO = x509.UnrecognizedExtension(
    x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14"),
    bytes.fromhex("300c300a06082b06010505071501"),
)


def find_missing() -> str:
    """Return why this host cannot run the tests, or an empty text if it can."""
    if shutil.which(SERVER, path=PATH) is None:
        return f"no GridFTP server on this host: {SERVER} is missing (tools/bootstrap.sh test)"
    return ""


@dataclass
class Server:
    """A server that authenticates by GSI and serves every file that its user may read."""

    folder: Path
    port: int = 0
    process: Process | None = None
    starts: int = 0

    def __post_init__(self) -> None:
        """Make the authority, the certificates and the map of names."""
        grid = self.folder / "grid"
        self.trusted = gsi.make_authority(grid)
        self.host = gsi.issue(grid, "host", "localhost", gsi.HOST)
        self.person = gsi.issue(grid, "person", "Some Person", gsi.PERSON)
        self.proxy = self.make_proxy("proxy", datetime.timedelta(hours=2))
        self.names = grid / "names"
        self.names.write_text(f'"{gsi.DOMAIN}/CN=Some Person" {USER}\n', encoding="utf-8")
        self.logs = self.folder / "server"
        self.logs.mkdir()
        give(self.logs)

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of a client that acts for the person."""
        return {"X509_CERT_DIR": str(self.trusted), "X509_USER_PROXY": str(self.proxy)}

    @property
    def url(self) -> str:
        """The URL of the root of the server, without a slash at the end."""
        return f"gsiftp://localhost:{self.port}"

    def make_proxy(self, name: str, valid: datetime.timedelta) -> Path:
        """Make a proxy of the person that expires after ``valid``, which may be negative."""
        grid = self.folder / "grid"
        person = x509.load_pem_x509_certificate(self.person.read_bytes())
        signer = serialization.load_pem_private_key(
            (grid / "person.key").read_bytes(), password=None
        )
        assert isinstance(signer, rsa.RSAPrivateKey)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        serial = x509.random_serial_number()
        common = x509.NameAttribute(x509.NameOID.COMMON_NAME, str(serial))
        subject = x509.Name([*person.subject.rdns, x509.RelativeDistinguishedName([common])])
        now = datetime.datetime.now(datetime.timezone.utc)
        proxy = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(person.subject)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + valid)
            .add_extension(PROXY_INFO, critical=True)
            .sign(signer, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        path = grid / name
        path.touch(0o600)
        path.write_bytes(
            proxy.public_bytes(pem)
            + key.private_bytes(
                pem,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
            + person.public_bytes(pem)
        )
        return path

    def start(self) -> Server:
        """Start the server on its port, and wait until it accepts connections."""
        if self.port == 0:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
        self.starts += 1
        words = [SERVER, "-p", str(self.port), "-c", "/dev/null", "-disable-usage-stats"]
        words += ["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
        words += ["-hostname", "localhost", "-allow-disabled-login"]
        words += ["-d", "ERROR,WARN,INFO", "-l", str(self.logs / "gridftp.log")]
        env = {
            "PATH": PATH,
            "HOME": str(self.logs),
            "X509_CERT_DIR": str(self.trusted),
            "X509_USER_CERT": str(self.host),
            "X509_USER_KEY": str(self.folder / "grid" / "host.key"),
            "GRIDMAP": str(self.names),
        }
        # The server starts one process for each connection. A session contains them all.
        wrap = [*as_user(), "setsid"]
        name = f"server{self.starts}"
        self.process = Process(words, self.logs, name, env=env, wrap=wrap)
        if not await_port(self.port, self.process.is_running):
            log_text = self.process.log_path.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the GridFTP server does not listen:\n{log_text}")
        return self

    def kill(self) -> None:
        """Kill the server and the processes of its connections by SIGKILL."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
            self.process = None
