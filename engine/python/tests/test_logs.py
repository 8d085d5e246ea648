import os
from pathlib import Path

import pytest

import dray

MIB = 1 << 20
OBJECT = 64 * 1024


class Enough(Exception):
    pass


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Create a destination with a copy of three files that was stopped midway."""
    for name in "abc":
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).write_bytes(os.urandom(2 * MIB + 5))

    def stop(progress: dray.Progress) -> None:
        if progress.bytes_durable >= MIB:
            raise Enough

    with pytest.raises(Enough):
        dray.copy(
            tmp_path / "run",
            tmp_path / "out",
            recursive=True,
            durability="object",
            object_size=OBJECT,
            rate=8 * MIB,
            transfer_id="the-stopped-one",
            progress=stop,
        )
    return tmp_path / "out"


def test_a_log_reports_the_durable_ranges(stopped: Path) -> None:
    (path,) = dray.find_logs(stopped)
    report = dray.read_log(path)
    assert report == dray.read_log(os.fsencode(path)), "reading changes nothing"
    assert report.header.claims == ("run",)
    assert report.header.owner == f"uid:{os.geteuid()}".encode()
    assert report.header.software == f"dray {dray.__version__}"
    assert report.tenure == report.header.tenure
    assert (report.epoch, report.tenure.transfer_id) == (1, "the-stopped-one")
    assert (report.tenure.durability, len(report.tenure.boot_id) >= 16) == ("object", True)
    assert (report.torn_bytes, report.damage, report.records_over_limit) == (0, None, 0)
    assert report.log_bytes == path.stat().st_size
    assert report.bytes_done >= MIB
    for file in report.files:
        source = stopped.parent / file.path
        assert file.size == source.stat().st_size
        assert file.modified_ns == source.stat().st_mtime_ns
        assert (file.object_size, file.checksum, file.identity) == (OBJECT, None, b"")
        assert not file.is_weak
        partial = stopped / Path(file.path).parent / file.partial_name
        with source.open("rb") as wanted, partial.open("rb") as found:
            for part in file.done:
                assert part.length > 0
                wanted.seek(part.offset)
                found.seek(part.offset)
                content = found.read(part.length)
                assert content == wanted.read(part.length)
                assert dray.checksum(content) == part.sums


def test_a_torn_tail_is_counted_and_costs_nothing_committed(stopped: Path) -> None:
    (path,) = dray.find_logs(stopped)
    before = dray.read_log(path)
    with path.open("ab") as log:
        log.write(b"half a record")
    after = dray.read_log(path)
    assert (after.torn_bytes, after.damage) == (13, None)
    assert after.files == before.files


def test_a_flipped_bit_is_reported_at_every_offset(stopped: Path) -> None:
    (path,) = dray.find_logs(stopped)
    content = path.read_bytes()
    before = dray.read_log(path)
    costs, refusals = set(), set()
    for at in range(0, len(content), 16):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            after = dray.read_log(path)
        except dray.DrayPermanentError as error:
            refusals.add(error.kind)
            continue
        costs.add(before.bytes_done - after.bytes_done)
        if after.damage is None:
            assert after.torn_bytes > 0
            continue
        assert after.damage.count == len(after.damage.places) == 1
        (place,) = after.damage.places
        assert place.offset <= at < place.offset + place.length
        assert after.damage.files_kept == len(after.files)
    # A lost commit costs nothing, and a lost record costs the objects in it. No data is invented.
    assert min(costs) == 0 < max(costs)
    # A log without its header cannot be used.
    assert refusals == {"log_version", "log_damaged"}


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    for content, kind in [(b"", "not_found"), (b"text" * 100, "log_version")]:
        (tmp_path / "x.log").write_bytes(content)
        with pytest.raises(dray.DrayPermanentError) as caught:
            dray.read_log(tmp_path / "x.log")
        assert caught.value.kind == kind
    with pytest.raises(dray.DrayPermanentError) as caught:
        dray.read_log(tmp_path / "missing.log")
    assert caught.value.kind == "not_found"
    assert dray.find_logs(tmp_path) == ()
