"""Run Airflow, Rucio, XRootD servers, the FTS service and endpoints together, and report.

``make e2e-managers`` runs this module. It needs the release programs, and the environments of
``tools/bootstrap.sh test``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from integration.harness.tree import MIB
from integration.managers.bed import Bed
from integration.managers.report import Report
from integration.managers.story import (
    CALIBRATION_BYTES,
    CALIBRATION_PATHS,
    FILE_BYTES,
    FILES,
    Steps,
    Story,
    StoryError,
)

if TYPE_CHECKING:
    from types import FrameType

NAME = "e2e-managers"


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def play(bed: Bed, steps: Steps) -> None:
    """Start the bed, run the story, and fill the report."""
    with steps.step("start Airflow: API server, scheduler, DAG processor, triggerer"):
        bed.start_airflow()
    with steps.step("start two sites: endpoints, XRootD servers, a Ceph cluster"):
        bed.start_sites()
    for name, what in bed.sites.storage().items():
        steps.report.storage[name] = what
        steps.tell(f"  {name}: {what}")
    with steps.step("start the FTS service"):
        bed.start_fts()
    with steps.step("start Rucio's server, and create the RSEs"):
        bed.start_rucio()
    story = Story(bed, steps)
    size = (FILES * FILE_BYTES + len(CALIBRATION_PATHS) * CALIBRATION_BYTES) / MIB
    with steps.step(f"write {size:.0f} MiB to the site north"):
        story.make_data()
    with steps.step("start Rucio's daemons: submitter, two pollers, finisher, repairer"):
        bed.start_daemons()
    with steps.step("wait until Airflow is ready"):
        bed.await_airflow()
    with steps.step("run the DAG"):
        run = story.run()
    with steps.step("compare the checksums of all copies"):
        story.verify(run)


def hold(bed: Bed) -> None:
    """Print the addresses, and wait for a signal."""
    say(f"Airflow      {bed.airflow.url} as admin, with the password {bed.airflow.password}")
    say(f"Rucio        RUCIO_CONFIG={bed.folder}/rucio/rucio.cfg")
    say(f"FTS service  {bed.fts.url}")
    say(f"files, logs  {bed.folder}")
    say("press Ctrl-C to end the bed")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt the end of the bed.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Parse the command line, and run the bed. Return the exit code."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("--hold", action="store_true", help="keep the bed running after the report")
    words = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="dray-managers-", dir=os.environ.get("DRAY_TEST_DIR")))
    folder.chmod(0o755)
    bed = Bed(folder)
    steps = Steps(Report(), say)
    try:
        play(bed, steps)
        print(steps.report.to_json() if words.json else steps.report.to_text(), flush=True)
        if words.hold:
            hold(bed)
    except StoryError as error:
        say(f"{NAME}: {error}\n{NAME}: the logs are in {bed.keep_logs()}")
        return 1
    except KeyboardInterrupt:
        say(f"{NAME}: interrupted; the logs are in {bed.keep_logs()}")
        return 130
    finally:
        steps.tell("end all processes of the bed")
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if steps.report.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
