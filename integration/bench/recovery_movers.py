"""dray as a mover that is killed and continues: between endpoints, and from client to server."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dray.testing.endpoints import Endpoint, Root
from integration.bench.recovery_data import OBJECT_BYTES, TARGETS, Set, target_name
from integration.bench.recovery_pair import Pair, Ways
from integration.bench.recovery_prefix import reduce_logs
from integration.harness.program import Process

if TYPE_CHECKING:
    from pathlib import Path

    from integration.harness.program import Ended, Word

#: Number of times that a client which ended with an error is started again.
STARTS_MAX = 30
#: Seconds before a client that ended with an error is started again.
PAUSE_SECONDS = 0.2
#: Seconds after which an endpoint tries again to reach the other one. The default of 10 s would
#: hide the time of the recovery.
RETRY_SECONDS = 1


@dataclass(frozen=True)
class Scene:
    """The files to move, and a folder for everything else."""

    folder: Path
    program: Path
    one: Set
    data: Path


class Mover(Protocol):
    """A tool that moves a set, is killed on one side, and continues."""

    name: str
    title: str
    #: Sides that may be killed.
    sides: tuple[str, ...]
    #: Destination. The copied files are in its folder ``data``.
    sink: Path

    @property
    def whole(self) -> str:
        """Name of the mover whose copies without a fault are the reference (TT)."""
        ...

    def missing(self) -> str:
        """Return why the tool does not run here, or an empty text."""
        ...

    def open(self, scene: Scene) -> None:
        """Make an empty destination, and start the servers."""
        ...

    def start(self) -> None:
        """Start the client."""
        ...

    def is_done(self) -> bool:
        """Return whether the copy has ended. A client that failed is started again.

        :raises RuntimeError: if the client fails too often.
        """
        ...

    def kill(self, side: str) -> None:
        """Kill the processes of one side by SIGKILL."""
        ...

    def mend(self, side: str) -> dict[str, float]:
        """Do what the measurement needs between fault and resume. The time does not count."""
        ...

    def resume(self, side: str) -> None:
        """Start the killed processes again."""
        ...

    def close(self) -> None:
        """Kill all processes, and remove all files."""
        ...


class Restarted(ABC):
    """A client that is started again after an error."""

    def __init__(self) -> None:
        """Start with no client."""
        self.client: Process | None = None
        self.starts = 0

    @abstractmethod
    def launch(self) -> Process:
        """Start the client once."""

    def start(self) -> None:
        """Start the client."""
        self.starts += 1
        self.client = self.launch()

    def is_done(self) -> bool:
        """Return whether the client has ended without an error; start it again after an error."""
        if self.client is None or self.client.is_running():
            return False
        ended = self.client.wait()
        if ended.code == 0:
            return True
        if self.starts > STARTS_MAX:
            raise RuntimeError(f"the client ended with {ended.code} again and again: {said(ended)}")
        time.sleep(PAUSE_SECONDS)
        self.start()
        return False

    def kill_client(self) -> None:
        """Kill the client."""
        if self.client is not None:
            self.client.kill()
            self.client = None


def said(ended: Ended) -> str:
    """Return the last words of a process."""
    return (ended.words + ended.out)[-300:].strip()


class Endpoints(Restarted):
    """Two endpoints of dray. A client asks the one to fetch from the other, and watches."""

    name = "dray"
    title = "dray, two endpoints"
    whole = "dray"
    sides: tuple[str, ...] = ("source", "sink", "client")

    def missing(self) -> str:
        """Return an empty text, because dray is here."""
        return ""

    def open(self, scene: Scene) -> None:
        """Start both endpoints."""
        super().__init__()
        self.folder = scene.folder / "endpoints"
        self.folder.mkdir(parents=True)
        targets = [
            f"{{path}}/data/{target_name(number)}={target_name(number)}"
            for number in range(TARGETS)
        ]
        served = Root("data", {"path": str(scene.data.parent), "targets": targets})
        here = Root("data", {"targets": targets})
        self.source = self._endpoint(scene, "src", served)
        self.target = self._endpoint(scene, "dst", here)
        self.sink = self.target.root()
        self.program = scene.program
        self.words: list[Word] = ["cp", "-r", self.source.place("data"), self.target.place("")]
        self.words += ["--transfer-id", "t", "--object-size", str(OBJECT_BYTES), "--json"]
        for endpoint in (self.source, self.target):
            token = self.folder / f"{endpoint.name}.token"
            token.write_text(endpoint.token(lifetime="12h"), encoding="utf-8")
            token.chmod(0o600)
            self.words += ["--token-file", f"{endpoint.address}={token}"]
            self.words += ["--peer-key", f"{endpoint.address}={endpoint.key}"]

    def _endpoint(self, scene: Scene, name: str, root: Root) -> Endpoint:
        config = {"retry": {"interval_seconds": RETRY_SECONDS}}
        made = Endpoint(
            self.folder / name, name, roots=[root], config=config, program=scene.program
        )
        return made.start()

    def launch(self) -> Process:
        """Start ``dray cp``. A further start finds the same transfer by its id."""
        words = [self.program, *self.words, "--progress", "none"]
        return Process(words, self.folder, f"cp-{self.starts}")

    def kill(self, side: str) -> None:
        """Kill an endpoint or the client."""
        if side == "client":
            self.kill_client()
        else:
            (self.source if side == "source" else self.target).kill()

    def mend(self, side: str) -> dict[str, float]:
        """Do nothing."""
        del side
        return {}

    def resume(self, side: str) -> None:
        """Start the killed process again, as a service manager or a user does."""
        if side == "client":
            self.start()
        else:
            (self.source if side == "source" else self.target).start()

    def close(self) -> None:
        """Kill all processes, and remove all files."""
        self.kill_client()
        self.source.close()
        self.target.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Push(Restarted):
    """``dray cp`` that pushes to ``dray serve``. The client is the source."""

    def __init__(
        self,
        name: str,
        title: str,
        ways: Ways | None = None,
        *,
        sides: tuple[str, ...] = ("source",),
        whole: str = "push",
    ) -> None:
        """Name the mover."""
        super().__init__()
        self.name, self.title, self.whole = name, title, whole
        self.ways, self.sides = ways or Ways(), sides

    def missing(self) -> str:
        """Return an empty text, because dray is here."""
        return ""

    def open(self, scene: Scene) -> None:
        """Start the server."""
        self.client, self.starts = None, 0
        folder = scene.folder / "push"
        self.pair = Pair(folder, scene.program, scene.one, scene.data, self.ways)
        self.sink = self.pair.sink

    def launch(self) -> Process:
        """Start the client."""
        return self.pair.start()

    def kill(self, side: str) -> None:
        """Kill the client or the server."""
        if side == "source":
            self.kill_client()
        else:
            self.pair.server.kill()

    def mend(self, side: str) -> dict[str, float]:
        """Do nothing."""
        del side
        return {}

    def resume(self, side: str) -> None:
        """Start the killed process again. A client that still runs connects again by itself."""
        if side == "sink":
            self.pair.serve(self.pair.server.address)
        if self.client is None:
            self.start()

    def close(self) -> None:
        """Kill all processes, and remove all files."""
        self.pair.close()


class Zero(Push):
    """The same copy without fault tolerance: after a fault, it starts over, as with LADS."""

    def mend(self, side: str) -> dict[str, float]:
        """End the other side too, and remove everything that has arrived."""
        self.kill_client()
        self.pair.server.kill()
        shutil.rmtree(self.sink)
        self.sink.mkdir()
        return {}

    def resume(self, side: str) -> None:
        """Start both sides again."""
        del side
        super().resume("sink")


class Prefix(Push):
    """The same copy, whose log is reduced to the contiguous beginning of each file."""

    def mend(self, side: str) -> dict[str, float]:
        """End the other side too, and rewrite the log."""
        self.kill_client()
        self.pair.server.kill()
        done, stays = reduce_logs(self.sink)
        return {"logged_bytes": float(done), "prefix_bytes": float(stays)}

    def resume(self, side: str) -> None:
        """Start both sides again."""
        del side
        super().resume("sink")


def dray_movers() -> list[Mover]:
    """List the movers of dray, and the semantics of other tools in the same engine."""
    random = Ways(more=("--order", "random:7"))
    return [
        Endpoints(),
        Push("push", "dray, client to server", sides=("source", "sink")),
        Zero("zero", "restart from zero (LADS)"),
        Prefix("prefix", "append from a prefix (bbcp's semantics)"),
        Push("push-random", "dray, random order", random, whole="push-random"),
        Prefix("prefix-random", "append from a prefix, random order", random, whole="push-random"),
    ]
