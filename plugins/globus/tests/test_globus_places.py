from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import DrayUsageError
from dray_globus import sites
from dray_globus.settings import Settings
from dray_globus.urls import GlobusPlace, parse

if TYPE_CHECKING:
    from pathlib import Path

HERE = "11111111-1111-4111-8111-111111111111"

names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(names, min_size=1, max_size=4))
def test_a_url_names_every_path(path: list[str]) -> None:
    place = GlobusPlace(HERE, "/" + "/".join(path))
    assert parse(place.url) == place
    assert "#" not in place.url
    assert "?" not in place.url


def test_the_collection_is_lower_case_and_a_plus_is_a_plus() -> None:
    assert parse(f"globus://{HERE.upper()}/a+b%20c") == GlobusPlace(HERE, "/a+b c")


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("dray://h/r/p", "not a URL of a collection"),
        (f"globus://{HERE}", "not a URL of a collection"),
        ("globus://tutorial/f", "not the UUID"),
        (f"globus://{{{HERE}}}/f", "not the UUID"),
        (f"globus://{HERE}/a#b", "contains ? or #"),
        (f"globus://{HERE}/a?b", "contains ? or #"),
        (f"globus://{HERE}/100%", "two hexadecimal digits"),
        (f"globus://{HERE}/a%2Fb", "slash or a zero byte"),
        (f"globus://{HERE}/a%00", "slash or a zero byte"),
        (f"globus://{HERE}/caf%E9", "not UTF-8"),
        (f"globus://{HERE}/a/../b", "'..'"),
        (f"globus://{HERE}/%2e%2E/b", "'..'"),
        (f"globus://{HERE}//b", "two slashes"),
        (f"globus://{HERE}/a//", "two slashes"),
    ],
)
def test_an_invalid_url_is_refused_by_name(url: str, cause: str) -> None:
    with pytest.raises(DrayUsageError) as caught:
        parse(url)
    assert url in str(caught.value)
    assert cause in str(caught.value)


def site_map(tmp_path: Path, text: str) -> sites.SiteMap:
    path = tmp_path / "sites.toml"
    path.write_text(text)
    return sites.read(path)


def entry(root: str, path: str) -> str:
    return f'[[site]]\nroot = "{root}"\ncollection = "{HERE}"\npath = "{path}"\n'


def test_the_longest_root_of_a_site_map_is_used(tmp_path: Path) -> None:
    found = site_map(
        tmp_path, entry("dray://A/data", "/export") + entry("dray://a:4735/data/run", "/fast/")
    )
    assert found.place("dray://a/data/x%23").path == "/export/x#"
    assert found.place("dray://A:4735/data/run/x/").path == "/fast/x/"
    assert found.place("dray://a/data/run").path == "/fast/"
    assert found.place("dray://a/data/runs").path == "/export/runs"


@pytest.mark.parametrize("url", ["dray://b/data/x", "dray://a:1/data/x", "dray://a/database"])
def test_a_root_without_a_collection_is_refused(tmp_path: Path, url: str) -> None:
    found = site_map(tmp_path, entry("dray://a/data", "/export"))
    with pytest.raises(DrayUsageError, match=r"no collection is known.*sites.toml"):
        found.place(url)


@pytest.mark.parametrize("url", ["/data/x", "file:///x", "dray://a"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(DrayUsageError, match="Globus moves only"):
        sites.read(None).place(url)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[[site]", "not TOML"),
        ("[sites]\n", "unknown keys: sites"),
        ("[site]\nroot = 1\n", "unknown keys: site"),
        ('[[site]]\nroot = "dray://a/b"\n', "entry 1 must have exactly"),
        (f'[[site]]\nroot = 1\ncollection = "{HERE}"\npath = "/"\n', "not a text"),
        (entry("dray://a/b", "/x") + entry("dray://a", "/x"), "entry 2: root"),
        (entry("dray://a/b", "/x").replace(HERE, "x"), "entry 1: .*UUID"),
        (entry("dray://a/b", "/x/../y"), "entry 1: .*'..'"),
    ],
)
def test_an_invalid_site_map_is_refused(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(DrayUsageError, match=cause):
        site_map(tmp_path, text)


def test_a_missing_site_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrayUsageError, match="DRAY_GLOBUS_SITES"):
        sites.read(tmp_path / "missing")


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    found = Settings.from_environment(
        {
            "DRAY_GLOBUS_CLIENT_ID": "id",
            "DRAY_GLOBUS_CLIENT_SECRET": "secret",
            "DRAY_GLOBUS_DATA_ACCESS": "a, b",
            "DRAY_GLOBUS_SITES": str(tmp_path / "s"),
            "DRAY_GLOBUS_STATE": str(tmp_path),
            "DRAY_GLOBUS_TOKENS": "",
        }
    )
    assert (found.data_access, found.sites, found.state) == (("a", "b"), tmp_path / "s", tmp_path)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        ({"DRAY_GLOBUS_CLIENTID": "x"}, "unknown variables: DRAY_GLOBUS_CLIENTID"),
        ({"DRAY_GLOBUS_CLIENT_ID": "x"}, "only one of"),
        (
            {
                "DRAY_GLOBUS_CLIENT_ID": "x",
                "DRAY_GLOBUS_CLIENT_SECRET": "y",
                "DRAY_GLOBUS_NATIVE_CLIENT_ID": "z",
            },
            "both set",
        ),
        ({"DRAY_GLOBUS_BASE_URL": "http://transfer.example.org/"}, "unencrypted"),
        ({"DRAY_GLOBUS_AUTH_URL": "http://localhost.example.org/"}, "unencrypted"),
    ],
)
def test_invalid_settings_are_refused(environment: dict[str, str], cause: str) -> None:
    with pytest.raises(DrayUsageError, match=cause):
        Settings.from_environment(environment)
