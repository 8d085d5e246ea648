"""Layouts of Lustre, stored in an extended attribute of a file system other than Lustre.

The attribute contains Lustre's published structures. These tests show how dray uses a layout. They
do not show how a Lustre client behaves.
"""

from __future__ import annotations

import json
import os
import re
import struct
import tempfile
from typing import TYPE_CHECKING

import pytest

from integration.harness import tree
from integration.storage.trees import same

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

ATTRIBUTE = "user.lov"
SIMULATED: list[Word] = ["--lustre-attribute", ATTRIBUTE]
STRIPE_BYTES = tree.MIB
SLOW_BYTES_PER_SECOND = 4 * tree.MIB
USAGE = 2
REFUSED = 3


def _has_attributes() -> bool:
    with tempfile.TemporaryDirectory(dir=os.environ.get("DRAY_TEST_DIR")) as folder:
        try:
            os.setxattr(folder, ATTRIBUTE, b"x")
        except OSError:
            return False
    return True


pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not _has_attributes(), reason="no extended attributes here"),
]


def layout(stripe_bytes: int, osts: list[int]) -> bytes:
    """Return a ``lov_user_md_v1`` of Lustre (lustre_user.h) with one stripe on each OST."""
    head = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", stripe_bytes, len(osts), 0)
    return head + b"".join(struct.pack("<16sII", b"", 0, index) for index in osts)


def striped(path: Path, size: int, osts: list[int], seed: int = 1) -> None:
    """Write a file that is striped over ``osts``."""
    tree.make_file(path, size, seed=seed)
    os.setxattr(path, ATTRIBUTE, layout(STRIPE_BYTES, osts))


