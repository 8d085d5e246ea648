"""The functions that prepare a Rucio can run again, also after a run that did not end."""

from __future__ import annotations

import contextlib
import sqlite3
from configparser import ConfigParser
from typing import TYPE_CHECKING, Any

import pytest

from integration.rucio import settings
from integration.rucio.server import ENVIRONMENT

if TYPE_CHECKING:
    from pathlib import Path

    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

#: Tables that Rucio changes without a request to change them.
OWN = {"tokens", "heartbeats"}
STEPS = ("build_database", "create_base_vo", "create_root_account")


def rows(file: Path) -> dict[str, list[str]]:
    """Return the rows of the tables of a database."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: sorted(map(repr, database.execute(f'SELECT * FROM "{name}"')))  # noqa: S608
            for (name,) in tables
            if name not in OWN
        }


@pytest.mark.full
def test_a_second_run_changes_nothing(scene: Scene) -> None:
    assert scene.rucio is not None
    file = scene.rucio.folder / "rucio.db"
    rses = [scene.rse(site, "data") for site in scene.ends]
    before = rows(file)
    assert len(before["rses"]) >= len(rses)
    scene.do("make_database")
    scene.do("make_rses", rses=rses)
    assert rows(file) == before


def test_a_run_continues_one_that_failed_in_the_middle(scene: Scene) -> None:
    one, other = (scene.rse(site, "half") for site in ("a", "b"))
    broken: dict[str, Any] = {**other, "protocol": {"domains": {"wan": {"dance": 1}}}}
    with pytest.raises(AssertionError, match="dance"):
        scene.do("make_rses", rses=[one, broken])
    scene.do("make_rses", rses=[one, other])
    dataset, sums = scene.dataset("A-HALF", {"x": 1000})
    rule = scene.do("add_rule", name=dataset, rse="B-HALF")
    assert scene.carry("b", rule, *sums)["state"] == "OK"


def test_an_rse_keeps_its_prefix_and_its_attributes(scene: Scene) -> None:
    kept = scene.rse("a", "kept")
    scene.do("make_rses", rses=[kept])
    with pytest.raises(AssertionError, match="A-KEPT with the prefix /elsewhere"):
        scene.do("make_rses", rses=[{**kept, "prefix": "/elsewhere"}])
    other = {**kept["attributes"], "dray_url": "dray://other"}
    with pytest.raises(AssertionError, match="A-KEPT with dray_url=dray://other"):
        scene.do("make_rses", rses=[{**kept, "attributes": other}])


@pytest.mark.parametrize("done", range(len(STEPS) + 1))
def test_the_database_is_completed_after_each_step(scene: Scene, tmp_path: Path, done: int) -> None:
    assert scene.rucio is not None
    config = ConfigParser(interpolation=None)
    config.read(scene.rucio.folder / "rucio.cfg")
    url = f"sqlite:///{tmp_path / 'rucio.db'}"
    (package,) = ENVIRONMENT.glob("lib/python3*/site-packages/rucio")
    settings.write_alembic(tmp_path, url, package)
    own = {"database": {"default": url}, "alembic": {"cfg": str(tmp_path / "alembic.ini")}}
    config.read_dict(own)
    with (tmp_path / "rucio.cfg").open("w", encoding="utf-8") as out:
        config.write(out)
    lines = ["from rucio.db.sqla import util", *(f"util.{step}()" for step in STEPS[:done])]
    lines += ["from integration.rucio.contents import make_database", "make_database()"]
    env = {"RUCIO_CONFIG": str(tmp_path / "rucio.cfg")}
    ran = scene.rucio.run("python", "-c", "\n".join(lines), env=env)
    assert ran.returncode == 0, ran.stderr
    found = rows(tmp_path / "rucio.db")
    assert [len(found[table]) for table in ("vos", "accounts", "account_attr_map")] == [1, 1, 1]
    # One identity for each kind of authentication.
    assert len(found["identities"]) == len(found["account_map"]) == 4
