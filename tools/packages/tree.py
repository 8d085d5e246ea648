"""Lay out the installed files of all packages below one folder, as on a host with prefix /usr.

The Debian packages and the RPM packages are cut from this tree, so both contain the same files.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tools.packages import licences, manuals, sbom
from tools.packages.build import programs, run, version
from tools.packages.crates import ROOT, linked

if TYPE_CHECKING:
    from pathlib import Path

#: Plug-ins of the server, for the version of XRootD whose headers were installed, and the library
#: of the client. `dray` and `dray-xrootd-tpc` look for the library of the client in `../lib/dray`,
#: relative to their own folder (engine/crates/dray-store-xrootd/src/client.rs).
XROOTD_LIBRARIES = (
    "libdray-xrdcl.so",
    "libDrayXrdCtl-{major}.so",
    "libDrayXrdHttpTPC-{major}.so",
    "libDrayXrdOss-{major}.so",
    "libDrayXrdPrepare-{major}.so",
)
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/dray",
    "fish": "usr/share/fish/vendor_completions.d/dray.fish",
    "zsh": "usr/share/zsh/site-functions/_dray",
}
#: Files of the tree that need no change.
COPIES = {
    "docker/systemd/dray.sysusers.conf": "usr/lib/sysusers.d/dray.conf",
    "docker/systemd/dray.tmpfiles.conf": "usr/lib/tmpfiles.d/dray.conf",
    "engine/crates/dray-config/src/example.toml": "usr/share/doc/dray/examples/drayd.toml",
    "plugins/monitoring/alerts.yaml": "usr/share/dray/monitoring/alerts.yaml",
    "plugins/monitoring/alerts-test.yaml": "usr/share/dray/monitoring/alerts-test.yaml",
    "plugins/monitoring/dashboard.json": "usr/share/dray/monitoring/dashboard.json",
    "plugins/monitoring/prometheus.yaml": "usr/share/dray/monitoring/prometheus.yaml",
    "plugins/xrootd/config/dray-tpc.cfg": "usr/share/dray/xrootd-tpc.cfg",
    "plugins/xrootd/config/dray-tpc.toml": "etc/xrootd/dray-tpc.toml",
    "LICENSE": "usr/share/licenses/dray/LICENSE",
    "NOTICE": "usr/share/licenses/dray/NOTICE",
}
UNIT = "docker/systemd/drayd.service"
#: dray-xrootd-tpc has no help text, because only XRootD servers run it.
MANUAL = "plugins/xrootd/config/dray-xrootd-tpc.8"


def copy(source: Path, target: Path, mode: int = 0o644) -> None:
    """Copy a file and set its mode. Creates the folder."""
    if not source.exists():
        raise SystemExit(f"packages: {source} is missing; build it first: make build-xrootd")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def write(target: Path, text: str) -> None:
    """Write a file with mode 644. Creates the folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(0o644)


def xrootd_major() -> str:
    """Return the major version of XRootD for which the Makefiles build the plug-ins."""
    words: list[str | Path] = ["make", "--no-print-directory", "-C", ROOT / "plugins/xrootd/oss"]
    return run([*words, "--eval=major:;@echo $(XROOTD_MAJOR)", "major"]).strip()


def lay_out(destination: Path) -> None:
    """Write the tree below a folder."""
    built = programs()
    copy(built / "dray", destination / "usr/bin/dray", 0o755)
    (destination / "usr/bin/drayd").symlink_to("dray")
    copy(built / "dray-xrootd-tpc", destination / "usr/bin/dray-xrootd-tpc", 0o755)
    major = xrootd_major()
    for name in (pattern.format(major=major) for pattern in XROOTD_LIBRARIES):
        copy(built / name, destination / "usr/lib/dray" / name)
    for source, target in COPIES.items():
        copy(ROOT / source, destination / target)
    unit = (ROOT / UNIT).read_text(encoding="utf-8")
    write(
        destination / "usr/lib/systemd/system/drayd.service",
        unit.replace("/usr/local/bin/", "/usr/bin/"),
    )
    for shell, target in COMPLETIONS.items():
        write(destination / target, run([built / "dray", "completion", shell]))
    manuals.write_all(built / "dray", destination / "usr/share/man")
    page = destination / "usr/share/man/man8/dray-xrootd-tpc.8.gz"
    page.write_bytes(manuals.packed((ROOT / MANUAL).read_text(encoding="utf-8")))
    for package, crate in (("dray", "dray-cli"), ("dray-xrootd", "dray-xrootd-tpc")):
        crates = linked(crate)
        text = licences.copyright_text(version(), crates, has_json=package == "dray-xrootd")
        write(destination / "usr/share/doc" / package / "copyright", text)
    for name, bom in sbom.sboms().items():
        if name != "dray-python.cdx.json":
            target_path = destination / "usr/share/dray" / name
            target_path.parent.mkdir(parents=True, exist_ok=True)
            sbom.write_json(target_path, bom)
            target_path.chmod(0o644)
