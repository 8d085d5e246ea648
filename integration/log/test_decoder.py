"""The golden logs, read by a decoder that was written from the document alone."""

from __future__ import annotations

import importlib.util
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent
GOLDEN = sorted([*HERE.glob("golden/*.log"), *HERE.glob("golden/*.lease")])


def load() -> ModuleType:
    """Import the decoder from its place: this folder is no package."""
    spec = importlib.util.spec_from_file_location("object_log_decoder", HERE / "decoder.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


decoder = load()


def test_there_are_golden_logs_of_each_kind() -> None:
    names = {path.name for path in GOLDEN}
    assert {
        "plain.log",
        "torn.log",
        "damaged-end.log",
        "compacted.log",
        "two-holders.lease",
    } <= names


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_decoder_agrees_with_the_engine(path: Path) -> None:
    expected = json.loads(path.with_name(path.name + ".json").read_text())
    assert decoder.describe(path) == expected


def test_sums_combine() -> None:
    first, second = b"an object log ", bytes(5000) + b"is not a diary"

    def sums(data: bytes) -> tuple[int, int]:
        return decoder.crc32c(data), zlib.adler32(data)

    assert decoder.crc32c(b"123456789") == 0xE3069283
    assert decoder.combine(sums(first), sums(second), len(second)) == sums(first + second)


def test_a_flipped_bit_gives_no_range_that_was_not_there() -> None:
    whole = (HERE / "golden" / "plain.log").read_bytes()
    known = {file["path"]: file["done"] for file in decoder.read_log(whole)["files"]}
    for at in range(len(whole)):
        image = bytearray(whole)
        image[at] ^= 0x40
        try:
            found = decoder.read_log(bytes(image))
        except decoder.LogError:
            continue
        for file in found["files"]:
            if file["path"] == "run1/c":
                assert at >= len(whole) - 300, (
                    "published, so gone unless its end was the last group"
                )
                continue
            for offset, length, *_ in file["done"]:
                inside = any(
                    a <= offset and offset + length <= a + n for a, n, *_ in known[file["path"]]
                )
                assert inside, at
