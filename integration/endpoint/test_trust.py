"""``dray trust update``, and the same update by a running endpoint."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from integration.endpoint.authority import Authority
from integration.endpoint.issuer import Served
from integration.endpoint.raw import ask, dray

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.authority import Certificate

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
HASH = "0a1b2c3d"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve a folder over HTTP. Yields the folder and its URL."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield folder, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Site:
    """A folder of an authority, and the configuration of an endpoint that fetches its list."""

    def __init__(self, folder: Path, mirror: tuple[Path, str]) -> None:
        """Make the authority and the configuration."""
        (folder / "own").mkdir()
        self.authority = Authority(folder / "own")
        self.trusted = folder / "trusted"
        self.trusted.mkdir()
        shutil.copy(self.authority.file, self.trusted / f"{HASH}.0")
        self.served, url = mirror
        (self.trusted / f"{HASH}.crl_url").write_text(f"{url}/own.crl\n", encoding="utf-8")
        self.folder = folder / "fetched"
        self.list = self.folder / f"{HASH}.r0"
        self.config = folder / "drayd.toml"
        self.config.write_text(
            f'name = "a"\nstate = "{folder}"\n[[root]]\nname = "data"\npath = "{folder}"\n'
            f'[tls]\nclient_ca = "{self.trusted}"\n'
            f'[trust]\nfolder = "{self.folder}"\ncrl_urls = "{self.trusted}"\n',
            encoding="utf-8",
        )

    def publish(self) -> bytes:
        """Publish the present list of the authority. Returns it."""
        self.authority.write_list(self.served / "own.crl")
        return (self.served / "own.crl").read_bytes()

    def update(self, code: int) -> list[Json]:
        """Run the command. Returns its report."""
        ended = self.run("--json")
        assert ended.returncode == code, ended
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command. Returns its output."""
        return dray("trust", "update", "--config", self.config, *words)


