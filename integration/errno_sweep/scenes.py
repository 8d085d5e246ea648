"""Copies with injected faults: on one host, with a server, and between two endpoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dray import DrayError
from dray.client import Place, Policy, Request, Retry, Selection
from dray.testing.endpoints import Endpoint, Root
from integration.harness import tree
from integration.harness.supervise import KILL, Fault, Key, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from integration.harness.program import Bench, Ended, Server, Word

OBJECT_BYTES = 256 << 10
LARGE_BYTES = 5 * OBJECT_BYTES + 1234
#: Maximum seconds of a first run. A longer run counts as a hang. The longest recovery is from a
#: stuck lock of an endpoint's database: SQLite tries each read and each write for 10 s before it
#: reports the lock, so the recovery takes about 33 s on an idle host.
RUN_SECONDS = 120.0
#: Seconds after which a permanent fault of an endpoint ends.
STAY_SECONDS = 2.5
#: Option for the buffers of a copy. Allocating the default of 256 MiB would take longer than the
#: copy.
POOL: tuple[Word, ...] = ("--pool", "8MiB")
#: Maximum seconds for which a second run waits for the lease of a first run that was killed.
HELD_SECONDS = 30.0
LEASE_HELD = "lease_held"
#: Documented exit codes of ``dray cp`` (docs/how-to/scripts.md).
DOCUMENTED = (0, 1, 2, 3, 4, 5)
#: Fault with which the scene ``local-broken`` kills a copy. Some objects are durable by then.
BREAK = Fault(Key("fdatasync", "log"), 3, KILL)
CALLS = Policy(seconds=20, tries=20, first_pause=0.05, longest_pause=0.5)


@dataclass(frozen=True)
class Ran:
    """The result of one run of a copy."""

    #: Exit code, or the code that corresponds to a transfer's state. None if the run hung.
    code: int | None
    #: Kind of the error, or a state.
    kind: str
    words: str
    seconds: float = 0.0
    #: Violations, such as a panic or an undocumented code.
    faults: tuple[str, ...] = ()


class Scene(Protocol):
    """A repeatable copy, into a new destination each time."""

    name: str
    data: Data
    supervisor: Supervisor

    def begin(self) -> None:
        """Make the initial destination of the scene."""
        ...

    def run(self) -> Ran:
        """Run the copy with the fault that the supervisor is set to inject."""
        ...

    def rerun(self) -> Ran:
        """Run the copy once more, without a fault."""
        ...

    def top(self) -> Path:
        """Return the folder in which partial data may be left."""
        ...

    def copied(self) -> Path:
        """Return the path of the copied tree."""
        ...

    def end(self) -> None:
        """Remove the destination."""
        ...

    def renew(self) -> None:
        """End the servers, so that the fault of one case does not affect the next case."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


@dataclass
class Data:
    """The source of the copies, and an older version of it."""

    folder: Path
    source: Path = field(init=False)
    older: Path = field(init=False)
    wanted: dict[bytes, tree.Entry] = field(init=False)
    #: Permitted contents under each final name, by path.
    allowed: dict[bytes, set[tuple[int, bytes]]] = field(init=False)

    def __post_init__(self) -> None:
        """Make the source and its older version."""
        self.source = self.folder / "served" / "tree"
        self.older = self.folder / "older"
        _make(self.source, seed=1)
        _make(self.older, seed=2)
        os.setxattr(self.source / "m" / "large", "user.note", b"kept")
        past = time.time_ns() - 86400 * 10**9
        for path in [*self.older.rglob("*"), self.older]:
            os.utime(path, ns=(past, past), follow_symlinks=False)
        self.wanted = tree.describe(self.source)
        self.allowed = {}
        for described in (self.wanted, tree.describe(self.older)):
            for name, entry in described.items():
                self.allowed.setdefault(name, set()).add((entry.size, entry.content))

    def one_file(self, path: str) -> Data:
        """Return the same data with one file as the source."""
        one = copy(self)
        one.source = self.source / path
        one.wanted = tree.describe(one.source)
        one.allowed = {b"": self.allowed[os.fsencode(path)]}
        return one


