"""A transfer request asks for stripes of new files (the field ``stripe``).

No Lustre runs here. So the endpoint that writes refuses the request, because the stripes would have
no effect. The tests check this refusal, which shows that the stripes reach that endpoint.
integration/storage/test_lustre.py shows the stripes of written files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dray import DrayError
from dray.client import Request, copy
from dray.testing.endpoints import Root
from integration.endpoint.raw import dray

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

NO_LUSTRE = "is not a folder on a Lustre file system"
USAGE = 2


def test_a_destination_that_cannot_stripe_is_refused(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    dirs = [tmp_path / f"disk{number}" for number in range(2)]
    for folder in dirs:
        folder.mkdir()
    disks = Root("disks", {"dirs": [str(folder) for folder in dirs]})
    a = start_endpoint("a")
    b = start_endpoint("b", roots=[Root("data"), disks])
    a.root("file").write_bytes(b"content")
    with a.client() as near, b.client() as far:
        for root, words in (("data", "/data/"), ("disks", "disks:///")):
            to = b.place("file", root=root)
            for stripe in ({"stripe": "all:1MiB"}, {"stripe": "source", "xattrs": True}):
                request = Request((), "", **stripe)
                with pytest.raises(DrayError) as pulled:
                    copy(a.place("file"), to, source=near, destination=far, request=request)
                assert NO_LUSTRE in str(pulled.value), pulled.value
                assert words in str(pulled.value), pulled.value
                pushed = copy(
                    a.place("file"),
                    to,
                    source=near,
                    destination=far,
                    active="source",
                    request=request,
                )
                failed = pushed.wait()
                assert failed.state == "failed", failed
                assert NO_LUSTRE in str(failed.error), failed
                assert words in str(failed.error), failed
        assert not b.root("file").exists()
        request = Request((), "", stripe="source")
        with pytest.raises(DrayError) as caught:
            copy(a.place("file"), b.place("file"), source=near, destination=far, request=request)
        assert "xattrs" in str(caught.value), caught.value
        # Without stripes, the same copies succeed.
        for root in ("data", "disks"):
            to = b.place("file", root=root)
            done = copy(a.place("file"), to, source=near, destination=far).wait()
            assert done.state == "done", done


def test_the_command_line_requests_stripes_between_endpoints(
    start_endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    a, b = start_endpoint("a"), start_endpoint("b")
    a.root("file").write_bytes(b"content")
    words: list[str | Path] = []
    for end in (a, b):
        token = tmp_path / f"{end.name}.token"
        token.write_text(end.token())
        token.chmod(0o600)
        words += ["--token-file", f"{end.address}={token}"]
        words += ["--peer-key", f"{end.address}={end.key}"]
    ends = [a.place("file"), b.place("file")]
    ended = dray("cp", "--stripe", "4", *ends, *words)
    assert ended.returncode != 0
    assert NO_LUSTRE in ended.stderr, ended
    ended = dray("cp", "--stripe", "source", *ends, *words)
    assert ended.returncode == USAGE, ended
    assert "--xattrs" in ended.stderr, ended
    assert not b.root("file").exists()
