"""Third-party copies between servers that accept tokens over TLS."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.issuer import Issuer
from integration.harness import tree
from integration.harness.tree import hash_file
from integration.xrootd import curl, tokens
from integration.xrootd.files import configured, copies, make
from integration.xrootd.http import copying
from integration.xrootd.servers import SHIM, find, give
from integration.xrootd.test_clients import beside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.harness.program import Ended, Server
    from integration.xrootd.servers import Scene, Xrootd
    from integration.xrootd.tokens import Realm

pytestmark = pytest.mark.server

MIB = 1 << 20


@pytest.fixture
def drays() -> Iterator[list[Server]]:
    """Yield a list. At the end of the test, kill the servers in it."""
    started: list[Server] = []
    yield started
    for server in started:
        server.kill()


def secure(server: Xrootd, path: str) -> str:
    """Return the ``roots:`` URL of a path. The certificates contain the name localhost."""
    return f"roots://localhost:{server.port}//{path}"


def bad_tokens(realm: Realm, folder: Path) -> dict[str, str | None]:
    """Return invalid tokens by their fault. None means no token."""
    stranger = folder / "stranger"
    stranger.mkdir()
    other = Issuer(stranger, realm.issuer.url)
    other.audience = realm.issuer.audience
    now = int(time.time())
    good = (tokens.READ, *tokens.WRITE)
    return {
        "missing": None,
        "not signed by the issuer": other.token(*good),
        "expired": realm.issuer.token(*good, exp=now - 3600, nbf=now - 7200, iat=now - 7200),
        "for another path": realm.issuer.token(
            "storage.read:/other", "storage.create:/other", "storage.modify:/other"
        ),
        "for another audience": realm.issuer.token(*good, aud="https://elsewhere.example"),
    }


def test_a_token_opens_both_ends_and_a_wrong_one_neither(scene: Scene, certificates: Path) -> None:
    """A valid delegated token opens both servers, and dray's source. An invalid one opens none."""
    realm = tokens.make(scene, certificates)
    stock = "pgm /usr/bin/xrdcp --server"
    source = scene.server("source", tpc=stock, lines=realm.lines(), env=realm.env)
    what = f"fcreds ztn =BEARER_TOKEN_FILE pgm {scene.programs / 'dray-xrootd-tpc'}"
    sink = scene.server("sink", tpc=what, lines=realm.lines(), env=realm.env)
    made = make(source, "in/a", 40 * MIB)

    def copy(token: str | None, to: str, *how: str) -> Ended:
        words = ["--tpc", *(how or ("delegate", "only")), secure(source, "in/a"), secure(sink, to)]
        return scene.xrdcp(*words, env=realm.person(token))

    good = realm.issuer.token(tokens.READ, *tokens.WRITE)
    for to, how in (("out/a", ("delegate", "only")), ("out/k", ("only",))):
        copy(good, to, *how).expect(0)
        assert hash_file(sink.path(to)) == hash_file(made)
    assert copies(sink) == [(40 * MIB, 0)] * 2
    assert good not in sink.said() + source.said()
    for why, token in bad_tokens(realm, scene.folder).items():
        refused = copy(token, "out/b")
        output = refused.out + refused.words
        print(f"{why}: {output.strip()}")
        assert refused.code != 0, why
        assert any(
            word in output for word in ("Auth failed", "not authorized", "ermission denied")
        ), f"{why}: {output}"
        assert not sink.path("out/b").exists(), why
    # A token that permits writes to /out, but no reads of /in.
    half = realm.issuer.token("storage.read:/out", *tokens.WRITE)
    assert copy(half, "out/c").code != 0
    assert not sink.path("out/c").exists()
    assert tree.leftovers(sink.data) == []