def _make(top: Path, seed: int) -> None:
    (top / "a").mkdir(parents=True)
    (top / "m").mkdir()
    (top / "empty").mkdir()
    for number in range(4):
        tree.make_file(top / "a" / f"small{number}", number * 1500, seed=10 * seed + number)
    (top / "a" / "small1").chmod(0o600)
    tree.make_file(top / "m" / "large", LARGE_BYTES, seed=seed)
    with (top / "m" / "holes").open("wb") as file:
        file.truncate(3 * OBJECT_BYTES)
        file.seek(OBJECT_BYTES)
        file.write(bytes([seed]) * 9000)
    (top / "link").symlink_to(f"a/small{seed}")


class Places:
    """Classifies paths by the kind of file: source, destination, and dray's own files in it."""

    def __init__(self, source: Path, sinks: Path, state: Path | None = None) -> None:
        """Store the folders by which paths are classified."""
        self.source, self.sinks = os.fspath(source), os.fspath(sinks)
        self.state = os.fspath(state) if state is not None else None
        self.networks: dict[str, bool] = {}

    def __call__(self, path: str) -> str | None:
        """Return the kind, or None for other files such as libraries and standard output."""
        if path.startswith("socket:"):
            return "socket" if self._is_network(path) else None
        if _is_below(path, self.source):
            return "source folder" if os.path.isdir(path) else "source file"
        if _is_below(path, self.sinks):
            return self._sink(path)
        if self.state is not None and _is_below(path, self.state):
            return "state"
        if path.endswith("/.dray-log") or "/.dray-log/" in path:
            return "above"
        if path.startswith("/proc/"):
            return "proc"
        return "above" if _is_below(self.sinks, path.rstrip("/") or "/") else None

    def _is_network(self, path: str) -> bool:
        """Return whether a socket is a network connection, and not a local pair of sockets."""
        if path not in self.networks:
            inode = path.removeprefix("socket:[").removesuffix("]")
            local = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
            self.networks[path] = not re.search(rf" {inode}( |$)", local, re.MULTILINE)
        return self.networks[path]

    @staticmethod
    def _sink(path: str) -> str:
        name = os.path.basename(path)
        if name == ".dray-log":
            return "log folder"
        if "/.dray-log/" in path:
            return "lease" if name.endswith(".lease") else "log"
        if name.startswith(".dray-") or name.startswith("#"):
            return "partial"
        return "sink folder" if os.path.isdir(path) else "sink file"


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def judge_exit(ended: Ended, *, killed: bool) -> Ran:
    """Return the result of a run of ``dray cp``, with its violations."""
    faults = []
    if "panicked" in ended.words:
        faults.append("a panic")
    if ended.code not in DOCUMENTED and not (killed and ended.code == -9):
        faults.append(f"exit code {ended.code}")
    kind = ""
    with contextlib.suppress(ValueError, IndexError, AssertionError):
        report: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
        kind = (report.get("error") or {}).get("kind") or report.get("state") or ""
        failed = {each["kind"] for each in report.get("files_failed", ())}
        if "internal" in failed:
            faults.append("internal error")
        kind = LEASE_HELD if LEASE_HELD in failed else kind
    if kind == "internal":
        faults.append("internal error")
    return Ran(ended.code, kind, ended.words.strip(), ended.seconds, tuple(faults))


