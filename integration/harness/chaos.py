"""A scene for ``dray chaos``: a source, a destination, and a copy through ``dray serve``."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Bench, Ended, Process

HOLDS, BROKEN, USAGE, NO_VERDICT, _, STOPPED = range(6)
LARGE_BYTES = 24 * tree.MIB
RATE = "8MiB"


def free_address() -> str:
    """Return an address of this host that no program uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@dataclass
class Scene:
    """A source, a destination and a plan for a copy through ``dray serve``."""

    bench: Bench
    push: bool = True
    rate: str = RATE
    #: Source; ``None`` for a small tree.
    given: Path | None = None
    #: Further options of the copy and of the endpoint.
    options: tuple[str, ...] = ()
    #: Words before the command of the endpoint.
    wrap: tuple[str, ...] = ()
    source: Path = field(init=False)
    sink: Path = field(init=False)
    address: str = field(default_factory=free_address)

    def __post_init__(self) -> None:
        """Make a tree of two large and some small files."""
        self.source = self.given or self.bench.folder / "source"
        if self.given is None:
            tree.make_tree(self.source, 60, seed=29)
            for number in range(2):
                tree.make_file(self.source / f"large{number}", LARGE_BYTES, seed=number)
        self.sink = self.bench.folder / "sink" / "copy"
        self.sink.mkdir(parents=True)

    def plan(self, *faults: dict[str, Any], head: str = "", tail: str = "") -> Path:
        """Write a plan with these faults."""
        served = self.sink.parent if self.push else self.source.parent
        far = "dray://{end}/"
        ends = (
            [f"{self.source}/", far + "copy"]
            if self.push
            else [far + self.source.name + "/", str(self.sink)]
        )
        pool = ["--pool", "32MiB", "--token-file", str(self.bench.token)]
        copy = ["dray", "cp", "-r", "--rate", self.rate, *pool, "--peer-key", "{end.key}"]
        copy += [*self.options, *ends]
        dray = str(self.bench.program) if self.wrap else "dray"
        serve = [*self.wrap, dray, "serve", "--root", str(served), "--listen", self.address]
        serve += [*pool, "--identity", "{folder}/identity", *self.options]
        tables: list[tuple[str, dict[str, Any]]] = [
            ("[copy]", {"source": str(self.source), "destination": str(self.sink)}),
            ("", {"command": copy}),
            ("[[endpoint]]", {"name": "end", "command": serve, "address": self.address}),
            *(("[[fault]]", fault) for fault in faults),
        ]
        lines = [head]
        for title, entries in tables:
            lines += [title, *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
        path = self.bench.folder / "plan.toml"
        path.write_text("\n".join([*lines, tail, ""]), encoding="utf-8")
        return path

    def start(self, plan: Path, *words: str) -> Process:
        """Start ``dray chaos`` with its temporary files in the folder of the test."""
        env = {"TMPDIR": str(self.bench.folder)}
        return self.bench.start("chaos", "--json", *words, plan, name="chaos", env=env)

    def run(self, plan: Path, *words: str) -> Ended:
        """Run ``dray chaos``, and wait until it has ended."""
        return self.start(plan, *words).wait(280)

    def check_holds(self, ended: Ended, faults: int) -> dict[str, Any]:
        """Check the verdict with other tools than those of ``dray chaos``."""
        verdict = ended.expect(HOLDS).report
        assert verdict["verdict"] == "holds"
        assert [fault for fault in verdict["faults"] if fault["injections"] == 0] == []
        assert len(verdict["faults"]) == faults
        assert verdict["sent_again"]["measured_by"] == "proxy"
        assert tree.differences(files(self.source), files(self.sink)) == []
        assert tree.leftovers(self.sink) == []
        assert verdict["folder"] is None
        assert list(self.bench.folder.glob("dray-chaos-*")) == []
        assert is_free(self.address), "an endpoint is still running"
        return verdict


def files(top: Path) -> dict[bytes, tree.Entry]:
    """Describe the files of a tree, without its folders."""
    return {path: entry for path, entry in tree.describe(top).items() if entry.kind == "file"}


def is_free(address: str) -> bool:
    """Return whether no program accepts connections at an address."""
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) != 0
