"""The GridFTP store on Debian's server: conformance, memory errors, copies, faults, credentials."""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from integration.gridftp.server import Server
    from integration.harness.program import Bench

#: Suppressions of valgrind for an error at the end of the conformance program: the exit handler of
#: libcrypto frees tables that threads of the GridFTP library still use. ``dray`` itself ends
#: without running exit handlers.
LIBCRYPTO_AT_EXIT = "".join(
    f"{{\nlibcrypto\nMemcheck:Addr{size}\n{called}obj:*/libcrypto.so*\n}}\n"
    for size in (1, 2, 4, 8, 16, 32)
    for called in ("", "fun:*\n")
)

pytestmark = [pytest.mark.server]

MIB = 1 << 20
#: Names that have a meaning in a URL, in a shell, in a listing or in a command of the protocol.
NAMES = [
    b"plain",
    b"a b%20c",
    b" leads",
    b"trails ",
    b"semi;colon; x",
    b"?query#part",
    b'back\\slash"quote',
    b"~home",
    b"*star[1]",
    b"\xff\xfe",
    "größe".encode(),
    b"sub/-option",
]


def _bytes(path: Path, size: int, seed: int) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content


def _suite(grid: Server, folder: Path, *wrap: str) -> subprocess.CompletedProcess[str]:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "engine" / "target")
    program = target / "debug" / "examples" / "gridftp_conformance"
    if not program.exists():
        command = "cargo build -p dray-store-gridftp --examples"
        pytest.fail(f"no {program}; build it first: {command}", pytrace=False)
    return subprocess.run(
        [*wrap, program, grid.url, folder],
        env={**os.environ, **grid.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_store_passes_the_suite(grid: Server, folder: Path) -> None:
    """The store passes all conformance cases of read-only stores."""
    ended = _suite(grid, folder / "suite")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 failed" in ended.stdout
    assert ended.stdout.count("passed   ") >= 10, ended.stdout


@pytest.mark.full
@pytest.mark.slow
def test_valgrind_finds_nothing_in_the_bindings(grid: Server, folder: Path) -> None:
    """The calls of the library access only valid memory, and free it correctly."""
    ignored = folder / "ignored"
    ignored.write_text(LIBCRYPTO_AT_EXIT, encoding="ascii")
    valgrind = ["valgrind", "--undef-value-errors=no", "--error-exitcode=99", "-q"]
    valgrind.append(f"--suppressions={ignored}")
    ended = _suite(grid, folder / "suite", *valgrind)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    assert " 0 failed" in ended.stdout


def test_a_tree_with_odd_names_is_copied(bench: Bench, grid: Server, folder: Path) -> None:
    """Each name arrives unchanged. The listing reports the entries that cannot be copied."""
    tree = folder / "tree"
    contents = {}
    for number, name in enumerate(NAMES):
        contents[name] = _bytes(tree / os.fsdecode(name), 100 * number, number)
    (tree / "link").symlink_to("plain")
    contents[b"link"] = contents[b"plain"]
    ended = bench.cp("-r", f"{grid.url}{tree}/", folder / "in", env=grid.env).expect(0)
    copied = {
        os.fsencode(path.relative_to(folder / "in")): path.read_bytes()
        for path in (folder / "in").rglob("*")
        if path.is_file() and ".dray-log" not in path.parts
    }
    assert copied == contents, ended.words
    # Copy one file by its URL, with escapes.
    one = f"{grid.url}{tree}/a%20b%2520c"
    bench.cp(one, folder / "one", env=grid.env).expect(0)
    assert (folder / "one").read_bytes() == contents[b"a b%20c"]


def test_links_to_folders_and_pipes_are_reported(bench: Bench, grid: Server, folder: Path) -> None:
    """A loop of links does not make the listing endless, and the other entries are copied."""
    tree = folder / "tree"
    _bytes(tree / "file", 10, 1)
    (tree / "loop").symlink_to(".")
    os.mkfifo(tree / "pipe")
    (tree / "line\r\nTYPE A").touch()
    ended = bench.cp("-r", f"{grid.url}{tree}/", folder / "in", env=grid.env)
    assert ended.code != 0
    assert "link to a folder" in ended.words
    assert "neither a file nor a folder" in ended.words
    assert "a line of the listing is malformed" in ended.words
    assert (folder / "in" / "file").read_bytes() == (tree / "file").read_bytes()


def test_a_big_file_is_compared_with_the_servers_checksum(
    bench: Bench, grid: Server, folder: Path
) -> None:
    """Several connections read the file, and dray requests the checksum of the server."""
    content = _bytes(folder / "big", 64 * MIB, 3)
    ended = bench.cp(f"{grid.url}{folder}/big", folder / "in", env=grid.env).expect(0)
    assert (folder / "in").read_bytes() == content
    log = (grid.logs / "gridftp.log").read_text(encoding="utf-8")
    assert log.count("New connection from") >= 3, "too few connections"
    # dray adds a notice if it publishes a file without this comparison.
    assert ended.report["notices"] == []


def test_a_killed_client_resumes(bench: Bench, grid: Server, folder: Path) -> None:
    """After SIGKILL, the next run sends only what was not durable."""
    content = _bytes(folder / "big", 48 * MIB, 4)
    words = (f"{grid.url}{folder}/big", folder / "in")
    first = bench.start_cp("--progress", "json", "--rate", "8MiB", *words, env=grid.env)
    first.await_durable(8 * MIB)
    first.kill()
    assert not (folder / "in").exists()
    ended = bench.cp(*words, env=grid.env).expect(0)
    assert (folder / "in").read_bytes() == content
    assert ended.report["bytes_sent"] <= 40 * MIB, ended.report


def test_a_killed_server_delays_the_copy(bench: Bench, grid: Server, folder: Path) -> None:
    """The copy waits for the server, and continues when the server runs again."""
    content = _bytes(folder / "big", 48 * MIB, 5)
    words = (f"{grid.url}{folder}/big", folder / "in")
    copy = bench.start_cp("--progress", "json", "--rate", "8MiB", *words, env=grid.env)
    copy.await_durable(8 * MIB)
    grid.kill()
    time.sleep(2)
    grid.start()
    ended = copy.wait(240)
    if ended.code != 0:
        ended = bench.cp(*words, env=grid.env).expect(0)
    assert (folder / "in").read_bytes() == content


def test_a_changed_file_is_not_mixed(bench: Bench, grid: Server, folder: Path) -> None:
    """The file is replaced in the middle. The copy has the bytes of one version, or fails."""
    _bytes(folder / "big", 32 * MIB, 6)
    newer = _bytes(folder / "newer", 32 * MIB, 7)
    words = (f"{grid.url}{folder}/big", folder / "in")
    copy = bench.start_cp("--progress", "json", "--rate", "8MiB", *words, env=grid.env)
    copy.await_durable(4 * MIB)
    (folder / "newer").rename(folder / "big")
    ended = copy.wait(120)
    if ended.code == 0:
        assert (folder / "in").read_bytes() == newer
    else:
        assert "changed" in ended.words or "replaced" in ended.words, ended.words
        assert not (folder / "in").exists()


def test_errors_name_their_cause(bench: Bench, grid: Server, folder: Path) -> None:
    """A missing file, a refused file, an expired proxy, and a server that does not run."""
    target = folder / "in"
    secret = folder / "secret"
    _bytes(secret, 10, 8)
    secret.chmod(0)
    expired = grid.make_proxy("expired", datetime.timedelta(minutes=-5))
    past = {**grid.env, "X509_USER_PROXY": str(expired)}
    cases: list[tuple[str | Path, str | Path, dict[str, str], list[str]]] = [
        (f"{grid.url}{folder}/none", target, grid.env, ["not found"]),
        (f"{grid.url}{secret}", target, grid.env, ["permission denied"]),
        (f"{grid.url}{secret}", target, past, ["expired", "proxy-init"]),
        (grid.names, f"{grid.url}{folder}/out", grid.env, ["not write to it"]),
    ]
    for source, to, env, causes in cases:
        ended = bench.cp(source, to, env=env)
        assert ended.code != 0, source
        for cause in causes:
            assert cause in ended.words.lower(), ended.words
    assert not target.exists()
