"""Every output mode of every command: --json prints only JSON, -q prints only errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration.endpoint.raw import dray, shipped_program
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MIB = tree.MIB


class Scene(NamedTuple):
    """Two endpoints, a folder, and the options that authenticate a command."""

    a: Endpoint
    b: Endpoint
    here: Path
    options: list[str]
    stranger: list[str]


@pytest.fixture
def scene(start_endpoint: Callable[..., Endpoint], tmp_path: Path) -> Scene:
    a, b = start_endpoint("a"), start_endpoint("b")
    options: list[str] = []
    stranger = []
    for end in (a, b):
        file, wrong = tmp_path / end.name, tmp_path / f"not-{end.name}"
        file.write_text(end.token(), encoding="utf-8")
        wrong.write_text("no-token-at-all-but-long-enough", encoding="utf-8")
        for each in (file, wrong):
            each.chmod(0o600)
        key = ["--peer-key", f"{end.address}={end.key}"]
        options += [*key, "--token-file", f"{end.address}={file}"]
        stranger += [*key, "--token-file", f"{end.address}={wrong}"]
    tree.make_file(a.root("x"), 1000, seed=1)
    tree.make_file(tmp_path / "local", 1000, seed=2)
    return Scene(a, b, tmp_path, options, stranger)


def commands(scene: Scene) -> dict[str, list[str | Path]]:
    """List every command that takes --json and calls an endpoint, or copies."""
    a, b, here = scene.a, scene.b, scene.here
    at = ["--endpoint", a.address]
    return {
        "ls": ["ls", a.place("")],
        "roots": ["ls", a.url],
        "stat": ["stat", a.place("x")],
        "checksum": ["checksum", a.place("x")],
        "transfers": ["transfers", *at],
        "top": ["top", a.address],
        "plan": ["plan", a.place("x"), b.place("planned")],
        "between": ["cp", a.place("x"), b.place("to"), "--transfer-id", "t"],
        "show": ["show", "t", "--endpoint", b.address],
        "cancel": ["cancel", "t", "--purge", "--endpoint", b.address],
        "detached": ["cp", a.place("x"), b.place("to2"), "--detach"],
        "pull": ["cp", a.place("x"), here / "pulled"],
        "push": ["cp", here / "local", b.place("pushed")],
        "rm": ["rm", a.place("x")],
    }


def objects(out: str) -> list[object]:
    """Parse the output, which has one JSON object on each line."""
    return [json.loads(line) for line in out.splitlines()]


def test_json_is_alone_on_standard_output(scene: Scene) -> None:
    for name, words in commands(scene).items():
        done = dray(*words, "--json", *scene.options)
        assert objects(done.stdout), (name, done)
        if name != "cancel":
            assert done.returncode == 0, (name, done)


def test_json_reports_errors_too(scene: Scene) -> None:
    for name, words in commands(scene).items():
        done = dray(*words, "--json", *scene.stranger)
        assert done.returncode not in (0, 2), (name, done)
        said = objects(done.stdout)
        assert said, (name, done)
        last = said[-1]
        assert isinstance(last, dict)
        assert last["error"]["message"], (name, done)
        assert done.stderr, f"{name} prints no message for people"


COPIES = ("between", "detached", "pull", "push")


def test_quiet_prints_only_errors(scene: Scene) -> None:
    local: list[str | Path] = ["cp", scene.here / "local", scene.here / "copy"]
    dry = [*local[:2], scene.here / "dry", "--dry-run"]
    every = commands(scene)
    for words in (local, dry, *(every[name] for name in COPIES)):
        options = scene.options if words not in (local, dry) else []
        done = dray(*words, "-q", *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (words, done)
    for name in COPIES:
        done = dray(*every[name], "-q", *scene.stranger)
        assert done.returncode not in (0, 2), (name, done)
        assert done.stdout == ""
        assert done.stderr.startswith("dray: cannot"), done
    # A failure at the endpoints is an error as well.
    words = ["cp", scene.a.place("missing"), scene.b.place("to3")]
    done = dray(*words, "-q", *scene.options)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "missing" in done.stderr or "not found" in done.stderr, done


@pytest.mark.parametrize("mode", ["-q", "--json"])
@pytest.mark.parametrize("how", ["between", "pull", "local"])
def test_a_signal_changes_no_mode(scene: Scene, how: str, mode: str) -> None:
    tree.make_file(scene.a.root("large"), 64 * MIB, seed=3)
    to = {"between": scene.b.place("large")}.get(how, os.fspath(scene.here / "large"))
    source = os.fspath(scene.a.root("large")) if how == "local" else scene.a.place("large")
    words: list[str | Path] = [shipped_program(), "cp", source, to, mode, "--rate", "2MiB"]
    words += [] if how == "local" else scene.options
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept
    ) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 5, (out, err)
    if mode == "-q":
        assert (out, err) == ("", "")
    else:
        assert len(objects(out)) == 1, out
