from pathlib import Path

import dray

ROOT = Path(__file__).resolve().parents[3]


def test_package_and_engine_carry_the_version_of_the_tree() -> None:
    expected = (ROOT / "VERSION").read_text().strip()
    assert dray.__version__ == expected
    assert dray.version() == expected


def test_every_public_name_exists() -> None:
    missing = [name for name in dray.__all__ if not hasattr(dray, name)]
    assert missing == []
