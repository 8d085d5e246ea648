"""HTTP third-party copies that dray makes, requested by ``curl -X COPY``."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file, make_file
from integration.xrootd.beside import serve, settings
from integration.xrootd.curl import (
    ask,
    assert_good,
    begin,
    durable,
    failure,
    heard,
    sent,
    status,
)
from integration.xrootd.files import hide
from integration.xrootd.http import ALL_ADDRESSES, PLUGIN, copying, nginx, xrootd
from integration.xrootd.servers import cluster_lines, exported, give

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.harness.program import Server, Word
    from integration.xrootd.http import Copying, Web
    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20


@pytest.fixture
def sink(bare: Scene, plugins: Path, certificates: Path) -> Copying:
    """Start the server that gets the requests to copy."""
    return copying(bare, plugins, certificates, settings=["marker_seconds 1"])


def make(folder: Path, name: str, size: int, seed: int = 1) -> Path:
    """Make a file with a time 10 s ago. HTTP has times in whole seconds."""
    at = folder / name
    make_file(at, size, seed)
    old = int(time.time()) - 10
    os.utime(at, (old, old))
    give(at)
    return at


def test_pulls_of_every_size(bare: Scene, sink: Copying) -> None:
    """Pull from XRootD and nginx, with and without TLS. The copies have checksums."""
    webs = [xrootd(bare)[0], nginx(bare)]
    for number, web in enumerate(webs):
        for size in (0, 1, MIB + 1, 20 * MIB + 13):
            name = f"a {number}-{size}"
            source = make(web.data, name, size, seed=size)
            to = f"{sink.url}/new/{name.replace(' ', '%20')}"
            ended = ask(bare, to, f"Source: {web.url}/{name.replace(' ', '%20')}")
            assert_good(ended)
            assert durable(ended.out)[-1] == size
            assert hash_file(sink.data / "new" / name) == hash_file(source)
            value = sink.server.checksum(f"new/{name}", "adler32")
            assert int(value, 16) == zlib.adler32(source.read_bytes())
    secure = ask(bare, f"{sink.url}/tls", f"Source: {sink.secure_url}/new/a%200-1")
    assert_good(secure)
    assert hash_file(sink.data / "tls") == hash_file(webs[0].data / "a 0-1")
    assert tree.leftovers(sink.data) == []


def test_pushes_of_every_size(bare: Scene, sink: Copying) -> None:
    """Push to a stock server, with a demanded checksum."""
    other, _ = xrootd(bare)
    for size in (0, 1, 20 * MIB + 13):
        source = make(sink.data, f"a{size}", size, seed=size)
        ended = ask(
            bare,
            f"{sink.url}/a{size}",
            f"Destination: {other.url}/in/a{size}",
            "RequireChecksumVerification: true",
        )
        assert_good(ended)
        assert hash_file(other.data / "in" / f"a{size}") == hash_file(source)
    kept = ask(bare, f"{sink.url}/a1", f"Destination: {other.url}/in/a0", "Overwrite: F")
    assert "already exists" in failure(kept)
    assert (other.data / "in" / "a0").stat().st_size == 0
    missing = ask(bare, f"{sink.url}/none", f"Destination: {other.url}/none")
    assert status(missing) == 404
    assert not (other.data / "none").exists()


@pytest.mark.parametrize("victim", ["program", "client"])
def test_a_killed_copy_resumes(bare: Scene, plugins: Path, certificates: Path, victim: str) -> None:
    """After a kill, no file has the name. The next copy sends only the missing data."""
    config = bare.folder / "slow.toml"
    config.write_text(f"{ALL_ADDRESSES}rate = {32 * MIB}\n", encoding="ascii")
    # The server detects a dead client directly, and need not wait for a marker.
    markers = 1 if victim == "program" else 600
    settings = [f"marker_seconds {markers}", f"config {config}"]
    sink = copying(bare, plugins, certificates, settings=settings)
    web = nginx(bare)
    source = make(web.data, "a", 192 * MIB)
    source_header = f"Source: {web.url}/a"
    client = begin(bare, f"{sink.url}/b", source_header)
    job = sink.server.await_job()
    until = time.monotonic() + 60
    while not is_under_way(sink):
        assert time.monotonic() < until, heard(client)
        time.sleep(0.02)
    if victim == "program":
        os.kill(job, signal.SIGKILL)
        assert "signal 9" in failure(client.wait(60))
    else:
        client.kill()
        # The program ends immediately, long before the next marker.
        while sink.server.jobs():
            assert time.monotonic() < until, "the program still runs"
            time.sleep(0.02)
    assert not (sink.data / "b").exists()
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    assert_good(ask(bare, f"{sink.url}/b", source_header))
    now, before = sent(sink)[-1]
    assert before > 0
    assert now == 192 * MIB - before
    assert hash_file(sink.data / "b") == hash_file(source)
    assert tree.leftovers(sink.data) == []


def test_a_copy_ends_with_its_dead_server_and_resumes(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """If the server dies, dray's program ends. After the restart, the next copy resumes."""
    config = bare.folder / "slow.toml"
    config.write_text(f"{ALL_ADDRESSES}rate = {32 * MIB}\n", encoding="ascii")
    settings = ["marker_seconds 1", f"config {config}"]
    sink = copying(bare, plugins, certificates, settings=settings)
    web = nginx(bare)
    source = make(web.data, "a", 192 * MIB)
    client = begin(bare, f"{sink.url}/b", f"Source: {web.url}/a")
    job = sink.server.await_job()
    until = time.monotonic() + 60
    while not any(durable(heard(client))):
        assert time.monotonic() < until, heard(client)
        time.sleep(0.02)
    sink.server.kill()
    while is_alive(job):
        assert time.monotonic() < until, "the program still runs"
        time.sleep(0.02)
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    sink.server.start()
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a"))
    now, before = sent(sink)[-1]
    assert before > 0
    assert now == 192 * MIB - before
    assert hash_file(sink.data / "b") == hash_file(source)


