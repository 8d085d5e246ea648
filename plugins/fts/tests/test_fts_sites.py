from __future__ import annotations

import pytest

from dray_fts.sites import NoPlaceError, Place, Prefix, SiteMap, storage_of

SITES = SiteMap(
    [
        Prefix("davs://se.example/data", "a", "/data"),
        Prefix("davs://se.example:443/data/fast/", "b", "/fast/x"),
        Prefix("root://se.example//data", "a", "/data"),
        Prefix("file:///rse", "c", "/rse"),
    ]
)


@pytest.mark.parametrize(
    ("url", "endpoint", "path"),
    [
        ("davs://se.example/data/x", "a", "/data/x"),
        ("DAVS://SE.example:443/data//x/y", "a", "/data/x/y"),
        ("davs://se.example/data/fast/x", "b", "/fast/x/x"),
        ("davs://se.example/data/fastest", "a", "/data/fastest"),
        ("davs://se.example/data/b%20c", "a", "/data/b%20c"),
        ("root://se.example:1094//data/50%", "a", "/data/50%25"),
        ("root://se.example/data/a#b", "a", "/data/a%23b"),
        ("davs://se.example/data/x?copy_mode=push", "a", "/data/x"),
        ("file:///rse/mock/x", "c", "/rse/mock/x"),
    ],
)
def test_the_longest_prefix_wins(url: str, endpoint: str, path: str) -> None:
    assert SITES.place(url) == Place(endpoint, path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("davs://other.example/data/x", "known prefixes: davs://se.example/data, davs://"),
        ("davs://se.example/database/x", "no prefix"),
        ("davs://se.example:8443/data/x", "no prefix"),
        ("davs://se.example/data/", "is the folder of a prefix"),
        ("davs://se.example/data/../etc/x", "`..`"),
        ("davs://se.example/data/x?a=b", "a query or a fragment"),
        ("davs://me:secret@se.example/data/x", "a user or a password"),
        ("davs://se.example:port/data/x", "is not a URL"),
        ("/data/x", "write SCHEME://HOST/PATH"),
    ],
)
def test_other_urls_are_refused(url: str, words: str) -> None:
    with pytest.raises(NoPlaceError) as caught:
        SITES.place(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_two_equal_prefixes_are_an_error() -> None:
    prefixes = [Prefix("davs://h/x", "a", "/a"), Prefix("davs://H:443/x/", "b", "/b")]
    with pytest.raises(NoPlaceError, match="twice"):
        SiteMap(prefixes)


def test_a_storage_is_a_scheme_and_a_host() -> None:
    assert storage_of("davs://se.example:8443/x") == "davs://se.example"
    assert storage_of("file:///x") == "file://"