class Copy:
    """``dray cp`` on one host. One process is both the source and the sink."""

    def __init__(self, bench: Bench, data: Data, name: str, options: Mapping[str, Any]) -> None:
        """Prepare; ``options``: arguments, and whether the destination has an older version."""
        self.bench, self.data, self.name = bench, data, name
        self.words: list[Word] = ["--object-size", str(OBJECT_BYTES), *POOL]
        self.words += options.get("words", ())
        self.before: str = options.get("before", "nothing")
        self.sinks = bench.folder / name
        self.sinks.mkdir()
        self.number = 0
        self.supervisor = Supervisor(Places(data.source, self.sinks))

    def top(self) -> Path:
        """Return the destination folder."""
        return self.sinks / f"case{self.number}"

    def copied(self) -> Path:
        """Return the path of the copied tree."""
        return self.top() / "tree"

    def begin(self) -> None:
        """Make the destination folder in its initial state."""
        self.number += 1
        self.top().mkdir()
        if self.before == "older":
            shutil.copytree(self.data.older, self.copied(), symlinks=True)
        elif self.before == "broken":
            self.supervisor.arm(BREAK)
            self._start(self.supervisor.wrap)
            assert self.supervisor.is_hit, (
                "the first copy was not interrupted: resuming is not tested"
            )

    def _start(self, wrap: list[str]) -> Ran:
        ends: list[Word] = ["-r", self.data.source, f"{self.top()}/"]
        process = self.bench.start_cp(*ends, *self.words, wrap=wrap)
        return _await(process.wait, self._is_kill())

    def _is_kill(self) -> bool:
        fault = self.supervisor.fault
        return fault is not None and fault.code == KILL

    def run(self) -> Ran:
        """Run the copy under supervision."""
        return self._start(self.supervisor.wrap)

    def rerun(self) -> Ran:
        """Run the copy without supervision."""
        return until_free(lambda: self._start([]))

    def end(self) -> None:
        """Remove the destination."""
        shutil.rmtree(self.top(), ignore_errors=True)

    def renew(self) -> None:
        """Do nothing, because each run is a process of its own."""

    def close(self) -> None:
        """Close the supervisor."""
        self.supervisor.close()


class OneFile(Copy):
    """``dray cp`` of one file on one host."""

    def __init__(self, bench: Bench, data: Data, name: str, options: Mapping[str, Any]) -> None:
        """Store the arguments, with one file as the source."""
        super().__init__(bench, data.one_file("m/large"), name, options)

    def copied(self) -> Path:
        """Return the path of the copied file."""
        return self.top() / self.data.source.name


def _await(wait: Callable[[float], Ended], killed: bool) -> Ran:
    try:
        return judge_exit(wait(RUN_SECONDS), killed=killed)
    except TimeoutError as error:
        return Ran(None, "hang", str(error), RUN_SECONDS, ("a hang",))


def until_free(start: Callable[[], Ran]) -> Ran:
    """Repeat a copy while a killed transfer, whose end is not detected yet, has the lease."""
    until = time.monotonic() + HELD_SECONDS
    while True:
        ran = start()
        if ran.kind != LEASE_HELD or time.monotonic() > until:
            return ran
        time.sleep(0.2)