def is_under_way(sink: Copying) -> bool:
    """Return whether more than a sync group is written, so that some data is durable."""
    parts = sink.data.glob(".dray-*.part")
    return any(path.stat().st_blocks * 512 > 80 * MIB for path in parts)


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not run."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_failed_copy_leaves_no_file(bare: Scene, sink: Copying) -> None:
    """A failed copy reports the cause. Its name has the old file, or no file."""
    web, _ = xrootd(bare)
    source = make(web.data, "a", 3 * MIB)
    missing = ask(bare, f"{sink.url}/b", f"Source: {web.url}/none")
    assert "not found" in failure(missing)
    nobody = ask(bare, f"{sink.url}/b", "Source: http://127.0.0.1:1/a")
    assert "Connection refused" in failure(nobody)
    assert list(sink.data.iterdir()) == []
    stood = make(sink.data, "stood", 100, seed=7)
    before = hash_file(stood)
    kept = ask(bare, f"{sink.url}/stood", f"Source: {web.url}/a", "Overwrite: F")
    assert status(kept) == 412
    again = ask(bare, f"{sink.url}/stood", f"Source: {web.url}/none")
    assert "not found" in failure(again)
    assert hash_file(stood) == before
    # The old file may be empty too: it is not mistaken for a placeholder.
    empty = make(sink.data, "empty", 0)
    inode = empty.stat().st_ino
    assert "not found" in failure(ask(bare, f"{sink.url}/empty", f"Source: {web.url}/none"))
    assert empty.stat().st_ino == inode
    assert_good(ask(bare, f"{sink.url}/stood", f"Source: {web.url}/a"))
    assert hash_file(stood) == hash_file(source)


