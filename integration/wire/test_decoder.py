"""The decoder, which was written from the specification alone, reads the engine's frames."""

from __future__ import annotations

import hmac
import importlib.util
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GOLDEN = sorted((HERE / "golden").glob("*.bin"))
PAGE = HERE.parents[1] / "docs" / "design" / "wire-protocol.md"


def _load(name: str) -> Any:  # noqa: ANN401 - a module
    # Import by path, because this folder is no package.
    spec = importlib.util.spec_from_file_location(f"dray_wire_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


decoder = _load("decoder")


def _ids(path: Path) -> str:
    return path.stem


def test_known_checksums() -> None:
    assert decoder.crc32c(b"123456789") == 0xE3069283
    assert decoder.adler32(b"123456789") == 0x091E01DE


def test_every_type_of_the_specification_has_a_golden_frame() -> None:
    assert len(GOLDEN) > 30, "the golden files are missing"
    seen = {path.read_bytes()[4] for path in GOLDEN if not path.stem.startswith("preamble")}
    assert seen >= set(decoder.CONTROL) | set(decoder.DATA)


@pytest.mark.parametrize("path", GOLDEN, ids=_ids)
def test_golden_frames_match_their_json(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert decoder.decode_stream(path.read_bytes()) == [expected]


@pytest.mark.parametrize("path", GOLDEN, ids=_ids)
def test_a_flipped_bit_is_refused(path: Path) -> None:
    data = path.read_bytes()
    expected = decoder.decode_stream(data)
    # In a long frame, flip only every seventh bit: checksums are slow in pure Python.
    for bit in range(0, len(data) * 8, 1 if len(data) < 100 else 7):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = decoder.decode_stream(bytes(flipped))
        except decoder.FrameError:
            continue
        # A preamble has no checksum. With a flipped bit, it decodes to another preamble.
        assert path.stem.startswith("preamble"), f"bit {bit}"
        assert found != expected, f"bit {bit}"


@pytest.mark.parametrize("path", GOLDEN, ids=_ids)
def test_a_cut_frame_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in range(1, len(data), 1 if len(data) < 100 else 7):
        with pytest.raises(decoder.FrameError):
            decoder.decode_stream(data[:length])


def test_frames_follow_each_other() -> None:
    names = ["preamble_control_clear", "hello", "connect_sink", "ignorable", "bye"]
    paths = [HERE / "golden" / f"{name}.bin" for name in names]
    frames = decoder.decode_stream(b"".join(path.read_bytes() for path in paths))
    assert [frame.get("type") for frame in frames] == [None, "HELLO", "CONNECT", "unknown", "BYE"]


def test_a_claimed_length_costs_nothing() -> None:
    with pytest.raises(decoder.FrameError, match="at most"):
        decoder.decode_frame(b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(4))


def _golden(name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads((HERE / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def test_examples_of_the_page_are_the_golden_files() -> None:
    page = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"^[A-Z_]+ \(`(\w+)`\):\n\n```json\n(.*?)^```", page, re.M | re.S)
    names = ["hello", "connect_sink", "new_files", "file_ids", "block"]
    assert [name for name, _ in examples] == names
    for name, example in examples:
        assert json.loads(example) == _golden(name)


def test_proof_of_the_golden_join_holds() -> None:
    accept, join = _golden("accept")["fields"], _golden("join")["fields"]
    label = b"dray join v1" + bytes(4)
    ticket = bytes.fromhex(join["ticket"])
    challenge = bytes.fromhex(_golden("challenge")["fields"]["challenge"])
    signed = label + ticket + struct.pack("<I", join["stream"]) + challenge
    assert len(signed) == 68
    proof = hmac.digest(bytes.fromhex(accept["key"]), signed, "sha256").hex()
    assert (join["ticket"], join["proof"]) == (accept["ticket"], proof)
    assert proof in PAGE.read_text(encoding="utf-8")


def test_a_long_hello_is_refused_whatever_the_bound_afterwards() -> None:
    prefix = struct.pack("<IBBHI", 65537, 0x01, 0, 0, 0)
    with pytest.raises(decoder.FrameError, match="at most 65536"):
        decoder.decode_frame(prefix + bytes(65537))
