"""Limits and signals of the system: a message that names them, and the same command resumes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

LARGE = 24 * tree.MIB


@pytest.fixture
def large(bench: Bench) -> Path:
    folder = bench.folder / "source"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom(LARGE))
    (folder / "small").write_bytes(b"small")
    return folder


def test_a_file_beyond_the_limit_of_files_fails_by_name(bench: Bench, large: Path) -> None:
    """Exceed RLIMIT_FSIZE: the signal SIGXFSZ must not end the program."""
    sink = bench.folder / "sink"
    words: list[Word] = ["-r", large, f"{sink}/", "--reflink", "never"]
    ended = bench.cp(*words, wrap=["prlimit", f"--fsize={LARGE // 2}"]).expect(1)
    (failure,) = ended.report["files_failed"]
    assert failure["path"] == "source/large", failure
    assert failure["kind"] == "limit_exceeded", failure
    assert (sink / "source" / "small").read_bytes() == b"small"
    assert not (sink / "source" / "large").exists()
    bench.cp(*words).expect(0)
    tree.assert_same(tree.describe(large), sink / "source")


def test_a_server_outlives_a_file_beyond_its_limit(bench: Bench, large: Path) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink, wrap=["prlimit", f"--fsize={LARGE // 2}"])
    words: list[Word] = ["-r", f"{large}/", f"dray://{server.address}/", *bench.peer(server)]
    bench.cp(*words).expect(1)
    bench.cp(large / "small", f"dray://{server.address}/again", *bench.peer(server)).expect(0)
    assert (sink / "again").read_bytes() == b"small"


@pytest.mark.parametrize("mebibytes", [150, 250, 350])
def test_a_copy_without_memory_for_its_objects_reports_it(
    bench: Bench, large: Path, mebibytes: int
) -> None:
    sink = bench.folder / "sink"
    words: list[Word] = ["-r", large, f"{sink}/", "--reflink", "never"]
    wrap = ["prlimit", f"--as={mebibytes << 20}"]
    error = bench.cp(*words, "--pool", "1GiB", wrap=wrap).expect(3).report["error"]
    assert error["kind"] == "busy", error
    assert "--pool" in error["remedy"], error
    bench.cp(*words).expect(0)
    tree.assert_same(tree.describe(large), sink / "source")


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_server_without_memory_refuses_and_lives(bench: Bench, large: Path, push: bool) -> None:
    sink = bench.folder / "sink"
    sink.mkdir()
    wrap = ["prlimit", f"--as={600 << 20}"]
    server = bench.serve(sink if push else large, "--pool", "2GiB", wrap=wrap)
    far = f"dray://{server.address}/"
    ways = [f"{large}/", far] if push else [far, f"{sink}/"]
    words: list[Word] = ["-r", *ways, *bench.peer(server)]
    # Repeat the copy, because different threads of a session may be the first without memory.
    for _ in range(8):
        ended = bench.cp(*words, "--retries", "0")
        assert ended.code in {3, 4, 5}, ended.words
        assert "memory" in ended.words, ended.words
    assert server.is_running()


def test_a_slow_rate_still_makes_progress(bench: Bench) -> None:
    source = bench.folder / "tiny"
    source.write_bytes(b"tiny")
    for rate in (1, 9):
        to = bench.folder / f"at-{rate}"
        bench.cp(source, to, "--rate", str(rate), seconds=60).expect(0)
        assert to.read_bytes() == b"tiny"


def test_a_copy_under_nohup_outlives_the_terminal(bench: Bench, large: Path) -> None:
    """Under ``nohup`` the program ignores SIGHUP; without it, SIGHUP stops the copy."""
    # The tests may run under `nohup` themselves.
    without = ["env", "--default-signal=HUP"]
    # Without `nohup`, the rate is so low that the copy still runs when SIGHUP is sent.
    for wrap, code, rate in ((["nohup"], 0, "12MiB"), (without, 5, "2MiB")):
        sink = bench.folder / f"sink-{code}"
        words: list[Word] = [large / "large", f"{sink}/", "--rate", rate, "--reflink", "never"]
        running = bench.start_cp("--progress", "json", *words, wrap=wrap)
        running.await_durable()
        running.send(signal.SIGHUP)
        running.wait(60).expect(code)


def test_unwritable_output_is_reported(bench: Bench, large: Path) -> None:
    with open("/dev/full", "wb") as full:
        for words in (["plan", "--json", "-r", str(large), str(bench.folder / "to")], ["version"]):
            ended = subprocess.run(
                [bench.program, *words], stdout=full, stderr=subprocess.PIPE, check=False
            )
            assert ended.returncode == 1, words
            assert b"cannot write the output" in ended.stderr, ended.stderr


def test_a_server_out_of_sockets_reports_it_and_recovers(bench: Bench) -> None:
    """Reach RLIMIT_NOFILE: the server's log must tell why callers wait for an answer."""
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink, wrap=["prlimit", "--nofile=40"])
    host, port = server.address.rsplit(":", 1)

    descriptors = Path(f"/proc/{server.pid}/fd")
    at_rest = len(list(descriptors.iterdir()))

    def lack() -> str:
        return server.log_path.read_text(encoding="utf-8")

    with contextlib.ExitStack() as callers:
        for _ in range(40):
            callers.enter_context(socket.create_connection((host, int(port)), timeout=10))
        until = time.monotonic() + 20
        while "accept connections" not in lack():
            assert time.monotonic() < until, lack()
            time.sleep(0.05)
    assert "ulimit -n" in lack()
    assert lack().count("accept connections") == 1, lack()
    while len(list(descriptors.iterdir())) > at_rest:
        assert time.monotonic() < until, "disconnected callers still hold descriptors"
        time.sleep(0.05)
    (bench.folder / "a").write_bytes(b"a")
    bench.cp(bench.folder / "a", f"dray://{server.address}/a", *bench.peer(server)).expect(0)
    assert (sink / "a").read_bytes() == b"a"


def test_a_copy_that_may_open_no_socket_does_not_blame_the_other_end(bench: Bench) -> None:
    (bench.folder / "a").write_bytes(b"a")
    sink = bench.folder / "sink"
    sink.mkdir()
    server = bench.serve(sink)
    words: list[Word] = [bench.folder / "a", f"dray://{server.address}/a", *bench.peer(server)]
    outputs = []
    for limit in range(4, 80):
        ended = bench.cp(*words, wrap=["prlimit", f"--nofile={limit}"])
        if ended.code == 0:
            break
        outputs.append(f"{limit}: {ended.words}")
        assert ended.code != 4, outputs[-1]
    assert any("connect to" in words and "ulimit -n" in words for words in outputs), outputs
    assert (sink / "a").read_bytes() == b"a"


def test_a_copy_that_may_open_no_socket_does_not_blame_a_web_server(bench: Bench) -> None:
    outputs = []
    for limit in range(4, 80):
        web: list[Word] = ["http://127.0.0.1:1/a", bench.folder / "a"]
        ended = bench.cp(*web, wrap=["prlimit", f"--nofile={limit}"])
        if ended.code == 4:
            break
        outputs.append(f"{limit}: {ended.words}")
    else:
        pytest.fail("the server was never asked")
    assert "Too many open files" not in ended.words, ended.words
    assert any("cannot list" in words and "ulimit -n" in words for words in outputs), outputs
