"""One grammar of URLs (docs/reference/urls.md): a name of any bytes, through every command."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

import pytest

from dray import DrayError
from dray.client import Request, copy, escape, unescape
from integration.endpoint.raw import dray

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

#: Names with every byte that a name may contain, and names that escaping rules may confuse.
NAMES = [
    *(b"x" + bytes([byte]) + b"y" for byte in range(1, 256) if byte != ord("/")),
    *(b"a%20b", b"a b", b"%41", b"A", "é \u202e".encode(), b"c:\\d", b"-r", b"*", b"x%2Fy"),
]
CANNOT = {"%2F": "slash", "%2f": "slash", "%00": "zero", "%": "%25", "%4": "%25", "?": "%3F"}


class Pair(NamedTuple):
    """Two endpoints; the first has a file of each name, whose content is its name."""

    a: Endpoint
    b: Endpoint
    tokens: Path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command with the options for both ends."""
        options: list[str] = []
        for end in (self.a, self.b):
            options += ["--peer-key", f"{end.address}={end.key}"]
            options += ["--token-file", f"{end.address}={self.tokens / end.name}"]
        return dray(*words, *options)


@pytest.fixture
def pair(start_endpoint: Callable[..., Endpoint], tmp_path: Path) -> Pair:
    pair = Pair(start_endpoint("a"), start_endpoint("b"), tmp_path / "tokens")
    pair.tokens.mkdir()
    for end in (pair.a, pair.b):
        file = pair.tokens / end.name
        file.write_text(end.token(), encoding="utf-8")
        file.chmod(0o600)
    fill(pair.a)
    return pair


def fill(endpoint: Endpoint) -> None:
    folder = os.fsencode(endpoint.root("odd"))
    os.makedirs(folder, exist_ok=True)
    for name in NAMES:
        with open(folder + b"/" + name, "wb") as file:
            file.write(name)


def good(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended
    return ended.stdout


def printed(out: str) -> dict[bytes, str]:
    """Return the names of a listing, by their bytes."""
    names = [line.split(maxsplit=4)[4] for line in out.rstrip("\n").split("\n")]
    return {unquote_to_bytes(name): name for name in names}


def test_every_command_accepts_the_printed_names_of_a_listing(pair: Pair, tmp_path: Path) -> None:
    listed = printed(good(pair.run("ls", pair.a.place("odd"))))
    assert listed.keys() == set(NAMES)
    assert all(text.isprintable() for text in listed.values())
    for name, text in listed.items():
        url = pair.a.place(f"odd/{text}")
        adler = f"adler32:{zlib.adler32(name):08x} /data/odd/{text}\n"
        assert good(pair.run("checksum", url)) == adler
        good(pair.run("cp", "-q", url, tmp_path / "one"))
        assert (tmp_path / "one").read_bytes() == name, f"another file than {text}"
        (tmp_path / "one").unlink()
        good(pair.run("rm", url))
    assert os.listdir(pair.a.root("odd")) == []


def test_between_endpoints_a_url_is_the_same_file(pair: Pair, tmp_path: Path) -> None:
    for name in NAMES[::19] + NAMES[-9:]:
        url = f"odd/{escape(name)}"
        good(pair.run("cp", "-q", pair.a.place(url), pair.b.place(url)))
        with open(os.fsencode(pair.b.root("odd")) + b"/" + name, "rb") as file:
            assert file.read() == name
        # Copy from this host to an endpoint.
        local = tmp_path / "local"
        local.write_bytes(name)
        good(pair.run("cp", "-q", local, pair.b.place(f"from-here/{escape(name)}")))
        with open(os.fsencode(pair.b.root("from-here")) + b"/" + name, "rb") as file:
            assert file.read() == name


def test_bytes_may_be_written_as_they_are(pair: Pair, tmp_path: Path) -> None:
    for name in NAMES:
        if any(byte in b"%?#" for byte in name):
            continue
        url = pair.a.place("odd/") + os.fsdecode(name)
        assert list(printed(good(pair.run("stat", url)))) == [name]
        good(pair.run("cp", "-q", url, tmp_path / "one"))
        assert (tmp_path / "one").read_bytes() == name
        (tmp_path / "one").unlink()


@pytest.mark.parametrize("bad", CANNOT)
def test_invalid_names_are_refused_alike_by_every_command(
    pair: Pair, tmp_path: Path, bad: str
) -> None:
    url = pair.a.place(f"odd/x{bad}")
    for words in (
        ("ls", url),
        ("stat", url),
        ("checksum", url),
        ("rm", url),
        ("cp", url, tmp_path / "to"),
        ("cp", tmp_path / "tokens/a", url),
        ("cp", url, pair.b.place("to")),
        ("cp", pair.a.place("odd/A"), pair.b.place(f"x{bad}")),
        ("plan", url, pair.b.place("to")),
    ):
        ended = pair.run(*words)
        assert ended.returncode == 2, (words, ended)
        assert CANNOT[bad] in ended.stderr, (words, ended.stderr)
    with pair.a.client() as client, pytest.raises(DrayError) as caught:
        client.stat(f"/data/odd/x{bad}")
    assert CANNOT[bad] in str(caught.value)
    with pair.a.client() as client, pytest.raises(DrayError) as caught:
        client.submit(Request(sources=f"/data/odd/x{bad}", destination="/data/to"))
    assert CANNOT[bad] in str(caught.value)


def test_the_client_writes_and_reads_the_same_form(pair: Pair) -> None:
    with pair.a.client() as client, pair.b.client() as there:
        entries = {unescape(entry.name): entry for entry in client.list("/data/odd")}
        assert entries.keys() == set(NAMES)
        for name, entry in entries.items():
            assert escape(name) == entry.name
            assert client.stat(f"/data/odd/{escape(name)}").path == entry.path
        for name in NAMES[::25] + NAMES[-9:]:
            url = f"/copied/{escape(name)}"
            with copy(
                pair.a.place(f"odd/{escape(name)}"),
                pair.b.place(url.lstrip("/")),
                source=client,
                destination=there,
            ) as made:
                assert made.wait(timeout_seconds=60).state == "done"
            assert there.checksum(f"/data{url}").checksum == f"{zlib.adler32(name):08x}"


def test_messages_print_names_in_the_accepted_form(pair: Pair, tmp_path: Path) -> None:
    """The report and the message name an unreadable file as in its URL."""
    name = b"no\xff%\x01"
    text = "no%FF%25%01"
    ended = pair.run("cp", "-r", pair.a.place("odd/gone-") + text, tmp_path / "folder")
    assert f"gone-{text}" in ended.stderr, ended
    local = os.fsencode(tmp_path) + b"/" + name
    ended = pair.run("cp", os.fsdecode(local), tmp_path / "to")
    url = f"file://{tmp_path}/{text}"
    assert url in ended.stderr, ended
    with open(local, "wb") as file:
        file.write(b"here")
    good(pair.run("cp", "-q", url, tmp_path / "to"))
    assert (tmp_path / "to").read_bytes() == b"here"
