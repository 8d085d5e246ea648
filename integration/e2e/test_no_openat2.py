"""Copies on a host whose kernel, or whose sandbox, does not have the system call ``openat2``.

Linux before version 5.6 does not have ``openat2``. Some containers forbid the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.harness import tree

if TYPE_CHECKING:
    from integration.harness.program import Bench

FILES, FILE_BYTES = 3, 100_000


def without_openat2(error: str) -> list[str]:
    """Return the words that start a program whose calls of ``openat2`` fail with an error."""
    # With -D, the program keeps the process id that the test started, and signals reach it.
    words = ["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null"]
    return [*words, "-e", "trace=openat2", "-e", f"inject=openat2:error={error}"]


# ENOSYS: an old kernel. EPERM: a sandbox that forbids the call.
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
@pytest.mark.parametrize("below", ["", "folder/"])
def test_a_server_receives_and_sends_files_without_openat2(
    bench: Bench, error: str, below: str
) -> None:
    source, root = bench.folder / "source", bench.folder / "root"
    source.mkdir()
    for number in range(FILES):
        tree.make_file(source / f"{number}", FILE_BYTES, seed=number)
    root.mkdir()
    server = bench.serve(root, wrap=without_openat2(error))
    far = f"dray://{server.address}/{below}"
    bench.cp("-r", f"{source}/", far, *bench.peer(server)).expect(0)
    bench.cp("-r", far, f"{bench.folder}/back/", *bench.peer(server)).expect(0)
    server.stop().expect(0)
    wanted = tree.describe(source)
    for arrived in (root / below, bench.folder / "back"):
        found = {path: entry for path, entry in tree.describe(arrived).items() if path in wanted}
        assert (
            tree.differences(
                {path: entry for path, entry in wanted.items() if path},
                {path: entry for path, entry in found.items() if path},
            )
            == []
        )
