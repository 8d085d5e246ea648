"""Tests of the paths of Rucio's files at endpoints."""

from __future__ import annotations

import pytest

from dray_rucio.places import NoPlaceError, below, site

PIN = "sha256:" + "5a" * 32


@pytest.mark.parametrize(
    ("prefix", "pfn", "name"),
    [
        ("/data/rse", "file:///data/rse/mock/ab/cd/x.dat", "mock/ab/cd/x.dat"),
        ("/data/rse/", "file:///data/rse/mock/ab/cd/x.dat", "mock/ab/cd/x.dat"),
        ("//rucio/", "root://se.example:1094//rucio/mock/x", "mock/x"),
        ("/rucio", "root://se.example:1094//rucio//mock/x", "mock/x"),
        ("/", "davs://se.example:443/mock/a b?c#d", "mock/a b?c#d"),
        ("", "davs://se.example:443/mock/x", "mock/x"),
        ("", "davs://se.example:443/mock/x?copy_mode=pull", "mock/x"),
    ],
)
def test_the_name_below_a_prefix_is_found(prefix: str, pfn: str, name: str) -> None:
    assert below("RSE", prefix, pfn) == name


@pytest.mark.parametrize(
    ("prefix", "pfn"),
    [
        ("/data/rse", "file:///data/rse2/x"),
        ("/data/rse", "file:///data/rse"),
        ("/data/rse", "file:///data/rse/"),
        ("/data/rse", "/data/rse/x"),
    ],
)
def test_a_pfn_outside_the_prefix_is_refused_by_name(prefix: str, pfn: str) -> None:
    with pytest.raises(NoPlaceError, match=r"RSE DESY: .*is not below"):
        below("DESY", prefix, pfn)


def test_a_site_is_an_endpoint_and_a_folder() -> None:
    found = site("DESY", "dray://DTN1.example/rse//deep/", PIN)
    assert found.authority == "dtn1.example:4735"
    assert found.host == f"dray://dtn1.example:4735#{PIN}"
    assert found.path("mock/50%/x") == "/rse/deep/mock/50%25/x"
    assert found.url("/rse/x") == "dray://dtn1.example:4735/rse/x"
    assert site("DESY", "dray://[::1]:4736/rse").host == "dray://[::1]:4736"


@pytest.mark.parametrize(
    ("url", "pin", "named"),
    [
        ("https://dtn1.example/rse", None, "dray_url"),
        ("dray://dtn1.example", None, "dray_url"),
        ("dray://dtn1.example/", None, "dray_url"),
        ("dray://user@dtn1.example/rse", None, "dray_url"),
        ("dray://dtn1.example:99999/rse", None, "dray_url"),
        ("dray://dtn1.example:abc/rse", None, "dray_url"),
        ("dray://[::1/rse", None, "dray_url"),
        ("dray://:4735/rse", None, "dray_url"),
        ("dray://dtn1.example/rse", "5a" * 32, "dray_pin"),
    ],
)
def test_an_invalid_site_is_refused_by_name(url: str, pin: str | None, named: str) -> None:
    with pytest.raises(NoPlaceError, match=f"RSE DESY: {named}"):
        site("DESY", url, pin)
