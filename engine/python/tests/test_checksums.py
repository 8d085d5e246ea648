import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dray


def crc32c_bit_by_bit(data: bytes) -> int:
    """Compute CRC-32/ISCSI from its definition, one bit at a time."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc32c", "adler32"),
    [
        (b"", 0, 1),
        (b"123456789", 0xE3069283, 0x091E01DE),  # the check value of CRC-32/ISCSI
        (bytes(32), 0x8A9136AA, 0x00200001),  # RFC 3720, appendix B.4
    ],
)
def test_published_values(data: bytes, crc32c: int, adler32: int) -> None:
    assert dray.checksum(data) == (crc32c, adler32)


@given(st.binary(max_size=300))
def test_sums_follow_the_definitions(data: bytes) -> None:
    assert dray.checksum(data) == (crc32c_bit_by_bit(data), zlib.adler32(data))


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_combining_equals_summing_the_whole(first: bytes, second: bytes) -> None:
    combined = dray.combine(dray.checksum(first), dray.checksum(second), len(second))
    assert combined == dray.checksum(first + second)


def test_sums_have_names() -> None:
    sums = dray.checksum(bytearray(b"123456789"))
    assert isinstance(sums, dray.Sums)
    assert (sums.crc32c, sums.adler32) == (0xE3069283, 0x091E01DE)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        dray.checksum("text")  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        dray.combine((1 << 32, 1), (0, 1), 0)
    with pytest.raises(OverflowError):
        dray.combine((0, 1), (0, 1), -1)


def test_other_threads_run_while_summing() -> None:
    # If the sum held the interpreter lock, the other thread would not run until the end of the sum.
    data = bytes(256 << 20)
    ticks_meanwhile = 0
    is_summing = threading.Event()
    is_done = threading.Event()

    def tick() -> None:
        nonlocal ticks_meanwhile
        is_summing.wait()
        while not is_done.is_set():
            ticks_meanwhile += 1

    thread = threading.Thread(target=tick)
    thread.start()
    is_summing.set()
    dray.checksum(data)
    is_done.set()
    thread.join()
    assert ticks_meanwhile > 100


@given(st.lists(st.binary(max_size=100)))
def test_summing_in_pieces_equals_summing_the_whole(pieces: list[bytes]) -> None:
    summer = dray.Summer()
    for piece in pieces:
        summer.update(piece)
    whole = b"".join(pieces)
    assert (summer.sums, summer.length) == (dray.checksum(whole), len(whole))
