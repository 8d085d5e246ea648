"""Third-party copies from a source server that requires authentication."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from integration.harness.tree import hash_file
from integration.xrootd import gsi
from integration.xrootd.files import make
from integration.xrootd.servers import give

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20


def make_keytab(path: Path) -> Path:
    """Make a key file that servers and their clients share. Return its path."""
    words: list[str | Path] = [
        "xrdsssadmin",
        "-k",
        "key",
        "-u",
        "anybody",
        "-g",
        "usrgroup",
        "add",
        path,
    ]
    subprocess.run(words, input=b"y\n", check=True, capture_output=True, timeout=30)
    path.chmod(0o600)
    give(path)
    return path


def test_a_shared_key_opens_the_source_and_another_does_not(scene: Scene) -> None:
    """With sss, dray shows the key of the destination. The source refuses another key."""
    keytab = make_keytab(scene.folder / "keytab")
    lines = ["xrootd.seclib libXrdSec.so", f"sec.protocol sss -s {keytab}"]
    env = {"XrdSecSSSKT": str(keytab), "XrdSecPROTOCOL": "sss"}
    source = scene.server("source", lines=lines, env=env)
    sink = scene.server("sink", lines=lines, env=env)
    made = make(source, "a", 5 * MIB)
    scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a"), env=env).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)

    other = make_keytab(scene.folder / "other")
    stranger = scene.server("stranger", env={**env, "XrdSecSSSKT": str(other)})
    refused = scene.xrdcp("--tpc", "only", source.at("a"), stranger.at("a"), env=env)
    assert refused.code != 0
    assert "not authorized" in refused.out + refused.words
    assert not stranger.path("a").exists()


def test_delegated_credentials_open_the_source(scene: Scene) -> None:
    """With gsi, dray reads as the person who delegated a proxy to the destination."""
    grid = gsi.make(scene)
    lines = grid.lines()
    source = scene.server("source", lines=lines, env=grid.env, tpc=None)
    what = f"fcreds gsi =X509_USER_PROXY pgm {scene.programs / 'dray-xrootd-tpc'}"
    sink = scene.server("sink", lines=lines, env=grid.env, tpc=what)
    made = make(source, "a", 80 * MIB)
    # The certificates contain the name localhost, and not the address.
    urls = [server.at("a").replace("127.0.0.1", "localhost") for server in (source, sink)]
    scene.xrdcp("--tpc", "delegate", "only", *urls, env=grid.person).expect(0)
    assert hash_file(sink.path("a")) == hash_file(made)

    # A client without a proxy is refused.
    nobody = {**grid.env, "X509_USER_PROXY": "/nonexistent"}
    assert scene.xrdcp("--tpc", "delegate", "only", *urls, env=nobody).code != 0
