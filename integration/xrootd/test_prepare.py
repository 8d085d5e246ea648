"""Clients stage files through an XRootD server with dray's plug-in and an endpoint beside it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.endpoints import Root
from integration.harness.program import ROOT
from integration.xrootd import tokens
from integration.xrootd.servers import copy_programs, exported, find, give

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dray.testing.endpoints import Endpoint
    from integration.harness.program import Ended
    from integration.xrootd.servers import Scene, Xrootd

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

#: File name of dray's plug-in. A server's configuration names it without the number.
PLUGIN = "libDrayXrdPrepare-5.so"
END_SECONDS = 90.0
#: URL of the issuer of the tokens that ``Endpoint.token`` makes.
OWN = "https://beside"


@pytest.fixture(scope="module")
def plugin(shared: Path) -> Path:
    """Return a folder with the plug-in, which the servers' user may read."""
    folder = shared / "prepare"
    copy_programs(folder, [PLUGIN])
    return folder


@pytest.fixture(scope="module")
def checked_plugin(shared: Path) -> Path:
    """Return a folder with a plug-in that is built with two sanitizers."""
    folder = shared / "prepare-checked"
    # Leave out the check of virtual tables: it needs type information that XRootD does not export.
    flags = "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -g -O1"
    source = ROOT / "plugins/xrootd/prepare"
    words = ["make", "-C", str(source), f"OUT={folder}", f"CXXFLAGS={flags}"]
    subprocess.run(words, check=True, capture_output=True)
    folder.chmod(0o755)
    (folder / PLUGIN).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def release_program(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make endpoints run the release program."""
    monkeypatch.setenv("DRAY_PROGRAM", str(program))


class Site:
    """An XRootD server with the plug-in, and an endpoint with the same slow and fast folders."""

    def __init__(
        self,
        scene: Scene,
        plugin: Path,
        start_endpoint: Callable[..., Endpoint],
        *,
        settings: Sequence[str] = (),
        lines: Sequence[str] = (),
        env: dict[str, str] | None = None,
        **config: Any,  # noqa: ANN401 - keys of the configuration
    ) -> None:
        """Start the endpoint and the XRootD server.

        :param settings: last lines of the plug-in's configuration. They override earlier lines.
        :param lines: additional lines of the server's configuration.
        """
        self.scene = scene
        self.server: Xrootd = scene.server("tape", tpc=None, lines=lines, env=env, start=False)
        roots = [
            Root(name, {"path": str(self.server.data / name), "tier": name})
            for name in ("slow", "fast")
        ]
        for name in ("slow", "fast"):
            (self.server.data / name).mkdir()
            give(self.server.data / name)
        self.endpoint = start_endpoint("beside", roots=roots, config=config)
        self.token = scene.folder / "token"
        self.token.write_text(self.endpoint.token("storage.stage:/") + "\n", encoding="ascii")
        self.token.chmod(0o600)
        give(self.token)
        said = [
            f"endpoint {self.endpoint.address}",
            f"peer_key {self.endpoint.key}",
            f"token_file {self.token}",
            f"root slow {self.server.data}/slow",
            f"root fast {self.server.data}/fast",
            *settings,
        ]
        own = scene.folder / "prepare.cf"
        own.write_text("\n".join([*said, ""]), encoding="utf-8")
        self.server.lines.append(f"ofs.preplib {plugin}/libDrayXrdPrepare.so {own}")
        self.server.start()

    def write(self, name: str, data: bytes, root: str = "slow") -> None:
        """Write a file in the folder of a root."""
        path = self.server.data / root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)

    def xrdfs(self, *words: str, env: dict[str, str] | None = None) -> Ended:
        """Run the stock client ``xrdfs`` with the server."""
        return self.scene.run("xrdfs", self.server.url, *words, env=env)

    def prepare(self, *words: str) -> str:
        """Ask the server to stage files. Return the id of the request."""
        ended = self.xrdfs("prepare", "-s", *words).expect(0)
        return ended.out.strip()

    def query(self, request: str, *paths: str) -> dict[str, Any]:
        """Return the server's answer about each of the files, by path."""
        said = json.loads(self.xrdfs("query", "prepare", request, *paths).expect(0).out)
        assert said["request_id"] == request
        assert [one["path"] for one in said["responses"]] == list(paths)
        return {one["path"]: one for one in said["responses"]}

    def until_online(self, request: str, *paths: str) -> dict[str, Any]:
        """Wait until no file of a request is being staged. Return the answer about each file."""
        end = time.monotonic() + END_SECONDS
        while any(one["requested"] for one in self.query(request, *paths).values()):
            assert time.monotonic() < end, self.query(request, *paths)
            time.sleep(0.2)
        return self.query(request, *paths)

    def staged(self) -> list[Any]:
        """Return the stagings of the endpoint."""
        with self.endpoint.client() as client:
            return list(client.stagings())


def check_life(site: Site) -> None:
    """Stage, query and evict files through the server."""
    names = ("a", "dir/b%c", "gone")
    paths = tuple(f"/slow/{name}" for name in names)
    for name in names[:2]:
        site.write(name, name.encode() * 1000)
    request = site.prepare("-p", "2", *paths)
    found = site.until_online(request, *paths, "/slow/dir/other")
    for name in names[:2]:
        one = found[f"/slow/{name}"]
        assert (one["path_exists"], one["on_tape"], one["online"]) == (True, True, True), one
        assert (one["has_reqid"], one["error_text"]) == (True, ""), one
        assert abs(float(one["req_time"]) - time.time()) < END_SECONDS
        assert (site.server.data / "fast" / name).read_bytes() == name.encode() * 1000
    gone = found["/slow/gone"]
    assert (gone["path_exists"], gone["online"], gone["has_reqid"]) == (False, False, True)
    assert "does not exist" in gone["error_text"]
    assert not found["/slow/dir/other"]["has_reqid"]
    assert {one.priority for one in site.staged()} == {7}
    assert all(one.pinned_until is not None for one in site.staged())
    site.xrdfs("prepare", "-e", *paths[:2]).expect(0)
    assert all(one.pinned_until is None for one in site.staged())
    # A query with an unknown request still tells where the file is.
    one = site.query("none", paths[0])[paths[0]]
    assert (one["has_reqid"], one["online"], one["on_tape"]) == (False, True, True)


def test_files_are_staged_queried_and_evicted(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    check_life(Site(bare, plugin, start_endpoint))


@pytest.mark.full
def test_the_sanitizers_find_nothing(
    bare: Scene, checked_plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    words = ["c++", "-print-file-name=libasan.so"]
    asan = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(asan):
        pytest.skip("the compiler has no address sanitizer")
    env = {
        "LD_PRELOAD": f"{Path(asan).resolve()}:{bare.loopback}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    }
    site = Site(bare, checked_plugin, start_endpoint, env=env)
    check_life(site)
    site.xrdfs("prepare", "-a", "../none")
    assert "runtime error" not in site.server.said()
    assert "AddressSanitizer" not in site.server.said()


def test_a_cancelled_request_stages_nothing_more(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    site = Site(bare, plugin, start_endpoint, rate="1MiB")
    names = [f"f{index}" for index in range(3)]
    paths = [f"/slow/{name}" for name in names]
    for name in names:
        site.write(name, os.urandom(8 << 20))
    request = site.prepare(*paths)
    assert all(one["requested"] for one in site.query(request, *paths).values())
    site.xrdfs("prepare", "-a", request).expect(0)
    found = site.query(request, *paths)
    assert {one["error_text"] for one in found.values()} == {"the staging is cancelled"}
    assert not any(one["requested"] or one["online"] for one in found.values())
    time.sleep(2)
    assert not any((site.server.data / "fast" / name).exists() for name in names)
    refused = site.xrdfs("prepare", "-a", "none")
    assert refused.code != 0
    assert "does not exist, or belongs to another owner" in refused.out + refused.words


def test_many_files_are_one_request(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    site = Site(bare, plugin, start_endpoint)
    paths = [f"/slow/many/{index:03}" for index in range(300)]
    for path in paths:
        site.write(path.removeprefix("/slow/"), path.encode())
    request = site.prepare(*paths)
    found = site.until_online(request, *paths)
    assert all(one["online"] for one in found.values())


def test_only_readers_stage_files_of_the_roots(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """A client stages only files that it may read, and only files of the endpoint's roots."""
    rights = bare.folder / "rights"
    rights.write_text("u * /slow/open rl /other rl\n", encoding="ascii")
    lines = ["ofs.authorize 1", f"acc.authdb {rights}"]
    site = Site(bare, plugin, start_endpoint, lines=lines)
    site.write("open/a", b"a")
    site.write("closed/a", b"a")
    for path in ("/slow/closed/a", "/slow/open/../closed/a"):
        refused = site.xrdfs("prepare", "-s", path)
        assert refused.code != 0, path
        refused = site.xrdfs("prepare", "-e", path)
        assert refused.code != 0, path
    refused = site.xrdfs("prepare", "-s", "/other/a")
    assert refused.code != 0
    assert "cannot be staged" in refused.out + refused.words
    refused = site.xrdfs("prepare", "-e", "/slow/open/a")
    assert "is not a file of the stage request" in refused.out + refused.words
    refused = site.xrdfs("prepare", "-w", "/slow/open/a")
    assert refused.code != 0
    assert site.staged() == []
    request = site.prepare("/slow/open/a")
    assert site.until_online(request, "/slow/open/a")["/slow/open/a"]["online"]


def test_an_endpoint_that_is_away_is_named_in_the_log_only(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    site = Site(bare, plugin, start_endpoint, settings=["wait_seconds 2"])
    site.write("a", b"a")
    site.endpoint.stop()
    refused = site.xrdfs("prepare", "-s", "/slow/a")
    assert refused.code != 0
    assert "the dray endpoint cannot stage files now" in refused.out + refused.words
    assert "refused" in site.server.said()
    token = site.token.read_text(encoding="ascii").strip()
    assert token not in site.server.said()
    site.endpoint.start()
    time.sleep(6)
    request = site.prepare("/slow/a")
    assert site.until_online(request, "/slow/a")["/slow/a"]["online"]
    # If the endpoint has another key than the configured one, the plug-in sends no request.
    wrong = bare.folder / "prepare.cf"
    text = wrong.read_text(encoding="utf-8").replace(site.endpoint.key, "sha256:" + "0" * 64)
    wrong.write_text(text, encoding="utf-8")
    site.server.kill()
    site.server.start()
    assert site.xrdfs("prepare", "-s", "/slow/a").code != 0
    assert "is not the configured peer_key" in site.server.said()


def test_a_client_stages_as_the_owner_of_its_token(
    bare: Scene, certificates: Path, plugin: Path, start_endpoint: Callable[..., Endpoint]
) -> None:
    """With ``client_tokens yes``, the plug-in shows the endpoint the token of each client."""
    realm = tokens.make(bare, certificates)
    site = Site(
        bare,
        plugin,
        start_endpoint,
        settings=["client_tokens yes"],
        lines=realm.lines(),
        env=realm.env,
        issuer=[realm.issuer.config()],
        map={"rules": [rule(url, name) for url in (tokens.URL, OWN) for name in ("alice", "bob")]},
    )
    site.write("a", b"a" * 1000)
    site.write("b", b"b" * 1000)

    def xrdfs(token: str, *words: str) -> Ended:
        url = f"roots://localhost:{site.server.port}"
        return bare.run("xrdfs", url, *words, env=realm.person(token))

    rights = (tokens.READ, "storage.stage:/")
    alice, bob = (realm.issuer.token(*rights, sub=name) for name in ("alice", "bob"))
    request = xrdfs(alice, "prepare", "-s", "/slow/a").expect(0).out.strip()
    end = time.monotonic() + END_SECONDS
    while True:
        said = json.loads(xrdfs(alice, "query", "prepare", request, "/slow/a").expect(0).out)
        (one,) = said["responses"]
        if one["online"]:
            break
        assert time.monotonic() < end, said
        time.sleep(0.2)
    assert one["has_reqid"]
    assert (site.server.data / "fast/a").read_bytes() == b"a" * 1000
    for name, count in (("alice", 1), ("bob", 0)):
        with site.endpoint.client(subject=name) as client:
            assert len(list(client.stagings())) == count
    # Another owner neither sees nor cancels the request.
    said = json.loads(xrdfs(bob, "query", "prepare", request, "/slow/a").expect(0).out)
    assert not said["responses"][0]["has_reqid"]
    refused = xrdfs(bob, "prepare", "-a", request)
    assert refused.code != 0
    assert "belongs to another owner" in refused.out + refused.words
    # The server lets this client read the file, but the endpoint does not let it stage the file.
    reader = realm.issuer.token(tokens.READ, sub="alice")
    refused = xrdfs(reader, "prepare", "-s", "/slow/b")
    assert refused.code != 0
    assert not (site.server.data / "fast/b").exists()
    for token in (alice, bob, reader):
        assert token not in site.server.said()


def rule(issuer: str, name: str) -> dict[str, str]:
    """Return the rule that maps the subject ``name`` of an issuer to the owner ``name``."""
    return {"issuer": issuer, "subject": name, "owner": name}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lifetime_seconds 0", "lifetime_seconds"),
        ("client_tokens maybe", "client_tokens"),
        ("renewable_seconds 5", "line 6: not a valid setting; write one of: endpoint HOST:PORT"),
        ("token_file /nowhere", "/nowhere"),
    ],
)
def test_a_server_with_wrong_settings_does_not_start(
    bare: Scene, plugin: Path, start_endpoint: Callable[..., Endpoint], line: str, said: str
) -> None:
    # The server may listen for a moment before it loads the plug-in and exits.
    with contextlib.suppress(AssertionError):
        Site(bare, plugin, start_endpoint, settings=[line])
    (server,) = bare.servers
    assert server.process is not None
    end = time.monotonic() + END_SECONDS
    while server.process.is_running():
        assert time.monotonic() < end, server.said()
        time.sleep(0.1)
    assert said in server.said()


def test_the_plug_in_exports_its_entry_only() -> None:
    assert exported(PLUGIN) == {"XrdOfsgetPrepare", "XrdOfsgetPrepare_"}
    assert find(PLUGIN).exists()
