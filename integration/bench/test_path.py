"""The emulated path: when packets leave and arrive, drops, and computed rates."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from integration.bench import goals, wan, wan_report
from integration.bench.forward import (
    DELAY_NS,
    DROPPED,
    FRAME,
    HEAD,
    LATE_NS,
    PACKETS,
    PAYLOAD,
    QUEUE_BYTES,
    RATE_BITS,
    WIRE,
    Direction,
    measure,
)
from integration.bench.path import Seen, rate_between, rates, steady_rate
from integration.bench.results import Results, Row, Sample, Set

MS = 1_000_000


def packet(payload: int, *, segment: int = 0, protocol: int = 6) -> bytes:
    """Make a packet of TCP over IPv4 with time stamps: 20 and 32 bytes of heads."""
    kind = 1 if segment else 0
    before = struct.pack("BBHHHH", 1, kind, 52, segment, 20, 16)
    ip = bytes([0x45, 0]) + bytes(7) + bytes([protocol]) + bytes(10)
    return before + ip + bytes(12) + bytes([8 << 4]) + bytes(19) + bytes(payload)


def test_a_joined_packet_takes_the_wire_of_its_segments() -> None:
    assert measure(packet(1448)) == (1500 + FRAME, 1448)
    assert measure(packet(10 * 1448 + 1, segment=1448)) == (10 * 1538 + 53 + FRAME, 14481)
    # A TCP packet without data is one frame, even if the kernel gives a segment size.
    assert measure(packet(0, segment=1448)) == (52 + FRAME, 0)
    assert measure(packet(100, protocol=17)) == (152 + FRAME, 0)
    assert measure(bytes(HEAD + 20)) == (20 + FRAME, 0)


def direction(**settings: int) -> tuple[Direction, memoryview]:
    words = memoryview(bytearray(8 * 16)).cast("Q")
    words[DELAY_NS] = settings.get("delay_ns", 0)
    words[RATE_BITS] = settings.get("rate_bits", 0)
    words[QUEUE_BYTES] = settings.get("queue_bytes", 0)
    counters = words[8:]
    return Direction(words[:8], counters), counters


def test_a_packet_comes_after_the_line_and_the_delay() -> None:
    # One bit takes a nanosecond, so 1538 bytes of Ethernet take 12.304 microseconds.
    path, counters = direction(delay_ns=25 * MS, rate_bits=1_000_000_000)
    sent: list[bytes] = []
    path.take(packet(1448), 0)
    path.take(packet(1448), 0)
    assert path.wait_seconds(0) == pytest.approx(0.025012304)
    path.give(25 * MS + 12_303, sent.append)
    assert sent == []
    path.give(25 * MS + 12_304, sent.append)
    assert sent == [packet(1448)]
    path.give(25 * MS + 24_608 + 7, sent.append)
    assert sent == [packet(1448)] * 2
    assert (counters[PACKETS], counters[WIRE], counters[PAYLOAD]) == (2, 2 * 1538, 2 * 1448)
    assert (counters[DROPPED], counters[LATE_NS]) == (0, 7)


def test_a_full_queue_drops_what_comes() -> None:
    path, counters = direction(rate_bits=8_000_000, queue_bytes=3_000)
    for _ in range(5):
        path.take(packet(1448), 0)
    # A byte takes a microsecond. The third packet finds 3076 bytes, more than the queue holds.
    assert (counters[PACKETS], counters[DROPPED]) == (2, 3)
    path.take(packet(1448), 1_000_000)
    assert counters[PACKETS] == 3


def test_nothing_overtakes_when_the_path_becomes_shorter() -> None:
    words = memoryview(bytearray(8 * 16)).cast("Q")
    words[DELAY_NS] = 50 * MS
    path = Direction(words[:8], words[8:])
    path.take(packet(1), 0)
    words[DELAY_NS] = 0
    path.take(packet(2), 1)
    sent: list[bytes] = []
    path.give(10 * MS, sent.append)
    assert sent == []
    path.give(50 * MS, sent.append)
    assert sent == [packet(1), packet(2)]


#: Samples: 10 MB/s for five seconds, then 100 MB/s, then a slow end.
ARRIVED = tuple(
    [(float(at), 10.0 * at) for at in range(6)]
    + [(5.0 + at, 50.0 + 100.0 * at) for at in range(1, 11)]
    + [(25.0, 1055.0)]
)


def test_the_rate_of_a_path_is_that_after_slow_start_and_before_the_end() -> None:
    assert steady_rate(ARRIVED) == 100.0
    assert rate_between(ARRIVED, 0, 5) == 10.0
    assert steady_rate(ARRIVED[:4]) == 0.0
    assert steady_rate(()) == 0.0
    assert rates(ARRIVED)[:3] == [(0.0, 0.0), (1.0, 10.0), (2.0, 10.0)]


def some_results() -> Results:
    machine = {"processor": "one", "cpus": 2, "memory_mib": 2048, "system": "Debian", "kernel": "6"}
    rows = [
        Row("iperf3-4", "plain TCP", "the machine", is_ours=False, version="iperf 3"),
        Row("rsync", "rsync daemon", "clear", is_ours=False, version="rsync 3"),
        Row("dray", "dray", "clear", is_ours=True, version="dray 1"),
    ]
    results = Results({**machine, "date": "2026-11-22"}, rows, base="iperf3-4", megabits=1000.0)
    results.sets.append(Set("w", "one file: 1 file, 1006 MiB", 1_055_000_000, 1))
    results.facts.append("It carries enough.")
    for tool, seconds in (("iperf3-4", 20.0), ("rsync", 50.0), ("dray", 25.0)):
        seen = Seen(ARRIVED, 3, 1.5)
        base = Sample("w", "50 ms", "cubic", 0, tool, seconds, 1.0, 1 << 20, 0.1, seen=seen)
        results.samples.append(base)
    return results


def test_a_table_shows_the_used_part_of_the_line() -> None:
    text = wan_report.tables(some_results()).splitlines()
    assert text[0] == "It carries enough."
    assert "| **dray** | 25.0 | 42 | 100.0 | 80.0% | 1.25 | 2.00 | 1 | 3 | 2 | 0.1 |  |" in text
    rows = wan_report.table(some_results(), ("w", "50 ms", "cubic"))[2:]
    assert all(line.count("|") == len(wan_report.HEADS) + 1 for line in rows)


def test_goals_are_judged_by_their_own_measure() -> None:
    results = some_results()
    (line,) = goals.table(wan_report.reached(results))[2:]
    assert line.endswith("| dray | w, 50 ms, cubic | 80.0% | no |")
    third = Row("dray-third", "between", "third party", is_ours=True, version="")
    results.rows.append(third)
    results.samples.append(replace(results.samples[-1], tool="dray-third", seconds=25.5))
    assert goals.table(wan_report.reached(results))[-1].endswith(
        "| between | w, 50 ms, cubic | 1.020 | yes |"
    )
    # Evaluate the same runs as those of a tree, and then as those of many files.
    results.samples = [replace(each, set="c") for each in results.samples]
    tree = goals.table(wan_report.reached(results))[2]
    assert tree.endswith("| dray | c, 50 ms, cubic | 1.25 | no |")
    results.samples = [replace(each, set="l", seconds=each.seconds / 4) for each in results.samples]
    assert goals.table(wan_report.reached(results))[2].endswith(
        "| dray | l, 50 ms, cubic | 6.2 s | yes |"
    )
    assert wan_report.reached(replace(results, samples=[])) == []


def test_results_over_a_path_are_read_as_they_were_written_and_drawn() -> None:
    results = some_results()
    assert Results.read(results.text()) == results
    (name,) = wan_report.pictures(results)
    assert name == "w-50ms-cubic.svg"
    page = wan_report.page(results)
    assert f"measured-far/{name}" in page
    assert "| dray | dray 1 |" in page


@pytest.mark.parametrize("words", ["50", "50:x", "x:w", "50:w,"])
def test_an_invalid_case_is_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        wan.options().parse_args(["--cases", words])
    assert wan.options().parse_args(["--cases", "0.5:w"]).cases == ["0.5:w"]