def test_a_demanded_checksum_is_compared(bare: Scene, sink: Copying) -> None:
    """A copy with RequireChecksumVerification fails if the source has no checksum."""
    plain, stock = nginx(bare), xrootd(bare)[0]
    for web in (plain, stock):
        make(web.data, "a", MIB)
    demanded = "RequireChecksumVerification: true"
    refused = ask(bare, f"{sink.url}/b", f"Source: {plain.url}/a", demanded)
    assert "checksum" in failure(refused)
    assert not (sink.data / "b").exists()
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {stock.url}/a", demanded))


def test_invalid_requests_are_refused(bare: Scene, sink: Copying) -> None:
    """An invalid request is refused, and creates no file."""
    source = "Source: http://127.0.0.1:1/a"
    for headers, code in [
        ([], 400),
        ([source, "Destination: http://127.0.0.1:1/b"], 400),
        ([source, "Overwrite: perhaps"], 400),
        ([source, "X-Number-Of-Streams: many"], 400),
        ([source, "X-Number-Of-Streams: -1"], 400),
        ([source, "Credential: gridsite"], 400),
        (["Source: file:///etc/passwd"], 400),
    ]:
        assert status(ask(bare, f"{sink.url}/b", *headers)) == code, headers
    assert list(sink.data.iterdir()) == []


def test_headers_and_secrets(bare: Scene, sink: Copying) -> None:
    """A TransferHeader is sent to the source. No log and no answer contains a secret."""
    web = nginx(bare, places=["location /closed/ { return 403; }"])
    make(web.data, "a", 3 * MIB)
    header = "TransferHeaderAuthorization: Bearer se.cr.et"
    good = ask(
        bare, f"{sink.url}/b", f"Source: {web.url}/a?k=pass-word", header, "Credential: none"
    )
    assert_good(good)
    asked = web.requests()
    assert asked
    assert all('"Bearer se.cr.et"' in line for line in asked)
    bad = ask(bare, f"{sink.url}/c", f"Source: {web.url}/closed/a?k=pass-word", header)
    assert "permission denied" in failure(bad)
    log_text = sink.server.said() + good.out + bad.out
    assert "cr.et" not in log_text
    assert "pass-word" not in log_text