def test_a_plan_has_the_bytes_of_each_target(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    sink.mkdir()
    striped(source / "one", 3 * tree.MIB, [0x0A])
    striped(source / "small", 1000, [0x0B])
    ended = bench.start("plan", "-r", *SIMULATED, f"{source}/", sink).wait().expect(0)
    assert re.search(r"from OST000a: 3\.0 MiB", ended.out), ended.out
    assert "OST000b" not in ended.out


def test_a_slow_target_delays_only_its_own_stripes(bench: Bench) -> None:
    source, sink, trace = (bench.folder / name for name in ("source", "sink", "trace"))
    source.mkdir()
    for number in range(4):
        striped(source / f"f{number}", 8 * tree.MIB, [3, 7], seed=number)
    wanted = tree.describe(source)
    limit = f"OST0007={SLOW_BYTES_PER_SECOND}"
    words = ["-r", *SIMULATED, "--limit-target", limit, "--trace", trace, f"{source}/", sink]
    bench.cp(*words, "--pool", "16MiB", "--durability", "none").expect(0)
    same(wanted, sink)
    last = {0: 0.0, 1: 0.0}
    for line in map(json.loads, trace.read_text(encoding="utf-8").splitlines()):
        for part in line.get("parts", []):
            stripe = part["offset"] // STRIPE_BYTES % 2
            last[stripe] = max(last[stripe], line["at_us"] / 1e6)
    print(f"\nOST0003 done after {last[0]:.2f} s, OST0007 after {last[1]:.2f} s")
    assert last[1] > 0.8 * 16 * tree.MIB / SLOW_BYTES_PER_SECOND
    assert last[0] < 0.6 * last[1]


def test_new_files_have_the_requested_stripes(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    tree.make_file(source / "large", 3 * tree.MIB, seed=1)
    tree.make_file(source / "small", 1000, seed=2)
    bench.cp("-r", *SIMULATED, "--stripe", "4:16MiB", f"{source}/", sink).expect(0)
    wanted = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", 16 << 20, 4, 0xFFFF)
    for name in ("large", "small"):
        assert os.getxattr(sink / name, ATTRIBUTE) == wanted, name


def test_a_copy_has_the_stripes_of_its_source(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.mkdir()
    # ``--xattrs`` does not copy attributes named ``user.dray.*``, only ``--stripe`` does.
    simulated: list[Word] = ["--lustre-attribute", "user.dray.lov"]
    tree.make_file(source / "large", 3 * tree.MIB, seed=1)
    os.setxattr(source / "large", "user.dray.lov", layout(STRIPE_BYTES, [3, 7, 9]))
    bench.cp("-r", *simulated, "--stripe", "source", "--xattrs", f"{source}/", sink).expect(0)
    wanted = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", STRIPE_BYTES, 3, 0xFFFF)
    assert os.getxattr(sink / "large", "user.dray.lov") == wanted
    assert "user.lustre.stripes" not in os.listxattr(sink / "large")


def test_stripes_without_effect_are_refused(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    source.write_bytes(b"content")
    ended = bench.cp("--stripe", "4", source, sink)
    assert ended.code != 0
    assert "is not a folder on a Lustre file system" in ended.words, ended.words
    assert not (sink / "source").exists()
    ended = bench.cp("--stripe", "source", source, sink).expect(USAGE)
    assert "only with --xattrs" in ended.words, ended.words
    dirs = [bench.folder / f"disk{number}" for number in range(2)]
    for folder in dirs:
        folder.mkdir()
    disks = "disks://" + ",".join(str(folder) for folder in dirs)
    for stripe in (["4"], ["source", "--xattrs"]):
        ended = bench.cp("--stripe", *stripe, source, f"{disks}//sink/")
        assert ended.code == REFUSED, ended.words
        assert "disks:///" in ended.words, ended.words
        assert "is not a folder on a Lustre file system" in ended.words, ended.words
        assert [path.name for folder in dirs for path in folder.iterdir()] == []
    root = bench.folder / "root"
    root.mkdir()
    server = bench.serve(root)
    ended = bench.cp("--stripe", "4", source, f"dray://{server.address}/sink/", *bench.peer(server))
    assert ended.code == REFUSED, ended.words
    assert "is not a folder on a Lustre file system" in ended.words, ended.words


def test_a_server_sets_the_stripes_that_the_client_requests(bench: Bench) -> None:
    source, sink = bench.folder / "source", bench.folder / "root" / "in"
    source.mkdir()
    tree.make_file(source / "large", 3 * tree.MIB, seed=1)
    os.setxattr(source / "large", "user.dray.lov", layout(STRIPE_BYTES, [3, 7, 9]))
    simulated: list[Word] = ["--lustre-attribute", "user.dray.lov"]
    sink.parent.mkdir()
    server = bench.serve(sink.parent, *simulated)
    push: list[Word] = [
        "-r",
        *simulated,
        f"{source}/",
        f"dray://{server.address}/in/",
        *bench.peer(server),
    ]
    bench.cp("--stripe", "all:2MiB", *push).expect(0)
    every = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", 2 << 20, 0xFFFF, 0xFFFF)
    assert os.getxattr(sink / "large", "user.dray.lov") == every
    bench.cp("--stripe", "source", "--xattrs", "--overwrite", "always", *push).expect(0)
    same_as_source = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", STRIPE_BYTES, 3, 0xFFFF)
    assert os.getxattr(sink / "large", "user.dray.lov") == same_as_source
    # The server sends the layout of a file only if the client asks for it with ``--stripe``.
    back = bench.folder / "back"
    pull: list[Word] = ["-r", *simulated, f"dray://{server.address}/in/", back, *bench.peer(server)]
    os.setxattr(sink / "large", "user.dray.lov", layout(STRIPE_BYTES, [3, 7, 9, 11]))
    bench.cp("--xattrs", *pull).expect(0)
    assert "user.dray.lov" not in os.listxattr(back / "large")
    bench.cp("--stripe", "source", "--xattrs", "--overwrite", "always", *pull).expect(0)
    wanted = struct.pack("<II16sIHH", 0x0BD10BD0, 1, b"", STRIPE_BYTES, 4, 0xFFFF)
    assert os.getxattr(back / "large", "user.dray.lov") == wanted
