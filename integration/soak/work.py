"""The work of the soak: transfers and copies, some of which are cancelled or killed."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from dray.client import Place, Policy, Request, Selection
from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

WORKERS = 3
END_SECONDS = 120.0
CALLS = Policy(seconds=60, tries=60, first_pause=0.1, longest_pause=1.0)
TERMINAL = ("done", "incomplete", "failed", "cancelled")
RATE = 24 * tree.MIB
#: Relative frequency of each kind of work.
KINDS = {
    "third-party pull": 4,
    "third-party push": 4,
    "client push": 3,
    "client pull": 3,
    "cancelled": 3,
    "purged": 2,
    "killed client": 3,
}


class Pair:
    """Two endpoints that have the same tree, and the means to call them."""

    def __init__(self, one: Endpoint, two: Endpoint, folder: Path, program: Path) -> None:
        """Make the tree at both endpoints. Write a token of each endpoint into a file."""
        self.ends = (one, two)
        self.folder, self.program = folder, program
        top = one.root("tree")
        tree.make_tree(top, 60, seed=3)
        tree.make_file(top / "large", 12 * tree.MIB, seed=4)
        shutil.copytree(top, two.root("tree"), symlinks=True)
        self.wanted = tree.describe(top)
        for end in self.ends:
            token = self.token(end)
            token.write_text(end.token(lifetime="7d"), encoding="utf-8")
            token.chmod(0o600)

    def token(self, end: Endpoint) -> Path:
        """Return the path of the file with the token of an endpoint."""
        return self.folder / f"token-{end.name}"

    def client(self, end: Endpoint) -> Client:
        """Return a new client, which the caller closes."""
        return end.client(token=self.token(end).read_text(encoding="utf-8"), policy=CALLS)


class Worker(threading.Thread):
    """Run one transfer or copy after another until ``is_over`` is set."""

    def __init__(self, pair: Pair, number: int, seed: int, is_over: threading.Event) -> None:
        """Seed the random choices with ``seed`` and ``number``."""
        super().__init__(daemon=True)
        self.pair, self.number, self.is_over = pair, number, is_over
        self.chance = random.Random(f"{seed} {number}")
        self.count = 0
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        """Repeat random kinds of work until ``is_over`` is set."""
        while not self.is_over.is_set():
            kind = self.chance.choices(list(KINDS), list(KINDS.values()))[0]
            self.work(kind)

    def work(self, kind: str) -> None:
        """Run one transfer or copy of this kind. Add its error to ``faults``."""
        self.count += 1
        name = f"w{self.number}-{self.count}"
        near, far = self.chance.sample(self.pair.ends, 2)
        try:
            if kind in ("client push", "client pull", "killed client"):
                self._copy(kind, name, far)
            else:
                self._transfer(kind, name, near, far)
        except Exception as error:
            # Continue with the next piece of work. The verdict shows this fault.
            self.faults.append(f"{kind} {name}: {type(error).__name__}: {error}")
        self.done[kind] += 1

    def _transfer(self, kind: str, name: str, near: Endpoint, far: Endpoint) -> None:
        pushes = kind == "third-party push" or (kind != "third-party pull" and self.count % 2 == 0)
        into = f"/data/{name}/"
        path, direction = (into, "write") if pushes else ("/data/tree", "read")
        sink = far if pushes else near
        with self.pair.client(near) as here, self.pair.client(far) as there:
            ticket = there.mint_ticket(name, direction, [path], near.key)  # type: ignore[arg-type]
            side = Place(far.url + path, ticket.ticket, ticket.key, ticket.address)
            ends = kind in ("cancelled", "purged")
            request = Request(
                sources="/data/tree" if pushes else side,
                destination=side if pushes else into,
                id=name,
                selection=Selection(recursive=True),
                rate_max=RATE if ends else None,
            )
            here.submit(request)
            if ends:
                time.sleep(self.chance.uniform(0.0, 0.7))
                here.cancel(name, purge=kind == "purged")
            ended = here.wait(name, timeout_seconds=END_SECONDS)
        if ended.state == "done":
            self._check(sink.root(f"{name}/tree"))
        elif not ends or ended.state not in TERMINAL:
            raise AssertionError(f"{ended.state}: {ended.error}")
        shutil.rmtree(sink.root(name), ignore_errors=True)

    def _check(self, copied: Path) -> None:
        differences = tree.differences(self.pair.wanted, tree.describe(copied))
        if differences:
            raise AssertionError(f"it differs: {differences}")

    def _copy(self, kind: str, name: str, end: Endpoint) -> None:
        local = self.pair.folder / name
        pushes = kind == "client push" or (kind == "killed client" and self.count % 2 == 0)
        source, sink = end.root("tree"), local / "tree"
        ends = [f"{end.url}/data/tree", f"{local}/"]
        if pushes:
            other = next(each for each in self.pair.ends if each is not end)
            source, sink = other.root("tree"), end.root(f"{name}/tree")
            ends = [str(source), f"{end.url}/data/{name}/"]
        words: list[str | Path] = [self.pair.program, "cp", "-q", "-r", *ends]
        words += ["--token-file", self.pair.token(end), "--peer-key", end.key]
        killed = kind == "killed client"
        if killed:
            words += ["--rate", str(RATE)]
        copy = subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if killed:
            time.sleep(self.chance.uniform(0.02, 0.7))
            copy.send_signal(signal.SIGKILL)
        _, said = copy.communicate(timeout=END_SECONDS)
        if copy.returncode == 0:
            self._check(sink)
        elif not killed:
            raise AssertionError(f"exit code {copy.returncode}: {said.decode(errors='replace')}")
        shutil.rmtree(local, ignore_errors=True)
        shutil.rmtree(end.root(name), ignore_errors=True)