def test_a_list_is_replaced_only_by_a_good_list(tmp_path: Path, mirror: tuple[Path, str]) -> None:
    site = Site(tmp_path, mirror)
    (missing,) = site.update(1)
    assert missing["result"] == "kept"
    assert "404" in missing["reason"], missing
    assert not site.list.exists()
    first = site.publish()
    (item,) = site.update(0)
    assert item["result"] == "updated"
    assert item["file"] == str(site.list)
    assert item["kind"] == "crl"
    assert abs(item["expires_at"] - time.time() - 30 * 86400) < 3600, item
    assert item["warning"] is None
    (item,) = site.update(0)
    assert item["result"] == "unchanged"
    time.sleep(1.1)
    site.authority.revoke(site.authority.issue("gone"))
    second = site.publish()
    (item,) = site.update(0)
    assert item["result"] == "updated"
    for folder, name, to in (("a", "other", "other.crl"), ("b", "ca", "forged.crl")):
        (tmp_path / folder).mkdir()
        Authority(tmp_path / folder, name).write_list(tmp_path / to)
    with_authority = second + (tmp_path / "a" / "other.crt").read_bytes()
    for wrong, reason in (
        (first, "older than the present list"),
        (with_authority, "holds a certificate beside the revocation list"),
        ((tmp_path / "other.crl").read_bytes(), "none of the expected authorities"),
        ((tmp_path / "forged.crl").read_bytes(), "is wrong"),
        (second[: len(second) // 2], "revocation list"),
        (b"<html>503 try again later</html>", "0 revocation lists"),
        (b"\x30\x82\x01", "malformed"),
    ):
        (site.served / "own.crl").write_bytes(wrong)
        (item,) = site.update(1)
        assert item["result"] == "kept", item
        assert reason in item["reason"], item
        assert site.list.read_bytes() == second
    # The output for people names the file and the reason too.
    ended = site.run()
    assert ended.returncode == 1
    assert str(site.list) in ended.stderr, ended
    assert "malformed" in ended.stderr, ended
    assert [file.name for file in site.folder.iterdir()] == [site.list.name]


def test_the_list_of_another_trusted_authority_takes_no_place(
    tmp_path: Path, mirror: tuple[Path, str]
) -> None:
    site = Site(tmp_path, mirror)
    (tmp_path / "second").mkdir()
    second = Authority(tmp_path / "second", "second")
    shutil.copy(second.file, site.trusted / "1b2c3d4e.0")
    second.write_list(site.served / "own.crl")
    (item,) = site.update(1)
    assert "none of the expected authorities" in item["reason"], item
    assert not site.list.exists()
    # A source without an authority beside it may be of every authority, but of the same one always.
    (site.trusted / f"{HASH}.crl_url").rename(site.trusted / "any.crl_url")
    (item,) = site.update(0)
    kept = (site.folder / "any.r0").read_bytes()
    site.publish()
    (item,) = site.update(1)
    assert "but the present list is of /DC=org/DC=dray/CN=second" in item["reason"], item
    assert (site.folder / "any.r0").read_bytes() == kept


def test_an_expired_list_is_refused_and_an_old_one_is_warned_of(
    tmp_path: Path, mirror: tuple[Path, str]
) -> None:
    site = Site(tmp_path, mirror)
    site.authority.write_list(site.served / "own.crl", seconds=3600)
    (item,) = site.update(0)
    assert item["warning"] is None, item
    site.authority.write_list(site.served / "own.crl", seconds=2)
    (item,) = site.update(0)
    assert item["result"] == "updated"
    time.sleep(3)
    (item,) = site.update(1)
    assert "expired" in item["reason"], item
    assert "expired" in item["warning"], item


def test_a_running_endpoint_updates_lists_and_keys(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path, mirror: tuple[Path, str]
) -> None:
    site = Site(tmp_path, mirror)
    gone = site.authority.issue("gone")
    certificate = gone.file()
    site.publish()
    trust = {"folder": str(site.folder), "crl_urls": str(site.trusted), "interval_seconds": 60}
    site.folder.mkdir()
    endpoint = start_endpoint(
        "b",
        config={
            "tls": {"client_ca": str(site.trusted), "crl": str(site.folder)},
            "trust": trust,
        },
    )
    until = time.monotonic() + 30
    while not site.list.exists():
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.1)
    assert ask(endpoint, "GET", "/v1/endpoint", certificate=certificate).code == 200
    assert f"updated the trusted file {site.list}" in endpoint.log_text()
    # A second program may update the same folder. The endpoint uses the new list without a restart.
    time.sleep(1.1)
    site.authority.revoke(gone)
    site.publish()
    assert site.update(0)[0]["result"] == "updated"
    until = time.monotonic() + 60
    while ask(endpoint, "GET", "/v1/endpoint", certificate=certificate).code == 200:
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.5)
    answer = ask(endpoint, "GET", "/v1/endpoint", certificate=certificate)
    assert "was revoked" in answer.refused(401, "unauthorized")["cause"]


