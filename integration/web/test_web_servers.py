"""``dray cp`` from web servers that are wrong or busy, or use rare features of HTTP (RFC 9110)."""

from __future__ import annotations

import gzip
import itertools
import random
import threading
import time
from datetime import datetime, timezone
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import dray, shipped_program
from integration.harness.program import Process
from integration.web.server import MODIFIED, WebServer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from integration.web.server import Asked, Reply

    Change = Callable[[Asked, Reply], None]

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]

MIB = 1 << 20
#: Content of several objects, so that a copy needs several requests.
CONTENT = random.Random(1).randbytes(3 * MIB + 5)


def usual(asked: Asked, reply: Reply) -> None:
    """Leave the answer as it is."""


def copy(
    server: WebServer, to: Path, path: str = "/f", **env: str
) -> subprocess.CompletedProcess[str]:
    """Copy a file of the server in objects of 1 MiB."""
    words = ["cp", "--object-size", "1MiB", f"{server.url}{path}", str(to)]
    return dray(*words, seconds=180.0, **env)


def expect_whole(server: WebServer, to: Path, path: str = "/f", **env: str) -> None:
    """Copy a file of the server, and check its content."""
    ended = copy(server, to, path, **env)
    assert ended.returncode == 0, ended.stderr
    assert to.read_bytes() == server.content


def expect_refused(server: WebServer, to: Path, *whys: str) -> None:
    """Check that a copy fails with one of the messages ``whys``, and leaves no file."""
    ended = copy(server, to)
    output = ended.stdout + ended.stderr
    assert ended.returncode != 0, output
    assert any(why in output for why in whys), output
    assert not to.exists()


def opens(asked: Asked) -> bool:
    """Return whether a request asks for the size and time of the file."""
    return asked.method == "HEAD" and "want-digest" not in asked.headers


# --- busy servers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("is_date", [False, True])
def test_a_busy_server_is_retried_after_its_retry_after(
    tmp_path: Path, status: int, is_date: bool
) -> None:
    """``Retry-After`` has seconds, or a time by the server's clock, which is years behind."""
    busy: list[float] = []

    def change(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET" and asked.number in (1, 2):
            when = "Sun, 06 Nov 1994 08:49:39 GMT" if is_date else "2"
            reply.status, reply.body = status, b""
            reply.headers = {"Retry-After": when, "Date": MODIFIED}
            busy.append(asked.at)

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")
        # All readers wait after the last busy answer. Two requests may have been under way then.
        since = [each.at - busy[-1] for each in server.gets() if each.at > busy[-1]]
        later = [seconds for seconds in since if seconds > 0.2]
        assert len(since) - len(later) <= 2
        assert min(later) > 1.7
        assert len(busy) == 2


def test_a_busy_server_without_retry_after_is_retried_less_often(tmp_path: Path) -> None:
    """The pauses double. After some retries, the copy fails as busy."""

    def change(asked: Asked, reply: Reply) -> None:
        if opens(asked):
            reply.status, reply.body = 503, b""

    with WebServer(CONTENT, change) as server:
        expect_refused(server, tmp_path / "f", "busy")
        times = [each.at for each in server.asked if opens(each)]
        pauses = [b - a for a, b in itertools.pairwise(times)]
        assert 4 <= len(pauses) <= 8
        assert pauses[0] > 0.4
        assert pauses[4] > 4 * pauses[0]


def test_a_busy_server_that_asks_for_hours_ends_the_copy(tmp_path: Path) -> None:
    """The copy fails immediately. The message contains the requested time."""

    def change(asked: Asked, reply: Reply) -> None:
        reply.status, reply.body = 503, b""
        reply.headers = {"Retry-After": "7200"}

    with WebServer(CONTENT, change) as server:
        since = time.monotonic()
        expect_refused(server, tmp_path / "f", "the server asks to wait 7200 s")
        assert time.monotonic() - since < 30


# --- versions -------------------------------------------------------------------------------------


def other(asked: Asked, content: bytes) -> bytes:
    """Return the requested range of another version of the file."""
    first, last = (int(each) for each in asked.headers["range"].removeprefix("bytes=").split("-"))
    return bytes(byte ^ 1 for byte in content[first : last + 1])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("ETag", 'W/"1"', 'W/"2"'),
        ("ETag", '"1"', '"2"'),
        ("ETag", 'W/"1"', '"2"'),
        ("Repr-Digest", "adler=:MQ==:", "adler=:Mg==:"),
        ("Last-Modified", MODIFIED, "Sun, 06 Nov 1994 08:49:38 GMT"),
    ],
)
def test_versions_with_different_validators_are_not_mixed(
    tmp_path: Path, name: str, before: str, after: str
) -> None:
    """During the copy, the file is replaced by one of the same size. One validator changes."""

    def change(asked: Asked, reply: Reply) -> None:
        reply.headers[name] = before
        if asked.method == "GET" and asked.number >= 2:
            reply.headers[name] = after
            reply.body = other(asked, CONTENT)

    with WebServer(CONTENT, change) as server:
        to = tmp_path / "f"
        ended = copy(server, to)
        output = ended.stdout + ended.stderr
        # A copy that read only the new version is complete.
        if ended.returncode == 0:
            assert to.read_bytes() == bytes(byte ^ 1 for byte in CONTENT)
        else:
            assert "changed" in output
            assert not to.exists()


