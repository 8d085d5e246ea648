"""One interface to both clients, so that every test of behaviour runs on both."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import AsyncClient, Client, Policy
from dray.testing.scripted import ScriptedEndpoint

if TYPE_CHECKING:
    from pathlib import Path

Loose: TypeAlias = Any

#: A policy with short but measurable pauses.
QUICK = Policy(seconds=5.0, tries=4, first_pause=0.01, longest_pause=0.05, outage_seconds=5.0)


class Blocking:
    """The blocking client."""

    def __init__(self, url: str, **options: Loose) -> None:
        self.client = Client(url, **options)

    def __call__(self, method: str, *args: Loose, **options: Loose) -> Loose:
        return getattr(self.client, method)(*args, **options)

    def take(self, count: int | None, method: str, *args: Loose, **options: Loose) -> list[Any]:
        items = getattr(self.client, method)(*args, **options)
        found = list(itertools.islice(items, count))
        items.close()
        return found

    def close(self) -> None:
        self.client.close()


class Awaiting:
    """An :class:`AsyncClient` with blocking methods, for tests that are not asynchronous."""

    def __init__(self, url: str, **options: Loose) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient(url, **options)

    def __call__(self, method: str, *args: Loose, **options: Loose) -> Loose:
        return self.loop.run_until_complete(getattr(self.client, method)(*args, **options))

    def take(self, count: int | None, method: str, *args: Loose, **options: Loose) -> list[Any]:
        async def collect() -> list[Any]:
            found: list[Any] = []
            items = getattr(self.client, method)(*args, **options)
            try:
                if count != 0:
                    async for item in items:
                        found.append(item)
                        if len(found) == count:
                            break
            finally:
                await items.aclose()
            return found

        return self.loop.run_until_complete(collect())

    def close(self) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


MakeFace = Callable[..., Any]


@pytest.fixture(params=[Blocking, Awaiting], ids=["blocking", "awaiting"])
def make_face(request: pytest.FixtureRequest) -> Iterator[MakeFace]:
    made: list[Any] = []

    def make(url: str, **options: Loose) -> Loose:
        made.append(request.param(url, **{"token": None, "policy": QUICK, **options}))
        return made[-1]

    yield make
    for face in made:
        face.close()


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def face(endpoint: ScriptedEndpoint, make_face: MakeFace) -> Loose:
    return make_face(endpoint.url)


def make_certificate(folder: Path, name: str, *how: str, key: Path | None = None) -> Path:
    """Create a key and a self-signed certificate in one file, with the system's openssl."""
    made, kept = folder / f"{name}.pem", key or folder / f"{name}.key"
    if key is None:
        subprocess.run(["openssl", "genpkey", *how, "-out", kept], check=True, capture_output=True)
    subject = ["-subj", f"/CN={name}", "-days", "2"]
    done = subprocess.run(
        ["openssl", "req", "-x509", "-new", "-key", kept, *subject], check=True, capture_output=True
    )
    made.write_bytes(kept.read_bytes() + done.stdout)
    return made


def openssl_fingerprint(certificate: Path) -> str:
    """Return the fingerprint that openssl computes."""
    public = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-pubkey", "-noout"],
        check=True,
        capture_output=True,
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"],
        input=public,
        check=True,
        capture_output=True,
    ).stdout
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-r"], input=der, check=True, capture_output=True
    ).stdout
    return f"sha256:{digest.split()[0].decode()}"


KINDS_OF_KEYS = {
    "ec": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ed25519": ("-algorithm", "ED25519"),
}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a certificate for each kind of key."""
    folder = tmp_path_factory.mktemp("certificates")
    return {kind: make_certificate(folder, kind, *how) for kind, how in KINDS_OF_KEYS.items()}


@pytest.fixture(scope="session")
def fingerprint_by_openssl() -> Callable[[Path], str]:
    return openssl_fingerprint


@pytest.fixture(scope="session")
def new_certificate() -> Callable[..., Path]:
    return make_certificate
