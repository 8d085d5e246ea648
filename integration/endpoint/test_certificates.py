"""Accepted and refused client certificates, their permissions, and server certificates."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

from dray.testing.endpoints import Endpoint, Root
from integration.endpoint.authority import LIMITED, Authority, Certificate, proxy_extensions
from integration.endpoint.raw import ask, dray, query, shipped_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
#: Maximum seconds until an endpoint uses a new revocation list, with a margin.
RELOAD_SECONDS = 10.0
SERVER = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = {names}
"""


class World(NamedTuple):
    """An endpoint that trusts an authority, and certificates of many kinds."""

    endpoint: Endpoint
    authority: Authority
    lists: Path
    #: Certificate files by name: the names in GOOD and BAD, and names of people.
    files: dict[str, Path]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="dray-certificates-"))
    for name in ("own", "other", "lists", "trusted"):
        (folder / name).mkdir()
    authority, other = Authority(folder / "own"), Authority(folder / "other", "other")
    shutil.copy(authority.file, folder / "trusted" / "own.pem")
    issue, proxy = authority.issue, authority.proxy
    alice = issue("alice")
    short = proxy(alice, "short", proxy_extensions(length=0))
    fading = issue("fading", start_days=-9, end_days=-1)
    revoked = issue("revoked")
    authority.revoke(revoked)
    authority.write_list(folder / "lists" / "own.crl")
    people: list[Certificate] = [
        alice,
        issue("bob"),
        issue("carol"),
        issue("nobody"),
        issue("root"),
        proxy(alice, "proxy"),
        proxy(proxy(alice, "below"), "second"),
        proxy(alice, "limited", proxy_extensions(LIMITED)),
        fading,
        issue("later", start_days=1, end_days=9),
        revoked,
        proxy(revoked, "proxy-of-revoked"),
        other.issue("alice"),
        authority.self_signed("self", "/DC=org/DC=dray/CN=alice"),
        issue("server", "/DC=org/DC=dray/CN=alice", extensions=SERVER_ONLY),
        issue("sub", "/DC=org/DC=dray/CN=alice", extensions=AN_AUTHORITY),
        proxy(alice, "old-proxy", start_days=-3, end_days=-1),
        proxy(alice, "early-proxy", start_days=1, end_days=2),
        short,
        proxy(short, "too-long"),
        proxy(proxy(alice, "limited-above", proxy_extensions(LIMITED)), "below-limited"),
        proxy(fading, "proxy-of-expired"),
        proxy(
            alice,
            "no-usage",
            "proxyCertInfo = critical,language:id-ppl-inheritAll\n"
            "keyUsage = critical,keyAgreement\n",
        ),
        proxy(alice, "not-critical", "proxyCertInfo = language:id-ppl-inheritAll\n"),
    ]
    files = {}
    for each in people:
        name = "other-authority" if each.folder == other.folder else each.name
        files[name] = each.file()
    stolen = proxy(alice, "stolen-chain")
    stolen.above = [issue("carol2")]
    files["other-chain"] = stolen.file()
    alone = proxy(alice, "alone")
    alone.above = []
    files["proxy-alone"] = alone.file()
    rules: list[Json] = [
        {"subject": f"/DC=org/DC=dray/CN={name}", "owner": name}
        for name in ("alice", "bob", "root")
    ]
    rules += [
        {"subject": "CN=carol,DC=dray,DC=org", "owner": "carol"},
        {"subject": "/DC=org/DC=dray/CN=nobody", "refuse": True},
        {"issuer": "https://a", "subject": "alice", "owner": "alice"},
    ]
    endpoint = Endpoint(
        folder / "endpoint",
        roots=(
            Root("data", {"read": ["alice", "bob"], "write": ["alice"], "stage": []}),
            Root("open", {"read": "*", "write": "*"}),
            Root("fixed", {"read": "*", "write": "*", "read_only": True}),
        ),
        config={
            "tls": {"client_ca": str(folder / "trusted"), "crl": str(folder / "lists")},
            "map": {"rules": rules, "unmapped": "refuse"},
        },
        program=shipped_program(),
    )
    try:
        yield World(endpoint.start(), authority, folder / "lists" / "own.crl", files)
    finally:
        endpoint.close()
        shutil.rmtree(folder, ignore_errors=True)


