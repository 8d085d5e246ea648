"""The real ``rucio`` command uploads and downloads files through an endpoint, and resumes.

The command ends with exit code 0 even if it moves no file, so these tests examine the files, the
states of the replicas, and the log of the command.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.endpoint.raw import shipped_program
from integration.harness import loop, tree
from integration.rucio import settings

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.rucio.conftest import Scene

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = tree.MIB
SIZE = 48 * MIB
SLOW = "12MiB"
DURABLE = 12 * MIB
READY_SECONDS = 60.0
COUNTS = re.compile(r"(\d+) bytes sent, (\d+) resumed")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class User:
    """A user of Rucio with the client's ``rucio.cfg``, the program ``dray``, and a token."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        """Write the configuration file and the program."""
        assert scene.rucio is not None
        self.scene = scene
        self.rucio = scene.rucio
        self.end: Endpoint = scene.ends["a"]
        self.folder = folder
        self._numbers = itertools.count(1)
        usual = settings.usual(folder, folder, self.rucio.url, "", "secret")
        settings.write(folder / "rucio.cfg", {"client": usual["client"]})

    def rse(self, name: str, site: str = "a", **more: Any) -> str:  # noqa: ANN401
        """Create an RSE with only the protocol ``dray``. Return its name.

        :param more: fields of the protocol.
        """
        end = self.scene.ends[site]
        host, port = end.address.split(":")
        made = self.scene.rse(site, name)
        made["protocol"] = {
            "scheme": "dray",
            "hostname": host,
            "port": int(port),
            "prefix": f"/data/{name}",
            "impl": "dray_rucio.protocol.Default",
            "extended_attributes": {"dray_pin": end.key},
            **more,
        }
        self.scene.do("make_rses", rses=[made])
        return str(made["name"])

    def file(self, size: int) -> Path:
        """Create a file of random bytes with a new name."""
        path = self.folder / f"{self.folder.name}.f{next(self._numbers)}"
        tree.make_file(path, size, seed=next(self._numbers))
        return path

    def env(self, token: str | None = None, *, rate: str | None = None) -> dict[str, str]:
        """Return the environment of the command.

        :param rate: maximum rate of the program ``dray``.
        """
        programs = self.folder / f"programs-{rate}"
        programs.mkdir(exist_ok=True)
        program = programs / "dray"
        limit = f"--rate {rate}" if rate else ""
        program.write_text(f'#!/bin/sh\nexec {shipped_program()} "$@" {limit}\n', encoding="utf-8")
        program.chmod(0o755)
        return {
            "RUCIO_CONFIG": str(self.folder / "rucio.cfg"),
            "PATH": f"{programs}:{self.rucio.programs}:{os.environ['PATH']}",
            "BEARER_TOKEN": self.end.token() if token is None else token,
        }

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Run the command ``rucio`` until it ends. Return its log."""
        ran = self.rucio.run("rucio", *map(str, words), env=env or self.env())
        return COLOURS.sub("", ran.stdout + ran.stderr)

    def upload(self, rse: str, path: Path, env: Mapping[str, str] | None = None) -> str:
        """Upload a file. Return the log."""
        return self.run("upload", "--rse", rse, "--scope", "mock", path, env=env)

    def download(self, name: str, into: Path, env: Mapping[str, str] | None = None) -> str:
        """Download a file. Return the log."""
        return self.run("download", f"mock:{name}", "--dir", into, env=env)

    def begin(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start the command with a low rate. The scene ends the command."""
        return self.rucio.start("rucio", *map(str, words), env=self.env(rate=SLOW))

    def states(self, name: str) -> dict[str, str]:
        """Return the state of each replica of a file by RSE."""
        found: dict[str, dict[str, str]] = self.scene.do("replicas", name=name)
        return found[name]


@pytest.fixture
def user(scene: Scene, tmp_path: Path) -> Iterator[User]:
    """Yield a user whose endpoint runs."""
    made = User(scene, tmp_path)
    yield made
    if not made.end.is_running:
        made.end.start()