def test_the_same_weak_tag_is_no_error(tmp_path: Path) -> None:
    """A weak and a strong tag with the same text are the same version."""

    def change(asked: Asked, reply: Reply) -> None:
        reply.headers["ETag"] = 'W/"1"' if asked.number % 2 else '"1"'

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")


@pytest.mark.parametrize(("tag", "sent"), [('"1"', '"1"'), ('W/"1"', None)])
def test_only_a_strong_tag_is_a_condition(tmp_path: Path, tag: str, sent: str | None) -> None:
    """No ``If-Match`` is sent with a weak tag, because it would never match (RFC 9110, 13.1.1)."""

    def change(asked: Asked, reply: Reply) -> None:
        del asked
        reply.headers["ETag"] = tag

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")
        assert {each.headers.get("if-match") for each in server.gets()} == {sent}


@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_each_of_the_three_dates_is_read(tmp_path: Path, text: str) -> None:
    """The copied file gets the server's time, in each format of RFC 9110, section 5.6.7."""

    def change(asked: Asked, reply: Reply) -> None:
        del asked
        reply.headers["Last-Modified"] = text

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")
        stamp = (tmp_path / "f").stat().st_mtime
        assert stamp == 784111777


# --- codings --------------------------------------------------------------------------------------


def test_unencoded_content_is_requested(tmp_path: Path) -> None:
    """Each request contains ``Accept-Encoding: identity``."""
    with WebServer(CONTENT, usual) as server:
        expect_whole(server, tmp_path / "f")
        assert {each.headers.get("accept-encoding") for each in server.asked} == {"identity"}


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "br"])
def test_coded_content_is_never_kept_as_the_file(tmp_path: Path, coding: str) -> None:
    """A server ignores ``Accept-Encoding`` and sends encoded content: dray refuses it."""
    for content in (b"abc" * 100, CONTENT):
        coded = gzip.compress(content, mtime=0)

        def change(asked: Asked, reply: Reply) -> None:
            del asked
            reply.headers["Content-Encoding"] = coding

        with WebServer(coded, change) as server:
            expect_refused(server, tmp_path / "f", f'coded as "{coding}"')


# --- ranges ---------------------------------------------------------------------------------------


