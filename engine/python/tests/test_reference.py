import ast
import doctest
import os
from pathlib import Path
from typing import get_args

import pytest

import dray
from dray import _native, errors
from dray.client import Client

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs/reference/python.md"


def test_the_examples_of_the_reference_are_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run42").mkdir()
    for name in "abc":
        (tmp_path / f"run42/{name}.dat").write_bytes(os.urandom(1 << 20))
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(REFERENCE), module_relative=False)
    assert (result.failed, result.attempted > 15) == (0, True)


def test_the_reference_names_everything_public() -> None:
    text = REFERENCE.read_text()
    skipped = {"__version__", "version", "Event", "DoneRange", "LogDamage", "LogHeader"}
    skipped |= {"LoggedFile", "LostBytes", "Sums", "Tenure"}
    missing = [name for name in dray.__all__ if name not in skipped and name not in text]
    assert missing == []
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert len(methods) > 30
    assert {name for name in methods if f"`{name}(" not in text} == set()
    assert [kind for kind in get_args(errors.ErrorKind) if f"`{kind}`" not in text] == []


def test_the_stub_of_the_native_module_names_what_is_there() -> None:
    stub = Path(dray.__file__).with_name("_native.pyi").read_text()
    named = set()
    for node in ast.parse(stub).body:
        is_typed_dict = isinstance(node, ast.ClassDef) and bool(node.bases)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not is_typed_dict:
            named.add(node.name)
    assert named == {name for name in dir(_native) if not name.startswith("__")}


def test_the_package_is_marked_as_typed() -> None:
    assert Path(dray.__file__).with_name("py.typed").exists()