def test_keys_and_authorities_come_from_a_server_of_a_trusted_authority(tmp_path: Path) -> None:
    for name in ("trusted", "other", "issuer"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "trusted"), Authority(tmp_path / "other", "other")
    served = Served(tmp_path / "issuer", authority)
    try:
        source = "[[trust.source]]\nname = {!r}\nkind = {!r}\nurl = {!r}\n{}"
        url, ca = f"{served.url}/certs?x=1", f"ca = '{authority.file}'\n"
        config = tmp_path / "drayd.toml"
        config.write_text(
            f'name = "a"\nstate = "{tmp_path}"\n[[root]]\nname = "data"\npath = "/data"\n'
            + source.format("good.jwks", "jwks", url, ca)
            + source.format("untrusted.jwks", "jwks", url, f"ca = '{other.file}'\n")
            + source.format("none.jwks", "jwks", f"{served.url}/none", ca)
            + source.format("html.pem", "authorities", url, ca)
            + source.format("own.pem", "authorities", f"file://{authority.file}", ""),
            encoding="utf-8",
        )
        ended = dray("trust", "update", "--config", config, "--json")
    finally:
        served.stop()
    assert ended.returncode == 1, ended
    items = {item["file"]: item for item in map(json.loads, ended.stdout.splitlines())}
    folder = tmp_path / "trust"
    results = {name: items[str(folder / name)]["result"] for name in names(config)}
    assert results == {
        "good.jwks": "updated",
        "untrusted.jwks": "kept",
        "none.jwks": "kept",
        "html.pem": "kept",
        "own.pem": "updated",
    }
    assert (folder / "good.jwks").read_bytes() == served.issuer.keys.read_bytes()
    assert (folder / "own.pem").read_bytes() == authority.file.read_bytes()
    assert "UnknownIssuer" in items[str(folder / "untrusted.jwks")]["reason"], items
    assert "404" in items[str(folder / "none.jwks")]["reason"], items
    assert "no certificate" in items[str(folder / "html.pem")]["reason"], items
    assert items[str(folder / "own.pem")]["expires_at"] > time.time() + 3000 * 86400, items
    assert len(list(folder.iterdir())) == 2


def names(config: Path) -> list[str]:
    """Return the names of the sources in a configuration file."""
    lines = config.read_text(encoding="utf-8").splitlines()
    found = [line.partition("'")[2].rstrip("'") for line in lines if line.startswith("name = '")]
    assert found, config
    return found


