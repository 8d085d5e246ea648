"""Run a program of Rucio with dray's transfertool registered, or examine a rule.

``python -m dray_rucio rucio-conveyor-submitter --run-once``
``python -m dray_rucio rucio-conveyor-stager`` stages files of tape RSEs with dray
``python -m dray_rucio why RULE``   prints the reasons why the files of a rule do not move
``python -m dray_rucio eta RULE``   prints the expected end of a rule

``why --help`` and ``eta --help`` list options and exit codes.
"""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

from dray_rucio.register import install

STAGER = "rucio-conveyor-stager"


def use_for_stager() -> None:
    """Make Rucio's stager use dray. Rucio has no setting for the transfertool of the stager."""
    from rucio.daemons.conveyor import stager

    from dray_rucio.transfertool import DrayTransfertool

    # The stager reads only the name of this class.
    stager.FTS3Transfertool = DrayTransfertool


def main(words: list[str]) -> int:
    """Run the named program or command with the remaining arguments."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 0 if words else 2
    if words[0] in ("why", "eta"):
        from dray_rucio.why import eta_main, why_main

        return (why_main if words[0] == "why" else eta_main)(words[1:])
    beside = Path(sys.executable).parent
    found = shutil.which(words[0], path=str(beside)) or shutil.which(words[0])
    if found is None:
        print(
            f"dray_rucio: {words[0]} is neither in the folder of {sys.executable} nor on "
            "the PATH; run this command with the Python of Rucio's environment",
            file=sys.stderr,
        )
        return 2
    install()
    if Path(found).name == STAGER:
        use_for_stager()
    sys.argv = [found, *words[1:]]
    runpy.run_path(found, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
