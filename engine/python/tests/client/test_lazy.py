"""Tests of imports: the client loads no native code, and the other modules load no HTTP client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dray

ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


def run(script: str, *absent: str) -> str:
    top = str(Path(dray.__file__).parents[1])
    whole = ABSENT.format(absent=set(absent)) + f"sys.path.insert(0, {top!r})\n" + script
    done = subprocess.run(
        [sys.executable, "-I", "-c", whole], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("way", ["import dray; dray.Client", "from dray import Client"])
def test_the_client_needs_no_native_module(way: str) -> None:
    script = f"{way}\nimport dray, dray.client, dray.testing\n"
    script += "print('dray._native' in sys.modules, dray.Client('dray://h').url)"
    assert run(script, "dray._native") == "False https://h:4735"


def test_the_native_module_is_not_loaded_even_if_present() -> None:
    script = "import dray, dray.client\ndray.Client; dray.AsyncClient; dray.DrayError\n"
    script += "print('dray._native' in sys.modules)"
    assert run(script) == "False"


def test_copies_need_no_http() -> None:
    script = "import dray\ndray.copy; dray.checksum(b''); dray.find_logs; dray.__version__\n"
    script += "print('httpx' in sys.modules)"
    assert run(script, "httpx") == "False"


def test_without_the_native_module_its_names_raise_a_clear_error() -> None:
    script = "import dray\ntry:\n    dray.copy\nexcept ImportError as error:\n    print(error)"
    assert "_native" in run(script, "dray._native")


def test_every_public_name_has_a_module_and_no_other_exists() -> None:
    assert sorted(dray._HOME) == sorted(set(dray.__all__) - {"__version__"})
    assert set(dray.__all__) <= set(dir(dray))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dray.nonsense  # type: ignore[attr-defined]  # noqa: B018