@pytest.fixture(scope="module")
def rse(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an RSE whose protocol is ``dray``."""
    return User(scene, tmp_path_factory.mktemp("rse")).rse("cli")


def counts(log: str) -> tuple[int, int]:
    """Return the sent and the resumed bytes of the last copy in a log."""
    found = COUNTS.findall(log)
    assert found, log
    sent, resumed = found[-1]
    return int(sent), int(resumed)


def await_durable(folder: Path, running: subprocess.Popen[str]) -> None:
    """Wait until a partial file below ``folder`` has data on the disk."""
    until = time.monotonic() + READY_SECONDS
    while True:
        sizes = [path.stat().st_blocks * 512 for path in folder.rglob(".dray-*.part")]
        if any(size >= DURABLE for size in sizes):
            return
        assert time.monotonic() < until, (sizes, list(folder.rglob("*")))
        assert running.poll() is None, running.returncode
        time.sleep(0.05)


def there(user: User, name: str) -> list[Path]:
    """Return all files of the endpoint whose names contain this name, also partial files."""
    return list(user.end.root().rglob(f"*{name}*"))


def test_a_file_is_uploaded_downloaded_and_deleted(user: User, rse: str) -> None:
    local = user.file(3 * MIB + 7)
    log = user.upload(rse, local)
    assert "Successfully uploaded file" in log, log
    assert counts(log) == (local.stat().st_size, 0)
    (remote,) = there(user, local.name)
    assert tree.hash_file(remote) == tree.hash_file(local)
    assert user.states(local.name) == {rse: "AVAILABLE"}
    into = user.folder / "down"
    log = user.download(local.name, into)
    assert tree.hash_file(into / "mock" / local.name) == tree.hash_file(local), log
    # A second upload finds the file, by Rucio's own check.
    assert "File already exists on RSE" in user.upload(rse, local)
    user.scene.do("expire", name=local.name)
    ran = user.rucio.run("rucio-reaper", "--run-once", "--greedy", "--rses", rse)
    assert there(user, local.name) == [], ran.stderr


def test_the_protocol_is_added_to_an_rse_with_another_one(user: User) -> None:
    name = user.scene.rse("a", "cli-two")
    uses = ("read", "write", "delete", "third_party_copy_read", "third_party_copy_write")
    name["protocol"] = {"domains": {"wan": dict.fromkeys(uses, 2)}}
    user.scene.do("make_rses", rses=[name])
    host, port = user.end.address.split(":")
    # The command of the how-to.
    words = ["rse", "protocol", "add", name["name"], "--hostname", host, "--port", port]
    words += ["--scheme", "dray", "--prefix", "/data/cli-two"]
    words += ["--impl", "dray_rucio.protocol.Default"]
    words += ["--domain-json", json.dumps({"wan": dict.fromkeys(uses, 1)})]
    words += ["--extended-attributes-json", json.dumps({"dray_pin": user.end.key})]
    log = user.run(*words)
    local = user.file(1000)
    log += user.upload(name["name"], local)
    assert counts(log) == (1000, 0)
    into = user.folder / "down"
    log = user.download(local.name, into)
    assert counts(log) == (1000, 0)
    assert (into / "mock" / local.name).read_bytes() == local.read_bytes()


def test_the_space_of_an_rse_is_reported(user: User, rse: str) -> None:
    total, free = user.scene.do("space", rse=rse)
    has = os.statvfs(user.end.root("cli"))
    assert total == has.f_blocks * has.f_frsize
    # Other programs write to the same file system.
    assert abs(free - has.f_bavail * has.f_frsize) < 1 << 30


def test_the_token_of_a_login_at_rucio_is_used(user: User, rse: str) -> None:
    local = user.file(1000)
    user.upload(rse, local)
    # Rucio passes the token of an OIDC login to the protocol. This Rucio has no such login.
    code = (
        "import sys; from rucio.rse import rsemanager as m; "
        "p = m.create_protocol(m.get_rse_info(sys.argv[1]), 'read', auth_token=sys.argv[2]); "
        "pfn = list(p.lfns2pfns({'scope': 'mock', 'name': sys.argv[3]}).values())[0]; "
        "p.connect(); print(p.stat(pfn)['filesize']); p.get(pfn, sys.argv[4])"
    )
    into = user.folder / "copy"
    words = ("python", "-c", code, rse, user.end.token("storage.read:/"), local.name, str(into))
    ran = user.rucio.run(*words, env=user.env(""))
    assert ran.stdout.split() == ["1000"], ran.stderr
    assert into.read_bytes() == local.read_bytes()


def test_a_link_is_uploaded_as_its_file(user: User, rse: str) -> None:
    local = user.file(1000)
    link = local.with_name(f"{local.name}.link")
    link.symlink_to(local)
    log = user.upload(rse, link)
    (remote,) = there(user, link.name)
    assert not remote.is_symlink(), log
    assert remote.read_bytes() == local.read_bytes()


def kill_and_repeat(user: User, folder: Path, *words: str | Path) -> None:
    """Kill a command when bytes in ``folder`` are durable, and run it again: it must resume."""
    running = user.begin(*words)
    await_durable(folder, running)
    # Only the command is killed, and not the program `dray` that it has started.
    running.kill()
    running.wait()
    log = user.run(*words)
    sent, resumed = counts(log)
    assert resumed >= DURABLE // 2, log
    assert sent + resumed == SIZE, log


def test_an_upload_and_a_download_resume_after_a_kill_of_the_client(user: User, rse: str) -> None:
    local = user.file(SIZE)
    kill_and_repeat(user, user.end.root("cli"), "upload", "--rse", rse, "--scope", "mock", local)
    (remote,) = there(user, local.name)
    assert tree.hash_file(remote) == tree.hash_file(local)
    into = user.folder / "down"
    kill_and_repeat(user, user.folder, "download", f"mock:{local.name}", "--dir", into)
    assert tree.hash_file(into / "mock" / local.name) == tree.hash_file(local)


def test_an_upload_survives_a_kill_of_the_endpoint(user: User, rse: str) -> None:
    local = user.file(SIZE)
    running = user.begin("upload", "--rse", rse, "--scope", "mock", local)
    await_durable(user.end.root("cli"), running)
    user.end.kill()
    user.end.start()
    assert running.wait(READY_SECONDS) == 0
    log = COLOURS.sub("", user.rucio.said(local.name))
    assert "Successfully uploaded file" in log, log
    sent, _ = counts(log)
    # Without a resume, the copy would send the durable data again.
    assert sent < SIZE + DURABLE, log
    (remote,) = there(user, local.name)
    assert tree.hash_file(remote) == tree.hash_file(local)
    assert user.states(local.name) == {rse: "AVAILABLE"}


def test_a_changed_file_at_the_endpoint_fails_the_download(user: User, rse: str) -> None:
    local = user.file(MIB)
    user.upload(rse, local)
    (remote,) = there(user, local.name)
    remote.write_bytes(bytes(MIB))
    log = user.download(local.name, user.folder / "down")
    assert "Checksum validation failed" in log, log
    assert not (user.folder / "down" / "mock" / local.name).exists()


def test_the_error_names_the_cause(user: User, rse: str) -> None:
    address = user.end.address
    local = user.file(1000)
    cases: list[tuple[str, dict[str, str], str]] = [
        (
            rse,
            user.env(user.end.token("storage.read:/")),
            f"RSE {rse}, dray://{address}: .*permission denied.*storage.create",
        ),
        (rse, user.env(""), f"RSE {rse}, dray://{address}: .*token"),
        (
            user.rse("cli-noroot", prefix="/nothing/x"),
            user.env(),
            'this endpoint exports no root "nothing"',
        ),
        (
            user.rse("cli-pin", extended_attributes={"dray_pin": "sha256:12"}),
            user.env(),
            "dray_pin is 'sha256:12'; write sha256: and 64 hexadecimal digits",
        ),
        (
            user.rse("cli-away", port=1),
            {**user.env(), "RUCIO_CONFIG": _hurried(user)},
            "RSE A-CLI-AWAY, dray://127.0.0.1:1: .*Connection refused",
        ),
    ]
    for at, env, cause in cases:
        log = user.upload(at, local, env)
        assert re.search(cause, log), log
        assert "Successfully uploaded" not in log, log
        assert there(user, local.name) == []
        # The same name is used for the next case.
        user.scene.do("expire", name=local.name)


def _hurried(user: User) -> str:
    """Return a configuration file with which calls of an unreachable endpoint end soon."""
    path = user.folder / "hurried.cfg"
    usual = settings.usual(user.folder, user.folder, user.rucio.url, "", "secret")
    settings.write(path, {"client": usual["client"], "dray": {"call_seconds": "2"}})
    return str(path)


def test_a_missing_file_is_reported(user: User, rse: str) -> None:
    local = user.file(1000)
    user.upload(rse, local)
    (remote,) = there(user, local.name)
    remote.unlink()
    log = user.run("-v", "download", f"mock:{local.name}", "--dir", user.folder / "down")
    assert re.search(f"RSE {rse}, dray://{user.end.address}: .*not found", log), log
    assert not (user.folder / "down" / "mock" / local.name).exists()


@pytest.mark.skipif(bool(loop.reason()), reason="cannot mount a small file system")
def test_an_upload_to_a_full_disk_fails_and_succeeds_when_there_is_space(user: User) -> None:
    with loop.disk(user.end.root("cli-full"), 40 * MIB) as disk:
        at = user.rse("cli-full")
        filler = disk.folder / "filler"
        filler.write_bytes(os.urandom(16 * MIB))
        local = user.file(24 * MIB)
        log = user.upload(at, local)
        assert re.search(f"RSE {at}, dray://{user.end.address}: .*no space", log), log
        assert "Successfully uploaded" not in log
        assert [path for path in there(user, local.name) if not path.name.startswith(".")] == []
        filler.unlink()
        log = user.upload(at, local)
        assert "Successfully uploaded" in log, log
        assert user.states(local.name) == {at: "AVAILABLE"}


def test_a_rule_moves_an_uploaded_file_between_such_rses(user: User, rse: str) -> None:
    local = user.file(MIB)
    user.upload(rse, local)
    other = user.rse("cli", site="b")
    user.scene.do("set_distance", one=rse, other=other)
    rule = user.scene.do("add_rule", name=local.name, rse=other)
    assert user.scene.carry("b", rule, local.name)["state"] == "OK"
    into = user.folder / "down"
    words = ("download", f"mock:{local.name}", "--rses", other, "--dir", into)
    log = user.run(*words, env=user.env(user.scene.ends["b"].token()))
    assert tree.hash_file(into / "mock" / local.name) == tree.hash_file(local), log
