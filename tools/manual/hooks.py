"""Hooks of MkDocs for the manual: version, navigation, CommonMark, and files of the repository.

The pages follow CommonMark, like all common viewers of a repository. MkDocs uses Python-Markdown,
which needs four columns of indentation in lists. So `python_markdown` changes the indentation, and
`on_page_content` compares the text of the result with that of a CommonMark parser.

A page may link to files outside docs/. The site then contains these files as pages below
`repository/`.
"""

from __future__ import annotations

import html
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
#: Folder of the site for files outside docs/.
OUTSIDE = "repository"
#: Top folders of the navigation, in the order of docs/README.md.
FOLDERS = {
    "tutorial": "Tutorial",
    "how-to": "How-to",
    "reference": "Reference",
    "explanation": "Explanation",
    "design": "Design",
    "decisions": "Decisions",
}
#: Names of languages for the colours of a file, by the end of its name.
LANGUAGES = {
    ".json": "json",
    ".lua": "lua",
    ".py": "python",
    ".rs": "rust",
    ".toml": "toml",
    ".yaml": "yaml",
}
#: Maximum size of a file outside docs/ that becomes a page, in bytes.
FILE_BYTES_MAX = 200_000

#: The end of a link. Its text may begin on an earlier line.
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
MARKER = re.compile(r" {0,3}([-*+]|\d{1,9}[.)])( {1,4}(?! )|(?= *$)| (?= ))")
CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)
#: Link at the begin of a line of an index.
ENTRY = re.compile(r"\]\(([^()\s#]+\.md)\)")


class Item(NamedTuple):
    """An item of a list: its first line, and the line after its end."""

    start: int
    end: int
    is_first: bool


def parser() -> MarkdownIt:
    """Return a parser of CommonMark with tables."""
    return MarkdownIt("commonmark").enable("table")


class Structure(NamedTuple):
    """The lines of a page that need a change."""

    items: list[Item]
    code: set[int]


def structure(text: str) -> Structure:
    """Find lists and code."""
    items: list[Item] = []
    code: set[int] = set()
    is_first = False
    for token in parser().parse(text):
        if token.map is None:
            continue
        start, end = token.map
        if token.type in ("bullet_list_open", "ordered_list_open"):
            is_first = True
        elif token.type == "list_item_open":
            items.append(Item(start, end, is_first))
            is_first = False
        elif token.type in ("fence", "code_block"):
            code.update(range(start, end))
    return Structure(items, code)


def python_markdown(text: str) -> str:
    """Return a page of CommonMark in a form that Python-Markdown reads the same way."""
    found = structure(text)
    offsets: dict[Item, int] = {}
    out: list[str] = []
    # True if the last item has several paragraphs. Python-Markdown then needs an empty line before
    # the next item.
    is_loose = False
    for number, line in enumerate(text.split("\n")):
        rest, prefix = line, ""
        around = [item for item in found.items if item.start <= number < item.end]
        for item in around:
            if item.start == number and (marker := MARKER.match(rest)):
                is_begin = item.is_first and item is around[0]
                if (is_begin or is_loose) and out and out[-1]:
                    out.append("")
                is_loose = False
                offsets[item] = marker.end()
                rest = rest[marker.end() :]
                prefix += marker[1].replace(")", ".").ljust(4)
            else:
                blank = len(rest) - len(rest.lstrip(" "))
                rest = rest[min(blank, offsets.get(item, 0)) :]
                prefix += "    "
        is_loose = is_loose or not rest.strip()
        out.append(prefix + rest if rest.strip() else "")
    return "\n".join(out)


def prose_links(text: str, change: Links) -> str:
    """Replace the address of each link outside code."""
    code = structure(text).code
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number not in code and "](" in line:
            lines[number] = change.line(line)
    return "\n".join(lines)


class Links:
    """Replaces addresses of links of one page."""

    def __init__(self, source: str) -> None:
        """Create the links of a page.

        :param source: path of the page in the repository.
        """
        self.source = source
        #: Paths in the repository to which the page links, outside docs/.
        self.outside: set[str] = set()

    def line(self, line: str) -> str:
        """Replace the addresses in a line of prose."""
        spans = [code.span() for code in CODE.finditer(line)]

        def replaced(link: re.Match[str]) -> str:
            # A link inside code is text. A link whose text contains code is a link.
            if any(start < link.start(2) < end for start, end in spans):
                return link[0]
            return f"{link[1]}{self.address(link[2])}{link[3]}"

        return LINK.sub(replaced, line)

    def address(self, address: str) -> str:
        """Return the address of a link on the site."""
        if re.match(r"[a-z]+:", address) or address.startswith("#"):
            return address
        path, hash_, anchor = address.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(self.source), path))
        if (ROOT / target).is_dir():
            target = posixpath.join(target, "README.md")
        is_in_docs = target.startswith("docs/")
        if not is_in_docs or not (ROOT / target).exists():
            self.outside.add(target)
        here = posixpath.dirname(uri(self.source))
        return posixpath.relpath(uri(target), here or ".") + hash_ + anchor


