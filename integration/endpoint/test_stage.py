"""``dray stage``: the staging calls of an endpoint as commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from dray.testing.endpoints import Root
from integration.endpoint.raw import dray
from integration.endpoint.test_tier import buffer, check, fill, states, tier_of
from integration.endpoint.tier_scene import MIB, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

Json: TypeAlias = Any

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
__all__ = ["buffer"]


class Caller:
    """Runs ``dray stage`` at one endpoint, as one subject."""

    def __init__(self, endpoint: Endpoint, folder: Path, subject: str = "alice") -> None:
        """Write the token of the subject to a file."""
        token = folder / f"{subject}.token"
        token.write_text(endpoint.token(subject=subject), encoding="utf-8")
        token.chmod(0o600)
        self._options = ["--endpoint", endpoint.address, "--peer-key", endpoint.key]
        self._options += ["--token-file", str(token)]

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run ``dray stage``. Fail unless its exit code is ``code``."""
        done = dray("stage", *words, *self._options)
        assert done.returncode == code, done
        return done

    def json(self, *words: str) -> Json:
        """Run ``dray stage`` with ``--json``. Return the object, which must be the whole output."""
        return json.loads(self(*words, "--json").stdout)


def test_a_version_is_staged_out_restored_pinned_and_evicted(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    tier = tier_of(versions="{application}/v{version}", watermark=1.0)
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    endpoint = start_endpoint("bb", roots=roots, config={"tier": [tier]})
    stage = Caller(endpoint, tmp_path)
    sums = fill(endpoint.root("sim/7", root="fast"), 3 * MIB, 7)
    what = ["out", "-r", "/fast/sim/7", "--application", "sim", "--version", "7", "--id", "t7"]
    done = stage(*what, "--period", "1h", "--mtbf", "2d")
    assert done.stdout == "t7 staged: /fast/sim/7 -> /slow/sim/7, sim 7, 3.0 MiB\n", done
    assert "continues if this program ends" in done.stderr
    check(endpoint.root("sim/7", root="slow"), sums)
    with endpoint.client() as client:
        found = until(client, "demoted", lambda tier: states(tier) == {("sim", 7): "demoted"})
        assert found.versions[0].mtbf_seconds == 2 * 86_400
        hit = stage("in", "--application", "sim", "--pin", "1h", "--id", "again")
        assert hit.stdout.startswith("again staged: /slow/sim/7 -> /fast/sim/7, sim 7"), hit
        assert ", hit, pinned until " in hit.stdout
        refused = stage("evict", "t7", code=3)
        assert "pinned" in refused.stderr
        assert stage.json("unpin", "again")["pinned_until"] is None
        assert stage.json("pin", "t7", "--lifetime", "30s")["pinned_until"]
        stage("unpin", "t7")
        assert stage("evict", "t7").stdout.startswith("t7 evicted: ")
        assert not endpoint.root("sim/7", root="fast").exists()
        until(client, "slow", lambda tier: states(tier) == {("sim", 7): "slow"})
        # The version is restored, and the command waits for its end.
        miss = stage.json("in", "--application", "sim", "--id", "miss")
        assert (miss["hit"], miss["state"], miss["version"]) == (False, "staged", 7)
        check(endpoint.root("sim/7", root="fast"), sums)
    listed = stage("list", "--application", "sim").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["miss", "again", "t7"], listed
    assert stage("list", "--application", "other").stdout == ""
    page = stage.json("list", "--state", "staged", "--limit", "1")
    assert [each["id"] for each in page["staging"]] == ["miss"]
    assert stage.json("show", "miss")["to"] == "/fast/sim/7"


def test_a_path_is_staged_without_waiting(buffer: Callable[..., Endpoint], tmp_path: Path) -> None:
    endpoint = buffer()
    stage = Caller(endpoint, tmp_path)
    source = endpoint.root("plain/file", root="slow")
    source.parent.mkdir()
    source.write_bytes(b"x" * MIB)
    words = ["in", "/slow/plain/file", "--to", "/fast/there", "--no-wait", "--id", "p"]
    assert stage.json(*words, "--lifetime", "1d")["state"] in ("queued", "moving")
    with endpoint.client() as client:
        assert client.wait("p", timeout_seconds=60).state == "done"
    entry = stage.json("show", "p")
    assert (entry["to"], entry["state"]) == ("/fast/there", "staged")
    assert entry["expires_at"] is not None
    assert endpoint.root("there", root="fast").read_bytes() == b"x" * MIB


def test_errors_have_the_codes_of_other_commands(
    buffer: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = buffer()
    stage = Caller(endpoint, tmp_path)
    assert "--application" in stage("in", code=2).stderr
    stage("out", "/fast/x", "--mtbf", "1d", "--nodes", "3", code=2)
    stage("list", "--state", "gone", code=2)
    missing = stage("in", "--application", "none", code=3)
    assert "no tier of this endpoint has a complete version" in missing.stderr
    stage("show", "unknown", code=3)
    # The transfer is accepted and fails: nothing is at the path.
    failed = stage("out", "/fast/missing", "--id", "f", code=1)
    assert failed.stdout.startswith("f failed: /fast/missing -> /slow/missing"), failed
    words = ["--endpoint", "127.0.0.1:1", "--peer-key", endpoint.key]
    away = dray("stage", "show", "x", *words, DRAY_TOKEN=endpoint.token())
    assert away.returncode == 4, away
    # Another user does not see the copies.
    assert Caller(endpoint, tmp_path, subject="bob")("list").stdout == ""


def test_a_deadline_that_cannot_be_promised_is_refused_or_missed(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    roots = [Root("fast", {"tier": "fast"}), Root("slow", {"tier": "slow"})]
    endpoint = start_endpoint("bb", roots=roots, config={"rate": 1_000_000})
    stage = Caller(endpoint, tmp_path)
    endpoint.root("a.dat", root="slow").write_bytes(b"x" * 1000)
    # At the full rate, this size takes 90 s.
    words = ["in", "/slow/a.dat", "--bytes", "90M", "--deadline", "40s"]
    refused = stage(*words, "--id", "refused", code=3)
    assert "the endpoint's rate" in refused.stderr, refused
    assert not endpoint.root("a.dat", root="fast").exists()
    entry = stage.json(*words, "--id", "kept", "--best-effort")
    assert (entry["state"], entry["admission"]) == ("staged", "best_effort")
    assert entry["bytes_expected"] >= 90_000_000
    promised = ["in", "/slow/a.dat", "--to", "/fast/b.dat", "--bytes", "1M", "--deadline", "1h"]
    assert stage.json(*promised)["state"] == "staged"
