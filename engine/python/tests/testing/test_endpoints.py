"""Tests of the fixtures with a stand-in for the program. No endpoint is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dray
from dray.client import Policy
from dray.testing.endpoints import Endpoint, Root, _read_config, _write_table, find_program
from dray.testing.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]

PROGRAM = """#!{python}
import json, pathlib, ssl, subprocess, sys, threading, re, signal
sys.path.insert(0, {top!r})
from dray.client._der import fingerprint
from dray.testing.scripted import ScriptedEndpoint, json_reply
words = sys.argv[1:]
if words[:2] == ["endpoint", "init"]:
    home = pathlib.Path(words[2])
    home.mkdir()
    (home / "drayd.toml").write_text(
        'name = "x"\\nstate = "s"\\n[[root]]\\nname = "placeholder"\\n'
        '[issuer_local]\\nkey = "issuer.pem"\\n'
    )
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:P-256", "-nodes", "-keyout", home / "key", "-out", home / "cert",
        "-days", "2", "-subj", "/CN=dray"], check=True, capture_output=True)
    (home / "both").write_text((home / "key").read_text() + (home / "cert").read_text())
elif words[:2] == ["token", "mint"]:
    print("minted." + "-".join(words[4:]).replace(" ", "+"))
else:
    home = pathlib.Path(words[3]).parent
    if (home / "broken").exists():
        sys.exit("it is broken")
    config = (home / "drayd.toml").read_text()
    port = int(re.search(r'listen = \\["127.0.0.1:(\\d+)"\\]', config)[1])
    endpoint = ScriptedEndpoint(certificate=home / "both", port=port)
    endpoint.always("GET", "/healthz", json_reply({{"status": "ok"}}))
    def show_token(asked):
        shown = asked.headers.get("authorization", "")
        return json_reply({{"name": shown, "version": "0", "key": ""}})
    endpoint.always("GET", "/v1/endpoint", show_token)
    key = fingerprint(ssl.PEM_cert_to_DER_cert((home / "cert").read_text()))
    print("I am here", file=sys.stderr, flush=True)
    print(json.dumps({{"event": "listening", "fingerprint": key, "name": "x",
        "addresses": [f"127.0.0.1:{{endpoint.port}}"]}}), flush=True)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    over.wait()
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stand-in"
    top = str(Path(dray.__file__).parents[1])
    path.write_text(PROGRAM.format(python=sys.executable, top=top))
    path.chmod(0o755)
    monkeypatch.setenv("DRAY_PROGRAM", str(path))
    return path


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(tmp_path / "made", "a")
    yield endpoint.start()
    endpoint.close()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_an_endpoint_is_reached_through_its_key_with_a_token_of_its_own(endpoint: Endpoint) -> None:
    with endpoint.client(scopes=("storage.read:/data",), subject="bob") as client:
        shown = client.endpoint().name
    assert shown.startswith("Bearer minted.")
    assert "--sub-bob" in shown
    assert "--scope-storage.read:/data" in shown
    # The argument is left out, because the program knows the audience itself.
    assert "--aud" not in shown


def test_a_killed_endpoint_restarts_at_the_same_address(endpoint: Endpoint) -> None:
    before, key, pid = endpoint.address, endpoint.key, endpoint.pid
    with endpoint.client(policy=Policy(seconds=20)) as client:
        endpoint.kill()
        assert (endpoint.is_running, endpoint.pid, is_there(pid)) == (False, 0, False)
        endpoint.start()
        assert (endpoint.address, endpoint.key) == (before, key)
        assert client.health().status == "ok"
    endpoint.restart()
    assert endpoint.address == before
    assert endpoint.log_text() == "I am here\n" * 3
    assert [said["event"] for said in endpoint.events_said()] == ["listening"] * 3
    with pytest.raises(RuntimeError, match="is already running"):
        endpoint.start()


def test_an_endpoint_uses_the_given_address_and_wrapper(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    seen = tmp_path / "seen"
    wrap = ["sh", "-c", 'echo "$@" > "$0"; exec "$@"', str(seen)]
    endpoint = Endpoint(tmp_path / "made", "a", listen=f"127.0.0.1:{port}", wrap=wrap)
    try:
        assert endpoint.start().address == f"127.0.0.1:{port}"
        # Only the endpoint's process is wrapped, and not the commands that create it or mint its
        # tokens.
        assert " endpoint run " in seen.read_text()
        seen.unlink()
        endpoint.token()
        assert not seen.exists()
    finally:
        endpoint.close()


def test_an_endpoint_that_exits_immediately_reports_the_cause(endpoint: Endpoint) -> None:
    endpoint.stop()
    (endpoint.folder / "endpoint/broken").touch()
    with pytest.raises(RuntimeError, match="it is broken"):
        endpoint.start()


def test_closing_leaves_nothing(endpoint: Endpoint) -> None:
    pid, folder = endpoint.pid, endpoint.folder
    endpoint.close()
    assert not is_there(pid)
    assert not folder.exists()
    endpoint.close()


def test_a_suspended_endpoint_is_silent_and_then_continues(endpoint: Endpoint) -> None:
    faults = Faults(1)
    with endpoint.client(token=None, policy=Policy(seconds=0.5, tries=1)) as client:
        client.health()
        with faults.suspended(endpoint), pytest.raises(dray.DrayTemporaryError):
            client.health()
        assert client.health().status == "ok"


def test_a_cut_connection_is_a_fault_and_the_next_one_works(endpoint: Endpoint) -> None:
    faults = Faults(1)
    proxy = faults.between(endpoint)
    options: dict[str, Any] = {"token": None, "pin": endpoint.key}
    with dray.Client(f"dray://{proxy.address}", **options) as client:
        assert client.health().status == "ok"
        assert proxy.cut() > 0
        assert client.health().status == "ok"
    faults.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(proxy.address.rpartition(":")[2])), timeout=2)