def uri(path: str) -> str:
    """Return the path in the site's sources for a path in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{OUTSIDE}/{path}" if path.endswith(".md") else f"{OUTSIDE}/{path}.md"


def in_repository(source: str) -> str:
    """Return the path in the repository for a path in the site's sources."""
    if source.startswith(f"{OUTSIDE}/"):
        return source.removeprefix(f"{OUTSIDE}/")
    return f"docs/{source}"


def outside_page(path: str) -> str:
    """Return a page that shows a file outside docs/, or lists the files of a folder.

    :raises PluginError: if the file does not exist, or is too large.
    """
    file = ROOT / path
    if file.name == "README.md" and not file.exists():
        entries = sorted(each.name for each in file.parent.iterdir() if each.is_file())
        listed = "\n".join(f"- [{name}]({name})" for name in entries)
        return f"# {file.parent.name}\n\n{listed}\n"
    if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
        raise PluginError(f"{path}: a page links to this path, which is no file of at most 200 kB")
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 3)
    language = LANGUAGES.get(file.suffix, "text")
    return f"# {file.name}\n\nThe file `{path}`.\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the version and the navigation."""
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    config.site_name = f"dray {version}"
    config.copyright = f"The manual of dray {html.escape(version)}. Apache-2.0."
    config.nav = navigation()
    return config


def navigation() -> list[object]:
    """Return the navigation: each folder in the order of its index."""
    docs = ROOT / "docs"
    nav: list[object] = [{"Home": "README.md"}]
    for folder, title in FOLDERS.items():
        index = (docs / folder / "README.md").read_text(encoding="utf-8")
        listed = [posixpath.normpath(f"{folder}/{page}") for page in ENTRY.findall(index)]
        pages = sorted(docs.joinpath(folder).rglob("*.md"))
        names = [page.relative_to(docs).as_posix() for page in pages]
        first = [page for page in dict.fromkeys(listed) if page in names]
        rest = [page for page in names if page not in first]
        index_name = f"{folder}/README.md"
        section = [index_name, *(page for page in first + rest if page != index_name)]
        nav.append({title: section})
    nav.append({"More": ["architecture.md", "glossary.md", "changes/README.md"]})
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the script of the search, and the files outside docs/ to which pages link."""
    script = (Path(__file__).parent / "iframe-worker.js").read_text(encoding="utf-8")
    files.append(File.generated(config, "assets/iframe-worker.js", content=script))
    waiting = [in_repository(file.src_uri) for file in files.documentation_pages()]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in waiting}
    while waiting:
        source = waiting.pop()
        links = Links(source)
        prose_links(texts[source], links)
        for path in sorted(links.outside - texts.keys()):
            texts[path] = outside_page(path)
            file = File.generated(config, uri(path), content=texts[path])
            # The navigation does not list these pages.
            file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)
            waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links, and change the indentation of lists."""
    del config, files
    return python_markdown(prose_links(markdown, Links(in_repository(page.file.src_uri))))


class Text(HTMLParser):
    """Collects the visible text of HTML, and counts the elements that give a page its structure."""

    COUNTED = ("h1", "h2", "h3", "h4", "li", "pre", "table", "tr", "th", "td", "a", "img")

    def __init__(self) -> None:
        """Create an empty text."""
        super().__init__()
        self.words: list[str] = []
        self.counts = dict.fromkeys(self.COUNTED, 0)
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count an element."""
        classes = dict(attrs).get("class") or ""
        if self._hidden or classes == "headerlink":
            self._hidden += tag not in ("img", "br", "hr")
            return
        # The colours of code are links to lines in some themes.
        if tag in self.counts and (tag != "a" or "href" in dict(attrs)):
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        del tag
        self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data: str) -> None:
        """Add text."""
        if not self._hidden:
            self.words.append(data)

    def shown(self) -> str:
        """Return the text without white space, which the two parsers treat differently."""
        return re.sub(r"\s+", "", "".join(self.words))


def read(text: str) -> Text:
    """Parse HTML."""
    found = Text()
    found.feed(text)
    return found


def differences(expected: Text, found: Text) -> Iterator[str]:
    """Describe the differences of two texts."""
    for tag, count in expected.counts.items():
        if found.counts[tag] != count:
            yield f"{found.counts[tag]} elements <{tag}> instead of {count}"
    wanted, shown = expected.shown(), found.shown()
    if wanted != shown:
        at = next(
            (place for place, (a, b) in enumerate(zip(wanted, shown, strict=False)) if a != b),
            min(len(wanted), len(shown)),
        )
        part = slice(max(0, at - 30), at + 30)
        yield f"the text {shown[part]!r} instead of {wanted[part]!r}"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Compare a page with its form in CommonMark.

    :raises PluginError: if Python-Markdown shows the page in another way.
    """
    del config, files
    # Other viewers show an escaped bar in a table as a bar.
    html = CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
    source = page.file.content_string
    wrong = list(differences(read(parser().render(source)), read(html)))
    if wrong:
        raise PluginError(f"{page.file.src_uri}: differs from CommonMark: {'; '.join(wrong)}")
    return html
