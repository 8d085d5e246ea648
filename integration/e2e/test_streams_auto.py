"""``--streams auto`` with slow connections and a far side that accepts only some."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from integration.harness.program import Bench, Ended, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FILES = 24
FILE_BYTES = 8 * tree.MIB
#: Rate of one connection in bytes per second, as a TCP window limits it on a long path.
RATE_BYTES_PER_SECOND = 1.5 * tree.MIB
#: Maximum number of connections that the far end accepts, including the control connection.
STREAMS_MAX = 12
#: Default number of streams of a transfer that is not tuned.
STREAMS_FIRST = 4


def settings(ended: Ended) -> list[tuple[float, int]]:
    """Return the time and the number of streams of each progress report."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in ended.words.splitlines() if line.startswith("{")
    ]
    feed = [line for line in lines if line["event"] == "progress"]
    return [(line["seconds"], line["streams"]) for line in feed]


@pytest.mark.parametrize("reads_here", [True, in_full(False)], ids=["push", "pull"])
@pytest.mark.parametrize("how", [[], in_full(["--clear-data"])], ids=["tls", "clear"])
def test_streams_grow_until_the_far_side_takes_no_more(
    bench: Bench, how: list[Word], monkeypatch: pytest.MonkeyPatch, *, reads_here: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(bench.folder / "state"))
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    source.mkdir()
    for number in range(FILES):
        tree.make_file(source / f"{number:02}", FILE_BYTES, seed=number)
    allowed = ["--allow-clear-data"] if how else []
    server = bench.serve(sink if reads_here else source, *allowed)
    proxy = Proxy(
        server.address,
        rate_bytes_per_second=RATE_BYTES_PER_SECOND,
        connections_max=STREAMS_MAX + 1,
    )
    try:
        far = f"dray://{proxy.address}/"
        ends: list[Word] = [f"{source}/", far] if reads_here else [far, f"{sink}/"]
        how = [*how, "--streams", "auto", "--durability", "none", "--progress", "json"]
        began = time.monotonic()
        ended = bench.cp("-r", *ends, *how, *bench.peer(server), seconds=200).expect(0)
        seconds = time.monotonic() - began
        found = settings(ended)
        fixed = FILES * FILE_BYTES / (STREAMS_FIRST * RATE_BYTES_PER_SECOND)
        print(f"\n{seconds:.1f} s, {fixed:.1f} s with {STREAMS_FIRST} streams; refused")
        print(f"{proxy.refused}; {found}")
        assert seconds < 0.75 * fixed
        assert 2 * STREAMS_FIRST <= max(streams for _, streams in found) <= STREAMS_MAX
        # The client does not keep asking for refused connections.
        assert proxy.refused <= 2 * STREAMS_MAX
        differences = tree.differences(tree.describe(source), tree.describe(sink))
        assert [line for line in differences if "b''" not in line] == []
        # The next copy starts with the result of this one.
        kept = bench.folder / "state" / "dray" / "tuner.json"
        (pair,) = json.loads(kept.read_text(encoding="utf-8"))["pairs"]
        print(pair)
        assert 2 * STREAMS_FIRST <= pair["streams"] <= STREAMS_MAX
        assert (pair["source"] == "here") == reads_here
        before = sum(each.is_data for each in proxy.connections)
        ends = [source / "00", f"{far}new"] if reads_here else [f"{far}00", sink / "new"]
        bench.cp(*ends, *how, *bench.peer(server)).expect(0)
        begun = sum(each.is_data for each in proxy.connections) - before
        assert begun >= pair["streams"]
    finally:
        proxy.close()
