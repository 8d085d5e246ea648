"""Copy the endpoint's example configuration into its page of the reference.

    python tools/config_page.py     rewrites docs/reference/configuration.md

Only the block of TOML on the page is replaced, by the example that dray ships. A test compares the
block with the example.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "engine/crates/dray-config/src/example.toml"
PAGE = ROOT / "docs/reference/configuration.md"
BLOCK = re.compile(r"^```toml\n.*?^```$", re.MULTILINE | re.DOTALL)


def renewed(page: str, example: str) -> str:
    """Return the page with its block of TOML replaced by the example."""
    found = len(BLOCK.findall(page))
    if found != 1:
        raise ValueError(f"{PAGE}: {found} blocks of TOML where there should be one")
    return BLOCK.sub(lambda _: f"```toml\n{example.rstrip()}\n```", page)


def main() -> None:
    """Rewrite the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(renewed(page, EXAMPLE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
