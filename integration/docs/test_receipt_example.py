"""The receipt in the reference is valid, by the program of the how-to and by ``dray``."""

from __future__ import annotations

import base64
import json
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


def run(words: list[Word]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def change(receipt: Path) -> None:
    receipt.write_bytes(receipt.read_bytes().replace(b'"size":6', b'"size":7'))


def shown_on_the_page() -> list[str]:
    """List the lines of the code blocks of the page, without their indentation."""
    page = (DOCS / "reference" / "receipts.md").read_text(encoding="utf-8")
    return [line[4:] for line in page.splitlines() if line.startswith("    ")]


def test_the_program_of_the_how_to_verifies_the_example(receipt: Path) -> None:
    words: list[Word] = [*program_of_the_how_to(), receipt, EXAMPLE / "keys.json"]
    assert run(words).returncode == 0
    change(receipt)
    assert run(words).returncode == 1


def test_dray_verifies_the_example_as_the_page_shows(receipt: Path) -> None:
    keys = EXAMPLE / "keys.json"
    words: list[Word] = [find_program(), "receipt", "verify", receipt, "--key", keys]
    done = run(words)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) <= set(shown_on_the_page())
    change(receipt)
    assert run(words).returncode == 1


def test_the_page_shows_the_example() -> None:
    shown = shown_on_the_page()
    head, *files = (EXAMPLE / "run42.receipt").read_text(encoding="ascii").splitlines()
    assert set(files) <= set(shown)
    payload = head.split(".")[1]
    signed = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    begin = shown.index(next(line for line in shown if line.startswith('{"sequence"')))
    printed, _ = json.JSONDecoder().raw_decode(" ".join(shown[begin:]))
    shortened = printed["list"].pop("digest").removesuffix("...")
    assert signed["list"].pop("digest").startswith(shortened)
    assert printed == signed
