"""Add the SBOM (PEP 770) and the licences of the linked crates to a wheel.

    python -m tools.packages.wheel FOLDER

changes the wheel in the folder. The build backend has no option for these files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tools.packages.build import run, version
from tools.packages.licences import copyright_text
from tools.packages.sbom import python_sbom, wheel_crates, write_json

NOTICE = "License-File: NOTICE\n"


def complete(wheel: Path) -> None:
    """Add the files to a wheel, and list the licence file in its metadata."""
    with tempfile.TemporaryDirectory() as temporary:
        run([sys.executable, "-m", "wheel", "unpack", "--dest", temporary, wheel])
        (top,) = Path(temporary).iterdir()
        info = top / f"dray-{version()}.dist-info"
        metadata = info / "METADATA"
        text = metadata.read_text(encoding="utf-8")
        if NOTICE not in text:
            raise SystemExit(f"packages: {wheel}: METADATA contains no line `{NOTICE.strip()}`")
        more = "" if "License-File: THIRD-PARTY" in text else "License-File: THIRD-PARTY\n"
        metadata.write_text(text.replace(NOTICE, NOTICE + more, 1), encoding="utf-8")
        third_party = copyright_text(version(), wheel_crates(), has_json=False)
        (info / "licenses" / "THIRD-PARTY").write_text(third_party, encoding="utf-8")
        (info / "sboms").mkdir(exist_ok=True)
        write_json(info / "sboms" / "dray.cdx.json", python_sbom())
        run([sys.executable, "-m", "wheel", "pack", "--dest-dir", wheel.parent, top])


def main(words: list[str]) -> int:
    """Complete the wheel of this version in the folder that the command line names."""
    if len(words) != 1:
        print("usage: python -m tools.packages.wheel FOLDER", file=sys.stderr)
        return 2
    wheels = list(Path(words[0]).glob(f"dray-{version()}-*.whl"))
    if len(wheels) != 1:
        print(f"packages: {words[0]} contains {len(wheels)} wheels, not one", file=sys.stderr)
        return 1
    complete(wheels[0])
    print(wheels[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
