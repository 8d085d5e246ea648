"""Limits for the instructions per file and per byte. Other load does not change these numbers.

Callgrind counts the instructions of the program, but not those of the kernel. The tests subtract
the count of a small copy from that of a large copy, so the instructions at the start and at the end
of the program cancel. The limits allow for random variation of threads and for a newer compiler.
They detect one more pass over the bytes (a third of an instruction per byte), and one more message,
map or allocation per file. If a change reduces the number of instructions, lower the limits.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Word

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(300)]

SMALL_BYTES = 1_000
FILES = (200, 2_200)
LARGE_BYTES = (4 * tree.MIB, 36 * tree.MIB)
End = Literal["both", "source", "sink"]


class Band(NamedTuple):
    """The permitted number of instructions."""

    low: float
    high: float


#: Permitted instructions per small file, and per byte of a large file, at each end.
BANDS: dict[tuple[End, str], Band] = {
    ("both", "small"): Band(25_000, 39_000),
    ("source", "small"): Band(11_500, 18_000),
    # A service clears each block of memory that it frees (docs/decisions, 0047).
    ("sink", "small"): Band(17_500, 31_000),
    ("both", "large"): Band(0.57, 0.83),
    ("source", "large"): Band(0.55, 0.81),
    ("sink", "large"): Band(0.53, 0.79),
}


def counted(said: str) -> int:
    """Return the number of instructions in the final report of callgrind."""
    match = re.search(r"Collected : (\d+)", said)
    assert match, said
    return int(match.group(1))


def instructions(bench: Bench, end: End, source: Path, name: str) -> int:
    """Copy a folder. Return the instructions of one end, or of both ends in one process."""
    wrap = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    sink = bench.folder / f"sink-{name}"
    how: list[Word] = ["--durability", "none", "--quiet"]
    if end == "both":
        ran = bench.start_cp("-r", f"{source}/", sink, *how, wrap=wrap).wait(200).expect(0)
        return counted(ran.words)
    sink.mkdir()
    server = bench.serve(sink, "--allow-clear-data", wrap=wrap if end == "sink" else ())
    words: list[Word] = ["-r", f"{source}/", f"dray://{server.address}/", "--clear-data", *how]
    words += bench.peer(server)
    ran = bench.start_cp(*words, wrap=wrap if end == "source" else ()).wait(200).expect(0)
    ended = server.stop()
    return counted(ran.words if end == "source" else ended.words)


@pytest.mark.parametrize("end", ["both", "source", "sink"])
@pytest.mark.parametrize("what", ["small", "large"])
def test_cost_is_within_its_band(bench: Bench, end: End, what: str) -> None:
    if shutil.which("valgrind") is None:
        pytest.fail("valgrind is missing: run `make setup`", pytrace=False)
    found = []
    for amount in FILES if what == "small" else LARGE_BYTES:
        source = bench.folder / f"source-{amount}"
        source.mkdir()
        if what == "small":
            for number in range(amount):
                tree.make_file(source / f"{number:05}", SMALL_BYTES, seed=number)
        else:
            tree.make_file(source / "large", amount, seed=1)
        found.append(instructions(bench, end, source, f"{amount}"))
    few, many = FILES if what == "small" else LARGE_BYTES
    each = (found[1] - found[0]) / (many - few)
    print(f"\n{what}, {end}: {each:.3f} instructions each ({found[0]}, {found[1]})")
    band = BANDS[end, what]
    assert band.low <= each <= band.high, "see the purpose of this bound above"
