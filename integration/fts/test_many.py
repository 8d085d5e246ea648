"""Many files in many jobs of the stock client, while the service is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.fts.face import Face

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("stock_client")]

SIZE = 1000
FILES_OF_JOB = 50
#: Maximum memory of the service. With more, the service would hold files of ended jobs in memory.
MEMORY_MAX = 256 << 20
#: The client repeats a submission that got no answer. The id is deterministic, so the repetition
#: is the same job.
SUBMIT = """
import time
ids, taken = [], []
for job in range({jobs}):
    transfers = [easy.new_transfer(f"davs://a.example/{folder}/{{job}}/{{n}}",
                                   f"davs://b.example/{folder}/{{job}}/{{n}}",
                                   metadata={{"n": n}}) for n in range({files})]
    made = easy.new_job(transfers, id_generator=easy.JobIdGenerator.deterministic,
                        sid=f"{folder}-{{job}}")
    while True:
        began = time.monotonic()
        try:
            ids.append(easy.submit(context, made))
            taken.append(time.monotonic() - began)
            break
        except Exception as error:
            print(error, file=sys.stderr)
            time.sleep(0.2)
began = time.monotonic()
listed = easy.list_jobs(context)
print(json.dumps([ids, taken, time.monotonic() - began, len(listed)]))
"""


def carry(face: Face, jobs: int, seconds: float) -> None:
    """Submit jobs with the stock client, kill the service twice, and check all files."""
    folder = f"many{jobs}"
    for job in range(jobs):
        path = face.ends["a"].root(f"{folder}/{job}")
        path.mkdir(parents=True)
        for number in range(FILES_OF_JOB):
            (path / str(number)).write_bytes(f"{job}.{number} ".encode().ljust(SIZE, b"x"))
    began = time.monotonic()
    found: list[object] = []
    text = SUBMIT.format(jobs=jobs, files=FILES_OF_JOB, folder=folder)
    client = threading.Thread(target=lambda: found.extend(face.python(text, seconds=seconds)))
    client.start()
    for share in (3, 2):
        # Kill the service when a third, then a half of the jobs are submitted.
        until = time.monotonic() + seconds
        while len(face.ask("GET", "/jobs?limit=1000&state_in=" + STATES).json) < jobs // share:
            assert time.monotonic() < until
            time.sleep(0.05)
        face.kill()
        face.start()
    client.join()
    ids, taken, listing, listed = found
    assert isinstance(ids, list)
    assert isinstance(taken, list)
    submitted = time.monotonic() - began
    assert len(set(ids)) == jobs
    while True:
        states = Counter(
            each["job_state"]
            for first in range(0, jobs, 50)
            for each in face.ask("GET", f"/jobs/{','.join(ids[first : first + 50])}").json
        )
        if states["FINISHED"] == jobs:
            break
        assert not states["FAILED"] + states["FINISHEDDIRTY"] + states["CANCELED"], states
        assert time.monotonic() - began < seconds, states
        time.sleep(1)
    ended = time.monotonic() - began
    again = time.monotonic()
    assert len(face.ask("GET", "/jobs?state_in=FINISHED&limit=1000").json) >= jobs
    print(
        f"{jobs * FILES_OF_JOB} files in {jobs} jobs: submitted in {submitted:.1f} s, "
        f"a submission takes {1000 * sum(taken) / jobs:.0f} ms (at most {max(taken):.2f} s), "
        f"all FINISHED after {ended:.1f} s; the list of {listed} live jobs takes {listing:.3f} s, "
        f"of all ended jobs {time.monotonic() - again:.3f} s; memory {face.memory() >> 20} MiB"
    )
    check(face, [str(id) for id in ids], folder)
    assert face.memory() < MEMORY_MAX


STATES = "SUBMITTED,READY,ACTIVE,FINISHED"


def check(face: Face, ids: list[str], folder: str) -> None:
    """Fail unless each file was copied exactly once."""
    names = [f"{id}.{number}" for id in ids for number in range(FILES_OF_JOB)]
    with face.ends["b"].client() as client:
        for first in range(0, len(names), 1000):
            for transfer in client.query(names[first : first + 1000]).values():
                assert transfer is not None
                assert (transfer.state, transfer.attempt, transfer.bytes.sent) == ("done", 1, SIZE)
    source, copy = face.ends["a"].root(folder), face.ends["b"].root(folder)
    for path in source.glob("*/*"):
        assert (copy / path.relative_to(source)).read_bytes() == path.read_bytes()


@pytest.mark.full
@pytest.mark.timeout(300)
def test_five_hundred_files_and_two_kills(face: Face) -> None:
    carry(face, 10, 200)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_files_and_two_kills(face: Face) -> None:
    carry(face, 200, 1500)
