"""A certificate authority of the tests, by openssl: valid and invalid certificates."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLIENT", "LIMITED", "Authority", "Certificate", "proxy_extensions"]

CLIENT = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = clientAuth
"""
AUTHORITY = """\
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""
#: Policy language of a full proxy: id-ppl-inheritAll (RFC 3820).
INHERIT_ALL = "1.3.6.1.5.5.7.21.1"
#: Policy language of the Grid's limited proxy.
LIMITED = "1.3.6.1.4.1.3536.1.1.1.9"
CONFIG = """\
[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
default_crl_days = 30
crlnumber = {folder}/number
crl_extensions = list
preserve = yes
[list]
authorityKeyIdentifier = keyid
[any]
domainComponent = optional
commonName = optional
[req]
distinguished_name = any
"""


def run(*words: str | Path) -> None:
    """Run openssl. Its output is shown only if it fails."""
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def moment(days: float) -> str:
    """Return the time that is ``days`` from now, as openssl parses it."""
    at = datetime.now(timezone.utc) + timedelta(days=days)
    return at.strftime("%Y%m%d%H%M%SZ")


def proxy_extensions(language: str = INHERIT_ALL, length: int | None = None) -> str:
    """Return the extensions of a proxy certificate (RFC 3820)."""
    bound = "" if length is None else f",pathlen:{length}"
    return f"""\
proxyCertInfo = critical,language:{language}{bound}
keyUsage = critical,digitalSignature
"""


class Certificate:
    """A certificate, its private key, and its issuers."""

    def __init__(self, folder: Path, name: str, subject: str, *, is_rsa: bool = False) -> None:
        """Make the private key. Another method makes the certificate.

        :param is_rsa: make an RSA key instead of an elliptic-curve key. Clients of FTS need an RSA
            key.
        """
        self.folder = folder
        self.name = name
        self.subject = subject
        self.key = folder / f"{name}.key"
        self.own = folder / f"{name}.crt"
        #: The issuing certificates from the direct issuer upwards, without the authority's own
        #: certificate.
        self.above: list[Certificate] = []
        if is_rsa:
            run("genrsa", "-traditional", "-out", self.key, "2048")
        else:
            run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)

    @property
    def chain(self) -> str:
        """The certificate and its issuers, in the format PEM."""
        return "".join(each.own.read_text(encoding="utf-8") for each in [self, *self.above])

    def file(self) -> Path:
        """Write the private key and the chain into one file that only its owner may read."""
        path = self.folder / f"{self.name}.pem"
        text = self.chain + self.key.read_text(encoding="utf-8")
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        return path


class Authority:
    """Signs certificates on request.

    :param folder: existing folder that only this authority uses.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        """Make the authority's key and certificate."""
        self.folder = folder
        self.name = name
        self.config = folder / f"{name}.cnf"
        (folder / "index").touch()
        (folder / "number").write_text("01\n", encoding="utf-8")
        self.config.write_text(CONFIG.format(folder=folder), encoding="utf-8")
        self.root = Certificate(folder, name, f"/DC=org/DC=dray/CN={name}")
        self._sign(self.root, None, AUTHORITY, -10, 3650)
        self.file = self.root.own

    def issue(
        self,
        name: str,
        subject: str | None = None,
        *,
        extensions: str = CLIENT,
        start_days: float = -2,
        end_days: float = 30,
        is_rsa: bool = False,
    ) -> Certificate:
        """Make a certificate."""
        subject = subject or f"/DC=org/DC=dray/CN={name}"
        made = Certificate(self.folder, name, subject, is_rsa=is_rsa)
        self._sign(made, self.root, extensions, start_days, end_days)
        return made

    def reissue(
        self,
        certificate: Certificate,
        key_of: Certificate,
        *,
        extensions: str = CLIENT,
        start_days: float = -2,
        end_days: float = 30,
    ) -> Certificate:
        """Replace a certificate by one of the same name for the key of ``key_of``."""
        certificate.key.write_bytes(key_of.key.read_bytes())
        self._sign(certificate, self.root, extensions, start_days, end_days)
        return certificate

    def proxy(
        self,
        of: Certificate,
        name: str,
        extensions: str | None = None,
        *,
        start_days: float = -1,
        end_days: float = 1,
        is_rsa: bool = False,
    ) -> Certificate:
        """Make a proxy. The certificate of a person or of another proxy signs it."""
        subject = f"{of.subject}/CN={len(of.above) + 1000}"
        made = Certificate(self.folder, name, subject, is_rsa=is_rsa)
        self._sign(made, of, extensions or proxy_extensions(), start_days, end_days)
        made.above = [of, *of.above]
        return made

    def self_signed(self, name: str, subject: str) -> Certificate:
        """Make a self-signed certificate."""
        made = Certificate(self.folder, name, subject)
        self._sign(made, None, CLIENT, -1, 30)
        return made

    def revoke(self, certificate: Certificate) -> None:
        """Revoke a certificate. :meth:`write_list` makes the revocation known to endpoints."""
        run("ca", *self._as(self.root), "-revoke", certificate.own)

    def write_list(self, path: Path, *, seconds: int | None = None) -> None:
        """Write the revocation list, atomically.

        :param seconds: seconds until the list expires; by default 30 days.
        """
        whole = self.folder / "new.crl"
        until = [] if seconds is None else ["-crlsec", str(seconds)]
        run("ca", *self._as(self.root), "-gencrl", *until, "-out", whole)
        whole.replace(path)

    def _as(self, issuer: Certificate) -> tuple[str | Path, ...]:
        return "-batch", "-config", self.config, "-cert", issuer.own, "-keyfile", issuer.key

    def _sign(
        self,
        made: Certificate,
        issuer: Certificate | None,
        extensions: str,
        start_days: float,
        end_days: float,
    ) -> None:
        request = self.folder / f"{made.name}.csr"
        wanted = self.folder / f"{made.name}.ext"
        wanted.write_text(extensions, encoding="utf-8")
        subject = "-subj", made.subject, "-config", self.config
        run("req", "-new", "-key", made.key, "-out", request, *subject)
        own = ("-selfsign", "-keyfile", made.key, "-batch", "-config", self.config)
        words: tuple[str | Path, ...] = own if issuer is None else self._as(issuer)
        times = "-startdate", moment(start_days), "-enddate", moment(end_days)
        run("ca", *words, "-notext", *times, "-in", request, "-out", made.own, "-extfile", wanted)
