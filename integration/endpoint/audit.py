"""Audit pages for accessibility with axe-core in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from integration.endpoint.browser import Browser


def axe() -> str:
    """Return the script of axe-core, which is installed unless it is up to date."""
    lock = ROOT / "tools" / "requirements-axe.txt"
    home = ROOT / ".tools" / "axe"
    stamp = home / "dray-stamp"
    wanted = lock.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(home, ignore_errors=True)
        words = ["install", "--quiet", "--no-deps", "--target", str(home), "--requirement"]
        subprocess.run([sys.executable, "-m", "pip", *words, str(lock)], check=True, timeout=120)
        stamp.write_text(wanted, encoding="utf-8")
    return (home / "axe_playwright_python" / "axe.min.js").read_text(encoding="utf-8")


def serious_faults(chromium: Browser) -> list[dict[str, Any]]:
    """Audit the present page. Return the faults whose impact is serious or critical.

    The audit fails if it checks almost nothing.
    """
    # The page may forbid scripts of other origins; a script of the driver is not one of these.
    chromium.run(
        f"window.audited = undefined; window.axe ?? (() => {{ {axe()} }})();"
        " axe.run().then((all) => { window.audited = all })"
    )
    chromium.wait("window.audited !== undefined")
    found: list[dict[str, Any]] = chromium.run(
        "return window.audited.violations.map((each) => ({id: each.id, impact: each.impact,"
        " nodes: each.nodes.map((node) => node.html.slice(0, 200))}))"
    )
    print(json.dumps(found, indent=1))
    assert chromium.run("return window.audited.passes.length") > 10
    return [each for each in found if each["impact"] in ("serious", "critical")]
