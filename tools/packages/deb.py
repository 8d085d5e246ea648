"""Build the Debian packages from the release programs.

    python -m tools.packages.deb FOLDER

writes `dray`, `dray-xrootd` and a package with debug information for each of them
(`dray-dbgsym`, `dray-xrootd-dbgsym`) into the folder. The environment variables ``DEBFULLNAME`` and
``DEBEMAIL`` name the maintainer of the packages.
"""

from __future__ import annotations

import os
import shutil
import sys
from email.utils import formatdate
from pathlib import Path

from tools.packages.build import build_into, run, source_date, target, version
from tools.packages.crates import ROOT
from tools.packages.tree import lay_out

#: Number of the packages that are made from one version of dray.
REVISION = 1


def changelog() -> str:
    """Return Debian's change log, which names the version of the packages."""
    date = formatdate(source_date(), localtime=False)
    return (
        f"dray ({version()}-{REVISION}) unstable; urgency=medium\n\n"
        f"  * dray {version()}. The file changelog.gz describes the changes.\n\n"
        f" -- {maintainer()}  {date}\n"
    )


def maintainer() -> str:
    """Return the maintainer of the packages from the environment."""
    name = os.environ.get("DEBFULLNAME", "The dray authors")
    return f"{name} <{os.environ.get('DEBEMAIL', 'dray@localhost')}>"


def build(out: Path) -> list[Path]:
    """Build the packages and return their paths."""
    folder = target() / "packages" / "deb" / f"dray-{version()}"
    shutil.rmtree(folder.parent, ignore_errors=True)
    debian = folder / "debian"
    shutil.copytree(Path(__file__).parent / "debian", debian)
    (debian / "changelog").write_text(changelog(), encoding="utf-8")
    shutil.copyfile(ROOT / "CHANGELOG.md", folder / "CHANGELOG.md")
    # debhelper writes scripts that create the account and its folders from these two files.
    for kind in ("sysusers", "tmpfiles"):
        source = ROOT / "docker" / "systemd" / f"dray.{kind}.conf"
        shutil.copyfile(source, debian / f"dray.{kind}")
    control = debian / "control"
    text = control.read_text(encoding="utf-8")
    control.write_text(text.replace("@MAINTAINER@", maintainer()), encoding="utf-8")
    lay_out(folder / "tree")
    run(["dpkg-buildpackage", "--build=binary", "--no-sign"], folder)
    out.mkdir(parents=True, exist_ok=True)
    packages = [Path(shutil.copy(path, out)) for path in sorted(folder.parent.glob("*.deb"))]
    shutil.rmtree(folder.parent)
    return packages


if __name__ == "__main__":
    sys.exit(build_into(sys.argv, build))
