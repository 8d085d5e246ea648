"""An endpoint that trusts one issuer of the tests, and not another."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.issuer import Issuer
from integration.endpoint.raw import dray, shipped_program

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


class TokenScene(NamedTuple):
    """An endpoint that trusts an issuer, and another issuer."""

    endpoint: Endpoint
    issuer: Issuer
    #: An issuer that no endpoint trusts.
    stranger: Issuer


@contextlib.contextmanager
def open_scene() -> Iterator[TokenScene]:
    """Yield one endpoint for all tests that only read, or clean up after themselves."""
    folder = Path(tempfile.mkdtemp(prefix="dray-tokens-"))
    issuer = Issuer(folder)
    stranger = Issuer(folder, name="stranger")
    config = {
        "issuer": [issuer.config()],
        "map": {
            "rules": [
                {"issuer": issuer.url, "subject": subject, "owner": subject}
                for subject in ("alice", "bob")
            ]
        },
    }
    endpoint = Endpoint(
        folder / "endpoint",
        roots=(Root(), Root("data2")),
        config=config,
        program=shipped_program(),
    )
    try:
        yield TokenScene(endpoint.start(), issuer, stranger)
    finally:
        endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


def fetch(
    scene: TokenScene, token: str, path: str, folder: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Copy straight from the endpoint with a token."""
    file = folder / "token"
    file.write_text(token, encoding="utf-8")
    file.chmod(0o600)
    ends = f"dray://{scene.endpoint.address}/{path}", folder / "got"
    options = "--token-file", file, "--peer-key", scene.endpoint.key
    return dray("cp", "--json", *ends, *options, "--retries", "0", *more)
