"""Bearer tokens: which are accepted, and what happens when one expires."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.client import Place, Request
from integration.endpoint.issuer import Issuer, encode
from integration.endpoint.raw import ask, dray
from integration.endpoint.token_scene import TokenScene, fetch, open_scene
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(scope="module")
def scene() -> Iterator[TokenScene]:
    """Yield one scene for all tests of this file."""
    with open_scene() as scene:
        yield scene


# --- accepted and refused tokens ------------------------------------------------------------------


def good(scene: TokenScene, **more: Json) -> str:
    return scene.issuer.token("storage.read:/", **more)


def signed(scene: TokenScene, algorithm: str, secret: bytes = b"", **header: Json) -> str:
    head = {"alg": algorithm, "kid": "rs256", "typ": "JWT", **header}
    claims = scene.issuer.claims("storage.read:/")
    return scene.issuer.sign(head, claims, algorithm, secret)


def changed(scene: TokenScene) -> str:
    head, _, rest = good(scene).partition(".")
    claims = scene.issuer.claims("storage.read:/ storage.modify:/")
    return f"{head}.{encode(json.dumps(claims).encode())}.{rest.partition('.')[2]}"


def ago(seconds: int) -> int:
    return int(time.time()) - seconds


BAD: dict[str, tuple[Callable[[TokenScene], str], str]] = {
    "empty": (lambda _: "", "does not hold a bearer token"),
    "garbage": (lambda _: "!!! not a token !!!", "not a JSON Web Token"),
    "two-parts": (lambda h: good(h).rpartition(".")[0], "does not have three parts"),
    "five-parts": (lambda _: "a.b.c.d.e", "encrypted"),
    "no-base64": (lambda h: "%%%." + good(h).partition(".")[2], "not base64url"),
    "no-json": (lambda h: encode(b"[1]") + "." + good(h).partition(".")[2], "not a JSON object"),
    "huge": (lambda _: "a" * 20_000, "more than 16384 bytes"),
    "expired": (lambda h: good(h, exp=ago(120)), "the token expired 12"),
    "no-end": (lambda h: good(h, exp=None), "has no expiry time"),
    "not-yet": (lambda h: good(h, nbf=ago(-600)), "not yet valid"),
    "issued-later": (lambda h: good(h, iat=ago(-600)), "not yet valid"),
    "other-issuer": (lambda h: good(h, iss="https://elsewhere.example/"), "does not trust"),
    "no-issuer": (lambda h: good(h, iss=None), "names no issuer"),
    "issuer-alike": (lambda h: good(h, iss=h.issuer.url.rstrip("/")), "does not trust"),
    "other-audience": (lambda h: good(h, aud="https://elsewhere"), "the audience of the token is"),
    "no-audience": (lambda h: good(h, aud=None), "names no audience"),
    "no-subject": (lambda h: good(h, sub=None), "names no subject"),
    "no-profile": (lambda h: good(h, **{"wlcg.ver": None}), "WLCG profile"),
    "bound": (lambda h: good(h, cnf={"jkt": "x"}), "bound to a key"),
    "twisted": (lambda h: good(h, exp="tomorrow"), "wrong type"),
    "climbing": (lambda h: h.issuer.token("storage.read:/data/../x"), "leaves its root"),
    "unknown-key": (lambda h: good(h, header={"kid": "another"}), "has no key"),
    "strangers-key": (lambda h: h.stranger.token("storage.read:/"), "the token's signature by"),
    "changed": (changed, "the token's signature by"),
    "no-signature": (lambda h: good(h).rpartition(".")[0] + ".", "the token's signature by"),
    "alg-none": (lambda h: signed(h, "none"), "algorithm none of the token is not accepted"),
    "alg-None": (lambda h: signed(h, "none", alg="None"), "is not accepted"),
    "hs256-public-pem": (
        lambda h: signed(h, "HS256", h.issuer.public("RS256").read_bytes()),
        "algorithm HS256 of the token is not accepted",
    ),
    "hs256-as-rs256": (
        lambda h: signed(h, "HS256", h.issuer.public("RS256").read_bytes(), alg="RS256"),
        "the token's signature by",
    ),
    "other-algorithm": (
        lambda h: signed(h, "RS256", kid="es256"),
        "is not for the signature algorithm RS256",
    ),
    "critical": (lambda h: good(h, header={"crit": ["x"], "x": 1}), "critical"),
    "other-type": (lambda h: good(h, header={"typ": "secevent+jwt"}), "not an access token"),
    "own-keys": (
        lambda h: h.stranger.token("storage.read:/", header={"jku": "https://evil.example/"}),
        "the token's signature by",
    ),
    "ticket": (lambda _: "drt_" + "A" * 43, "not a JSON Web Token"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_token_is_refused_by_the_api_with_the_cause(scene: TokenScene, name: str) -> None:
    make, words = BAD[name]
    token = make(scene)
    answer = ask(scene.endpoint, "GET", "/v1/endpoint", token=token)
    error = answer.refused(401, "unauthorized")
    assert words in error["cause"], error
    if len(token) > 20:
        assert token[-20:] not in answer.text


@pytest.mark.parametrize("name", sorted(set(BAD) - {"empty", "huge"}))
def test_a_bad_token_opens_no_session_and_the_copy_reports_the_cause(
    scene: TokenScene, name: str, tmp_path: Path
) -> None:
    make, words = BAD[name]
    if name == "ticket":
        words = "did not issue the ticket"
    ended = fetch(scene, make(scene), "data/x", tmp_path)
    assert ended.returncode == 3, ended.stderr
    error = json.loads(ended.stdout.splitlines()[-1])["error"]
    assert error["kind"] == "unauthorized", error
    assert words in error["cause"], error
    assert error["remedy"], error
    assert list(tmp_path.glob("got*")) == []


HEADERS: dict[str, tuple[Callable[[str], list[tuple[str, str]]], str]] = {
    "missing": (lambda _: [], "neither a token nor a certificate"),
    "two": (lambda t: [("Authorization", f"Bearer {t}")] * 2, "two Authorization headers"),
    "two-other": (
        lambda t: [("Authorization", f"Bearer {t}"), ("authorization", "Bearer x")],
        "two Authorization headers",
    ),
    "basic": (lambda t: [("Authorization", f"Basic {t}")], "does not hold a bearer token"),
    "no-scheme": (lambda t: [("Authorization", t)], "does not hold a bearer token"),
    "scheme-alone": (lambda _: [("Authorization", "Bearer")], "does not hold a bearer token"),
    "two-in-one": (lambda t: [("Authorization", f"Bearer {t}, Bearer {t}")], ""),
    "as-cookie": (lambda t: [("Cookie", f"token={t}")], "neither a token nor a certificate"),
    "latin": (lambda t: [("Authorization", f"Bearer \xe9{t}")], ""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_good_token_counts_only_in_one_good_header(scene: TokenScene, name: str) -> None:
    make, words = HEADERS[name]
    answer = ask(scene.endpoint, "GET", "/v1/endpoint", headers=make(good(scene)))
    assert words in answer.refused(401, "unauthorized")["cause"]


def test_a_token_in_the_url_is_no_credential(scene: TokenScene) -> None:
    for path in ("/v1/endpoint", "/v1/transfers"):
        answer = ask(scene.endpoint, "GET", f"{path}?access_token={good(scene)}")
        assert answer.code in (400, 401), answer.text
        assert good(scene)[-20:] not in answer.text


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_good_tokens_are_accepted_in_every_form_of_the_profile(
    scene: TokenScene, algorithm: str
) -> None:
    for more in (
        {},
        {"aud": ["https://elsewhere", scene.issuer.audience]},
        {"aud": "https://wlcg.cern.ch/jwt/v1/any"},
        {"exp": ago(30)},
        {"nbf": None, "iat": None},
        {"header": {"typ": "at+jwt"}},
        {"header": {"kid": None}},
    ):
        token = good(scene, algorithm=algorithm, **more)
        answer = ask(scene.endpoint, "GET", "/v1/endpoint", token=token)
        assert answer.code == 200, (more, answer.text)
        assert answer.json["you"]["owner"] == "alice"


def test_only_public_calls_need_no_token(scene: TokenScene) -> None:
    document = ask(scene.endpoint, "GET", "/v1/openapi.json")
    assert document.code == 200
    assert ask(scene.endpoint, "GET", "/healthz").code == 200
    for path, methods in document.json["paths"].items():
        for method in methods:
            if path in ("/v1/openapi.json", "/healthz", "/.well-known/wlcg-tape-rest-api"):
                continue
            where = path.replace("{id}", "x")
            answer = ask(scene.endpoint, method.upper(), where, raw=b"{}")
            renewed = path == "/v1/tickets/renew"  # by a key, not by a token
            wanted = (400, 401) if renewed else (401,)
            assert answer.code in wanted, f"{method} {path}: {answer.code} {answer.text}"
            assert answer.error["remedy"]


def test_commands_without_a_valid_token_name_the_remedy(scene: TokenScene, tmp_path: Path) -> None:
    file = tmp_path / "token"
    place = f"dray://{scene.endpoint.address}/data"
    commands = [
        ["ls", place],
        ["stat", place],
        ["rm", f"{place}/x"],
        ["checksum", f"{place}/x"],
        ["transfers", "--endpoint", scene.endpoint.address],
        ["show", "x", "--endpoint", scene.endpoint.address],
        ["cancel", "x", "--endpoint", scene.endpoint.address],
        ["endpoint", "status", scene.endpoint.address],
    ]
    for token, words in (
        (good(scene, exp=ago(200)), "expired"),
        (scene.stranger.token("storage.read:/"), "the token's signature by"),
    ):
        file.write_text(token, encoding="utf-8")
        file.chmod(0o600)
        for command in commands:
            options = ["--token-file", str(file), "--peer-key", scene.endpoint.key]
            ended = dray(*command, *options)
            assert ended.returncode == 3, (command, ended)
            assert words in ended.stderr, (command, ended.stderr)
            assert "ask the issuer for a new token" in ended.stderr, (command, ended.stderr)
            assert token[-20:] not in ended.stderr + ended.stdout


# --- expired tokens -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_transfer_outlives_the_token_it_was_submitted_with(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    """Queued and running transfers succeed, although calls with their token are refused."""
    issuer = Issuer(tmp_path)
    rules = [{"issuer": issuer.url, "subject": "alice", "owner": "alice"}]
    config = {"issuer": [issuer.config()], "map": {"rules": rules}}
    a = start_endpoint("a", config=config)
    b = start_endpoint("b")
    tree.make_file(b.root("x.dat"), 4 * MIB, seed=1)
    token = issuer.dying(4, "storage.read:/", "storage.modify:/")
    fresh = issuer.token("storage.read:/")
    start = time.time()
    with b.client() as there, a.client(token=token) as here:
        later = datetime.fromtimestamp(start + 6, timezone.utc)
        for id, not_before, rate in (("queued", later, None), ("moving", None, 512 * KIB)):
            ticket = there.mint_ticket(id, "read", ["/data/x.dat"], a.key)
            place = Place(b.place("x.dat"), ticket.ticket, ticket.key, ticket.address)
            request = Request([place], f"/data/{id}", id=id, not_before=not_before, rate_max=rate)
            here.submit(request)
    while ask(a, "GET", "/v1/transfers/moving", token=token).code == 200:
        assert time.time() < start + 30, "it never expires"
        time.sleep(0.1)
    for path in ("/v1/transfers/moving", "/v1/transfers", "/v1/transfers/queued/wait?timeout=1"):
        error = ask(a, "GET", path, token=token).refused(401, "unauthorized")
        assert "expired" in error["cause"]
        assert "new token" in error["remedy"]
    ids = ("queued", "moving")
    states = {id: ask(a, "GET", f"/v1/transfers/{id}", token=fresh).json for id in ids}
    assert states["moving"]["state"] == "active", states["moving"]
    assert states["queued"]["state"] in ("queued", "waiting"), states["queued"]
    for id in ids:
        done = ask(a, "GET", f"/v1/transfers/{id}/wait?timeout=60", token=fresh).json
        assert done["state"] == "done", done
        assert a.root(id).read_bytes() == b.root("x.dat").read_bytes()


@pytest.mark.slow
def test_a_session_outlives_its_token_and_the_next_needs_another(
    scene: TokenScene, tmp_path: Path
) -> None:
    large = scene.endpoint.root("lasting/large")
    large.parent.mkdir()
    tree.make_file(large, 4 * MIB, seed=2)
    token = scene.issuer.dying(4, "storage.read:/data/lasting")
    start = time.monotonic()
    ended = fetch(scene, token, "data/lasting/large", tmp_path, "--rate", "512KiB")
    assert ended.returncode == 0, ended
    assert time.monotonic() - start > 5, "the session ended before the token expired"
    assert (tmp_path / "got").read_bytes() == large.read_bytes()
    ended = fetch(scene, token, "data/lasting/large", tmp_path)
    assert ended.returncode == 3
    assert "expired" in ended.stdout


@pytest.mark.slow
def test_a_long_poll_ends_as_it_began_and_the_next_needs_another_token(scene: TokenScene) -> None:
    token = scene.issuer.dying(3, "storage.read:/")
    last = ask(scene.endpoint, "GET", "/v1/events?timeout=0", token=token).json["last"]
    polled = ask(scene.endpoint, "GET", f"/v1/events?timeout=6&after={last}", token=token)
    assert polled.code == 200, polled.text
    again = ask(scene.endpoint, "GET", f"/v1/events?timeout=1&after={last}", token=token)
    again.refused(401, "unauthorized")