class Served(Copy):
    """``dray cp`` with ``dray serve``. The supervisor observes one of the two processes."""

    def __init__(self, bench: Bench, data: Data, name: str, options: Mapping[str, Any]) -> None:
        """Store the arguments. ``options`` also has ``push`` and ``victim``."""
        super().__init__(bench, data, name, options)
        self.push: bool = options["push"]
        self.is_server: bool = options["victim"] == "server"
        self.server: Server | None = None
        self.listen = "127.0.0.1:0"

    def _serve(self) -> Server:
        if self.server is None or not self.server.is_running():
            wrap = self.supervisor.wrap if self.is_server else []
            root = self.sinks if self.push else self.data.source.parent
            self.server = self.bench.serve(root, *POOL, listen=self.listen, wrap=wrap)
            # Use the same address for each server, because all runs must use the same command.
            self.listen = self.server.address
        return self.server

    def begin(self) -> None:
        """Make the destination folder, and start the server if it has ended."""
        super().begin()
        self._serve()

    def _start(self, wrap: list[str]) -> Ran:
        fault, self.supervisor.fault = self.supervisor.fault, None
        server = self._serve()
        self.supervisor.fault = fault
        far = f"dray://{server.address}/"
        ends: list[Word] = (
            [self.data.source, f"{far}{self.top().name}/"]
            if self.push
            else [f"{far}{self.data.source.name}", f"{self.top()}/"]
        )
        words: list[Word] = ["-r", *ends, *self.words, *self.bench.peer(server)]
        words += ["--retries", "1", "--streams", "2"]
        wrap = [] if self.is_server else wrap
        process = self.bench.start_cp(*words, wrap=wrap)
        ran = _await(process.wait, self._is_kill())
        if self.is_server and self._is_kill() and self.supervisor.is_hit:
            # The client may end before the kernel has ended the server.
            server.wait(RUN_SECONDS)
        log_text = server.log_path.read_text(encoding="utf-8", errors="replace")
        bad = list(ran.faults)
        if "panicked" in log_text:
            bad.append("a panic of the server")
        if not server.is_running() and not (self.is_server and self._is_kill()):
            code = server.ended.code if server.ended else None
            bad.append(f"the server ended with {code}")
        return Ran(ran.code, ran.kind, ran.words, ran.seconds, tuple(bad))

    def renew(self) -> None:
        """End the server. The next run starts a new server."""
        if self.server is not None:
            self.server.kill()

    def close(self) -> None:
        """End the server, and close the supervisor."""
        if self.server is not None:
            self.server.kill()
        super().close()


