"""The example DAGs in dags/ run unchanged, on little data."""

from __future__ import annotations

import csv
import shutil
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration.airflow.conftest import MIB, files
from integration.harness import tree
from integration.harness.airflow import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dray.client import Transfer
    from integration.airflow.conftest import World

pytestmark = [pytest.mark.slow, pytest.mark.server]


class Site(NamedTuple):
    """The folders from which and to which a DAG copies."""

    world: World
    here: Path
    there: Path

    def check(self) -> None:
        """Fail unless every file has arrived unchanged."""
        wanted = files(tree.describe(self.here))
        found = files(tree.describe(self.there))
        assert wanted
        assert tree.differences(wanted, found) == []
        assert tree.leftovers(self.there) == []

    def transfers(self, dag_id: str) -> list[Transfer]:
        """Return the transfers to ``b`` of a DAG's runs."""
        with self.world.b.client() as client:
            return list(client.transfers(labels={"dag_id": dag_id}))


@pytest.fixture
def story(world: World, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Yield the paths of a DAG. The parameter of the fixture is ``ROOT/NAME`` of the source."""
    root, name = request.param.split("/")
    here, there = world.a.root(name, root=root), world.b.root(name, root="archive")
    yield Site(world, here, there)
    for top in (here, there):
        shutil.rmtree(top, ignore_errors=True)


def make_dataset(top: Path, folders: int, per_folder: int) -> None:
    """Make folders of small text files, with a larger one in each."""
    for folder in range(folders):
        (top / f"f{folder}").mkdir(parents=True)
        for number in range(per_folder):
            (top / f"f{folder}" / f"{number:03}.txt").write_text("line\n" * (number + 1))
        tree.make_file(top / f"f{folder}" / "frames.raw", 2 * MIB + folder, seed=folder)


@pytest.mark.parametrize("story", ["tape/night"], indirect=True)
def test_night_run_delivers_by_its_deadline(story: Site) -> None:
    make_dataset(story.here, 3, 10)
    scratch = story.world.a.root(root="nvme")
    run = story.world.airflow.trigger(
        "night_run",
        "night",
        {"dataset": "night", "scratch": str(scratch), "deadline": "20m"},
    ).await_end()
    story.check()
    kept = story.here.with_name("night-counts") / "folders.csv"
    with kept.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shutil.rmtree(kept.parent)
    assert [(row["folder"], row["files"]) for row in rows] == [(f"f{n}", "11") for n in range(3)]
    assert not [path for path in scratch.rglob("*") if path.is_file()], (
        "the fast copies were not evicted"
    )
    facts = story.world.airflow.ask("GET", "dags/night_run/dagRuns/night")
    (moved,) = story.transfers("night_run")
    # The verification follows the transfer, so the deadline of the transfer is before that of the
    # run.
    due = datetime.fromisoformat(moved.request["deadline"].replace("Z", "+00:00"))
    begun = datetime.fromisoformat(facts["queued_at"].replace("Z", "+00:00"))
    assert 0 < (due - begun).total_seconds() < 20 * 60
    assert datetime.now(timezone.utc) < due
    assert moved.request["class"] == "deadline"
    assert run.result("verify")["files"] == 3 * 11


@pytest.mark.parametrize("story", ["data/shared"], indirect=True)
def test_shared_dataset_moves_every_file_once(story: Site) -> None:
    # Make more files than three shards with 256 patterns each can name one by one.
    make_dataset(story.here, 6, 170)
    (story.here / "f0" / "0*.txt").write_text("a name that others would match\n")
    airflow = story.world.airflow
    run = airflow.trigger("shared_dataset", "shared", {"dataset": "shared", "shards": 3})
    run.await_end()
    story.check()
    moved = story.transfers("shared_dataset")
    assert len(moved) == 3
    assert sum(each.files.done for each in moved) == 6 * 171 + 1
    sent = [each.bytes.sent for each in moved]
    assert sum(sent) == sum(path.stat().st_size for path in story.here.rglob("*") if path.is_file())
    # No part is twice as large as another part.
    assert max(sent) < 2 * min(sent)


@pytest.mark.parametrize("story", ["detector/today"], indirect=True)
def test_beamline_day_archives_what_the_detector_writes(story: Site) -> None:
    story.here.mkdir()
    samples = [f"sample{number:02}.h5" for number in range(6)]
    for number, name in enumerate(samples):
        tree.make_file(story.here / name, 3 * MIB + number, seed=number)
    (story.here / "notes.txt").write_text("no sample")

    def arrived() -> bool:
        there = {path.name for path in story.there.glob("*.h5")}
        return there == set(samples)

    story.world.airflow.wait_for(arrived, "six samples are in the archive", 180)
    story.world.airflow.wait_for(
        lambda: all(each.is_terminal for each in story.transfers("beamline_day")), "all has ended"
    )
    (story.here / "notes.txt").unlink()
    story.check()
    moved = story.transfers("beamline_day")
    assert sorted(each.request["labels"]["sample"] for each in moved) == [
        name.removesuffix(".h5") for name in samples
    ]
    assert {each.state for each in moved} == {"done"}


@pytest.mark.full
@pytest.mark.parametrize("story", ["detector/today"], indirect=True)
def test_beamline_day_reports_a_sample_that_cannot_be_archived(story: Site) -> None:
    # A folder has the name of a file. No retry can repair this.
    (story.here / "broken.h5").mkdir(parents=True)
    tree.make_file(story.here / "good.h5", 3 * MIB, seed=1)
    airflow = story.world.airflow

    def failure_line() -> str:
        found = airflow.ask("GET", "dags/beamline_day/dagRuns", limit=100)["dag_runs"]
        for each in found:
            run = Run(airflow, "beamline_day", each["dag_run_id"])
            for task in run.tasks():
                lines = run.log(task.task_id, task.map_index).splitlines()
                said = [line for line in lines if "of beamline_day failed" in line]
                if said:
                    return f"{task.task_id}[{task.map_index}] {len(said)} {said[0]}"
        return ""

    line = airflow.wait_for(failure_line, "the failure is reported")
    where, count, said = line.split(" ", 2)
    assert count == "1"
    assert f"task {where} of run " in said
    assert "cannot copy at the source: broken.h5: is a folder" in said
    assert "no data was moved yet" in said
    airflow.wait_for(lambda: (story.there / "good.h5").is_file(), "the good one is archived")
    assert not (story.there / "broken.h5").exists()
