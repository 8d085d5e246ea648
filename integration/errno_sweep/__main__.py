"""The command line of the sweep."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from integration.errno_sweep import cases
from integration.errno_sweep.catalog import SCENES
from integration.errno_sweep.sweep import sweep
from integration.harness import host
from integration.harness.program import Bench, find_program
from integration.harness.supervise import reason_to_skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from integration.errno_sweep.cases import Case
    from integration.errno_sweep.sweep import Outcome

EXAMPLES = """\
examples:
  python -m integration.errno_sweep --list                     the scenes
  python -m integration.errno_sweep --scene local --all        every case of a copy on one host
  python -m integration.errno_sweep --sample 200 --seed 7      200 cases of each scene
  python -m integration.errno_sweep --case local/fsync/partial/1/EIO     one case again
"""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.errno_sweep",
        description="Fail each system call of a copy with each plausible errno, then run it again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scene", action="append", choices=sorted(SCENES), help="repeatable; default: all"
    )
    parser.add_argument("--all", action="store_true", help="every case (a scene takes minutes)")
    parser.add_argument("--sample", type=int, default=20, help="cases of each scene, by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--call", help="only cases whose call or place contains this text")
    parser.add_argument("--no-kills", action="store_true", help="errnos only")
    parser.add_argument("--case", action="append", default=[], help="run this case; repeatable")
    parser.add_argument("--program", type=Path, help="default: the release program of this tree")
    parser.add_argument("--json", type=Path, help="write one JSON object for each case there")
    parser.add_argument("--list", action="store_true", help="name the scenes and end")
    return parser.parse_args(words)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table of the results, with a line for each kind of call."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        case = cases.parse(outcome.case)
        row = rows[f"{case.scene}: {case.fault.key}"]
        row["cases"] += 1
        row["faults"] += bool(outcome.faults)
        row["swept"] += bool(outcome.swept)
        row["not reached" if not outcome.is_hit else f"exit {outcome.first.split()[0]}"] += 1
    columns = ["cases", *sorted({name for row in rows.values() for name in row} - {"cases"})]
    head = "| call | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1)
    lines = [
        f"| {name} | " + " | ".join(str(row[column] or "") for column in columns) + " |"
        for name, row in sorted(rows.items())
    ]
    return "\n".join([head, *lines])


def main() -> int:
    """Run the chosen cases. Return 1 if a case has a fault."""
    given = arguments()
    host.clean_up_when_ended()
    if given.list:
        print("\n".join(SCENES))
        return 0
    reason = reason_to_skip()
    if reason is not None:
        print(f"cannot sweep: {reason}", file=sys.stderr)
        return 3
    program = (given.program or find_program()).resolve()
    os.environ["DRAY_PROGRAM"] = str(program)
    wanted = [cases.parse(text) for text in given.case]
    names = sorted({case.scene for case in wanted}) or given.scene or list(SCENES)

    def choose(found: Iterable[Case]) -> Sequence[Case]:
        every = [case for case in found if not given.call or given.call in str(case.fault.key)]
        if wanted:
            scene = every[0].scene if every else ""
            return [case for case in wanted if case.scene == scene]
        return every if given.all else cases.sample(every, given.sample, given.seed)

    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(given.json.open("w")) if given.json else None
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="dray-errno-", dir=os.environ.get("DRAY_TEST_DIR"))
        )
        bench = Bench(Path(folder), program)
        stack.callback(bench.close)
        for outcome in sweep(names, bench, choose, kills=not given.no_kills):
            outcomes.append(outcome)
            if report is not None:
                print(outcome.line(), file=report, flush=True)
            if outcome.faults or wanted:
                print(outcome.case, outcome.path, f"first: {outcome.first}", sep="\n  ")
                print(*(f"  FAULT: {each}" for each in outcome.faults), sep="\n")
                print(f"  it said: {outcome.words}", flush=True)
    print(table(outcomes))
    bad = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"{len(outcomes)} cases, {bad} with faults (seed {given.seed})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
