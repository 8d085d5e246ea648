"""The functions of ``plugins/slurm/burst_buffer.lua`` with a real endpoint, without Slurm.

A Lua interpreter calls the functions in the order in which slurmctld calls them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.testing.endpoints import Root, find_program
from integration.endpoint.test_tier import states, tier_of, write
from integration.endpoint.tier_scene import MIB, until
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

Json: TypeAlias = Any
pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SCRIPT = ROOT / "plugins" / "slurm" / "burst_buffer.lua"
LUA = next(filter(None, map(shutil.which, ("lua5.4", "lua5.3", "lua"))), None)
#: Lua program that calls one function. It prints the function's code, and its text if it has one.
DRIVER = """
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm.log_info(form, ...) io.stderr:write(string.format(form, ...), "\\n") end
dofile(arg[1])
local code, text = _G[arg[2]](table.unpack(arg, 3))
io.write(tostring(code), "\\n", text or "")
"""
needs_lua = pytest.mark.skipif(LUA is None, reason="no Lua interpreter (Debian: lua5.4)")


class Slurm:
    """Call functions of the Lua script as slurmctld does.

    :param folder: for the user's token, the job scripts and the state of jobs.
    """

    def __init__(self, folder: Path, endpoint: Endpoint | None = None) -> None:
        """Write the Lua program, and a token of the user 1000 if there is an endpoint."""
        self.folder = folder
        self.log = ""
        (folder / "driver.lua").write_text(DRIVER, encoding="utf-8")
        (folder / "state").mkdir()
        self._environment = {
            "PATH": os.environ["PATH"],
            "DRAY_SLURM_TOKENS": str(folder / "%s.token"),
            "DRAY_SLURM_STATE": str(folder / "state"),
        }
        if endpoint is not None:
            (folder / "1000.token").write_text(endpoint.token(), encoding="utf-8")
            (folder / "1000.token").chmod(0o600)
            self._environment |= {
                "DRAY_PROGRAM": str(find_program()),
                "DRAY_ENDPOINT": endpoint.address,
                "DRAY_PEER_KEY": endpoint.key,
                "DRAY_SLURM_MOUNT": str(endpoint.root(root="fast")),
            }

    def job(self, *directives: str) -> str:
        """Write a job script with these directives, and return its path."""
        path = self.folder / "job.sh"
        lines = ["#!/bin/bash", *(f"#BB_LUA {each}" for each in directives), "srun ./sim"]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    def call(self, name: str, *words: str) -> tuple[int, str]:
        """Call a function of the Lua script. Return its code and its text."""
        assert LUA is not None
        done = subprocess.run(
            [LUA, str(self.folder / "driver.lua"), str(SCRIPT), name, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        self.log += done.stderr
        assert done.returncode == 0, done
        code, _, text = done.stdout.partition("\n")
        return int(code), text


@needs_lua
@pytest.mark.parametrize(
    ("directive", "wanted"),
    [
        ("restart application=sim", ""),
        ("restart application=sim version=7", ""),
        ("in path=/slow/a to=/fast/a recursive=yes keep=no", ""),
        ("out path=/fast/a application=sim version=3", ""),
        ("stage path=/slow/a", "the operation must be restart, in or out"),
        ("restart", "application= is missing"),
        ("in to=/fast/a", "path= is missing"),
        ("in path=slow/a", "path: slow/a is not a path of the endpoint: write /ROOT/PATH"),
        ("in path=/slow/a speed=9", "unknown word speed=9"),
        ("out path=/fast/a version=x", "version: x is not a number"),
        ("out path=/fast/a version=3", "application= and version= belong together"),
        ("in path=/slow/a recursive=1", "recursive: 1 is neither yes nor no"),
    ],
)
def test_a_wrong_directive_rejects_the_job(tmp_path: Path, directive: str, wanted: str) -> None:
    slurm = Slurm(tmp_path)
    code, text = slurm.call("slurm_bb_job_process", slurm.job(directive), "1000", "1000")
    assert (code, text) == ((-1, f"#BB_LUA {directive}: {wanted}") if wanted else (0, ""))


@needs_lua
def test_a_job_is_staged_in_restarted_and_staged_out(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier_of(watermark=1.0)]})
    slurm = Slurm(tmp_path, endpoint)
    inputs = endpoint.root("it's input", root="slow")
    (inputs / "sub").mkdir(parents=True)
    (inputs / "sub" / "mesh").write_bytes(os.urandom(MIB))
    # A quote or semicolon in a name must not end the argument of the shell command.
    inputs = inputs.rename(inputs.with_name("it's;input"))
    script = slurm.job(
        "restart application=sim",
        "in path=/slow/it's;input recursive=yes",
        "out path=/fast/result to=/slow/kept recursive=yes application=post version=1",
    )
    who = ("1000", "1000")

    def begin(job: str) -> dict[str, str]:
        """Call the functions that precede a job. Return the environment that they set."""
        path_file = tmp_path / f"path.{job}"
        for name, words in (
            ("slurm_bb_job_process", (script, *who)),
            ("slurm_bb_setup", (job, *who, "", "0", script)),
            ("slurm_bb_data_in", (job, script, *who)),
            ("slurm_bb_paths", (job, script, str(path_file), *who)),
            ("slurm_bb_pre_run", (job, script, *who)),
        ):
            assert slurm.call(name, *words) == (0, ""), (name, slurm.log)
        lines = path_file.read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    # There is no checkpoint yet, so the job starts from the beginning.
    assert begin("41") == {"DRAY_RESTART": ""}
    staged = endpoint.root("it's;input/sub/mesh", root="fast")
    assert staged.read_bytes() == (inputs / "sub" / "mesh").read_bytes()
    sums = write(endpoint, "sim", 7)
    with endpoint.client() as client:
        until(client, "demoted", lambda tier: states(tier) == {("sim", 7): "demoted"})
        # End the first job as cancelled: the copy of its input is evicted.
        assert slurm.call("slurm_bb_job_teardown", "41", script, "true", *who) == (0, "")
        assert not staged.exists()
        # The next job restarts from the checkpoint on the fast root. Nothing copies the checkpoint.
        before = {each.id for each in client.transfers()}
        checkpoint = begin("42")["DRAY_RESTART"]
        assert checkpoint == str(endpoint.root("sim/7", root="fast"))
        for name, wanted in sums.items():
            path = endpoint.root(f"sim/7/{name}", root="fast")
            assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted
        assert {each.id for each in client.transfers()} - before == {"slurm-42-2"}
        assert client.tier("burst").versions[0].pinned_until is not None
        # slurmctld repeats the call after its restart. The input is not copied again.
        assert slurm.call("slurm_bb_data_in", "42", script, *who) == (0, "")
        result = endpoint.root("result", root="fast")
        result.mkdir()
        (result / "out").write_bytes(b"42")
        for name in ("slurm_bb_post_run", "slurm_bb_data_out"):
            assert slurm.call(name, "42", script, *who) == (0, ""), slurm.log
        assert endpoint.root("kept/out", root="slow").read_bytes() == b"42"
        assert slurm.call("slurm_bb_job_teardown", "42", script, "false", *who) == (0, "")
        assert not staged.exists()
        assert not list((tmp_path / "state").iterdir())
        # No version is pinned any more, although slurm_bb_data_in ran twice.
        assert {each.pinned_until for each in client.tier("burst").versions} == {None}
        code, text = slurm.call("slurm_bb_get_status", *who, "burst", "--json")
        assert code == 0
        assert {each["application"] for each in json.loads(text)["versions"]} == {"sim", "post"}


@needs_lua
def test_a_failed_copy_is_the_reason_of_the_job(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    endpoint = start_endpoint("bb", roots=roots)
    slurm = Slurm(tmp_path, endpoint)
    script = slurm.job("in path=/slow/missing")
    code, text = slurm.call("slurm_bb_data_in", "1", script, "1000", "1000")
    assert code == -1
    assert text.startswith("dray cannot stage in /slow/missing: "), text
    # The user 1001 has no token.
    code, text = slurm.call("slurm_bb_setup", "1", "1001", "1001", "", "0", script)
    assert code == -1
    assert text.startswith("the endpoint does not accept the user: dray: "), text
