"""`make manual` builds a site that works from a folder and asks no other host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from integration.endpoint.browser import Browser, needs_browser
from integration.harness.program import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MKDOCS = ROOT / ".tools" / "manual" / "bin" / "mkdocs"
CONFIG = ROOT / "tools" / "manual" / "mkdocs.yml"
#: An element that loads a file when a page is shown, with the address of the file.
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"([^\"]*)\"")
SEARCH_SECONDS = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not MKDOCS.exists(), reason="tools/bootstrap.sh manual installs MkDocs"),
]


def build(site: Path, config: Path = CONFIG) -> subprocess.CompletedProcess[str]:
    """Build the site. The option ``--quiet`` would hide warnings from the strict mode."""
    words = [str(MKDOCS), "build", "--config-file", str(config), "--site-dir", str(site)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once."""
    folder = tmp_path_factory.mktemp("manual") / "site"
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_every_page_and_file(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [path.relative_to(docs) for path in docs.rglob("*.md")]
    pages = [path for path in pages if path.parts[0] != "changes" or path.name == "README.md"]
    assert len(pages) > 150
    for path in pages:
        name = "index.html" if path.name == "README.md" else path.with_suffix(".html").name
        assert (site / path.parent / name).exists(), path
    # A program that reads the description of the API finds it on the site.
    description = json.loads((site / "reference" / "openapi.json").read_text(encoding="utf-8"))
    assert description["openapi"].startswith("3.")
    # Pages link to files outside docs/, which link to further files.
    shown = (site / "repository" / "CONTRIBUTING.html").read_text(encoding="utf-8")
    assert 'href="../how-to/try-faults.html"' in shown
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    assert f"<title>dray {version}</title>" in (site / "index.html").read_text(encoding="utf-8")


def test_no_page_loads_a_file_of_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 200
    loaded = {
        address for page in pages for address in LOADED.findall(page.read_text(encoding="utf-8"))
    }
    assert len(loaded) > 20
    assert {each for each in loaded if re.match(r"[a-z]*:?//", each)} == set()
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\([\"']?(https?:)?//|@import", style) for style in styles)


@needs_browser
def test_a_browser_shows_and_searches_the_site_from_its_folder(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as chromium:
        chromium.resize(1280, 900)
        chromium.open((site / "how-to" / "resume.html").as_uri())
        chromium.wait_text("Resume after a fault")
        chromium.click("[data-md-component=search-query]")
        chromium.type_text("[data-md-component=search-query]", "checksum")
        found = "[...document.querySelectorAll('a.md-search-result__link')].map(e => e.href)"
        until = time.monotonic() + SEARCH_SECONDS
        links: list[str] = []
        while not links:
            assert time.monotonic() < until, "the search found nothing"
            links = chromium.run(f"return {found}")
        verify = (site / "how-to" / "verify.html").as_uri()
        assert any(link.startswith(verify) for link in links), links
        asked: list[Any] = chromium.run(
            "return performance.getEntriesByType('resource').map(each => each.name)"
        )
        assert all(address.startswith("file:") for address in asked), asked
        assert chromium.complaints() == []


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("[a](glossary.md) and [b](../CODE.rs)\n\n1. a\n\n       code\n2. b\n   - c\n", None),
        ("[a](missing.md)\n", "missing.md"),
        ("[a](../missing.rs)\n", "missing.rs"),
        ("[a](glossary.md#no-such-term)\n", "no-such-term"),
        # Python-Markdown sees no table directly below a paragraph.
        ("Words\n| a | b |\n|---|---|\n| c | d |\n", "differs from CommonMark"),
    ],
    ids=["right", "page", "file", "heading", "markup"],
)
def test_a_wrong_page_fails_the_build(tmp_path: Path, page: str, message: str | None) -> None:
    """Build a small manual with one page of interest."""
    tools = tmp_path / "tools" / "manual"
    tools.mkdir(parents=True)
    for path in CONFIG.parent.iterdir():
        if path.is_file():
            (tools / path.name).write_bytes(path.read_bytes())
    names = ["README", "glossary", "changes/README"]
    folders = ("tutorial", "how-to", "reference", "explanation", "design", "decisions")
    for name in [*names, *(f"{folder}/README" for folder in folders)]:
        file = tmp_path / "docs" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("# A page\n", encoding="utf-8")
    (tmp_path / "docs" / "architecture.md").write_text(f"# A page\n\n{page}", encoding="utf-8")
    (tmp_path / "VERSION").write_text("1.2.3\n", encoding="utf-8")
    (tmp_path / "CODE.rs").write_text("fn main() {}\n", encoding="utf-8")
    built = build(tmp_path / "site", tools / "mkdocs.yml")
    if message is None:
        assert built.returncode == 0, built.stdout + built.stderr
        shown = (tmp_path / "site" / "architecture.html").read_text(encoding="utf-8")
        assert re.search(r"<ol>\s*<li>.*<pre>.*<ul>\s*<li>c</li>", shown, re.DOTALL), shown
        assert 'href="repository/CODE.rs.html"' in shown
    else:
        assert built.returncode != 0
        assert message in built.stdout + built.stderr
