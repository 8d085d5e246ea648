"""The scene of a cell: a source endpoint behind a proxy, a sink endpoint, and a client.

The sink's endpoint drives the transfer. The proxy counts the bytes that the source sends on data
connections. All connections use TLS.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from dray.testing.endpoints import Endpoint, Root
from dray.testing.proxy import Proxy
from integration.fault_matrix.verdict import Evidence, pool_bytes, sync_group_bytes, wrong_files
from integration.harness import tree
from integration.harness.program import ROOT, Process
from integration.harness.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from integration.crash_replay.record import Recording
    from integration.fault_matrix.sets import DataSet
    from integration.harness.fuse_block import FaultyDisk
    from integration.harness.loop import Disk
    from integration.harness.supervise import Supervisor

MIB = tree.MIB
#: Small buffers, so that the pool does not hide bytes that are sent twice.
MEMORY, TRANSFERS = 24 * MIB, 2
#: Part of the data between a moment and the latest point at which the fault may occur. Bytes become
#: durable in groups of half a second, which is a tenth of a transfer.
LATE = 0.04
MOMENT_SECONDS = 300.0
END_SECONDS = 300.0
RUNS_MAX = 5
#: Pause of the watcher. Several cells share the processors.
WATCH_SECONDS = 0.1
POLL_SECONDS = 0.03
ID = "matrix"
CALLER = "integration.fault_matrix.caller"


class Scene:
    """Endpoints, proxy and client of one cell. :meth:`start` starts them."""

    def __init__(self, folder: Path, data: DataSet, form: str, program: Path) -> None:
        """Store the arguments. A fault may change the attributes before :meth:`start`."""
        self.folder, self.data, self.form, self.program = folder, data, form, program
        self.stack = contextlib.ExitStack()
        #: Folder that the sink exports, and the folder that the source exports.
        self.top = folder / "sink"
        self.served = data.served
        #: Permitted versions of the tree. The last version must be there at the end.
        self.versions = [data.wanted]
        self.request: dict[str, Any] = {
            "id": ID,
            "rate_max": data.rate,
            "object_size": data.object_bytes,
        }
        self.config: dict[str, Any] = {
            "limits": {"memory": f"{MEMORY >> 20}MiB", "transfers_active": TRANSFERS}
        }
        #: Words before the command of the sink's endpoint. A later start uses later words.
        self.sink_words: Sequence[str] = ()
        self.endpoints: list[Endpoint] = []
        self.proxies: list[Proxy] = []
        self.clients: list[Process] = []
        self._tokens: dict[str, str] = {}
        #: Everything that the clients have printed so far, and how far their output is read.
        self._answers: list[dict[str, Any]] = []
        self._read: dict[Path, int] = {}
        self.watcher: Watcher | None = None
        #: Names of endpoints that a fault has ended for ever.
        self.stopped: list[str] = []
        #: Percentage of durable data at which the fault occurs.
        self.percent = 0
        #: Means of single faults: disks, a recording of a disk, a supervisor of system calls, the
        #: folder of a replica, and an older copy of the logs.
        self.disk: Disk | None = None
        self.device: FaultyDisk | None = None
        self.recording: Recording | None = None
        self.supervisor: Supervisor | None = None
        self.replica: Path | None = None
        self.older: dict[Path, bytes] = {}
        pool = pool_bytes(MEMORY, TRANSFERS)
        self.seen = Evidence(data.size, len(data.wanted), 0, pool, sync_group_bytes())

    # --- endpoints --------------------------------------------------------------------------------

    def endpoint(self, name: str, root: Root, script: Path | None = None, **more: Any) -> Endpoint:  # noqa: ANN401 - keys of a configuration
        """Start an endpoint with this root. ``script`` becomes its program when it starts."""
        wrap = ["/bin/sh", str(script)] if script is not None else []
        config = {**self.config, **more}
        made = Endpoint(
            self.folder / name, name, roots=[root], config=config, program=self.program, wrap=wrap
        )
        self.endpoints.append(made)
        return made.start()

    def begin_proxy(self) -> Proxy:
        """Start a proxy. Its upstream is set later."""
        proxy = Proxy("127.0.0.1:1")
        self.proxies.append(proxy)
        return proxy

    def source_endpoint(self, name: str, folder: Path) -> Endpoint:
        """Start an endpoint that serves a folder, behind a proxy of its own."""
        proxy = self.begin_proxy()
        made = self.endpoint(
            name, Root("data", {"path": str(folder.resolve())}), advertise=proxy.address
        )
        proxy.upstream = made.address
        return made

    def sink_endpoint(self, name: str) -> Endpoint:
        """Start an endpoint that writes to the sink's folder."""
        self._script = self.folder / f"{name}.sh"
        self.set_sink_words(self.sink_words)
        root = Root("out", {"path": str(self.top.resolve()), "log": self.form})
        return self.endpoint(name, root, self._script)

    def set_sink_words(self, words: Sequence[str]) -> None:
        """Set the words before the command of the sink's endpoint, from its next start on."""
        self.sink_words = words
        text = f'exec {shlex.join(words)} "$@"\n' if words else 'exec "$@"\n'
        self._script.write_text(text, encoding="utf-8")

    def start(self) -> None:
        """Start both endpoints and the client, and watch the destination."""
        self.top.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        self.source = self.source_endpoint("source", self.served)
        self.proxy = self.proxies[0]
        self.sink = self.sink_endpoint("sink-a")
        self.sources = [self.source]
        self.watch()
        self.start_client()

    # --- the client -------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return the file from which the client reads endpoints, tokens and the request."""

        def end(endpoint: Endpoint) -> dict[str, str]:
            if endpoint.name not in self._tokens:
                self._tokens[endpoint.name] = endpoint.token()
            token = self._tokens[endpoint.name]
            return {"url": endpoint.url, "key": endpoint.key, "token": token}

        return {
            "sources": [end(each) for each in self.sources],
            "sink": end(self.sink),
            "request": self.request,
        }

    def start_client(self) -> None:
        """Start the client. It attaches to the transfer if the transfer exists already."""
        settings = self.folder / "settings.json"
        settings.touch(mode=0o600)
        settings.write_text(json.dumps(self.settings()), encoding="utf-8")
        words = [sys.executable, "-m", CALLER, str(settings)]
        name = f"client{len(self.clients)}"
        self.clients.append(Process(words, self.folder / "logs", name, cwd=ROOT))

    @property
    def client(self) -> Process:
        """The last client."""
        return self.clients[-1]

    def answers(self) -> list[dict[str, Any]]:
        """Return everything that the clients have been told, in order."""
        for client in self.clients:
            with client.out_path.open("rb") as file:
                file.seek(self._read.get(client.out_path, 0))
                lines = [line for line in file.readlines() if line.endswith(b"\n")]
            so_far = self._read.get(client.out_path, 0)
            self._read[client.out_path] = so_far + sum(map(len, lines))
            self._answers += [json.loads(line) for line in lines]
        return self._answers

    def told_durable(self) -> int:
        """Return the most bytes that a client was told to be durable."""
        return max((each["durable"] for each in self.answers()), default=0)

    def carried(self) -> int:
        """Return the bytes of all data connections, from sources to sinks."""
        return sum(proxy.counted()[1] for proxy in self.proxies)

    def await_part(self, part: float) -> None:
        """Wait until this part of the data is durable. Then mark the moment."""
        size, whole = self.data.size, self.seen.carried_whole or self.data.size
        until = time.monotonic() + MOMENT_SECONDS
        while self.told_durable() < part * size and self.carried() < (part + LATE) * whole:
            assert self.client.is_running(), f"the client has ended:\n{self.words()}"
            assert time.monotonic() < until, (
                f"only {self.told_durable()} bytes are durable after {MOMENT_SECONDS:g} s: the "
                "transfer hangs, or the host is too busy"
            )
            time.sleep(POLL_SECONDS)
        self.mark()

    def mark(self) -> None:
        """Note the state at the fault: from now on, the source must not send durable bytes."""
        answers = self.answers()
        self.seen.durable = max((each["durable"] for each in answers), default=0)
        self.seen.is_hit = not any(each["state"] == "done" for each in answers)
        self._carried_before = self.carried()

    def await_answer(self, what: str, test: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the client is told something.

        :raises AssertionError: after ``END_SECONDS``.
        """
        known = len(self.answers())
        until = time.monotonic() + END_SECONDS
        while True:
            for answer in self.answers()[max(0, known - 1) :]:
                if test(answer):
                    return answer
            assert time.monotonic() < until, f"the client was not told {what}:\n{self.words()}"
            time.sleep(0.02)

    def await_trouble(self) -> dict[str, Any]:
        """Wait until the client is told about an error."""
        return self.await_answer(
            "about an error", lambda each: bool(each["kinds"]) or each["failed"] > 0
        )

    def words(self) -> str:
        """Return the last answer and the output of the last client."""
        answers = self.answers()
        log = self.client.log_path.read_text(encoding="utf-8", errors="replace")
        return f"{answers[-1] if answers else None}\n{log[-2000:]}"

    # --- the destination --------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch the final names from now on."""
        allowed = Watcher.of(self.versions[0], b"tree")
        for version in self.versions[1:]:
            for path, contents in Watcher.of(version, b"tree").items():
                allowed[path] = allowed.get(path, set()) | contents
        self.watcher = Watcher(self.top, allowed, pause_seconds=WATCH_SECONDS)
        self.watcher.start()

    def unwatch(self) -> None:
        """Stop watching, for example because the file system is unmounted."""
        watcher, self.watcher = self.watcher, None
        if watcher is None:
            return
        if not watcher.is_alive():
            self.seen.found.append("the watcher of the destination has stopped")
        watcher.is_over.set()
        watcher.join()
        self.seen.wrong += watcher.violations

    def look(self) -> None:
        """Check the files under final names now."""
        copied = self.top / "tree"
        if copied.exists():
            self.seen.wrong_at_fault += wrong_files(self.versions, tree.describe(copied))

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Run the client until the transfer is done, and collect the evidence."""
        for _ in range(RUNS_MAX):
            if not self.client.is_running() and self._last_state() != "done":
                self.start_client()
            ended = self.client.wait(END_SECONDS)
            if ended.code == 0:
                self.seen.is_done = True
                break
            time.sleep(0.2)
        # This comparison is also the check that success was not reported too early. The watcher
        # continues until dray's own files are removed.
        self.seen.differences = tree.differences(
            self.versions[-1], tree.describe(self.top / "tree")
        )
        answers = self.answers()
        self.seen.words = self.words()
        tries = [(each["attempt"], each["tries"]) for each in answers]
        self.seen.broken = max(1, len({each for each in tries if each[1] > 0}) - 1)
        self._collect()

    def _last_state(self) -> str:
        answers = self.answers()
        return answers[-1]["state"] if answers else ""

    def _collect(self) -> None:
        seen = self.seen
        # An endpoint removes its log after the caller knows that the transfer is done.
        until = time.monotonic() + 10
        while (left := tree.leftovers(self.top)) and time.monotonic() < until:
            time.sleep(0.02)
        seen.leftovers = left
        self.unwatch()
        seen.carried = self.carried()
        seen.carried_after = seen.carried - getattr(self, "_carried_before", 0)
        for endpoint in self.endpoints:
            if "panicked" in endpoint.log_text():
                seen.ended_alone.append(f"a panic at {endpoint.name}")
            if not endpoint.is_running and endpoint.name not in self.stopped:
                seen.ended_alone.append(f"{endpoint.name} ended with {endpoint.exit_code}")

    def close(self) -> None:
        """End every process, and release what the fault has added."""
        if self.watcher is not None:
            self.unwatch()
        for client in self.clients:
            client.kill()
        for proxy in self.proxies:
            proxy.close()
        for endpoint in self.endpoints:
            endpoint.resume()
            endpoint.close()
        self.stack.close()