SERVER_ONLY = "basicConstraints = critical,CA:FALSE\nextendedKeyUsage = serverAuth\n"
AN_AUTHORITY = "basicConstraints = critical,CA:TRUE\nkeyUsage = critical,keyCertSign\n"

GOOD = ["alice", "proxy", "second", "limited", "short", "below-limited"]
BAD = {
    "fading": "expired",
    "later": "not yet valid",
    "revoked": "was revoked",
    "proxy-of-revoked": "was revoked",
    "other-authority": "which this endpoint does not trust",
    "self": "which this endpoint does not trust",
    "server": "extended key usage",
    "sub": "authority",
    "old-proxy": "expired",
    "early-proxy": "not yet valid",
    "too-long": "more proxies than the path length limit of one of its proxies allows",
    "proxy-of-expired": "expired",
    "no-usage": "digital signatures",
    "not-critical": "",
    "other-chain": "issuer",
    "proxy-alone": "",
}


def fetch(world: World, certificate: Path, path: str, to: Path) -> subprocess.CompletedProcess[str]:
    """Copy a file from the endpoint, with a certificate and no token."""
    far = f"dray://{world.endpoint.address}/{path}"
    options = "--cert", certificate, "--peer-key", world.endpoint.key, "--retries", "0"
    return dray("cp", "--json", far, to, *options)


def report(ended: subprocess.CompletedProcess[str]) -> Json:
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", GOOD)
def test_a_good_certificate_is_its_subject_for_calls_and_sessions(
    world: World, name: str, tmp_path: Path
) -> None:
    """Accept proxy certificates too. A limited proxy certificate forbids only jobs."""
    you = ask(world.endpoint, "GET", "/v1/endpoint", certificate=world.files[name]).json["you"]
    assert you["owner"] == "alice"
    assert you["principal"] == "/DC=org/DC=dray/CN=alice"
    world.endpoint.root("x").write_bytes(b"x" * 1000)
    ended = fetch(world, world.files[name], "data/x", tmp_path / "got")
    assert ended.returncode == 0, ended
    assert (tmp_path / "got").read_bytes() == b"x" * 1000


@pytest.mark.parametrize("name", BAD)
def test_a_bad_certificate_is_refused_with_the_cause(
    world: World, name: str, tmp_path: Path
) -> None:
    certificate = world.files[name]
    answer = ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate)
    error = answer.refused(401, "unauthorized")
    assert BAD[name] in error["cause"], error
    world.endpoint.root("x").write_bytes(b"x" * 1000)
    ended = fetch(world, certificate, "data/x", tmp_path / "got")
    assert ended.returncode == 3, ended
    reported = report(ended)["error"]
    assert reported["kind"] == "unauthorized", reported
    assert BAD[name] in reported["cause"], reported
    assert reported["remedy"], reported
    assert not (tmp_path / "got").exists()
    # If a request has a bad certificate and a good token, the token counts.
    token = world.endpoint.token()
    there = ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate, token=token)
    assert there.code == 200, there.text


def test_a_certificate_without_its_key_is_refused_locally(world: World, tmp_path: Path) -> None:
    whole = world.files["alice"].read_text(encoding="utf-8")
    head, mark, key = whole.partition("-----BEGIN EC PRIVATE KEY-----")
    other = world.files["bob"].read_text(encoding="utf-8").partition(mark)[2]
    for name, text in (
        ("no-key", head),
        ("other-key", head + mark + other),
        ("no-certificate", mark + key),
        ("garbage", "nothing of the kind\n"),
    ):
        file = tmp_path / name
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        ended = fetch(world, file, "data/x", tmp_path / "got")
        assert ended.returncode in (2, 3), (name, ended)
        output = ended.stdout + ended.stderr
        assert name == "other-key" or str(file) in output, (name, output)
        assert key.strip().splitlines()[0] not in output
    ended = fetch(world, tmp_path / "nowhere", "data/x", tmp_path / "got")
    assert ended.returncode in (2, 3), ended
    assert str(tmp_path / "nowhere") in ended.stdout + ended.stderr


