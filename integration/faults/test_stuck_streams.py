"""One data connection is closed or becomes silent, and the other connections send its objects."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.marks import in_full

if TYPE_CHECKING:
    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FILES = 40
#: Rate of the copy, by the fraction of the data that is sent before the fault. At the lower rate,
#: the copy still runs when the connection is given up. At the higher rate, it ends long before.
RATES_BYTES_PER_SECOND = {0.3: 2 * tree.MIB, 0.9: 10 * tree.MIB}
#: Maximum number of bytes that are sent again. Two objects and the socket buffers of one connection
#: hold less.
UNDER_WAY_BYTES = 16 * tree.MIB
#: Seconds after which a silent connection with full socket buffers is given up.
LOST_AFTER_SECONDS = 60


@pytest.mark.parametrize("push", [True, in_full(False)], ids=["push", "pull"])
@pytest.mark.parametrize("after", RATES_BYTES_PER_SECOND, ids=["early", "late"])
def test_a_stalled_stream_is_given_up(bench: Bench, push: bool, after: float) -> None:
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    source.mkdir()
    for number in range(FILES):
        tree.make_file(source / f"{number:02}", tree.MIB, seed=number)
    server = bench.serve(sink if push else source)
    proxy = Proxy(server.address)
    try:
        far = f"dray://{proxy.address}/"
        ends: list[Word] = [f"{source}/", far] if push else [far, f"{sink}/"]
        how: list[Word] = ["--streams", "4", "--object-size", "256KiB", "--durability", "none"]
        rate = RATES_BYTES_PER_SECOND[after]
        how += ["--rate", str(rate), *bench.peer(server)]
        client = bench.start_cp("-r", *ends, *how)
        proxy.await_bytes(int(after * FILES * tree.MIB))
        frozen = proxy.freeze_data()
        began = time.monotonic()
        ended = client.wait(150).expect(0)
        seconds = time.monotonic() - began
        carried = sum(each.up + each.down for each in proxy.connections if each.is_data)
        print(f"\nit went on for {seconds:.1f} s, {carried / tree.MIB:.1f} MiB went by")
        # A fifth connection is dialled in place of the lost one, unless the copy ends before.
        dialled = len([each for each in proxy.connections if each.is_data])
        assert dialled == 5 if after < 0.5 else dialled in {4, 5}
        left = (1 - after) * FILES * tree.MIB / rate
        assert seconds < left + LOST_AFTER_SECONDS / 2
        assert carried - FILES * tree.MIB <= UNDER_WAY_BYTES
        if push:
            # The source reports the connection that it gave up. Here the source is the client.
            assert any("did not acknowledge" in notice for notice in ended.report["notices"])
        else:
            said = [line for line in server.transfers() if line["event"] == "notice"]
            assert any("did not acknowledge" in line["error"]["cause"] for line in said), said
        assert frozen.is_frozen
        differences = tree.differences(tree.describe(source), tree.describe(sink))
        assert [line for line in differences if "b''" not in line] == []
    finally:
        proxy.close()


#: Seconds within which a closed connection is detected. A silent connection takes two minutes.
NOTICED_SECONDS = 20.0
#: Size of the last object. The object fits into the socket buffers of one connection, so the source
#: has sent the whole object after some seconds, even if the other end reads nothing.
LAST_BYTES = 192 << 10
LAST_RATE = 64 << 10


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_closed_stream_is_noticed_though_nothing_more_is_sent_on_it(
    bench: Bench, push: bool
) -> None:
    """The last object that the source has sent is lost, and then its connection is closed."""
    source, sink = bench.folder / "source", bench.folder / "sink"
    sink.mkdir()
    source.mkdir()
    tree.make_file(source / "last", LAST_BYTES, seed=1)
    server = bench.serve(sink if push else source)
    proxy = Proxy(server.address)
    try:
        far = f"dray://{proxy.address}/"
        ends: list[Word] = [f"{source}/", far] if push else [far, f"{sink}/"]
        how: list[Word] = ["--streams", "2", "--rate", str(LAST_RATE), *bench.peer(server)]
        client = bench.start_cp("-r", *ends, *how)
        proxy.await_bytes(LAST_BYTES // 3)
        frozen = proxy.freeze_data()
        # The connection is silent during this time, but neither end detects the silence.
        time.sleep(2 * LAST_BYTES / LAST_RATE)
        assert client.is_running()
        began = time.monotonic()
        frozen.close(abruptly=False)
        client.wait(200).expect(0)
        seconds = time.monotonic() - began
        print(f"\nit ended after {seconds:.1f} s")
        assert seconds < NOTICED_SECONDS
        assert (sink / "last").read_bytes() == (source / "last").read_bytes()
    finally:
        proxy.close()
