import copy
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest

import dray
from dray import _native, errors


def test_every_kind_has_a_name() -> None:
    assert _native.error_kinds() == list(get_args(errors.ErrorKind))


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"overwrite": "maybe"}, "maybe"),
        ({"durability": "disk"}, "disk"),
        ({"order": "random"}, "random"),
        ({"order": "random:-1"}, "random:-1"),
        ({"links": "cut"}, "cut"),
        ({"checksum": "md5:00"}, "md5"),
        ({"object_size": 4095}, "4095"),
        ({"object_size": 1 << 40}, str(1 << 40)),
        ({"pool_bytes": -1}, "pool_bytes=-1"),
        ({"rate": 0}, "rate=0"),
        ({"rate": 1 << 64}, "rate=18446744073709551616"),
        ({"transfer_id": "a b"}, "a b"),
        ({"include": "["}, "["),
        ({"recursive": True, "checksum": "adler32:1"}, "single file"),
    ],
)
def test_invalid_arguments_are_usage_errors(
    tmp_path: Path, arguments: dict[str, Any], cause: str
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(dray.DrayUsageError) as caught:
        dray.copy(tmp_path / "a", tmp_path / "b", **arguments)
    error = caught.value
    assert isinstance(error, ValueError)
    assert (error.end, error.status, error.file) == ("here", "permanent", None)
    assert cause in error.cause
    assert error.remedy
    assert str(error) == error.message
    assert not (tmp_path / "b").exists()


def test_wrong_types_are_type_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        dray.copy(1, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        dray.copy(tmp_path / "a", tmp_path / "b", rate="fast")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        dray.read_log(1)  # type: ignore[arg-type]


def test_a_refusal_names_end_cause_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(dray.DrayPermanentError) as caught:
        dray.copy(tmp_path / "a", f"{tmp_path}/file/")
    error = caught.value
    assert (error.kind, error.end) == ("not_a_directory", "sink")
    assert "file" in error.cause
    assert error.remedy in str(error)


def test_errors_survive_copying_and_pickling(tmp_path: Path) -> None:
    with pytest.raises(dray.DrayUsageError) as caught:
        dray.copy(tmp_path, tmp_path / "b")
    error = caught.value
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(twin) is dray.DrayUsageError
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__


def test_exceptions_share_one_base_class() -> None:
    for member in (dray.DrayTemporaryError, dray.DrayPermanentError, dray.DrayUsageError):
        assert issubclass(member, dray.DrayError)
