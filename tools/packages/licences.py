"""Write the copyright file of a package: the licences of all code inside its files."""

from __future__ import annotations

import re
from pathlib import Path

from tools.audit import is_licence_allowed
from tools.packages.crates import (
    Crate,
    console_libraries,
    console_licences,
    nlohmann_version,
    rust_version,
    sqlite_version,
)

#: If a crate offers a choice of licences with the Apache License among them, dray uses the crate
#: under this licence, and each package contains the text of this licence only once. The texts of
#: other licences name copyright holders, so all these texts are copied.
CHOSEN = frozenset({"Apache-2.0", "Apache-2.0 WITH LLVM-exception"})
APACHE_TEXT = re.compile(
    r"[ \t]*Apache License\s+Version 2\.0, January 2004\b"
    r".*?limitations under the License\.[ \t]*\n",
    re.DOTALL,
)
TEXTS = Path(__file__).parent / "texts"

HEAD = """\
dray {version}
Copyright 2026 The dray authors

This product is licensed under the Apache License, Version 2.0. On Debian systems the text of this
licence is in /usr/share/common-licenses/Apache-2.0. The RPM packages and the Python wheel contain
the text in the file LICENSE.
"""


def short(text: str) -> str:
    """Replace the text of the Apache License in a licence file by a reference."""
    return APACHE_TEXT.sub("(The Apache License, Version 2.0: see the top of this file.)\n", text)


def licence_texts(crate: Crate) -> list[str]:
    """Return the licence texts of a crate that is not used under the Apache License.

    :raises SystemExit: if the crate contains no such text.
    """
    texts = []
    for path in sorted(crate.folder.iterdir()):
        name = path.name.upper()
        is_text = name.startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"))
        if path.is_file() and is_text and "APACHE" not in name:
            texts.append(short(path.read_text(encoding="utf-8")).strip())
    if not texts:
        raise SystemExit(
            f"packages: crate {crate.name} {crate.version} ({crate.licence}) contains no licence "
            f"text in {crate.folder}; put the text of its repository into {TEXTS}"
        )
    return texts


def notices(crate: Crate) -> list[str]:
    """Return the NOTICE files of a crate, which the Apache License requires to be copied."""
    found = sorted(crate.folder.glob("NOTICE*"))
    return [path.read_text(encoding="utf-8").strip() for path in found]


def indented(text: str) -> str:
    """Indent a text by two blanks."""
    return "".join(f"  {line}".rstrip() + "\n" for line in text.splitlines())


def copyright_text(version: str, crates: list[Crate], has_json: bool) -> str:
    """Return the text of the copyright file.

    :param crates: crates that are linked into the program of the package.
    :param has_json: the package contains libraries that are compiled with nlohmann-json.
    """
    foreign = [crate for crate in crates if not crate.is_ours]
    lines = [HEAD.format(version=version)]
    lines.append("The files of this package also contain the following works of other authors.\n")
    lines.append(
        f"Under the Apache License, Version 2.0:\n\n"
        f"  Rust standard library {rust_version()} (MIT OR Apache-2.0): the Rust project developers"
    )
    holders: dict[str, list[str]] = {}
    for crate in foreign:
        title = f"{crate.name} {crate.version} ({crate.licence})"
        if is_licence_allowed(crate.licence, CHOSEN):
            by = f": {', '.join(crate.authors)}" if crate.authors else ""
            lines.append(f"  {title}{by}")
            texts = notices(crate)
        else:
            texts = licence_texts(crate)
        for text in texts:
            holders.setdefault(text, []).append(title)
    sqlite = sqlite_version(crates)
    if sqlite is not None:
        lines.append(f"\nIn the public domain:\n\n  SQLite {sqlite} (https://sqlite.org)")
    if has_json:
        text = (TEXTS / "nlohmann-json.txt").read_text(encoding="utf-8").strip()
        holders.setdefault(text, []).append(f"nlohmann-json {nlohmann_version()} (MIT)")
    for name, number, licence in console_libraries(crates):
        text = console_licences(crates).strip()
        holders.setdefault(text, []).append(f"{name} {number} ({licence}), in the web console")
    lines.append("\nUnder other licences; the works stand above the text of their licence:")
    for text, titles in sorted(holders.items(), key=lambda item: item[1]):
        lines.append("\n" + "\n".join(titles) + "\n\n" + indented(text).rstrip())
    return "\n".join(lines) + "\n"
