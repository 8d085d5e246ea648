"""The receipt in the reference is valid, by the program of the how-to and by ``dray``."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.harness.program import find_program

if TYPE_CHECKING:
    from integration.harness.program import Word

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "reference" / "receipts"
HOW_TO = DOCS / "how-to" / "verify-a-receipt.md"


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    return Path(shutil.copy(EXAMPLE / "run42.receipt", tmp_path))


def program_of_the_how_to() -> list[Word]:
    (program,) = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    return [sys.executable, "-c", program]


def code(words: list[Word]) -> int:
    return subprocess.run(words, capture_output=True, check=False).returncode


def test_the_program_of_the_how_to_verifies_the_example(receipt: Path) -> None:
    words: list[Word] = [*program_of_the_how_to(), receipt, EXAMPLE / "keys.json"]
    assert code(words) == 0
    receipt.write_bytes(receipt.read_bytes().replace(b'"size":6', b'"size":7'))
    assert code(words) == 1


def test_dray_verifies_the_example(receipt: Path) -> None:
    words: list[Word] = [
        find_program(),
        "receipt",
        "verify",
        receipt,
        "--key",
        EXAMPLE / "keys.json",
    ]
    assert code(words) == 0
    receipt.write_bytes(receipt.read_bytes().replace(b'"size":6', b'"size":7'))
    assert code(words) == 1


def test_the_page_shows_the_example() -> None:
    page = (DOCS / "reference" / "receipts.md").read_text(encoding="utf-8")
    lines = (EXAMPLE / "run42.receipt").read_text(encoding="utf-8").splitlines()[1:]
    assert all(f"    {line}\n" in page for line in lines)