def test_unrequested_ranges_are_refused(tmp_path: Path) -> None:
    """An answer with a wrong range, without a range, or with several parts is refused."""
    size = len(CONTENT)
    cases: list[tuple[str, Change]] = []

    def case(why: str) -> Callable[[Change], None]:
        return lambda change: cases.append((why, change))

    @case("sends bytes")
    def _shifted(asked: Asked, reply: Reply) -> None:
        if reply.status == 206:
            first = int(asked.headers["range"].removeprefix("bytes=").split("-")[0])
            end = first + len(reply.body)
            reply.headers["Content-Range"] = f"bytes {first + 1}-{end}/{size}"

    @case("does not report which range")
    def _unsaid(asked: Asked, reply: Reply) -> None:
        del asked
        reply.headers["Content-Range"] = ""

    @case("does not report which range")
    def _several(asked: Asked, reply: Reply) -> None:
        del asked
        if reply.status == 206:
            reply.headers["Content-Range"] = ""
            reply.headers["Content-Type"] = "multipart/byteranges; boundary=x"

    @case("the size of the file changed")
    def _other_total(asked: Asked, reply: Reply) -> None:
        del asked
        if reply.status == 206:
            span = reply.headers["Content-Range"].split("/")[0]
            reply.headers["Content-Range"] = f"{span}/{size + 1}"

    @case("ignores ranges")
    def _whole(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            reply.status, reply.body = 200, CONTENT
            reply.headers["Content-Range"] = ""

    for number, (why, change) in enumerate(cases):
        with WebServer(CONTENT, change) as server:
            expect_refused(server, tmp_path / str(number), why)


def test_bytes_beyond_the_range_are_refused(tmp_path: Path) -> None:
    """An answer has more bytes than its ``Content-Range``. The copy ignores these bytes."""

    def change(asked: Asked, reply: Reply) -> None:
        if reply.status == 206 and len(reply.body) > 1:
            first = int(asked.headers["range"].removeprefix("bytes=").split("-")[0])
            half = len(reply.body) // 2
            reply.headers["Content-Range"] = f"bytes {first}-{first + half - 1}/{len(CONTENT)}"
            reply.body = reply.body[:half] + bytes(len(reply.body) - half)

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")


@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_whole_answer_must_have_the_announced_size(tmp_path: Path, more: bytes) -> None:
    """A small file is answered with status 200. With ``more``, the file has grown."""
    content = CONTENT[:1000]

    def change(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            reply.status, reply.body = 200, content + more
            reply.headers["Content-Range"] = ""
            # Without Content-Length, the close of the connection ends the answer.
            reply.headers["Content-Length"] = ""
            reply.headers["Connection"] = "close"

    with WebServer(content, change) as server:
        if more:
            expect_refused(server, tmp_path / "f", "the size of the file changed")
        else:
            expect_whole(server, tmp_path / "f")


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/g", "g", "../d/g", "//HOST/g", "http://HOST/g"])
def test_redirects_of_every_kind_are_followed(tmp_path: Path, status: int, location: str) -> None:
    """A location may be absolute or relative (RFC 9110, section 10.2.2)."""

    def change(asked: Asked, reply: Reply) -> None:
        if asked.path == "/d/f":
            reply.status, reply.body = status, b""
            host = server.url.removeprefix("http://")
            reply.headers = {"Location": location.replace("HOST", host)}

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f", "/d/f")


def test_redirect_loops_end(tmp_path: Path) -> None:
    """The copy fails at the eleventh redirect of a request."""

    def change(asked: Asked, reply: Reply) -> None:
        reply.status, reply.body = 302, b""
        reply.headers = {"Location": asked.path + "x"}

    with WebServer(CONTENT, change) as server:
        expect_refused(server, tmp_path / "f", "more than 10 redirects")


def test_a_token_goes_to_no_other_server(tmp_path: Path) -> None:
    """A redirect to another port does not get the token."""
    with WebServer(CONTENT, usual) as there:

        def change(asked: Asked, reply: Reply) -> None:
            del asked
            reply.status, reply.body = 307, b""
            reply.headers = {"Location": f"{there.url}/g"}

        with WebServer(b"", change) as home:
            token = tmp_path / "token"
            token.write_text("to.k.en")
            ended = copy(home, tmp_path / "f", BEARER_TOKEN_FILE=str(token))
            assert ended.returncode == 0, ended.stderr
            assert {each.headers.get("authorization") for each in home.asked} == {"Bearer to.k.en"}
        assert there.asked
        assert not any("authorization" in each.headers for each in there.asked)


def test_a_busy_server_behind_a_redirect_is_waited_for(tmp_path: Path) -> None:
    """The target of a redirect is busy for a while. A busy answer does not count as a redirect."""

    def change(asked: Asked, reply: Reply) -> None:
        if asked.path == "/f":
            reply.status, reply.body = 307, b""
            reply.headers = {"Location": "/g"}
        elif asked.method == "GET" and asked.number % 3 == 1:
            reply.status, reply.body = 503, b""
            reply.headers = {"Retry-After": "1"}

    with WebServer(CONTENT[: MIB + 1], change) as server:
        expect_whole(server, tmp_path / "f")


def test_a_date_of_the_future_is_waited_for(tmp_path: Path) -> None:
    """``Retry-After`` is a time, and ``Date`` is missing. dray then uses the clock of this host."""
    begun = time.time()
    busy: list[Asked] = []

    def change(asked: Asked, reply: Reply) -> None:
        if opens(asked) and not busy:
            busy.append(asked)
            when = datetime.fromtimestamp(int(begun) + 3, tz=timezone.utc)
            reply.status, reply.body = 503, b""
            reply.headers = {"Retry-After": format_datetime(when, usegmt=True)}

    with WebServer(CONTENT, change) as server:
        expect_whole(server, tmp_path / "f")
        again = next(each for each in server.asked if opens(each) and each is not busy[0])
        assert again.at - busy[0].at > 1.0


# --- several files --------------------------------------------------------------------------------


def test_a_killed_copy_of_several_urls_resumes(tmp_path: Path) -> None:
    """The repeated command has the same transfer id. It requests only the missing objects."""
    content = random.Random(2).randbytes(8 * MIB)
    is_slow = threading.Event()
    may_end = threading.Event()

    def change(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET" and asked.number >= 10 and not is_slow.is_set():
            may_end.wait(120)

    to = tmp_path / "d"
    with WebServer(content, change) as server:
        options = ["--object-size", "1MiB", "--progress", "json"]
        words = ["cp", *options, f"{server.url}/a", f"{server.url}/b", f"{to}/"]
        first = Process([shipped_program(), *words], tmp_path, "first")
        first.await_durable(6 * MIB)
        first.kill()
        is_slow.set()
        may_end.set()
        before = len(server.gets())
        # The first copy made at least 6 of the 16 objects durable.
        ended = Process([shipped_program(), *words], tmp_path, "second").wait(120).expect(0)
        assert (to / "a").read_bytes() == (to / "b").read_bytes() == content
        assert len(server.gets()) - before <= 10, ended.words
