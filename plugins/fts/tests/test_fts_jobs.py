from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dray_fts.jobs import parse
from dray_fts.settings import Limits
from dray_fts.sites import Prefix, SiteMap
from dray_fts.values import BadJobError, priority_of

if TYPE_CHECKING:
    from dray_fts.model import Job

SITES = SiteMap(
    [
        Prefix("davs://a", "a", "/data"),
        Prefix("root://a", "a", "/data"),
        Prefix("davs://b", "b", "/data"),
        Prefix("root://b", "b", "/data"),
        Prefix("davs://tape", "t", "/slow", is_tape=True),
    ]
)
LIMITS = Limits(metadata_bytes=1000, files=20)


def read(files: object, **params: object) -> Job:
    return parse(json.dumps({"files": files, "params": params}).encode(), SITES, LIMITS)


def pair(**more: object) -> dict[str, Any]:
    return {"sources": ["davs://a/x"], "destinations": ["davs://b/x"], **more}


def test_what_the_stock_client_sends_by_default() -> None:
    job = read(
        [pair(checksum="ADLER32", filesize=None)],
        overwrite=False,
        verify_checksum="n",
        copy_pin_lifetime=-1,
        bring_online=-1,
        archive_timeout=-1,
        timeout=None,
        retry=0,
        priority=None,
        credential=None,
        nostreams=None,
        ipv4=False,
        ipv6=False,
        s3alternate=False,
        buffer_size=None,
        source_spacetoken=None,
        job_metadata=None,
    )
    assert (job.job_type, job.params.priority, job.params.overwrite) == ("N", 3, "no")
    assert job.files[0].content is None


@pytest.mark.parametrize("mode", ["source", "target", "both", "s", "t", "b", True])
def test_a_checksum_is_compared(mode: object) -> None:
    (file,) = read([pair(checksum="adler32:ABC")], verify_checksum=mode).files
    assert file.content == "adler32:00000abc"
    assert file.checksum == "adler32:ABC"


def test_a_checksum_is_not_compared_without_a_mode() -> None:
    assert read([pair(checksum="MD5:12")], verify_checksum="none").files[0].content is None


def test_several_sources_and_destinations() -> None:
    file = {
        "sources": ["davs://a/1", "davs://a/2", "root://a/1"],
        "destinations": ["davs://b/x", "root://b/x"],
    }
    job = read([file, pair()])
    assert job.job_type == "R"
    assert [(each.index, each.begins, each.source_url) for each in job.files] == [
        (0, True, "davs://a/1"),
        (0, False, "davs://a/2"),
        (0, False, "root://a/1"),
        (1, True, "davs://a/x"),
    ]


def test_hops() -> None:
    hops = [pair(), {"sources": ["root://b//x"], "destinations": ["davs://a/y"]}]
    job = read(hops, multihop=True)
    assert (job.job_type, [each.begins for each in job.files]) == ("H", [True, False])


def taped(**more: object) -> dict[str, Any]:
    return {"sources": ["davs://tape/x"], "destinations": ["davs://b/x"], **more}


def test_only_files_on_tape_are_staged() -> None:
    job = read([pair(), taped()], bring_online=60, copy_pin_lifetime=600)
    assert [(each.stages, each.state) for each in job.files] == [
        (False, "SUBMITTED"),
        (True, "STAGING"),
    ]
    assert (job.params.staging_seconds, job.params.pin_seconds) == (60, 600)
    assert read([taped()]).files[0].state == "SUBMITTED"
    assert read([taped()], bring_online=-1, copy_pin_lifetime=0).files[0].state == "SUBMITTED"
    # As in FTS, a pin without a time for the staging stages files too.
    assert read([taped()], copy_pin_lifetime=5).params.staging_seconds == 604_800


def test_a_job_may_only_stage() -> None:
    job = read([taped(destinations=["davs://tape/x"])], bring_online=60)
    assert (job.state, job.files[0].archives) == ("STAGING", False)


def test_only_the_first_hop_is_staged_and_the_last_one_archived() -> None:
    hops = [taped(), {"sources": ["davs://b/x"], "destinations": ["davs://tape/y"]}]
    job = read(hops, multihop=True, bring_online=60, archive_timeout=60)
    assert [each.state for each in job.files] == ["STAGING", "NOT_USED"]
    assert [(each.stages, each.archives) for each in job.files] == [(True, False), (False, True)]


def test_the_metadata_of_a_staging_is_that_of_the_tape_api() -> None:
    (file,) = read([taped(staging_metadata={"default": {"activity": "a"}})], bring_online=9).files
    assert json.loads(file.staging_metadata or "") == {
        "dray": {"activity": "a"},
        "default": {"activity": "a"},
    }


