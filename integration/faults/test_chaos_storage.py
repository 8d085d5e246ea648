"""Storage faults of ``dray chaos`` in real programs, and its verdict on ends that stay down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from integration.harness import tree
from integration.harness.chaos import BROKEN, NO_VERDICT, USAGE, Scene, is_free

if TYPE_CHECKING:
    from integration.harness.program import Bench

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]

RATE = "16MiB"
STORAGE_KINDS = ("no_space", "io_error", "short_write", "failed_sync")
#: Words in the error of an attempt that met the fault.
ERRORS = {"no_space": "no space", "io_error": "input/output error"}


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("kind", STORAGE_KINDS)
def test_each_storage_fault_is_injected_at_the_end_that_writes(
    bench: Bench, kind: str, push: bool
) -> None:
    scene = Scene(bench, push=push, rate=RATE)
    target = "end" if push else "client"
    fault = {"kind": kind, "target": target, "at": "25%", "count": 2}
    verdict = scene.check_holds(scene.run(scene.plan(fault)), 1)
    assert verdict["faults"][0]["injections"] == 2
    attempts = verdict["attempts"]
    errors = " ".join(attempt["error"] or "" for attempt in attempts).lower()
    assert ERRORS.get(kind, "") in errors
    if kind == "short_write":
        # The system may write less than requested at any time, so no session ends.
        assert len(attempts) == 1
        assert verdict["sent_again"]["bound_bytes"] == 0
    else:
        assert verdict["sent_again"]["bytes"] > 0
    sent = verdict["sent_again"]["bytes"] / tree.MIB
    print(f"\n{kind}: {len(attempts)} attempts, {sent:.1f} MiB sent again")


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_short_writes_without_the_page_cache_hold(bench: Bench, push: bool) -> None:
    scene = Scene(bench, push=push, rate=RATE, options=("--direct-io",))
    target = "end" if push else "client"
    fault = {"kind": "short_write", "target": target, "at": "0%", "count": 100}
    verdict = scene.check_holds(scene.run(scene.plan({**fault, "probability": 0.5})), 1)
    assert verdict["faults"][0]["injections"] == 100
    assert len(verdict["attempts"]) == 1


def test_a_fault_that_several_processes_share_is_counted_once(bench: Bench) -> None:
    """The restarted process gets the injections that the killed process did not confirm."""
    scene = Scene(bench, rate=RATE)
    shorts = {"kind": "short_write", "target": "end", "at": "0%", "count": 60, "probability": 0.2}
    kill = {"kind": "kill", "target": "end", "at": "30%"}
    verdict = scene.check_holds(scene.run(scene.plan(shorts, kill)), 2)
    assert [fault["injections"] for fault in verdict["faults"]] == [60, 1]


def test_a_storage_fault_at_an_end_that_writes_nothing_is_not_injected(bench: Bench) -> None:
    scene = Scene(bench, rate="48MiB")
    fault = {"kind": "io_error", "target": "client", "at": "0%"}
    verdict = scene.run(scene.plan(fault)).expect(NO_VERDICT).report
    assert verdict["verdict"] == "unproven"
    assert verdict["faults"][0]["injections"] == 0


def test_an_endpoint_that_crashes_while_it_recovers_breaks_the_verdict(bench: Bench) -> None:
    script = 'test ! -e {folder}/ran || exit 9; touch {folder}/ran; exec "$0" "$@"'
    scene = Scene(bench, wrap=("sh", "-c", script))
    kill = {"kind": "kill", "target": "end", "at": "20%"}
    verdict = scene.run(scene.plan(kill)).expect(BROKEN).report
    assert verdict["verdict"] == "broken"
    assert not verdict["finished"]
    assert ["did not start again" in crash for crash in verdict["crashes"]] == [True]
    assert "exit code 9" in verdict["crashes"][0]
    # The outputs of both processes are kept.
    assert (bench.folder / verdict["folder"] / "end-2.log").exists()


def test_the_program_behind_a_wrapper_that_has_ended_does_not_outlive_the_run(bench: Bench) -> None:
    scene = Scene(bench, wrap=("sh", "-c", '"$0" "$@" & sleep 1'))
    fault = {"kind": "cut", "at": "30%"}
    verdict = scene.run(scene.plan(fault, head='timeout = "15s"')).expect(BROKEN).report
    assert "ended by itself with exit code 0" in verdict["crashes"][0]
    assert is_free(scene.address), "the program behind the wrapper still runs"


def test_bytes_that_nobody_measured_are_not_within_the_bound(bench: Bench) -> None:
    scene = Scene(bench)
    plan = scene.plan({"kind": "kill", "target": "client", "at": "20%"})
    lines = plan.read_text(encoding="utf-8").splitlines()
    # A copy on this host, without an endpoint: a killed command has no report.
    start = lines.index("[[endpoint]]")
    rest = lines[lines.index("[[fault]]") :]
    command = ["dray", "cp", "-r", "--rate", RATE, f"{scene.source}/", f"{scene.sink}"]
    words = ", ".join(f'"{word}"' for word in command)
    head = [line for line in lines[:start] if not line.startswith("command")]
    text = "\n".join([*head, f"command = [{words}]", *rest, ""])
    plan.write_text(text, encoding="utf-8")
    verdict: dict[str, Any] = scene.run(plan).expect(NO_VERDICT).report
    assert verdict["verdict"] == "unproven"
    assert verdict["identical"]
    assert verdict["sent_again"]["within_bound"] is None


def test_a_program_does_not_start_without_the_faults_that_its_environment_names(
    bench: Bench,
) -> None:
    source = bench.folder / "source"
    tree.make_tree(source, 3, seed=1)
    env = {"DRAY_CHAOS_SOCKET": str(bench.folder / "nobody.socket")}
    ended = bench.start("cp", "-r", source, bench.folder / "sink", env=env).wait().expect(USAGE)
    assert "remove the variable DRAY_CHAOS_SOCKET from the environment" in ended.words
