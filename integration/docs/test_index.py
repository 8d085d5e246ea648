"""docs/README.md lists each page of the manual once. docs/architecture.md names each crate."""

from __future__ import annotations

import itertools
import re

from integration.harness.program import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
LINK = re.compile(r"\]\(([^()#\s]+\.md)\)")
#: A line of the list: a link to a page, and the subject of the page.
ENTRY = re.compile(r"^- \[[^\]]+\]\(([^()#\s]+\.md)\): \S")
CHANGE = re.compile(r"^- (Added|Changed|Removed|Fixed|Security): \S")
CHANGE_NAME = re.compile(
    r"^(engine|endpoint|deadlines|stores|xrootd|python|airflow|rucio|tools)-[a-z0-9-]+\.md$"
)


def pages() -> set[str]:
    """Return all pages below docs/, except docs/README.md and the change notes."""
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    notes = {name for name in found if name.startswith("changes/")} - {"changes/README.md"}
    return found - notes - {"README.md"}


def compare(text: str, expected: set[str]) -> list[str]:
    """Return the faults of the index: pages that are missing, unknown or listed twice."""
    listed = LINK.findall(text)
    wrong = [f"{page}: not listed in docs/README.md" for page in sorted(expected - set(listed))]
    wrong += [f"{page}: no such page" for page in sorted(set(listed) - expected)]
    entries = [entry[1] for line in text.splitlines() if (entry := ENTRY.match(line))]
    entries.sort()
    twice = {page for page, after in itertools.pairwise(entries) if page == after}
    wrong += [f"{page}: listed twice" for page in sorted(twice)]
    return wrong


def folder_mistakes(page: str, heading: str) -> bool:
    """Return whether the index has a page below a heading that is not the page's folder."""
    folder = page.split("/")[0] if "/" in page else ""
    return folder in {"tutorial", "how-to", "reference", "explanation", "design", "decisions"} and (
        folder != heading.lower()
    )


def change_mistakes(name: str, text: str) -> list[str]:
    """Describe the faults of a change note."""
    wrong = [] if CHANGE_NAME.match(name) else [f"{name}: the name is not AREA-WHAT.md"]
    if not CHANGE.match(text) or "\n- " in text or "\n\n" in text:
        wrong.append(f"{name}: not one line `- KIND: TEXT`")
    return wrong


def test_the_index_lists_every_page() -> None:
    assert len(pages()) > 50, "the manual is not where it was looked for"
    wrong = compare(INDEX.read_text(encoding="utf-8"), pages())
    assert not wrong, "\n".join(wrong)


def test_every_page_is_listed_under_its_kind() -> None:
    heading = ""
    wrong = []
    for line in INDEX.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif (entry := ENTRY.match(line)) and folder_mistakes(entry[1], heading):
            wrong.append(f"{entry[1]} is listed under {heading}")
    assert not wrong, "\n".join(wrong)


def test_the_architecture_names_every_crate() -> None:
    crates = {path.parent.name for path in (ROOT / "engine/crates").glob("*/Cargo.toml")}
    assert len(crates) > 10, "the crates are not where they were looked for"
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(dray-[a-z-]+)` \|", text, re.MULTILINE))
    assert rows == crates


def test_a_change_is_one_line_of_a_known_kind() -> None:
    wrong = [
        mistake
        for path in (DOCS / "changes").iterdir()
        if path.name != "README.md"
        for mistake in change_mistakes(path.name, path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_mistakes_are_found() -> None:
    known = {"a/b.md", "c.md"}
    assert not compare("- [b](a/b.md): text\n- [c](c.md): text\n", known)
    assert compare("- [b](a/b.md): text\n", known) == ["c.md: not listed in docs/README.md"]
    assert compare("- [b](a/b.md): x\n- [c](c.md): x\n- [d](d.md): x\n", known)
    assert compare("- [b](a/b.md): x\n- [c](c.md): x\n- [c](c.md): x\n", known)
    assert folder_mistakes("design/stores.md", "Reference")
    assert not folder_mistakes("design/stores.md", "Design")
    assert not change_mistakes("rucio-batches.md", "- Added: batches of\n  requests.\n")
    assert change_mistakes("batches.md", "- Added: batches.\n")
    assert change_mistakes("rucio-batches.md", "Batches.\n")
    assert change_mistakes("rucio-batches.md", "- Added: a.\n- Added: b.\n")