def test_a_client_without_write_permission_may_not_copy(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """The server checks the client's rights before dray requests data from the source."""
    rules = bare.folder / "rules"
    rules.write_text("u * /open a\n", encoding="ascii")
    sink = copying(bare, plugins, certificates, lines=["ofs.authorize", f"acc.authdb {rules}"])
    web = nginx(bare)
    make(web.data, "a", MIB)
    refused = ask(bare, f"{sink.url}/shut/a", f"Source: {web.url}/a")
    assert status(refused) == 403
    assert web.requests() == []
    assert_good(ask(bare, f"{sink.url}/open/a", f"Source: {web.url}/a"))


def test_no_path_leads_out_of_what_is_exported(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """A client can neither read nor write a path that it may not access or that is not exported."""
    rules = bare.folder / "rules"
    rules.write_text("u * /open a\n", encoding="ascii")
    sink = copying(bare, plugins, certificates, lines=["ofs.authorize", f"acc.authdb {rules}"])
    web, _ = xrootd(bare)
    make(web.data, "a", MIB)
    for name in ("open", "open/in", "closed"):
        (sink.data / name).mkdir()
        give(sink.data / name)
    secrets = [
        make(sink.data / "closed", "secret", MIB, seed=2),
        make(sink.data.parent, "secret", MIB, seed=3),
    ]
    before = [hash_file(each) for each in secrets]

    def attempt(path: str) -> None:
        push = ask(bare, f"{sink.url}{path}", f"Destination: {web.url}/stolen")
        pull = ask(bare, f"{sink.url}{path}", f"Source: {web.url}/a")
        assert (status(push), status(pull)) == (403, 403), path
        assert not (web.data / "stolen").exists(), path

    for up in ("..", "%2e%2e", ".%2E", "./..", "in/../.."):
        for path in (f"{up}/closed/secret", f"{up}/../secret", f"{up}/closed/new"):
            attempt(f"/open/{path}")
    attempt("/open/..%2fclosed%2fsecret")
    attempt("/../secret")
    # Two dots inside a name are permitted.
    assert_good(ask(bare, f"{sink.url}/open/..a", f"Source: {web.url}/a"))
    assert_good(ask(bare, f"{sink.url}/open/b..", f"Source: {web.url}/a"))
    sink.server.kill()
    sink.server.exports = "/open/in"
    sink.server.start()
    assert_good(ask(bare, f"{sink.url}/open/in/a", f"Source: {web.url}/a"))
    assert_good(ask(bare, f"{sink.url}/open/in/a", f"Destination: {web.url}/b"))
    attempt("/open/..a")
    attempt("/open/new")
    assert [hash_file(each) for each in secrets] == before
    assert sorted(path.name for path in sink.data.rglob("*") if path.is_file()) == [
        "..a",
        "a",
        "b..",
        "secret",
    ]


def test_through_a_redirector(bare: Scene, plugins: Path, certificates: Path) -> None:
    """The server that the redirector chooses copies from the server that has the file."""
    lines = cluster_lines()
    names = ["head", "data0", "data1"]
    head, *data = (
        copying(bare, plugins, certificates, name=name, lines=lines, own_port=False)
        for name in names
    )
    for one in (head, *data):
        one.server.start_manager()
    made = make(data[0].data, "a", 24 * MIB)
    bare.await_found(head.server, "a")
    words = ["-H", f"Source: {head.url}/a", "-w", "\nstatus %{http_code}\n", f"{head.url}/b"]
    assert_good(bare.run("curl", "-sSNL", "-X", "COPY", *words))
    (copied,) = [one for one in data if (one.data / "b").exists()]
    assert hash_file(copied.data / "b") == hash_file(made)
    assert sent(copied) == [(24 * MIB, 0)]


def test_a_copy_resumes_from_a_restarted_source(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """If the source dies, the copy fails. After its restart, the next copy resumes."""
    config = bare.folder / "slow.toml"
    config.write_text(f"{ALL_ADDRESSES}rate = {32 * MIB}\n", encoding="ascii")
    settings = ["marker_seconds 1", f"config {config}"]
    sink = copying(bare, plugins, certificates, settings=settings)
    web, server = xrootd(bare)
    source = make(web.data, "a", 192 * MIB)
    client = begin(bare, f"{sink.url}/b", f"Source: {web.url}/a")
    until = time.monotonic() + 60
    while not any(durable(heard(client))):
        assert time.monotonic() < until, heard(client)
        time.sleep(0.02)
    server.kill()
    assert "127.0.0.1" in failure(client.wait(120))
    assert not (sink.data / "b").exists()
    server.start()
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a"))
    now, before = sent(sink)[-1]
    assert before > 0
    assert now == 192 * MIB - before
    assert hash_file(sink.data / "b") == hash_file(source)


def test_concurrent_copies_are_limited(bare: Scene, plugins: Path, certificates: Path) -> None:
    """A copy above ``copies_max`` is refused with 503, until another copy has ended."""
    config = bare.folder / "slow.toml"
    config.write_text(f"{ALL_ADDRESSES}rate = {MIB}\n", encoding="ascii")
    settings = ["copies_max 1", f"config {config}"]
    sink = copying(bare, plugins, certificates, settings=settings)
    web = nginx(bare)
    make(web.data, "a", 64 * MIB)
    first = begin(bare, f"{sink.url}/b", f"Source: {web.url}/a")
    sink.server.await_job()
    assert status(ask(bare, f"{sink.url}/c", f"Source: {web.url}/a")) == 503
    first.kill()
    until = time.monotonic() + 30
    while sink.server.jobs():
        assert time.monotonic() < until
        time.sleep(0.02)
    config.write_text(ALL_ADDRESSES, encoding="ascii")
    assert_good(ask(bare, f"{sink.url}/c", f"Source: {web.url}/a"))


def replaced(bare: Scene, plugins: Path, certificates: Path, *lines: str) -> Copying:
    """Start a server with a script as its copy program. Its environment names secret files."""
    program = bare.folder / "program"
    program.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="ascii")
    program.chmod(0o755)
    secrets = ("X509_USER_PROXY", "X509_USER_KEY", "XrdSecGSIUSERKEY", "BEARER_TOKEN_FILE")
    env = {name: f"/se-cret/{name}" for name in secrets}
    settings = ["marker_seconds 1", "silence_seconds 2", f"program {program}"]
    return copying(bare, plugins, certificates, settings=settings, env=env)


def test_a_silent_program_is_given_up(bare: Scene, plugins: Path, certificates: Path) -> None:
    """A program that reports nothing is killed. The answer has the cause, and no file remains."""
    lines = ["sleep 1000"]
    silent = replaced(bare, plugins, certificates, *lines)
    ended = ask(bare, f"{silent.url}/b", "Source: http://127.0.0.1:1/a")
    assert "has reported nothing for 2 s" in failure(ended)
    assert silent.server.jobs() == []
    assert list(silent.data.iterdir()) == []
    # A program that reports often enough may run longer than the limit of 2 s.
    progress = '{"progress":{"bytes_durable":1}}'
    lines = ["for i in 1 2 3 4 5 6 7 8; do", f"echo '{progress}'", "sleep 0.5", "done"]
    lines.append("""echo '{"end":{"ok":true}}'""")
    silent.settings.with_name("program").write_text("\n".join(["#!/bin/sh", *lines, ""]))
    assert_good(ask(bare, f"{silent.url}/c", "Source: http://127.0.0.1:1/a"))


def test_a_file_published_by_another_copy_stays(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """If the copy program dies, the server removes its own empty file, but no other file."""
    lines = ["read line", 'folder=$(echo "$line" | sed \'s/.*"path":"\\([^"]*\\)\\/.*/\\1/\')']
    lines += ['[ -e "$folder/other" ] && mv "$folder/other" "$folder/b"', "exit 3"]
    sink = replaced(bare, plugins, certificates, *lines)
    assert "code 3" in failure(ask(bare, f"{sink.url}/b", "Source: http://127.0.0.1:1/a"))
    assert list(sink.data.iterdir()) == []
    make(sink.data, "other", 0)
    assert "code 3" in failure(ask(bare, f"{sink.url}/b", "Source: http://127.0.0.1:1/a"))
    assert [path.name for path in sink.data.iterdir()] == ["b"]


def test_a_program_has_none_of_the_servers_secrets(
    bare: Scene, plugins: Path, certificates: Path
) -> None:
    """The copy program does not inherit the variables that name proxies, keys and tokens."""
    lines = ["env >&2", "exit 3"]
    sink = replaced(bare, plugins, certificates, *lines)
    failure(ask(bare, f"{sink.url}/b", "Source: http://127.0.0.1:1/a"))
    assert "X509_CERT_DIR=" in sink.server.said()
    assert "se-cret" not in sink.server.said()


@pytest.mark.parametrize(("how", "lies"), [("suffix", "b.kept"), ("folders", "by-b/b")])
def test_copies_follow_the_name_mapping_of_the_storage(
    bare: Scene, plugins: Path, certificates: Path, how: str, lies: str
) -> None:
    """With a name mapping, the wrapper hides nothing. Copies then work as without it."""
    library = bare.folder / "mapped_names.so"
    code = Path(__file__).parent / "mapped_names.cc"
    words: list[Word] = ["c++", "-std=c++17", "-shared", "-fPIC", "-I/usr/include/xrootd"]
    subprocess.run([*words, "-o", library, code], check=True, capture_output=True, timeout=120)
    lines = [hide(bare), f"oss.namelib {library} {how}"]
    sink = copying(bare, plugins, certificates, lines=lines)
    web, _ = xrootd(bare)
    missing = f"Source: {web.url}/none"
    assert "not found" in failure(ask(bare, f"{sink.url}/b", missing))
    assert not (sink.data / lies).exists()
    for seed in (1, 2):
        source = make(web.data, f"a{seed}", 3 * MIB, seed=seed)
        assert_good(ask(bare, f"{sink.url}/b", f"Source: {web.url}/a{seed}"))
        assert hash_file(sink.data / lies) == hash_file(source)
    assert status(ask(bare, f"{sink.url}/b", missing, "Overwrite: F")) == 412
    assert "not found" in failure(ask(bare, f"{sink.url}/b", missing))
    assert hash_file(sink.data / lies) == hash_file(source)
    files = [path for path in sink.data.rglob("*") if path.is_file()]
    assert files == [sink.data / lies]
    assert_good(ask(bare, f"{sink.url}/b", f"Destination: {web.url}/back"))
    assert hash_file(web.data / "back") == hash_file(source)


def test_only_the_entry_point_is_exported() -> None:
    """The plug-in exports only the symbols that XRootD loads."""
    assert exported(PLUGIN) == {"XrdHttpGetExtHandler", "XrdHttpGetExtHandler_"}


#: Configuration of nginx: a client without the token may send HEAD, but not GET.
GUARDED = """location / {
    set $guard "$request_method $http_authorization";
    if ($guard ~ "^GET (?!Bearer good-token$)") { return 403; }
}"""


@pytest.fixture
def beside(bare: Scene, program: Path) -> Iterator[tuple[Web, Server, Path]]:
    """Start nginx and ``dray serve`` on one folder. Write a destination's settings for both."""
    web = nginx(bare, places=[GUARDED])
    server = serve(bare, web.data, program)
    config = bare.folder / "tpc.toml"
    lines = settings(bare, server, web.url.removeprefix("http://"))
    config.write_text(ALL_ADDRESSES + "\n".join([*lines, ""]), encoding="utf-8")
    yield web, server, config
    server.kill()


def test_dray_beside_a_web_server_serves_only_permitted_clients(
    bare: Scene, plugins: Path, certificates: Path, beside: tuple[Web, Server, Path]
) -> None:
    """Data comes from ``dray serve`` only after nginx has accepted the client's token."""
    web, server, config = beside
    sink = copying(bare, plugins, certificates, settings=[f"config {config}"])
    source = make(web.data, "a", 40 * MIB + 3)
    headers = [f"Source: {web.url}/a", "TransferHeaderAuthorization: Bearer good-token"]
    for number, stranger in enumerate((headers[:1], [headers[0], headers[1] + "-not"])):
        refused = failure(ask(bare, f"{sink.url}/no{number}", *stranger))
        assert "403" in refused, refused
        assert not (sink.data / f"no{number}").exists()
    assert server.transfers() == []
    before = len(web.requests())
    assert_good(ask(bare, f"{sink.url}/a", *headers))
    assert hash_file(sink.data / "a") == hash_file(source)
    assert len(server.transfers()) == 1
    # nginx sent only the first byte of the file.
    read = [line for line in web.requests()[before:] if line.startswith("GET ")]
    assert [line.split('"')[1] for line in read] == ["bytes=0-0"], read
    assert "good-token" not in sink.server.said()


def test_without_its_dray_a_web_server_is_read(
    bare: Scene, plugins: Path, certificates: Path, beside: tuple[Web, Server, Path]
) -> None:
    web, server, config = beside
    sink = copying(bare, plugins, certificates, settings=[f"config {config}"])
    source = make(web.data, "a", 5 * MIB)
    server.kill()
    headers = [f"Source: {web.url}/a", "TransferHeaderAuthorization: Bearer good-token"]
    assert_good(ask(bare, f"{sink.url}/a", *headers))
    assert hash_file(sink.data / "a") == hash_file(source)
    assert "reading from the XRootD server instead" in sink.server.said()