def test_a_deletion_job_has_each_file_once() -> None:
    body = {"delete": ["davs://a/x", {"surl": "davs://a/y", "metadata": 1}, "davs://a/x"]}
    job = parse(json.dumps(body).encode(), SITES, LIMITS)
    assert [(each.source.path, each.metadata, each.state) for each in job.files] == [
        ("/data/x", None, "DELETE"),
        ("/data/y", 1, "DELETE"),
    ]
    assert job.state == "DELETE"


def test_tokens_are_not_shown() -> None:
    (file,) = read([pair(source_tokens=["s3cret"], destination_tokens=["s3cret"])]).files
    assert file.tokens == ("s3cret", "s3cret")
    assert "s3cret" not in repr(file)


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, None), (2, 7200), ("30m", 1800), ("1d", 86400), ("9s", 9)]
)
def test_the_time_in_the_queue(text: object, seconds: float | None) -> None:
    assert read([pair()], max_time_in_queue=text).params.queue_seconds == seconds


def test_priorities_are_those_of_fts() -> None:
    assert [priority_of(each) for each in (None, 0, 1, 5, 9, "4")] == [3, 1, 1, 5, 5, 4]


@pytest.mark.parametrize(
    ("files", "params", "words"),
    [
        ([], {}, "No transfers specified"),
        ([pair(sources=[])], {}, "files[0]: sources is not a list of URLs"),
        ([pair(sources=["davs://c/x"])], {}, "no prefix of the site map covers davs://c/x"),
        ([pair(destinations=["davs://a/x"])], {}, "the same file"),
        ([pair(size=1)], {}, "files[0] has the unknown field size"),
        ([pair(metadata="x" * 2000)], {}, "files[0].metadata has 2002 bytes, but at most 1000"),
        ([pair()], {"job_metadata": "x" * (1 << 20)}, "job_metadata has 1048578 bytes"),
        ([pair(checksum="MD5:12")], {"verify_checksum": "both"}, "checksum MD5 cannot be verified"),
        ([pair(scitag=3)], {}, "scitag is 3"),
        ([pair(filesize="much")], {}, "filesize is 'much'"),
        ([pair(staging_metadata="x")], {}, "staging_metadata is not an object"),
        ([pair(archive_metadata={"a": 1})], {}, "archive_metadata is not supported"),
        ([pair(source_tokens=["a", "b"])], {}, "source_tokens needs one token"),
        ([pair()] * 21, {}, "more than 20 files"),
        ([pair()], {"verify_checksum": "some"}, "verify_checksum is 'some'"),
        ([pair()], {"overwrite": True, "overwrite_hop": True}, "Incompatible overwrite flags"),
        ([pair()], {"bring_online": "soon"}, "bring_online is 'soon'"),
        ([pair()], {"bring_online": 10**9}, "write at most 316224000 seconds"),
        ([pair()], {"archive_timeout": 60}, "the prefix of davs://b/x has no tape"),
        ([pair(destinations=["davs://a/x"])], {"bring_online": 60}, "the same file"),
        ([pair()], {"ipv4": True}, "ipv4 is not supported"),
        ([pair()], {"gridftp": "x"}, "gridftp is not supported"),
        ([pair()], {"new_option": 1}, "the parameter new_option is unknown"),
        ([pair()], {"nostreams": 100}, "nostreams is 100"),
        ([pair()], {"priority": "high"}, "priority is 'high'"),
        ([pair()], {"max_time_in_queue": "soon"}, "max_time_in_queue is 'soon'"),
        ([pair()], {"id_generator": "deterministic"}, "sid is missing"),
        ([pair(), pair()], {"multihop": True}, "must be the destination of the previous hop"),
        ([pair()], {"multihop": True, "reuse": True}, "multihop can have neither reuse"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(
    files: list[Any], params: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadJobError) as caught:
        read(files, **params)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"files": [], "other": 1}', "unknown field other"),
        (b'{"delete": ["davs://c/x"]}', "no prefix of the site map covers davs://c/x"),
        (b'{"delete": "davs://a/x"}', "delete is not a list of URLs"),
        (b'{"delete": [{"url": "x"}]}', "delete[0] is not a URL"),
        (b'{"delete": [%s]}' % b",".join([b'"davs://a/x"'] * 21), "more than 20 files"),
        (b'{"delete": ["davs://a/x"], "files": [1]}', "Simultaneous transfer and namespace"),
        (b'{"files": [1]}', "files[0] is not an object"),
        (b'{"files": [{}], "params": []}', "files[0]: sources"),
        (b'{"files": [{}], "params": [1]}', "params is not an object"),
    ],
)
def test_bodies_that_are_no_submission(body: bytes, words: str) -> None:
    with pytest.raises(BadJobError) as caught:
        parse(body, SITES, LIMITS)
    assert words in str(caught.value)
