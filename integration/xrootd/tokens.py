"""A token issuer, and servers and clients that use its tokens."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.endpoint.issuer import Issuer
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

URL = "https://issuer.example"
AUDIENCE = "https://wlcg.cern.ch/jwt/v1/any"
READ = "storage.read:/"
WRITE = ("storage.create:/", "storage.modify:/")


@dataclass
class Realm:
    """A token issuer, and the configuration of servers and clients that use its tokens."""

    scene: Scene
    issuer: Issuer
    #: Folder with an authority, and with a server certificate that it has signed.
    certificates: Path
    rules: Path
    cache: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of servers: the authority, and the cache of issuers' keys."""
        return {
            "X509_CERT_DIR": str(self.certificates / "authorities"),
            "XDG_CACHE_HOME": str(self.cache),
        }

    def lines(self) -> list[str]:
        """Return configuration lines of a server that requires TLS and a token."""
        return [
            f"xrd.tls {self.certificates}/host.pem {self.certificates}/host.key",
            f"xrd.tlsca certdir {self.certificates}/authorities",
            "xrootd.tls capable all",
            *self.rights(),
        ]

    def rights(self) -> list[str]:
        """Return configuration lines of a server that requires a token and applies its rights."""
        return [
            "xrootd.seclib libXrdSec.so",
            "sec.protocol ztn -tokenlib libXrdAccSciTokens.so",
            "ofs.authorize",
            f"ofs.authlib libXrdAccSciTokens.so config={self.rules}",
        ]

    def person(self, token: str | None) -> dict[str, str]:
        """Return environment variables of a client with this token. None: no token.

        Each call writes a new token file, so that a running copy keeps its own token.
        """
        env = {"X509_CERT_DIR": str(self.certificates / "authorities"), "XrdSecPROTOCOL": "ztn"}
        path = self.scene.folder / f"token{time.monotonic_ns()}"
        if token is not None:
            path.write_text(f"{token}\n", encoding="ascii")
            path.chmod(0o600)
            give(path)
        return {**env, "BEARER_TOKEN_FILE": str(path)}


def make(scene: Scene, certificates: Path) -> Realm:
    """Make an issuer, and a cache with its keys for the servers."""
    folder = scene.folder / "realm"
    folder.mkdir()
    folder.chmod(0o755)
    issuer = Issuer(folder, URL)
    issuer.audience = AUDIENCE
    rules = folder / "scitokens.cfg"
    rules.write_text(
        f"[Global]\naudience = {AUDIENCE}\n\n"
        f"[Issuer Local]\nissuer = {URL}\nbase_path = /\ndefault_user = nobody\n",
        encoding="ascii",
    )
    cache = folder / "cache"
    kept = cache / "scitokens"
    kept.mkdir(parents=True)
    _remember(kept / "scitokens_cpp.sqllite", issuer)
    for path in (cache, kept, *kept.iterdir()):
        give(path)
    return Realm(scene, issuer, certificates, rules, cache)


def _remember(path: Path, issuer: Issuer) -> None:
    """Write the issuer's keys into a cache of scitokens-cpp, as if they had been fetched."""
    now = int(time.time())
    keys = json.loads(issuer.keys.read_text(encoding="ascii"))
    known = json.dumps({"jwks": keys, "expires": now + 86_400, "next_update": now + 43_200})
    with sqlite3.connect(path) as kept:
        kept.execute(
            "CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)"
        )
        kept.execute("INSERT INTO keycache VALUES (?, ?)", (issuer.url, known))
