"""With four real file systems, one of them slow, the slow disk does not delay the other three."""

from __future__ import annotations

import pytest

from integration.bench.disks import Sizes, bench
from integration.harness.loop import limits_reason
from integration.harness.tree import MIB

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(300)]

#: Amounts that are small, and rates so low that a busy host does not change the times.
SIZES = Sizes(files=32, file_bytes=4 * MIB, rate=8 * MIB, slow_rate=2 * MIB, pool="16MiB")
#: Maximum time of the fast disks with a slow disk, divided by their time without a slow disk. The
#: host may be busy, so the value has a tolerance.
DELAY_MAX = 1.3
#: Minimum time of the fast disks in file order, divided by their time in layout order.
GAIN_MIN = 1.8


@pytest.mark.parametrize("way", ["sink", "source", "both"])
def test_a_slow_disk_delays_no_other_disk(way: str) -> None:
    if limits_reason():
        pytest.skip(limits_reason())
    with bench(SIZES) as it:
        calm = it.run(way, "layout", is_slow=False)
        layout = it.run(way, "layout", is_slow=True)
        file = it.run(way, "file", is_slow=True)
    print(f"{way}: {calm} {layout} {file}")
    assert layout.others < calm.others * DELAY_MAX
    assert file.others > layout.others * GAIN_MIN
