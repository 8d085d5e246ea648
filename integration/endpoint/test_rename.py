"""Renames that must not replace an entry, also where the file system has no such rename."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.endpoint.raw import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from dray.testing.endpoints import Endpoint
    from integration.endpoint.raw import Answer

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

# NFS answers EINVAL to a rename with RENAME_NOREPLACE, and old kernels answer ENOSYS. With -D, the
# program keeps the process id that the test started, and signals reach it.
TRACE = ["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null"]
TRACE += ["-e", "trace=renameat2,linkat,unlinkat"]


def failing(**errors: str) -> list[str]:
    """Return the words that start a program in which these system calls fail with these errors."""
    injected = [f"inject={call}:error={error}" for call, error in errors.items()]
    return [*TRACE, *(word for each in injected for word in ("-e", each))]


@pytest.fixture(params=["", "EINVAL", "ENOSYS"])
def endpoint(request: pytest.FixtureRequest, start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    wrap = failing(renameat2=request.param) if request.param else []
    return filled(start_endpoint("a", wrap=wrap))


def filled(endpoint: Endpoint) -> Endpoint:
    """Make files and folders in the root of an endpoint."""
    endpoint.root("file").write_bytes(b"first\n")
    endpoint.root("other").write_bytes(b"second\n")
    for name in ("folder/below", "empty"):
        endpoint.root(name).mkdir(parents=True)
    return endpoint


def rename(endpoint: Endpoint, old: str, new: str) -> Answer:
    body = {"from": f"/data/{old}", "to": f"/data/{new}"}
    return ask(endpoint, "POST", "/v1/storage/rename", body, token=endpoint.token())


@pytest.mark.parametrize("old", ["file", "folder"])
def test_an_entry_gets_a_name_that_is_free(endpoint: Endpoint, old: str) -> None:
    answer = rename(endpoint, old, "moved")
    assert answer.code == 200, answer.text
    assert not endpoint.root(old).exists()
    moved = endpoint.root("moved")
    if old == "file":
        assert moved.read_bytes() == b"first\n"
        assert moved.stat().st_nlink == 1
    else:
        assert [each.name for each in moved.iterdir()] == ["below"]


@pytest.mark.parametrize("old", ["file", "folder"])
@pytest.mark.parametrize("new", ["other", "empty"])
def test_an_entry_is_not_replaced(endpoint: Endpoint, old: str, new: str) -> None:
    answer = rename(endpoint, old, new)
    assert answer.code == 409, answer.text
    assert "replace" in answer.json["error"]["remedy"]
    assert endpoint.root("file").read_bytes() == b"first\n"
    assert endpoint.root("other").read_bytes() == b"second\n"
    assert endpoint.root("folder/below").is_dir()
    assert list(endpoint.root("empty").iterdir()) == []


def test_a_folder_is_not_moved_into_itself(endpoint: Endpoint) -> None:
    answer = rename(endpoint, "folder", "folder/below/folder")
    assert answer.code == 400, answer.text
    assert "into itself" in answer.text
    assert endpoint.root("folder/below").is_dir()


def test_a_file_is_not_replaced_without_hard_links_either(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """A FAT file system has neither hard links nor renames without replacing."""
    endpoint = filled(start_endpoint("a", wrap=failing(renameat2="EINVAL", linkat="EPERM")))
    for new in ("other", "moved"):
        answer = rename(endpoint, "file", new)
        assert answer.code in (403, 409), answer.text
    assert endpoint.root("file").read_bytes() == b"first\n"
    assert endpoint.root("other").read_bytes() == b"second\n"
    assert not endpoint.root("moved").exists()


def test_a_file_that_keeps_its_old_name_gets_no_second_name(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    """The old name cannot be removed, for example because the folder is read-only."""
    wrap = failing(renameat2="EINVAL", unlinkat="EACCES:when=1")
    endpoint = filled(start_endpoint("a", wrap=wrap))
    answer = rename(endpoint, "file", "moved")
    assert answer.code == 403, answer.text
    assert endpoint.root("file").read_bytes() == b"first\n"
    assert not endpoint.root("moved").exists()
    assert rename(endpoint, "file", "moved").code == 200
    assert endpoint.root("moved").read_bytes() == b"first\n"
    assert endpoint.root("moved").stat().st_nlink == 1
