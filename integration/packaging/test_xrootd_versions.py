"""The XRootD plug-ins compile with XRootD 6, and XRootD 6 copies with them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from integration.harness.host import is_root
from integration.harness.program import ROOT, find_program
from integration.packaging.roots import debian

pytestmark = [
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not is_root() or shutil.which("debootstrap") is None,
        reason="a clean system needs root and debootstrap",
    ),
]
PACKAGES = (
    *("g++", "make", "libssl-dev", "nlohmann-json3-dev", "xrootd-server", "xrootd-client"),
    *("xrootd-server-plugins", "libxrootd-client-dev", "libxrootd-server-dev"),
    "libxrootd-private-dev",
)


def test_plugins_compile_and_run_with_xrootd_6(tmp_path_factory: pytest.TempPathFactory) -> None:
    # debootstrap of Debian 12 does not know the release that contains XRootD 6.
    system = debian("trixie", tmp_path_factory.mktemp("six"), newer="forky")
    system.install("-t", "forky", *PACKAGES)
    version = system.run("dpkg-query", "-W", "-f", "${Version}", "libxrootd-server-dev")
    assert version.startswith("6."), version

    shutil.copytree(ROOT / "plugins" / "xrootd", system.path / "srv" / "xrootd")
    system.run("make", "-C", "/srv/xrootd", "OUT=/usr/lib/dray")
    built = {path.name for path in (system.path / "usr/lib/dray").iterdir()}
    assert built == {
        "libDrayXrdCtl-6.so",
        "libDrayXrdHttpTPC-6.so",
        "libDrayXrdOss-6.so",
        "libDrayXrdPrepare-6.so",
        "libdray-xrdcl.so",
    }

    program = find_program().with_name("dray-xrootd-tpc")
    words = ["strip", "-o", str(system.path / "usr/bin/dray-xrootd-tpc"), str(program)]
    subprocess.run(words, check=True)
    recipe = system.path / "usr/share/dray/xrootd-tpc.cfg"
    recipe.parent.mkdir()
    shutil.copy(ROOT / "plugins/xrootd/config/dray-tpc.cfg", recipe)
    shutil.copy(ROOT / "plugins/xrootd/config/dray-tpc.toml", system.path / "etc/xrootd")
    script = ROOT / "integration" / "packaging" / "third_party_copy.sh"
    shutil.copy(script, system.path / "srv")
    log = system.run("bash", "/srv/third_party_copy.sh", own_network=True)
    assert "sent=100000000 resumed=0" in log
    assert re.search(r"Plugin loaded DrayXrdOss v6\S+ from osslib /usr/lib/dray/", log)
