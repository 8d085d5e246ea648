"""Build the RPM packages from the release programs.

    python -m tools.packages.rpm FOLDER

writes `dray`, `dray-xrootd` and a package with the debug information of each (`dray-debuginfo`,
`dray-xrootd-debuginfo`) into the folder. It calls `rpmbuild`, which Debian has too.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tools.packages.build import build_into, run, target, version
from tools.packages.tree import lay_out

SPEC = Path(__file__).parent / "dray.spec"


def build(out: Path) -> list[Path]:
    """Build the packages and return their paths."""
    folder = target() / "packages" / "rpm"
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "tree"
    lay_out(tree)
    definitions = {
        "_topdir": str(folder),
        # Scripts of rpm use more than the shell of Debian understands.
        "_buildshell": "/bin/bash",
        "tree": str(tree),
        "dray_version": version(),
        "_enable_debug_packages": "1",
        # A package for the debug information of each package, as in Fedora.
        "_debuginfo_subpackages": "1",
        "_binary_payload": f"w{os.environ.get('DRAY_COMPRESSION', '6')}.xzdio",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
    }
    words = [word for name, text in definitions.items() for word in ("--define", f"{name} {text}")]
    run(["rpmbuild", "-bb", *words, SPEC])
    out.mkdir(parents=True, exist_ok=True)
    packages = [Path(shutil.copy(path, out)) for path in sorted(folder.glob("RPMS/*/*.rpm"))]
    shutil.rmtree(folder)
    return packages


if __name__ == "__main__":
    sys.exit(build_into(sys.argv, build))