def test_moments_are_replayed_by_their_seed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_SEED", "7")
    first = Faults().kill_at_random(endpoint, 0.2)
    assert not endpoint.is_running
    endpoint.start()
    assert Faults().kill_at_random(endpoint, 0.2) == first


def test_the_configuration_merges_generated_and_requested_settings(tmp_path: Path) -> None:
    targets = {"targets": ["{path}/slow=slow"], "tier": "fast"}
    endpoint = Endpoint(
        tmp_path / "made",
        "b",
        roots=(Root(), Root("other", targets)),
        config={"limits": {"transfers_active": 2}, "share": [{"owner": "bob", "weight": 3}]},
    )
    endpoint._write_config()
    config = _read_config(endpoint.folder / "endpoint/drayd.toml")
    assert (config["name"], config["state"]) == ("b", "s")
    assert config["issuer_local"] == {"key": "issuer.pem"}
    assert [root["name"] for root in config["root"]] == ["data", "other"]
    place = endpoint.root(root="other").resolve()
    assert config["root"][1]["path"] == str(place)
    assert config["root"][1]["targets"] == [f"{place}/slow=slow"]
    assert config["limits"] == {"transfers_active": 2}
    assert config["share"] == [{"owner": "bob", "weight": 3}]
    assert endpoint.root("x/y") == endpoint.folder / "roots/data/x/y"
    endpoint.close()


def test_written_toml_reads_back_unchanged(tmp_path: Path) -> None:
    table: dict[str, Any] = {
        "text": 'quote " back \\ line \n tab \t ü \x7f \x00',
        "yes": True,
        "number": -3,
        "list": ["a", 1, []],
        "inner": {"a": {"b": "c"}, "rows": [{"x": 1}, {"x": 2, "deep": {"y": []}}]},
    }
    (tmp_path / "x.toml").write_text("\n".join(_write_table(table)), encoding="utf-8")
    assert _read_config(tmp_path / "x.toml") == table


def test_the_program_is_found_in_the_documented_order(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_program() == program
    monkeypatch.setenv("DRAY_PROGRAM", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError):
        find_program()
    monkeypatch.delenv("DRAY_PROGRAM")
    program.rename(tmp_path / "dray")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find_program() == tmp_path / "dray"


TESTS = """
def test_two(two_endpoints, fault):
    a, b = two_endpoints
    assert a.key != b.key and a.address != b.address
    assert two_endpoints.a.root().is_dir()
    with a.client() as client:
        assert client.health().status == "ok"
    open({pids!r}, "w").write(f"{{a.pid}} {{b.pid}} {{a.folder}}")
    fault.suspended(b).__enter__()
    assert False, "to be shown"

def test_one(one_endpoint):
    assert one_endpoint.is_running

def test_slow(slow_target):
    assert slow_target.root("slow").is_dir()
"""


def test_the_fixtures_serve_other_projects_and_leave_nothing(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(dray.__file__).parents[1]))
    pytester.makepyfile(TESTS.format(pids=str(tmp_path / "pids")))
    result = pytester.runpytest_subprocess("-p", "dray.testing.plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*DRAY_SEED=*", "*endpoint a*", "I am here"])
    *pids, folder = (tmp_path / "pids").read_text().split()
    assert not any(is_there(int(pid)) for pid in pids)
    assert not Path(folder).exists()


def test_without_the_program_the_fixtures_name_the_remedy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(dray.__file__).parents[1]))
    monkeypatch.setenv("DRAY_PROGRAM", "/nothing/dray")
    pytester.makepyfile("def test_it(one_endpoint): pass")
    result = pytester.runpytest_subprocess("-p", "dray.testing.plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*DRAY_PROGRAM names /nothing/dray*"])


def test_the_plugin_loads_nothing_heavy() -> None:
    script = "import sys, dray.testing.plugin\n"
    script += "print([name for name in ('httpx', 'dray._native') if name in sys.modules])"
    top = str(Path(dray.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": top},
    )
    assert done.stdout.strip() == "[]"