def test_a_signing_policy_limits_the_subjects_of_an_authority(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(authority.file, trusted / f"{HASH}.0")
    policy = trusted / f"{HASH}.signing_policy"
    policy.write_text(
        "access_id_CA  X509    '/DC=org/DC=dray/CN=ca'\n"
        "pos_rights    globus  CA:sign\n"
        'cond_subjects globus  \'"/DC=org/DC=dray/CN=alice*" "/DC=org/DC=dray/OU=b/*"\'\n',
        encoding="utf-8",
    )
    endpoint = start_endpoint("b", config={"tls": {"client_ca": str(trusted)}})
    alice, bob = authority.issue("alice"), authority.issue("bob")
    for good in (alice, authority.proxy(alice, "proxy")):
        answer = ask(endpoint, "GET", "/v1/endpoint", certificate=good.file())
        assert answer.code == 200, answer.text
    for bad in (bob, authority.proxy(bob, "other-proxy")):
        answer = ask(endpoint, "GET", "/v1/endpoint", certificate=bad.file())
        cause = answer.refused(401, "unauthorized")["cause"]
        assert "signing policy of /DC=org/DC=dray/CN=ca does not permit" in cause, cause


def test_a_namespaces_file_limits_the_subjects_of_an_authority(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(authority.file, trusted / "own.pem")
    # The layout of the IGTF: files with the name of the authority, and links with its hash.
    (trusted / f"{HASH}.0").symlink_to("own.pem")
    (trusted / f"{HASH}.namespaces").symlink_to("own.namespaces")
    file = trusted / "own.namespaces"
    file.write_text(
        "##########\n#NAMESPACES-VERSION: 1.0\n"
        'TO Issuer "/DC=org/DC=dray/CN=ca" \\\n  PERMIT Subject "/DC=org/DC=dray/.*"\n'
        'TO Issuer SELF DENY Subject "/DC=org/DC=dray/CN=bob.*"\n',
        encoding="utf-8",
    )
    endpoint = start_endpoint("b", config={"tls": {"client_ca": str(trusted)}})
    alice, bob = authority.issue("alice"), authority.issue("bob")
    outside = authority.issue("outside", "/DC=org/DC=else/CN=alice")
    for good in (alice, authority.proxy(alice, "proxy")):
        answer = ask(endpoint, "GET", "/v1/endpoint", certificate=good.file())
        assert answer.code == 200, answer.text
    for bad, words in (
        (outside, "does not permit the certificate of /DC=org/DC=else/CN=alice"),
        (bob, "denies the certificate of /DC=org/DC=dray/CN=bob"),
        (authority.proxy(bob, "other-proxy"), "denies the certificate of /DC=org/DC=dray/CN=bob"),
    ):
        answer = ask(endpoint, "GET", "/v1/endpoint", certificate=bad.file())
        cause = answer.refused(401, "unauthorized")["cause"]
        assert f"the namespaces file of /DC=org/DC=dray/CN=ca {words}" in cause, cause
    # A signing policy of the same authority must permit the certificate too.
    (trusted / "own.signing_policy").write_text(
        "access_id_CA  X509    '/DC=org/DC=dray/CN=ca'\n"
        "pos_rights    globus  CA:sign\n"
        "cond_subjects globus  '\"/DC=org/DC=dray/CN=carol\"'\n",
        encoding="utf-8",
    )
    until = time.monotonic() + 30
    while ask(endpoint, "GET", "/v1/endpoint", certificate=alice.file()).code == 200:
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.5)


@pytest.mark.parametrize("damaged", ["signing_policy", "namespaces"])
def test_a_damaged_policy_denies_only_its_own_authority(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path, damaged: str
) -> None:
    trusted, lists = tmp_path / "trusted", tmp_path / "lists"
    made = []
    for folder in (trusted, lists, tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
    for name in ("one", "two"):
        authority = Authority(tmp_path / name, name)
        shutil.copy(authority.file, trusted / f"{name}.pem")
        authority.write_list(lists / f"{name}.crl")
        made.append(authority)
    one, two = made
    (trusted / f"one.{damaged}").write_text("<html>503</html>\n", encoding="utf-8")
    tls = {"client_ca": str(trusted), "crl": str(lists)}
    endpoint = start_endpoint("b", config={"tls": tls})
    alice, bob, carol = one.issue("alice"), two.issue("bob"), two.issue("carol")

    def code(certificate: Certificate) -> int:
        return ask(endpoint, "GET", "/v1/endpoint", certificate=certificate.file()).code

    kind = {"signing_policy": "signing policy", "namespaces": "namespaces file"}[damaged]
    answer = ask(endpoint, "GET", "/v1/endpoint", certificate=alice.file())
    cause = answer.refused(401, "unauthorized")["cause"]
    assert f"the {kind} of /DC=org/DC=dray/CN=one is damaged" in cause, cause
    assert (code(bob), code(carol)) == (200, 200)
    assert f"{trusted / f'one.{damaged}'}: line 1: " in endpoint.log_text()
    # The endpoint still reads new revocation lists.
    two.revoke(bob)
    two.write_list(lists / "two.crl")
    until = time.monotonic() + 30
    while code(bob) == 200:
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.5)
    assert (code(alice), code(carol)) == (401, 200)
    # Without the damaged file, the authority is accepted again, without a restart.
    (trusted / f"one.{damaged}").unlink()
    until = time.monotonic() + 30
    while code(alice) != 200:
        assert time.monotonic() < until, endpoint.log_text()
        time.sleep(0.5)
    assert code(bob) == 401


def test_a_wrong_section_is_a_usage_error(tmp_path: Path, mirror: tuple[Path, str]) -> None:
    site = Site(tmp_path, mirror)
    good = site.config.read_text(encoding="utf-8")
    source = '[[trust.source]]\nname = "{name}"\nkind = "{kind}"\nurl = "{url}"\n'
    for name, kind, url, words in (
        ("a.jwks", "jwks", "http://a.example/keys", "not encrypted"),
        ("../a.jwks", "jwks", "https://a.example/keys", "file name"),
        ("a.jwks", "crl", "https://a.example/a.crl", "ends in"),
        ("a.crl", "crl", "ftp://a.example/a.crl", "neither"),
    ):
        site.config.write_text(
            good + source.format(name=name, kind=kind, url=url), encoding="utf-8"
        )
        ended = site.run()
        assert ended.returncode == 2, ended
        assert words in ended.stderr, ended
        assert str(site.config) in ended.stderr, ended
