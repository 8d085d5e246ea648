"""Tests of the places of Rucio's files in Globus collections."""

from __future__ import annotations

import pytest

from dray_rucio.globus_places import LABEL_CHARACTERS_MAX, collection, is_globus, label_of
from dray_rucio.places import NoPlaceError

ID = "6c54cade-bde5-45c1-bdea-f4bd71dba2cc"


@pytest.mark.parametrize(
    ("path", "prefix", "pfn", "expected"),
    [
        (None, "/data/rse", "file:///data/rse/mock/ab/x", "/data/rse/mock/ab/x"),
        (None, "//data/rse/", "/data/rse/mock/x", "/data/rse/mock/x"),
        ("/export/", "/data/rse", "file:///data/rse/mock/x", "/export/mock/x"),
        ("/", "/data/rse", "root://se:1094//data/rse/mock/x", "/mock/x"),
        ("/a b", "/data/rse", "file:///data/rse/100%#x", "/a b/100%25%23x"),
    ],
)
def test_the_url_of_a_file(path: str | None, prefix: str, pfn: str, expected: str) -> None:
    found = collection("NERSC", ID.upper(), path).url(prefix, pfn)
    assert found == f"globus://{ID}{expected}"


def test_a_pfn_outside_the_prefix_is_refused() -> None:
    with pytest.raises(NoPlaceError, match=r"RSE NERSC: .*is not below"):
        collection("NERSC", ID).url("/data", "file:///other/x")


@pytest.mark.parametrize(
    ("id", "path", "named"),
    [
        ("NERSC DTN", None, "globus_endpoint_id is 'NERSC DTN'"),
        (ID.replace("-", ""), None, "write the UUID of a collection"),
        (ID, "export", "dray_globus_path is 'export'"),
    ],
)
def test_a_wrong_attribute_is_named(id: str, path: str | None, named: str) -> None:
    with pytest.raises(NoPlaceError, match=named):
        collection("NERSC", id, path)


def test_the_host_names_the_service() -> None:
    assert is_globus(collection("NERSC", ID).host)
    assert not is_globus("dray://b.example:4735")
    assert not is_globus(None)


def test_a_label_has_only_characters_that_globus_accepts() -> None:
    assert label_of("mock:run.1/x", "ab12") == "Rucio rule ab12 mock_run_1_x"
    assert len(label_of("mock:" + "x" * 250, "ab12")) == LABEL_CHARACTERS_MAX