def test_a_client_with_stat_permission_gets_no_data_from_dray(
    scene: Scene, certificates: Path, program: Path, drays: list[Server]
) -> None:
    """A client that may stat but not read a file gets no data from ``dray serve`` either."""
    realm = tokens.make(scene, certificates)
    rights = scene.folder / "rights"
    rights.write_text("u * /in l\n", encoding="ascii")
    # ``++``: the file of rights grants rights in addition to those of the token.
    lines = [line.replace("ofs.authlib ", "ofs.authlib ++ ") for line in realm.lines()]
    lines.append(f"acc.authdb {rights}")
    source = scene.server("source", tpc=None, lines=lines, env=realm.env)
    server, lines = beside(scene, source, program)
    drays.append(server)
    lines = [line.replace(f"127.0.0.1:{source.port}", f"localhost:{source.port}") for line in lines]
    what = f"fcreds ztn =BEARER_TOKEN_FILE {configured(scene, *lines)}"
    sink = scene.server("sink", tpc=what, lines=realm.lines(), env=realm.env)
    made = make(source, "in/a", 3 * MIB)

    def copy(token: str, to: str) -> Ended:
        words = ["--tpc", "delegate", "only", secure(source, "in/a"), secure(sink, to)]
        return scene.xrdcp(*words, env=realm.person(token))

    half = realm.issuer.token("storage.read:/out", *tokens.WRITE)
    looked = f"roots://localhost:{source.port}", "stat", "/in/a"
    scene.run("xrdfs", *looked, env=realm.person(half)).expect(0)
    assert copy(half, "out/b").code != 0
    assert not sink.path("out/b").exists()
    assert server.transfers() == []
    copy(realm.issuer.token(tokens.READ, *tokens.WRITE), "out/a").expect(0)
    assert hash_file(sink.path("out/a")) == hash_file(made)
    assert len(server.transfers()) == 1


def test_a_token_is_taken_by_copies_by_http(bare: Scene, plugins: Path, certificates: Path) -> None:
    """An HTTP copy has a token for each end. Both must be valid. No log contains a token."""
    realm = tokens.make(bare, certificates)
    own = ["if exec xrootd", *realm.rights(), "fi"]
    ends = [
        copying(bare, plugins, certificates, name=name, lines=own, env=realm.env)
        for name in ("source", "sink")
    ]
    source, sink = ends
    made = make(source.server, "in/a", 12 * MIB)
    good = realm.issuer.token(tokens.READ, *tokens.WRITE)

    def pull(here: str | None, there: str | None, to: str) -> Ended:
        headers = [f"Source: {source.secure_url}/in/a"]
        headers += [] if here is None else [f"Authorization: Bearer {here}"]
        headers += [] if there is None else [f"TransferHeaderAuthorization: Bearer {there}"]
        return curl.ask(bare, f"{sink.secure_url}/{to}", *headers, trusted=certificates / "ca.pem")

    curl.assert_good(pull(good, good, "out/a"))
    assert hash_file(sink.data / "out/a") == hash_file(made)
    for why, token in bad_tokens(realm, bare.folder).items():
        here = pull(token, good, "out/b")
        print(f"{why}, here: {here.out.strip()}")
        assert curl.status(here) in (401, 403), why
        there = pull(good, token, "out/b")
        print(f"{why}, there: {there.out.strip()}")
        assert "denied" in curl.failure(there), why
        assert "TransferHeaderAuthorization" in curl.failure(there), why
        assert not (sink.data / "out/b").exists(), why
    assert good not in sink.server.said() + source.server.said()
    assert tree.leftovers(sink.data) == []


def test_dray_reads_by_a_token(bare: Scene, certificates: Path, program: Path) -> None:
    """``dray cp`` reads from a server with a valid token. Without one, it reports the cause."""
    realm = tokens.make(bare, certificates)
    source = bare.server("source", tpc=None, lines=realm.lines(), env=realm.env)
    made = make(source, "in/a", 12 * MIB)
    ours = bare.folder / "dray"
    shutil.copy(program, ours)
    out = bare.folder / "out"
    out.mkdir()
    give(out)

    def cp(token: str | None, to: str) -> Ended:
        env = {**realm.person(token), "DRAY_XRDCL": str(find(SHIM))}
        return bare.run(ours, "cp", "--json", secure(source, "in/a"), out / to, env=env)

    cp(realm.issuer.token(tokens.READ), "a").expect(0)
    assert hash_file(out / "a") == hash_file(made)
    for why, token in bad_tokens(realm, bare.folder).items():
        refused = cp(token, "b")
        output = refused.out + refused.words
        print(f"{why}: {output.strip()}")
        assert refused.code != 0, why
        assert "permission denied" in output or "credentials" in output, why
        assert not (out / "b").exists()