def test_root_rules_apply_to_certificate_owners(world: World, tmp_path: Path) -> None:
    wanted = {
        "alice": {"data": (200, 201), "open": (200, 201), "fixed": (200, 403)},
        "bob": {"data": (200, 403), "open": (200, 201), "fixed": (200, 403)},
        "carol": {"data": (403, 403), "open": (200, 201), "fixed": (200, 403)},
        "nobody": {"data": (403, 403), "open": (403, 403), "fixed": (403, 403)},
    }
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for subject, rules in wanted.items():
        certificate = world.files[subject]
        for root in rules:
            world.endpoint.root("x", root=root).write_bytes(b"x")
            where = f"/v1/storage/stat?{query(f'/{root}/x')}"
            read = ask(world.endpoint, "GET", where, certificate=certificate)
            body = {"path": f"/{root}/made-by-{subject}"}
            write = ask(world.endpoint, "POST", "/v1/storage/mkdir", body, certificate=certificate)
            for answer in (read, write):
                if answer.code == 403:
                    answer.refused(403, "permission_denied")
            found.setdefault(subject, {})[root] = (read.code, write.code)
            # Sessions follow the same rules as calls.
            pulled = fetch(world, certificate, f"{root}/x", tmp_path / f"{subject}-{root}")
            assert pulled.returncode == (0 if read.code == 200 else 3), (subject, root, pulled)
            sent = tmp_path / "sent"
            sent.write_bytes(b"sent")
            far = f"dray://{world.endpoint.address}/{root}/sent-by-{subject}"
            key = world.endpoint.key
            pushed = dray("cp", "--json", sent, far, "--cert", certificate, "--peer-key", key)
            assert pushed.returncode == (0 if write.code == 201 else 3), (subject, root, pushed)
    assert found == wanted


@pytest.mark.parametrize(
    "field", [("Origin", "https://else.example"), ("Sec-Fetch-Site", "cross-site")], ids=str
)
def test_no_page_of_another_site_acts_by_a_browsers_certificate(
    world: World, field: tuple[str, str]
) -> None:
    """Refuse a request of another site if a browser adds its user's certificate, but no token."""
    certificate, token = world.files["alice"], world.endpoint.token()
    where, name = "/v1/storage/mkdir", f"made-{field[0]}"
    body, own = {"path": f"/data/{name}"}, {"path": f"/data/{name}-own"}
    answer = ask(world.endpoint, "POST", where, body, headers=[field], certificate=certificate)
    assert "a web page of another site" in answer.refused(401, "unauthorized")["cause"]
    assert not world.endpoint.root(name).exists()
    answer = ask(world.endpoint, "POST", where, body, headers=[field], token=token)
    assert answer.code == 201, answer.text
    same = [("Sec-Fetch-Site", "none")]
    answer = ask(world.endpoint, "POST", where, own, headers=same, certificate=certificate)
    assert answer.code == 201, answer.text


def test_an_unmapped_principal_is_refused_if_mapping_is_required(world: World) -> None:
    stranger = world.authority.issue("stranger").file()
    answer = ask(world.endpoint, "GET", "/v1/endpoint", certificate=stranger)
    assert "to an account of this endpoint" in answer.refused(403, "permission_denied")["cause"]


def test_an_administrator_may_use_a_certificate(world: World) -> None:
    certificate = world.files["root"]
    you = ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate).json["you"]
    assert (you["owner"], you["administrator"]) == ("root", True)
    assert ask(world.endpoint, "GET", "/metrics", certificate=certificate).code == 200
    answer = ask(world.endpoint, "GET", "/metrics", certificate=world.files["alice"])
    assert answer.code == 403, answer.text


