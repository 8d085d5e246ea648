"""The reference page of the endpoint's configuration equals the shipped example."""

from __future__ import annotations

import pytest

from tools import config_page


def test_the_page_shows_the_example() -> None:
    page = config_page.PAGE.read_text(encoding="utf-8")
    example = config_page.EXAMPLE.read_text(encoding="utf-8")
    is_the_same = config_page.renewed(page, example) == page
    assert is_the_same, "run `python tools/config_page.py`"


def test_a_changed_example_is_seen() -> None:
    page = "# a\n\n```toml\nname = 1\n```\n\nwords\n"
    assert config_page.renewed(page, "name = 1\n") == page
    assert config_page.renewed(page, "name = 2\n") != page
    with pytest.raises(ValueError, match="0 blocks"):
        config_page.renewed("# a\n", "name = 1\n")