class ThirdParty:
    """A copy between two endpoints. The supervisor observes one endpoint."""

    def __init__(self, bench: Bench, data: Data, name: str, options: Mapping[str, Any]) -> None:
        """Prepare; ``options`` contains ``push`` and the ``victim``, ``source`` or ``sink``."""
        self.bench, self.data, self.name = bench, data, name
        self.push: bool = options["push"]
        self.victim: str = options["victim"]
        base = bench.folder / name
        self.sinks = base / "snk" / "roots" / "data"
        state = base / ("src" if self.victim == "source" else "snk") / "endpoint"
        self.supervisor = Supervisor(Places(data.source, self.sinks, state))
        served = Root("data", {"path": str(data.source.parent)})
        self.source = self._make(base / "src", "src", served)
        self.sink = self._make(base / "snk", "snk", Root("data"))
        self.number, self.tries = 0, 0

    def _make(self, folder: Path, name: str, root: Root) -> Endpoint:
        is_victim = name[:3] == {"source": "src", "sink": "snk"}[self.victim]
        wrap = self.supervisor.wrap if is_victim else []
        made = Endpoint(folder, name, roots=[root], program=self.bench.program, wrap=wrap)
        return made.start()

    @property
    def active(self) -> Endpoint:
        """The endpoint that drives the transfer."""
        return self.source if self.push else self.sink

    @property
    def passive(self) -> Endpoint:
        """The endpoint that does not drive the transfer."""
        return self.sink if self.push else self.source

    def top(self) -> Path:
        """Return the destination folder."""
        return self.sinks / f"case{self.number}"

    def copied(self) -> Path:
        """Return the path of the copied tree."""
        return self.top() / "tree"

    def begin(self) -> None:
        """Make the destination folder, and start endpoints that have ended."""
        self.number += 1
        self._revive()
        self.top().mkdir()

    def _revive(self) -> None:
        fault, self.supervisor.fault = self.supervisor.fault, None
        for endpoint in (self.source, self.sink):
            if not endpoint.is_running:
                endpoint.start()
        self.supervisor.fault = fault

    def _submit(self) -> Ran:
        self.tries += 1
        id = f"t{self.tries}"
        began = time.monotonic()
        try:
            state, words = self._transfer(id, began + RUN_SECONDS)
        except Exception as error:
            # Any exception of the client is the outcome of the case.
            state, words = "refused", f"{type(error).__name__}: {error}"
        faults = [] if state != "hang" else ["a hang"]
        fault = self.supervisor.fault
        for endpoint in (self.source, self.sink):
            if "panicked" in endpoint.log_text():
                faults.append(f"a panic at {endpoint.name}")
            is_killed = fault is not None and fault.code == KILL and self.supervisor.is_hit
            if not endpoint.is_running and not is_killed:
                faults.append(f"endpoint {endpoint.name} ended with {endpoint.exit_code}")
        code = {"done": 0, "incomplete": 1, "hang": None}.get(state, 3)
        return Ran(code, state, words, time.monotonic() - began, tuple(faults))

    def _transfer(self, id: str, until: float) -> tuple[str, str]:
        with self.active.client(policy=CALLS) as near, self.passive.client(policy=CALLS) as far:
            tree_path, into = f"/data/{self.data.source.name}", f"/data/{self.top().name}/"
            path, direction = (into, "write") if self.push else (tree_path, "read")
            ticket = far.mint_ticket(
                id,
                direction,  # type: ignore[arg-type]
                [path],
                self.active.key,
                overwrite="if-different" if self.push else None,
            )
            place = self.passive.url + path
            side = Place(place, ticket.ticket, ticket.key, ticket.address)
            near.submit(
                Request(
                    sources=tree_path if self.push else side,
                    destination=side if self.push else into,
                    id=id,
                    selection=Selection(recursive=True),
                    retry=Retry(tries=4, interval_seconds=1),
                )
            )
            return self._settled(near, id, until)

    def _settled(self, client: Any, id: str, until: float) -> tuple[str, str]:  # noqa: ANN401
        recovery = time.monotonic() + STAY_SECONDS
        while time.monotonic() < until:
            if time.monotonic() > recovery:
                # End a permanent fault after some time. The transfer must then continue, as after
                # an outage.
                self.supervisor.fault = None
            for endpoint in (self.source, self.sink):
                if not endpoint.is_running:
                    # The fault has ended the endpoint. Restart the endpoint without the fault. The
                    # transfer must then continue, as after any crash.
                    self.supervisor.fault = None
                    endpoint.start()
            try:
                transfer = client.transfer(id)
            except DrayError:
                # The endpoint cannot read its state yet.
                time.sleep(0.2)
                continue
            if transfer.state in ("done", "incomplete", "failed", "cancelled"):
                errors = [transfer.error, *(each.error for each in transfer.failures)]
                said = [str(each) for each in errors if each is not None]
                is_held = any(each.kind == LEASE_HELD for each in errors if each is not None)
                return LEASE_HELD if is_held else transfer.state, "; ".join(
                    [*said, *transfer.notices]
                )
            time.sleep(0.02)
        transfer = client.transfer(id)
        return "hang", f"{transfer.state}: {transfer.error}"

    def run(self) -> Ran:
        """Submit the transfer. Wait for its end, and for the end of a killed endpoint."""
        victim = self.source if self.victim == "source" else self.sink
        fault, pid = self.supervisor.fault, victim.pid
        ran = self._submit()
        if fault is not None and fault.code == KILL and self.supervisor.is_hit:
            until = time.monotonic() + RUN_SECONDS
            while victim.pid == pid and time.monotonic() < until:
                time.sleep(0.02)
        return ran

    def rerun(self) -> Ran:
        """Submit another transfer of the same files."""
        self._revive()
        return until_free(self._submit)

    def end(self) -> None:
        """Remove the destination."""
        shutil.rmtree(self.top(), ignore_errors=True)

    def renew(self) -> None:
        """End both endpoints. The next run starts them again."""
        self.source.kill()
        self.sink.kill()

    def close(self) -> None:
        """Close both endpoints and the supervisor."""
        self.source.close()
        self.sink.close()
        self.supervisor.close()
