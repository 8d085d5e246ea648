"""The decoder reads the golden logs, with the results of the engine."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest

from integration.log import decoder, values

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "design" / "object-log.md"
GOLDEN = sorted([*HERE.glob("golden/*.log"), *HERE.glob("golden/*.lease")])


def test_there_are_golden_logs_of_each_kind() -> None:
    names = {path.name for path in GOLDEN}
    assert {
        "plain.log",
        "torn.log",
        "damaged-end.log",
        "compacted.log",
        "form-file-bit8.log",
        "form-transaction-enc.log",
        "form-universal-int.log",
        "two-holders.lease",
    } <= names


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_decoder_agrees_with_the_engine(path: Path) -> None:
    expected = json.loads(path.with_name(path.name + ".json").read_text())
    assert decoder.describe(path) == expected


def test_sums_combine() -> None:
    first, second = b"an object log ", bytes(5000) + b"is not a diary"

    def sums(data: bytes) -> tuple[int, int]:
        return values.crc32c(data), zlib.adler32(data)

    assert values.crc32c(b"123456789") == 0xE3069283
    assert values.combine(sums(first), sums(second), len(second)) == sums(first + second)


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


def test_example_of_the_page_is_the_golden_file() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    golden = json.loads((HERE / "golden" / "plain.log.json").read_text(encoding="utf-8"))
    golden["files"] = [file for file in golden["files"] if file["path"] == "run1/a.root"]
    assert json.loads(example) == golden


def test_partial_names_are_the_hash_of_the_last_name() -> None:
    assert fnv(b"foobar") == 0x85944171F73967E8, "a vector of its authors"
    golden = json.loads((HERE / "golden" / "plain.log.json").read_text(encoding="utf-8"))
    names = {file["path"]: file["partial"]["name"] for file in golden["files"]}
    last = {"run1/a.root": b"a.root", "run2/deep/\\xff\\\\\\x0a.dat": b"\xff\\\n.dat"}
    assert names == {path: f".dray-{fnv(name):016x}.part" for path, name in last.items()}
    page = PAGE.read_text(encoding="utf-8")
    for hashed in (
        b"",
        b"run1\0run2/deep\0",
        b"\0\xffrun-1",
        b"run1\0run2/deep\0\0\xffrun-1",
        b"a.root",
        b"a.root\0\x01\0\0\0",
        b"a.root\0\0\0\0\x0028c62ca582b0a0bb.log",
    ):
        assert f"`{fnv(hashed):016x}`" in page


def fnv(data: bytes) -> int:
    """Compute FNV-1a 64 of ``data``."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
