"""Concurrent copies, clients that give up early, and a cluster."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.harness.tree import hash_file
from integration.xrootd.files import copies, make, pair
from integration.xrootd.moments import FULL
from integration.xrootd.servers import SHIM, find

if TYPE_CHECKING:
    from pathlib import Path

    from integration.xrootd.servers import Scene

pytestmark = pytest.mark.server

MIB = 1 << 20


def test_six_concurrent_copies_take_turns(scene: Scene) -> None:
    """The server runs at most four copies concurrently (``xfr 4``). All six are completed."""
    source, sink = pair(scene, f"rate = {8 * MIB}")
    made = [make(source, f"f{number}", 12 * MIB, seed=number) for number in range(6)]
    clients = [
        scene.begin("xrdcp", "--nopbar", "--tpc", "only", source.at(path.name), sink.at(path.name))
        for path in made
    ]
    most = 0
    while any(client.is_running() for client in clients):
        most = max(most, len(sink.jobs()))
        time.sleep(0.01)
    for client in clients:
        client.wait().expect(0)
    assert most == 4
    for path in made:
        assert hash_file(sink.path(path.name)) == hash_file(path)
    assert tree.leftovers(sink.data) == []


def test_a_mixed_folder_arrives(scene: Scene) -> None:
    """Copy the small and larger files of a folder, four at a time."""
    source, sink = pair(scene)
    sizes = [number * 7919 % 90_000 for number in range(20)] + [3 * MIB + 1, 20 * MIB]
    for number, size in enumerate(sizes):
        make(source, f"top/d{number % 4}/f{number}", size, seed=number)
    wanted = {path.relative_to(source.data): path for path in source.data.rglob("f*")}
    # Run xrdcp for each file, because --recursive gives all files of a folder one name.
    words = ["xrdcp", "--nopbar", "--tpc", "only"]
    urls = [(source.at(str(name)), sink.at(str(name))) for name in wanted]
    for first in range(0, len(urls), 4):
        clients = [scene.begin(*words, *pair) for pair in urls[first : first + 4]]
        for client in clients:
            client.wait().expect(0)
    found = {path.relative_to(sink.data): path for path in sink.data.rglob("f*")}
    assert found.keys() == wanted.keys()
    for name, path in wanted.items():
        assert hash_file(found[name]) == hash_file(path)
    assert tree.leftovers(sink.data) == []


@pytest.mark.timeout(1200)
def test_small_files_are_limited_by_the_clients_pace(scene: Scene) -> None:
    """Copy files of 1 MiB, four at a time. With ``DRAY_FULL=1``, also time stock xrdcp."""
    source = scene.server("source", tpc="pgm /usr/bin/xrdcp --server")
    sinks = {"dray": scene.server("sink", tpc="")}
    if FULL:
        sinks["xrdcp"] = scene.server("stock", tpc="pgm /usr/bin/xrdcp --server")
    made = [make(source, f"f{number}", MIB, seed=number) for number in range(100 if FULL else 8)]
    for program, sink in sinks.items():
        began, seconds = time.monotonic(), []
        for first in range(0, len(made), 4):
            clients = [
                scene.begin(
                    *("xrdcp", "--nopbar", "--tpc", "only"),
                    *(source.at(path.name), sink.at(path.name)),
                )
                for path in made[first : first + 4]
            ]
            seconds += [client.wait().expect(0).seconds for client in clients]
        whole = time.monotonic() - began
        print(f"\n{program}: {whole:.1f} s, each {min(seconds):.2f} to {max(seconds):.2f} s")
        for path in made:
            assert hash_file(sink.path(path.name)) == hash_file(path)
    assert copies(sinks["dray"]) == [(MIB, 0)] * len(made)


@pytest.mark.full
def test_a_copy_longer_than_the_clients_limit_comes_to_an_end(scene: Scene) -> None:
    """A client gives up after some seconds. Repeating its command completes the copy."""
    source, sink = pair(scene, f"rate = {8 * MIB}")
    made = make(source, "a", 120 * MIB)
    env = {"XRD_CPTPCTIMEOUT": "4", "XRD_TIMEOUTRESOLUTION": "1"}
    calls = 0
    while calls < 20:
        calls += 1
        ended = scene.xrdcp("--tpc", "only", source.at("a"), sink.at("a"), env=env)
        # A client may give up after the file got its name.
        copied = sink.path("a")
        if ended.code == 0 or (copied.exists() and copied.stat().st_size == 120 * MIB):
            break
    assert calls > 1, "the limit was never met"
    assert hash_file(sink.path("a")) == hash_file(made)
    # The last copy resumed from the durable data of the copies before it.
    sent, resumed = copies(sink)[-1]
    assert resumed > 0
    assert sent + resumed == 120 * MIB


def test_through_a_redirector_with_three_servers(scene: Scene) -> None:
    """The server that the redirector chooses copies from the server that has the file."""
    head, data = scene.cluster(3)
    made = make(data[0], "a", 24 * MIB)
    scene.await_found(head, "a")
    scene.xrdcp("--tpc", "only", head.at("a"), head.at("b")).expect(0)
    (copied,) = [server for server in data if server.path("b").exists()]
    assert hash_file(copied.path("b")) == hash_file(made)
    assert copies(copied) == [(24 * MIB, 0)]
    assert head.checksum("b", "adler32") == data[0].checksum("a", "adler32")


def test_only_the_entry_points_are_exported() -> None:
    """The library exports only the symbols of its header."""
    words: list[str | Path] = ["nm", "--dynamic", "--defined-only", "--format=posix", find(SHIM)]
    listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert names
    assert all(name.startswith("dray_xrdcl_") for name in names), names
