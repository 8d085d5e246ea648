"""The WLCG Tape REST API, by its calls and by the client gfal2."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import httpx
import pytest

from dray import DrayError
from dray.client import TapeFile
from dray.testing.endpoints import Root
from integration.endpoint.authority import Authority
from integration.endpoint.raw import ask
from integration.endpoint.test_tier import tier_of
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

Json: TypeAlias = Any
END_SECONDS = 120.0
WELL_KNOWN = "/.well-known/wlcg-tape-rest-api"
SITE = "test-tape"
SERVER = """\
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
"""
GFAL_PYTHON = "/usr/bin/python3"
ROOTS = (Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"}))


class Site(NamedTuple):
    """An endpoint with the tape API, and the folder of the authorities that a client trusts."""

    endpoint: Endpoint
    trusted: Path

    @property
    def url(self) -> str:
        """URL of the endpoint, with the host name of its certificate."""
        return f"https://localhost:{self.endpoint.address.rsplit(':', 1)[1]}"

    def context(self) -> ssl.SSLContext:
        """Return TLS settings that trust the authority of the test."""
        return ssl.create_default_context(cafile=self.trusted / "ca.pem")

    def write(self, name: str, data: bytes, root: str = "slow") -> None:
        """Write a file to a root, by default to the slow root."""
        path = self.endpoint.root(name, root=root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def fast(self, name: str) -> Path:
        """Return the path of a file on the fast root."""
        return self.endpoint.root(name, root="fast")

    def gfal(self, command: str, *words: str, token: str | None = None) -> str:
        """Run a command of gfal2 with a token. Return its output."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.trusted),
            "X509_CERT_DIR": str(self.trusted),
            "BEARER_TOKEN": token or self.endpoint.token("storage.stage:/"),
        }
        done = subprocess.run(
            [GFAL_PYTHON, shutil.which(command) or command, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=END_SECONDS,
            stdin=subprocess.DEVNULL,
            env=env,
        )
        return done.stdout + done.stderr


@pytest.fixture
def start(start_endpoint: Callable[..., Endpoint], tmp_path: Path) -> Callable[..., Site]:
    """Return a function that starts an endpoint with a certificate for its host name."""

    def started(**config: Json) -> Site:
        folder = tmp_path / "authority"
        folder.mkdir()
        authority = Authority(folder)
        host = authority.issue("localhost", extensions=SERVER)
        trusted = tmp_path / "trusted"
        trusted.mkdir()
        shutil.copy(authority.file, trusted / "ca.pem")
        subprocess.run(["openssl", "rehash", trusted], check=True, capture_output=True)
        tls = {"certificate": str(host.file()), "key": str(host.key)}
        more = {"tls": tls, "tape": {"sitename": SITE, "lifetime": 600}, **config}
        return Site(start_endpoint("tape", roots=ROOTS, config=more), trusted)

    return started


@contextlib.contextmanager
def caller(
    site: Site, *scopes: str, subject: str = "alice", seconds: float = 30.0
) -> Iterator[httpx.Client]:
    """Open a client of the tape API that trusts the authority of the test."""
    token = site.endpoint.token(*scopes, subject=subject)
    with httpx.Client(
        base_url=site.url,
        verify=site.context(),
        headers={"Authorization": f"Bearer {token}"},
        timeout=seconds,
    ) as client:
        yield client


def stage(client: httpx.Client, *paths: str, **more: Json) -> str:
    """Request to stage files. Return the id of the request."""
    files = [{"path": path, **more} for path in paths]
    answer = client.post("/v1/tape/stage", json={"files": files})
    assert answer.status_code == 201, answer.text
    request: str = answer.json()["requestId"]
    assert answer.headers["location"] == f"{client.base_url}/v1/tape/stage/{request}".replace(
        "//v1", "/v1"
    )
    return request


def progress(client: httpx.Client, request: str) -> Json:
    """Return the progress of a stage request."""
    answer = client.get(f"/v1/tape/stage/{request}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(client: httpx.Client, request: str, fits: Callable[[Json], bool]) -> Json:
    """Wait until ``fits`` accepts the progress of a request. Return the progress."""
    end = time.monotonic() + END_SECONDS
    while True:
        shown = progress(client, request)
        if fits(shown):
            return shown
        assert time.monotonic() < end, json.dumps(shown)[:4000]
        time.sleep(0.2)


def over(shown: Json) -> bool:
    """Return true if all files of a request have ended."""
    return "completedAt" in shown


def states(shown: Json) -> dict[str, str]:
    """Return the state of each file of a request, by path."""
    return {file["path"]: file["state"] for file in shown["files"]}


def localities(client: httpx.Client, *paths: str) -> dict[str, str]:
    """Return the locality of each path, or its error."""
    answer = client.post("/v1/tape/archiveinfo", json={"paths": paths})
    assert answer.status_code == 200, answer.text
    return {one["path"]: one.get("locality") or one["error"] for one in answer.json()}


def post(client: httpx.Client, path: str, *paths: str) -> httpx.Response:
    """Call ``path``, which cancels or releases, with the file paths ``paths``."""
    return client.post(path, json={"paths": paths})


def problem(answer: httpx.Response, status: int) -> Json:
    """Fail unless the answer is a problem object of this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == status
    assert found["title"]
    assert found["detail"] == found["error"]["message"]
    return found


def test_discovery_is_open_and_names_the_calls(start: Callable[..., Site]) -> None:
    site = start()
    answer = httpx.get(site.url + WELL_KNOWN, verify=site.context())
    assert answer.status_code == 200
    assert answer.json() == {
        "sitename": SITE,
        "endpoints": [{"uri": f"{site.url}/v1/tape", "version": "v1", "metadata": {}}],
    }


def test_an_endpoint_without_tiers_has_no_tape_api(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    endpoint = start_endpoint("plain")
    ask(endpoint, "GET", WELL_KNOWN).refused(404, "not_found")


def test_files_are_staged_and_their_pins_end(start: Callable[..., Site]) -> None:
    site = start()
    site.write("run/a", b"a" * 1000)
    site.write("run/b c", b"b" * 1000)
    site.write("new", b"not archived", root="fast")
    paths = ("/slow/run/a", "/slow/run/b c")
    with caller(site, "storage.stage:/") as client:
        assert localities(client, *paths) == dict.fromkeys(paths, "TAPE")
        request = stage(client, "//slow//run/a", paths[1], "/slow/gone", "/slow/run", "/nowhere/x")
        shown = until(client, request, over)
        assert states(shown) == {
            paths[0]: "COMPLETED",
            paths[1]: "COMPLETED",
            "/slow/gone": "FAILED",
            "/slow/run": "FAILED",
            "/nowhere/x": "FAILED",
        }
        files = {file["path"]: file for file in shown["files"]}
        assert "does not exist" in files["/slow/gone"]["error"]
        assert "not a regular file" in files["/slow/run"]["error"]
        wrong = "neither in the slow root /slow nor in the fast root /fast"
        assert wrong in files["/nowhere/x"]["error"]
        done = files[paths[0]]
        assert done["diskPath"] == "/fast/run/a"
        assert "error" not in done
        assert shown["createdAt"] <= done["startedAt"] <= done["finishedAt"]
        assert done["finishedAt"] <= shown["completedAt"]
        assert site.fast("run/a").read_bytes() == b"a" * 1000
        assert site.fast("run/b c").read_bytes() == b"b" * 1000
        assert localities(client, *paths) == dict.fromkeys(paths, "DISK_AND_TAPE")
        found = localities(client, "/slow/new", "/fast/new", "/slow/gone")
        assert found["/slow/new"] == found["/fast/new"] == "DISK"
        assert "does not exist" in found["/slow/gone"]
        staged = entries(site, "/fast/run/a")
        assert [one.pinned_until is not None for one in staged] == [True]
        # The copy that exists is pinned a second time, and its data is not copied again.
        again = stage(client, paths[0], diskLifetime="PT2H")
        assert states(until(client, again, over)) == {paths[0]: "COMPLETED"}
        pins = [one.pinned_until for one in entries(site, "/fast/run/a") if one.hit]
        assert len(pins) == 1
        assert pins[0] is not None
        assert pins[0].timestamp() - time.time() > 7000
        assert post(client, f"/v1/tape/release/{again}", paths[0]).status_code == 200
        assert post(client, f"/v1/tape/release/{request}", *paths).status_code == 200
        for one in (*entries(site, "/fast/run/a"), *entries(site, "/fast/run/b c")):
            assert one.pinned_until is None
            assert one.expires_at is not None
            assert one.expires_at.timestamp() <= time.time()


def entries(site: Site, fast: str) -> list[Json]:
    """Return the endpoint's staging entries for a path on the fast root."""
    with site.endpoint.client(subject="root") as client:
        return [one for one in client.stagings() if one.to == fast]


def test_cancelled_files_are_not_staged(start: Callable[..., Site]) -> None:
    # The rate lets the first file of 8 MiB take several seconds.
    site = start(rate="2MiB")
    names = [f"f{index}" for index in range(4)]
    paths = [f"/slow/{name}" for name in names]
    for name in names:
        site.write(name, os.urandom(8 << 20))
    with caller(site, "storage.stage:/") as client:
        request = stage(client, *paths)
        until(client, request, lambda shown: "STARTED" in states(shown).values())
        url = f"/v1/tape/stage/{request}"
        refused = problem(post(client, f"{url}/cancel", paths[0], "/slow/other"), 400)
        assert "/slow/other" in refused["detail"]
        assert "CANCELLED" not in states(progress(client, request)).values()
        assert post(client, f"{url}/cancel", *paths[1:]).status_code == 200
        shown = until(client, request, over)
        wanted = {path: "CANCELLED" for path in paths[1:]} | {paths[0]: "COMPLETED"}
        assert states(shown) == wanted
        assert site.fast("f0").exists()
        gone = [site.fast(name) for name in names[1:]]
        end = time.monotonic() + END_SECONDS
        while any(site.fast("").glob(".dray-*")) and time.monotonic() < end:
            time.sleep(0.2)
        assert not any(path.exists() for path in gone)
        # Another owner neither sees the request nor changes it.
        with caller(site, subject="bob") as bob:
            problem(bob.get(url), 404)
            problem(bob.delete(url), 404)
            problem(post(bob, f"{url}/cancel", paths[0]), 404)
            problem(post(bob, f"/v1/tape/release/{request}", paths[0]), 404)
        deleted = client.delete(url)
        assert (deleted.status_code, deleted.content) == (200, b"")
        problem(client.get(url), 404)


def test_a_request_survives_a_restart(start: Callable[..., Site]) -> None:
    site = start(rate="4MiB", limits={"transfers_active": 2})
    names = [f"g{index}" for index in range(6)]
    data = {name: os.urandom(2 << 20) for name in names}
    for name, content in data.items():
        site.write(name, content)
    with caller(site) as client:
        request = stage(client, *(f"/slow/{name}" for name in names))
        until(client, request, lambda shown: "COMPLETED" in states(shown).values())
        before = progress(client, request)
        assert not over(before)
    site.endpoint.kill()
    site.endpoint.start()
    with caller(site) as client:
        shown = until(client, request, over)
        assert set(states(shown).values()) == {"COMPLETED"}
        assert shown["createdAt"] == before["createdAt"]
    for name, content in data.items():
        assert site.fast(name).read_bytes() == content


def test_many_files_are_one_request(start: Callable[..., Site]) -> None:
    site = start()
    names = [f"many/{index:03}" for index in range(500)]
    for name in names:
        site.write(name, name.encode() * 100)
    paths = [f"/slow/{name}" for name in names]
    with caller(site) as client:
        began = time.monotonic()
        request = stage(client, *paths)
        accepted = time.monotonic() - began
        shown = until(client, request, over)
        print(f"accepted in {accepted:.2f} s, staged in {time.monotonic() - began:.1f} s")
        assert states(shown) == dict.fromkeys(paths, "COMPLETED")
        assert localities(client, *paths) == dict.fromkeys(paths, "DISK_AND_TAPE")
    for name in names:
        assert site.fast(name).read_bytes() == name.encode() * 100


def test_what_is_not_permitted_or_malformed_is_refused(start: Callable[..., Site]) -> None:
    site = start()
    site.write("open/a", b"a")
    site.write("closed/a", b"a")
    body = {"files": [{"path": "/slow/open/a"}]}
    with caller(site, "storage.read:/") as client:
        problem(client.post("/v1/tape/stage", json=body), 403)
        assert localities(client, "/slow/open/a") == {"/slow/open/a": "TAPE"}
    with caller(site, "storage.stage:/slow/open", "storage.stage:/fast/open") as client:
        request = stage(client, "/slow/open/a", "/slow/closed/a")
        shown = until(client, request, over)
        found = states(shown)
        assert found == {"/slow/open/a": "COMPLETED", "/slow/closed/a": "FAILED"}
        found = localities(client, "/slow/closed/a")
        assert "permission denied" in found["/slow/closed/a"]
        hour = {"path": "/slow/a", "diskLifetime": "1h"}
        bad: list[Json] = [{}, {"files": []}, {"files": [hour]}]
        for wrong in bad:
            problem(client.post("/v1/tape/stage", json=wrong), 400)
        many = {"paths": ["/slow/a"] * 10_001}
        problem(client.post("/v1/tape/archiveinfo", json=many), 413)
        problem(client.get("/v1/tape/stage/none"), 404)
    with httpx.Client(base_url=site.url, verify=site.context()) as nobody:
        answer = nobody.post("/v1/tape/stage", json=body)
        problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_newer_data_on_the_fast_root_is_not_replaced(start: Callable[..., Site]) -> None:
    site = start()
    site.write("a", b"old")
    site.write("a", b"newer", root="fast")
    with caller(site) as client:
        assert localities(client, "/slow/a") == {"/slow/a": "DISK"}
        shown = until(client, stage(client, "/slow/a"), over)
        assert states(shown) == {"/slow/a": "FAILED"}
        assert "differs from" in shown["files"][0]["error"]
    assert site.fast("a").read_bytes() == b"newer"


def test_a_tier_admits_only_what_it_can_hold(start: Callable[..., Site]) -> None:
    site = start(tier=[tier_of(capacity=16 << 20)])
    site.write("large", os.urandom(17 << 20))
    site.write("small", os.urandom(1 << 20))
    with caller(site) as client:
        shown = until(client, stage(client, "/slow/large", "/slow/small"), over)
        assert states(shown) == {"/slow/large": "FAILED", "/slow/small": "COMPLETED"}
        assert "no space" in shown["files"][0]["error"], shown
    assert not site.fast("large").exists()


def test_the_activity_of_this_site_is_that_of_the_transfer(start: Callable[..., Site]) -> None:
    site = start()
    site.write("a", b"a")
    metadata = {SITE: {"activity": "reco", "more": 1}, "dray": {"activity": "other", "priority": 8}}
    with caller(site) as client:
        until(client, stage(client, "/slow/a", targetedMetadata=metadata), over)
    (entry,) = entries(site, "/fast/a")
    assert (entry.application, entry.priority) == ("reco", 8)
    with site.endpoint.client() as owner:
        assert owner.transfer(entry.transfer).request["activity"] == "reco"


def test_the_python_client_stages_and_releases(start: Callable[..., Site]) -> None:
    site = start()
    site.write("a b", b"a")
    path = "/slow/a%20b"
    with site.endpoint.client() as client:
        assert client.tape_localities([path, "/slow/gone"])[path].locality == "TAPE"
        meta = {"dray": {"activity": "reco"}}
        files = [TapeFile(path, 600, meta), TapeFile("/slow/gone")]
        request = client.tape_stage(files)
        end = time.monotonic() + END_SECONDS
        while True:
            found = {each.path: each for each in client.tape_progress(request).files}
            if all(each.state in ("COMPLETED", "FAILED") for each in found.values()):
                break
            assert time.monotonic() < end, found
            time.sleep(0.2)
        assert (found[path].state, found[path].disk_path) == ("COMPLETED", "/fast/a b")
        assert "does not exist" in (found["/slow/gone"].error or "")
        places = client.tape_localities([path, "/slow/gone"])
        assert places[path].locality == "DISK_AND_TAPE"
        assert "does not exist" in (places["/slow/gone"].error or "")
        client.tape_release(request, [path])
        (entry,) = entries(site, "/fast/a b")
        assert (entry.application, entry.pinned_until) == ("reco", None)
        with pytest.raises(DrayError) as caught:
            client.tape_progress("none")
        assert caught.value.kind == "not_found"


needs_gfal = pytest.mark.skipif(
    shutil.which("gfal-bringonline") is None or not Path(GFAL_PYTHON).exists(),
    reason="gfal2 is not installed (Debian packages gfal2-util-scripts, gfal2-plugin-http)",
)


@needs_gfal
def test_gfal_brings_files_online_and_evicts_them(start: Callable[..., Site]) -> None:
    site = start()
    site.write("run/a", os.urandom(1 << 20))
    site.write("run/b c", b"b")
    url = f"{site.url}/slow/run/a"
    assert "not yet archived" not in site.gfal("gfal-archivepoll", url)
    assert "nearline" in site.gfal("gfal-xattr", url, "user.status").lower()
    said = site.gfal("gfal-bringonline", "--polling-timeout", "60", url)
    assert f"{url} READY" in said, said
    assert site.fast("run/a").read_bytes() == site.endpoint.root("run/a", root="slow").read_bytes()
    assert "online" in site.gfal("gfal-xattr", url, "user.status").lower()
    (entry,) = entries(site, "/fast/run/a")
    assert entry.pinned_until is not None
    # The client sends the path of the URL as it is.
    odd = f"{site.url}/slow/run/b%20c"
    said = site.gfal("gfal-bringonline", "--polling-timeout", "60", odd)
    assert f"{odd} READY" in said, said
    assert site.fast("run/b c").read_bytes() == b"b"
    said = site.gfal("gfal-evict", url)
    assert "error" not in said.lower(), said
    (entry,) = entries(site, "/fast/run/a")
    assert entry.pinned_until is None
    listed = site.trusted / "list"
    metadata = json.dumps({SITE: {"activity": "reco"}})
    listed.write_text(f"{url}\n{site.url}/slow/gone\n", encoding="utf-8")
    said = site.gfal(
        "gfal-bringonline",
        "--polling-timeout=60",
        f"--staging-metadata={metadata}",
        f"--from-file={listed}",
    )
    assert f"{url} READY" in said, said
    assert f"{site.url}/slow/gone => FAILED" in said, said


@needs_gfal
def test_gfal_polls_until_a_file_is_archived(start: Callable[..., Site]) -> None:
    site = start()
    site.write("new", b"new", root="fast")
    url = f"{site.url}/slow/new"
    assert f"{url} QUEUED" in site.gfal("gfal-archivepoll", url)
    shutil.copy2(site.fast("new"), site.endpoint.root("new", root="slow"))
    assert f"{url} READY" in site.gfal("gfal-archivepoll", url)
    assert "does not exist" in site.gfal("gfal-archivepoll", f"{site.url}/slow/gone")
    denied = site.endpoint.token("storage.read:/fast")
    assert "FAILED" in site.gfal("gfal-bringonline", url, token=denied)


def fts(site: Site, urls: list[str], *more: str) -> Json:
    """Stage URLs in the way of the staging daemons of FTS; return the results of the calls."""
    listed = site.trusted / "urls"
    listed.write_text("\n".join(urls), encoding="utf-8")
    metadata = json.dumps({SITE: {"activity": "reco"}})
    program = Path(__file__).with_name("fts_staging.py")
    done = site.gfal(str(program), str(listed), metadata, "3600", "110", *more)
    return json.loads(done[done.index("{") :])


@needs_gfal
@pytest.mark.parametrize("scheme", ["https", in_full("davs")])
def test_the_calls_of_fts_stage_and_release_500_files(
    start: Callable[..., Site], scheme: str
) -> None:
    site = start()
    names = [f"run/{index:03}" for index in range(500)]
    for name in names:
        site.write(name, name.encode() * 100)
    top = site.url.replace("https", scheme, 1)
    urls = [f"{top}/slow/{name}" for name in names]
    gone = f"{top}/slow/run/gone"
    found = fts(site, [*urls, gone])
    print(f"{scheme}: {found['accepted_seconds']:.2f} s, staged in {found['staged_seconds']:.1f} s")
    assert found["token"]
    assert {found["before"][url] for url in urls} == {""}, "archived before"
    assert "does not exist" in found["before"][gone]
    assert {found["staged"][url] for url in urls} == {""}, found["staged"]
    assert "does not exist" in found["staged"][gone], found["staged"][gone]
    assert {found["after"][url] for url in urls} == {""}
    assert {found["released"][url] for url in urls} == {""}, found["released"]
    for name in names:
        assert site.fast(name).read_bytes() == name.encode() * 100
    with site.endpoint.client(subject="root") as client:
        copies = [one for one in client.stagings() if one.application == "reco"]
    assert len(copies) == len(names)
    assert all(one.pinned_until is None for one in copies)


@needs_gfal
def test_the_calls_of_fts_abort_files(start: Callable[..., Site]) -> None:
    site = start(rate="1MiB")
    names = [f"f{index}" for index in range(4)]
    for name in names:
        site.write(name, os.urandom(4 << 20))
    found = fts(site, [f"{site.url}/slow/{name}" for name in names], "abort")
    assert set(found["aborted"].values()) == {""}, found["aborted"]
    with caller(site) as client:
        shown = until(client, found["token"], over)
        assert "CANCELLED" in states(shown).values(), shown
