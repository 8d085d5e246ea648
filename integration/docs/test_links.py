"""The links of the manual resolve, and its command lines have only existing options."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from integration.harness.program import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SKIPPED = {"target", "build", "dist", "out", "node_modules"}
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+|-[a-z])(?![\w-])")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
#: Tokens that end dray's part of a shell line.
SHELL_END = {"|", "&", "&&", "||", ";", ">", "2>", "<"}
#: A line that runs dray. A prompt, a keyword of the shell and variables may precede the command.
RUNS = re.compile(r"^(?:\S*\$ +)?(?:until |while |if )?(?:[A-Z_]+=\S+ )*(dray [a-z-].*)$")
#: Options of every command.
COMMON = {"--help", "-h", "--version", "-V"}
#: Pages that also mention options of other programs.
ABOUT_OTHERS = (
    "docs/explanation/compared.md",
    "docs/how-to/measure.md",
    "docs/how-to/try-faults.md",
    "docs/design/",
    "docs/decisions/",
)

Reference = dict[str, set[str]]


def pages() -> list[Path]:
    found = [
        path
        for path in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in SKIPPED for part in path.relative_to(ROOT).parts)
    ]
    assert len(found) > 20, "the manual is not where it was looked for"
    return sorted(found)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def split(text: str) -> tuple[str, str]:
    """Split a page into prose and code. Lines that are indented by four columns are code."""
    prose: list[str] = []
    code: list[str] = []
    is_code = False
    for line in text.splitlines():
        if FENCE.match(line):
            is_code = not is_code
            continue
        (code if is_code or line.startswith("    ") else prose).append(line)
    return "\n".join(prose), "\n".join(code)


def anchors(text: str) -> set[str]:
    """Return the anchors that common viewers make of a page's headings."""
    prose, _ = split(text)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose))
    return {heading.strip().replace(" ", "-") for heading in words}


def reference() -> Reference:
    """Return the options of each command, from docs/reference/cli.md."""
    options: Reference = {}
    command = ""
    for line in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## `dray ([a-z -]+)`$", line):
            command = heading[1]
            options[command] = set(COMMON)
        elif line.startswith("## "):
            command = ""
        elif command and (alias := re.match(r"`dray ([a-z -]+)` is a second name of", line)):
            options[alias[1]] = options[command]
        elif command and (row := re.match(r"\| `([^`]+)` \|", line)):
            options[command] |= set(OPTION.findall(row[1]))
    assert {"cp", "serve", "plan", "log show", "log verify"} <= options.keys()
    assert "--recursive" in options["cp"]
    return options


def command_lines(code: str) -> Iterator[str]:
    """Yield the lines of ``code`` that run dray."""
    for line in code.replace("\\\n", " ").splitlines():
        if match := RUNS.match(line.strip()):
            yield match[1]


def mistakes(line: str, options: Reference) -> list[str]:
    """Describe the options in a command line that the command does not have."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        return [f"{line}: {error}"]
    words = words[1:]
    for index, word in enumerate(words):
        if word in SHELL_END or word.endswith(";"):
            words = [*words[:index], word.rstrip(";")]
            break
    if words[0] in {"version", "completion", "docs-cli"} or words[0] in COMMON:
        return []
    groups = {name.split()[0] for name in options if " " in name}
    command = " ".join(words[:2]) if words[0] in groups else words[0]
    if command not in options:
        return [f"{line}: no command {command}"]
    given = (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word))
    return [f"{line}: no option {word}" for word in given if word not in options[command]]


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_resolve(page: Path) -> None:
    prose, _ = split(page.read_text(encoding="utf-8"))
    broken = []
    for link in LINK.findall(INLINE.sub("", prose)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            anchor and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert not broken, f"{name(page)}: {broken}"


@pytest.mark.parametrize("page", pages(), ids=name)
def test_command_lines_are_the_programs(page: Path) -> None:
    options = reference()
    prose, code = split(page.read_text(encoding="utf-8"))
    lines = [*command_lines(code)]
    if not name(page).startswith(ABOUT_OTHERS):
        lines += [line for words in INLINE.findall(prose) for line in command_lines(words)]
    wrong = [mistake for line in lines for mistake in mistakes(line, options)]
    assert not wrong, f"{name(page)}: {wrong}"


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in pages()
        if name(page).startswith("docs/") and not name(page).startswith(ABOUT_OTHERS)
    ],
    ids=name,
)
def test_options_in_prose_exist(page: Path) -> None:
    known = set().union(*reference().values())
    prose, _ = split(page.read_text(encoding="utf-8"))
    named = [words for words in INLINE.findall(prose) if words.startswith("--")]
    wrong = [word for words in named for word in OPTION.findall(words) if word not in known]
    assert not wrong, f"{name(page)}: {wrong}"


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "reference", "explanation", "design"])
def test_every_page_is_in_the_index(folder: str) -> None:
    here = ROOT / "docs" / folder
    index = (here / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in here.glob("*.md") if f"({page.name})" not in index]
    assert missing in ([], ["README.md"]), missing


def test_a_wrong_option_is_found() -> None:
    options = reference()
    assert not mistakes("dray cp -r a b --rate 1MiB | tail -3", options)
    assert mistakes("dray cp -r a b --no-such-option", options)
    assert mistakes("dray plan a b --rate 1MiB", options)
    assert mistakes("dray log tell a", options)
    assert not mistakes("dray log prune /data --dry-run", options)
    assert mistakes("dray log prune /data --rate 1MiB", options)
    assert mistakes("dray endpoint run --rate 1MiB", options)
    block = "$ dray cp a b\nthere$ dray serve \\\n  --root x\nA=1 dray plan a b\ndray: a message\n"
    assert len([*command_lines(block)]) == 3
