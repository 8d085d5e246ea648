"""Certificates for XRootD's security protocol gsi."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.xrootd.servers import give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

DOMAIN = "/DC=org/DC=dray"
HOST = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
"""
PERSON = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = clientAuth
"""
POLICY = """\
access_id_CA X509 '{name}'
pos_rights globus CA:sign
cond_subjects globus '"/DC=org/DC=dray/*"'
"""


def _openssl(*words: str | Path) -> str:
    ran = subprocess.run(
        ["openssl", *words], check=True, capture_output=True, text=True, timeout=60
    )
    return ran.stdout


@dataclass
class Grid:
    """An authority, and certificates that it has signed for a host and a person."""

    #: Folder with the certificate of the authority, named by its hash.
    trusted: Path
    host: Path
    host_key: Path
    proxy: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment variables with which servers and clients trust the authority."""
        return {"X509_CERT_DIR": str(self.trusted), "XrdSecPROTOCOL": "gsi"}

    @property
    def person(self) -> dict[str, str]:
        """Environment variables of a client that acts for the person, with the person's proxy."""
        return {**self.env, "X509_USER_PROXY": str(self.proxy), "XrdSecGSIDELEGPROXY": "2"}

    def lines(self) -> list[str]:
        """Return the configuration lines with which a server requires gsi."""
        asked = f"-certdir:{self.trusted} -cert:{self.host} -key:{self.host_key}"
        asked += " -crl:0 -gmapopt:nomap -dlgpxy:request -exppxy:=creds"
        return ["xrootd.seclib libXrdSec.so", f"sec.protocol gsi {asked}"]


def make(scene: Scene) -> Grid:
    """Make the authority and all certificates. This takes about two seconds."""
    folder = scene.folder / "grid"
    trusted = make_authority(folder)
    host = issue(folder, "host", "localhost", HOST)
    person = issue(folder, "person", "Some Person", PERSON)
    proxy = folder / "proxy"
    made: list[str | Path] = [
        "xrdgsiproxy",
        "init",
        "-cert",
        person,
        "-key",
        folder / "person.key",
        "-bits",
        "2048",
    ]
    scene.run(*made, "-certdir", trusted, "-f", proxy, "-valid", "2:00").expect(0)
    return Grid(trusted, host, folder / "host.key", proxy)


def make_authority(folder: Path) -> Path:
    """Make the authority in a new folder. Return the folder that clients and servers trust."""
    folder.mkdir()
    give(folder)
    authority = folder / "ca.pem"
    name = f"{DOMAIN}/CN=ca"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", name]
    _openssl(*words, "-keyout", folder / "ca.key", "-out", authority)
    trusted = folder / "trusted"
    trusted.mkdir()
    digest = _openssl("x509", "-in", authority, "-noout", "-hash").strip()
    (trusted / f"{digest}.0").write_bytes(authority.read_bytes())
    (trusted / f"{digest}.signing_policy").write_text(POLICY.format(name=name), encoding="utf-8")
    return trusted


def issue(folder: Path, name: str, common: str, extensions: str) -> Path:
    """Make the files ``name``.pem and ``name``.key, signed by the authority in ``folder``."""
    key, request = folder / f"{name}.key", folder / f"{name}.csr"
    wanted, made = folder / f"{name}.ext", folder / f"{name}.pem"
    wanted.write_text(extensions, encoding="utf-8")
    words = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", f"{DOMAIN}/CN={common}"]
    _openssl(*words, "-keyout", key, "-out", request)
    words = ["x509", "-req", "-days", "2", "-CAcreateserial"]
    signer: list[str | Path] = ["-CA", folder / "ca.pem", "-CAkey", folder / "ca.key"]
    _openssl(*words, *signer, "-in", request, "-extfile", wanted, "-out", made)
    for path in (key, made):
        path.chmod(0o600 if path == key else 0o644)
        give(path)
    return made