@pytest.mark.full
@pytest.mark.slow
def test_a_revoked_certificate_is_refused_soon_without_a_restart(
    world: World, tmp_path: Path
) -> None:
    gone = world.authority.issue("gone", "/DC=org/DC=dray/CN=bob")
    certificate = gone.file()
    assert ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate).code == 200
    world.authority.revoke(gone)
    world.authority.write_list(world.lists)
    until = time.monotonic() + 3 * RELOAD_SECONDS
    while True:
        answer = ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate)
        if answer.code == 401:
            break
        assert time.monotonic() < until, "it is still accepted"
        time.sleep(0.5)
    assert "was revoked" in answer.refused(401, "unauthorized")["cause"]
    assert fetch(world, certificate, "data/x", tmp_path / "got").returncode == 3
    # If one revocation list is damaged, the other lists stay in force.
    good = world.lists.read_bytes()
    for damaged in (good[: len(good) // 2], b"<html>503 try again later</html>"):
        before = world.endpoint.log_text().count(
            "the endpoint continues with the authorities and lists"
        )
        world.lists.write_bytes(damaged)
        time.sleep(RELOAD_SECONDS + 1)
        for name, code in (("alice", 200), ("revoked", 401)):
            answer = ask(world.endpoint, "GET", "/v1/endpoint", certificate=world.files[name])
            assert answer.code == code, answer.text
        kept_lists = [
            line
            for line in world.endpoint.log_text().splitlines()
            if "the endpoint continues with" in line
        ]
        assert len(kept_lists) > before, "the log does not report it"
        assert str(world.lists) in kept_lists[-1]
        assert "fetch the revocation list again" in kept_lists[-1]
    # A repaired list is in force again. Use DER, the other form in which authorities publish lists.
    later = world.authority.issue("later-gone", "/DC=org/DC=dray/CN=bob")
    file = later.file()
    world.authority.revoke(later)
    world.authority.write_list(world.lists)
    ends = ["-in", str(world.lists), "-out", str(tmp_path / "der")]
    subprocess.run(["openssl", "crl", *ends, "-outform", "DER"], check=True, capture_output=True)
    (tmp_path / "der").replace(world.lists)
    time.sleep(RELOAD_SECONDS + 1)
    for certificate, code in ((file, 401), (world.files["alice"], 200)):
        answer = ask(world.endpoint, "GET", "/v1/endpoint", certificate=certificate)
        assert answer.code == code, answer.text
    world.authority.write_list(world.lists)


@pytest.mark.parametrize("name", ["folder", "file"])
def test_an_endpoint_does_not_start_with_a_damaged_list(tmp_path: Path, name: str) -> None:
    for each in ("ca", "lists"):
        (tmp_path / each).mkdir()
    authority = Authority(tmp_path / "ca")
    lists = tmp_path / "lists"
    file = lists / ("own.r0" if name == "folder" else "revoked")
    crl = str(lists if name == "folder" else file)
    tls = {"client_ca": str(authority.file), "crl": crl}
    program = shipped_program()
    endpoint = Endpoint(tmp_path / "a", "a", config={"tls": tls}, program=program)
    try:
        authority.write_list(file)
        good = file.read_bytes()
        endpoint.start()
        endpoint.stop()
        for damaged, cause in (
            (b"", "holds no revocation list"),
            (b"not found\n", "holds no revocation list"),
            (good[: len(good) // 2], ""),
            (b"\x30\x82\x01", "malformed"),
        ):
            file.write_bytes(damaged)
            with pytest.raises(RuntimeError):
                endpoint.start()
            assert endpoint.exit_code not in (0, None)
            log_text = endpoint.log_text()
            assert f"{file}: " in log_text, log_text
            assert cause in log_text, log_text
            assert "fetch the revocation list again" in log_text, log_text
        file.write_bytes(good)
        endpoint.start()
    finally:
        endpoint.close()


def test_an_endpoint_that_trusts_no_authority_reports_it(
    world: World, start_endpoint: Callable[..., Endpoint]
) -> None:
    endpoint = start_endpoint("plain")
    answer = ask(endpoint, "GET", "/v1/endpoint", certificate=world.files["alice"])
    error = answer.refused(401, "unauthorized")
    assert "trusts no certificate authority" in error["cause"]
    assert "token" in error["remedy"]


# --- the endpoint's own certificate ---------------------------------------------------------------


def serving(
    start_endpoint: Callable[..., Endpoint], certificate: Certificate, name: str = "b"
) -> Endpoint:
    """Start an endpoint that has a certificate of an authority."""
    chain = certificate.folder / f"{certificate.name}.chain"
    chain.write_text(certificate.chain, encoding="utf-8")
    certificate.key.chmod(0o600)
    tls = {"certificate": str(chain), "key": str(certificate.key)}
    return start_endpoint(name, config={"tls": tls})


def named(endpoint: Endpoint, host: str) -> str:
    return f"{host}:{endpoint.address.rpartition(':')[2]}"


@pytest.mark.parametrize(
    ("names", "days", "host", "code", "words"),
    [
        ("DNS:localhost", 30, "localhost", 0, ""),
        ("IP:127.0.0.1", 30, "127.0.0.1", 0, ""),
        ("DNS:elsewhere.example,DNS:localhost", 30, "localhost", 0, ""),
        ("DNS:elsewhere.example", 30, "localhost", 3, "host"),
        ("DNS:localhost", 30, "127.0.0.1", 3, "host"),
        ("DNS:localhost", -1, "localhost", 3, "expired"),
    ],
)
def test_a_server_must_be_the_host_that_was_dialled(
    start_endpoint: Callable[..., Endpoint],
    tmp_path: Path,
    names: str,
    days: float,
    host: str,
    code: int,
    words: str,
) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue(
        "host", extensions=SERVER.format(names=names), start_days=-9, end_days=days
    )
    endpoint = serving(start_endpoint, certificate)
    endpoint.root("x").write_bytes(b"x" * 100)
    where, token = named(endpoint, host), endpoint.token()
    options = "--ca", authority.file
    copied = dray(
        "cp", "--json", f"dray://{where}/data/x", tmp_path / "got", *options, DRAY_TOKEN=token
    )
    asked = dray("ls", f"dray://{where}/data", *options, DRAY_TOKEN=token)
    for ended in (copied, asked):
        assert ended.returncode == code, ended
        assert words in ended.stdout + ended.stderr, ended
    assert (tmp_path / "got").exists() == (code == 0)


def test_an_untrusted_server_gets_no_token(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "own"), Authority(tmp_path / "other", "other")
    extensions = SERVER.format(names="DNS:localhost")
    endpoint = serving(start_endpoint, authority.issue("host", extensions=extensions))
    plain = start_endpoint("plain")
    token = endpoint.token()
    for where, options in (
        (named(endpoint, "localhost"), ["--ca", str(other.file)]),
        (named(endpoint, "localhost"), ["--peer-key", "sha256:" + "0" * 64]),
        (named(endpoint, "localhost"), ["--peer-key", plain.key]),
        # A self-signed certificate proves nothing.
        (plain.address, ["--ca", str(authority.file)]),
    ):
        copied = dray(
            "cp", "--json", f"dray://{where}/data/x", tmp_path / "got", *options, DRAY_TOKEN=token
        )
        asked = dray("ls", f"dray://{where}/data", *options, DRAY_TOKEN=token)
        for ended in (copied, asked):
            assert ended.returncode == 3, (options, ended)
            output = ended.stdout + ended.stderr
            assert "token" not in output.replace("--token-file", ""), output
            assert token[-20:] not in output
    # With a pin the name does not matter.
    pinned = dray(
        "ls", f"dray://{endpoint.address}/data", "--peer-key", endpoint.key, DRAY_TOKEN=token
    )
    assert pinned.returncode == 0, pinned


def test_endpoints_know_each_other_by_their_authority(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    """Submit requests without the other endpoint's key: its certificate must fit its name."""
    authority = Authority(tmp_path)
    extensions = SERVER.format(names="DNS:localhost")
    b = serving(start_endpoint, authority.issue("host", extensions=extensions))
    b.root("x").write_bytes(b"x" * 5000)
    states = {}
    for name, tls in (("trusting", {"peers_ca": str(authority.file)}), ("wary", {})):
        a = start_endpoint(name, config={"tls": tls})
        for host in ("localhost", "127.0.0.1"):
            id = f"{name}-{host}"
            body = {
                "transfer": id,
                "direction": "read",
                "paths": ["/data/x"],
                "peer_key": a.key,
            }
            ticket = ask(b, "POST", "/v1/tickets", body, token=b.token()).json["ticket"]
            source = {"url": f"dray://{named(b, host)}/data/x", "ticket": ticket}
            request = {"id": id, "sources": [source], "destination": {"url": f"/data/{id}"}}
            request["retry"] = {"tries": 1, "interval_seconds": 1}
            token = a.token()
            assert ask(a, "POST", "/v1/transfers", request, token=token).code == 201
            done = ask(a, "GET", f"/v1/transfers/{id}/wait?timeout=30", token=token).json
            states[id] = done["state"]
            if done["state"] != "done":
                assert done["error"]["kind"] == "unauthorized", done
                assert done["error"]["remedy"], done
    assert states == {
        "trusting-localhost": "done",
        "trusting-127.0.0.1": "failed",
        "wary-localhost": "failed",
        "wary-127.0.0.1": "failed",
    }
