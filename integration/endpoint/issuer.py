"""A token issuer of the tests, which also signs invalid tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import ssl
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from integration.endpoint.authority import Authority

__all__ = ["LEEWAY_SECONDS", "Issuer", "Served", "encode"]

Json: TypeAlias = Any
#: Permitted difference of two clocks. A token is accepted for this time after its end.
LEEWAY_SECONDS = 60


def encode(data: bytes) -> str:
    """Encode bytes as base64url without padding, as in JSON Web Tokens."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def run(*words: str | Path, data: bytes = b"") -> bytes:
    """Run openssl. Return its output."""
    return subprocess.run(["openssl", *words], input=data, check=True, capture_output=True).stdout


class Issuer:
    """An issuer of tokens. It signs with RSA or P-256, and writes its public keys to a file.

    :param folder: folder of the keys; must exist.
    """

    def __init__(
        self, folder: Path, url: str = "https://issuer.example/", *, name: str = "issuer"
    ) -> None:
        """Make the key pairs, and publish the public keys."""
        self.url = url
        self.folder = folder
        self.name = name
        self.audience = "https://a"
        self.keys = folder / f"{name}.jwks"
        for algorithm, kind, option in (
            ("RS256", "RSA", "rsa_keygen_bits:2048"),
            ("ES256", "EC", "ec_paramgen_curve:P-256"),
        ):
            key = self.key(algorithm)
            run("genpkey", "-algorithm", kind, "-pkeyopt", option, "-out", key)
            run("pkey", "-in", key, "-pubout", "-out", self.public(algorithm))
        self.publish("RS256", "ES256")

    def key(self, algorithm: str) -> Path:
        """Return the path of a private key."""
        return self.folder / f"{self.name}.{algorithm}.pem"

    def public(self, algorithm: str) -> Path:
        """Return the path of a public key."""
        return self.folder / f"{self.name}.{algorithm}.pub.pem"

    def publish(self, *algorithms: str) -> None:
        """Write the set of public keys for endpoints."""
        keys = [self._jwk(algorithm) for algorithm in algorithms]
        self.keys.write_text(json.dumps({"keys": keys}), encoding="utf-8")

    def _jwk(self, algorithm: str) -> Json:
        about = {"kid": algorithm.lower(), "alg": algorithm, "use": "sig"}
        if algorithm == "RS256":
            said = run("rsa", "-in", self.key(algorithm), "-noout", "-modulus").decode()
            modulus = bytes.fromhex(said.strip().partition("=")[2])
            return {**about, "kty": "RSA", "n": encode(modulus), "e": encode(b"\x01\x00\x01")}
        # The point is the end of the key's DER: two coordinates of 32 bytes.
        der = run("pkey", "-in", self.key(algorithm), "-pubout", "-outform", "DER")
        x, y = encode(der[-64:-32]), encode(der[-32:])
        return {**about, "kty": "EC", "crv": "P-256", "x": x, "y": y}

    def config(self, **more: Json) -> Json:
        """Return the ``[[issuer]]`` table of an endpoint that trusts this issuer."""
        audiences = [self.audience]
        return {"url": self.url, "audiences": audiences, "keys": str(self.keys), **more}

    def claims(self, *scopes: str, **more: Json) -> Json:
        """Return the claims of a valid token with these changes; ``None`` leaves a claim out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "alice",
            "aud": self.audience,
            "nbf": now - 5,
            "iat": now - 5,
            "exp": now + 600,
            "scope": " ".join(scopes),
            "wlcg.ver": "1.0",
            **more,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self, *scopes: str, algorithm: str = "ES256", header: Json = None, **claims: Json
    ) -> str:
        """Sign a token.

        :param header: further fields of its header.
        :param claims: see :meth:`claims`.
        """
        head = {"alg": algorithm, "kid": algorithm.lower(), "typ": "JWT", **(header or {})}
        return self.sign(head, self.claims(*scopes, **claims), algorithm)

    def dying(self, seconds: float, *scopes: str, **claims: Json) -> str:
        """Sign a token that is valid for this many seconds."""
        expires = int(time.time() + seconds) - LEEWAY_SECONDS
        # The token was issued before its end. Otherwise it would be invalid in two ways.
        return self.token(*scopes, exp=expires, nbf=expires - 60, iat=expires - 60, **claims)

    def sign(self, header: Json, claims: Json, algorithm: str, secret: bytes = b"") -> str:
        """Sign a header and claims. Only HS256 uses ``secret``."""
        signed = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
        if algorithm == "none":
            return f"{signed}."
        if algorithm == "HS256":
            mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
            return f"{signed}.{encode(mac)}"
        signature = run("dgst", "-sha256", "-sign", self.key(algorithm), data=signed.encode())
        if algorithm == "ES256":
            signature = _fixed(signature)
        return f"{signed}.{encode(signature)}"


class Served:
    """An issuer with an HTTPS server that delivers its discovery document and its keys.

    :param folder: existing folder that only this issuer uses.
    :param seconds: delay of each answer.
    :param host: host name of the server. A name that is no address is a virtual host: a client
        without SNI (RFC 6066, 3) gets the certificate of another host.
    """

    def __init__(
        self,
        folder: Path,
        authority: Authority,
        *,
        seconds: float = 0.0,
        host: str = "127.0.0.1",
    ) -> None:
        """Start the server. It runs until :meth:`stop`."""
        self.seconds = seconds
        #: Requested paths, in order.
        self.asked: list[str] = []
        self._authority = authority
        kind = "IP" if host == "127.0.0.1" else "DNS"
        context = _context(authority, f"{kind}:{host}")
        if kind == "DNS":
            named, context = context, _context(authority, "DNS:another.example")

            def choose(socket: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
                if name == host:
                    socket.context = named

            context.sni_callback = choose
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def setup(self) -> None:
                # Shake hands here and not at the listener. There, a handshake that hangs would
                # block all connections.
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_GET(self) -> None:
                served.asked.append(self.path)
                time.sleep(served.seconds)
                body = served.document(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"https://{host}:{self._server.server_address[1]}/realm"
        self.issuer = Issuer(folder, self.url, name="served")
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def document(self, path: str) -> bytes | None:
        """Return the document at a path. Only the discovery document names the path of the keys."""
        if path == "/realm/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/certs?x=1"}).encode()
        return self.issuer.keys.read_bytes() if path == "/realm/certs?x=1" else None

    def config(self, **more: Json) -> Json:
        """Return the ``[[issuer]]`` table of an endpoint that gets the keys from this server."""
        found = {"url": self.url, "audiences": [self.issuer.audience]}
        return {**found, "ca": str(self._authority.file), **more}

    def stop(self) -> None:
        """Stop the server. A second call changes nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def _context(authority: Authority, name: str) -> ssl.SSLContext:
    """Return the TLS context of a server with the name ``name``."""
    extensions = f"basicConstraints = critical,CA:FALSE\nsubjectAltName = {name}\n"
    certificate = authority.issue(name.replace(":", "-"), extensions=extensions)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file())
    return context


def _fixed(der: bytes) -> bytes:
    """Convert a signature's two numbers from DER to two times 32 bytes (RFC 7518, 3.4)."""
    whole, at = b"", 2
    for _ in range(2):
        length = der[at + 1]
        whole += der[at + 2 : at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return whole
