"""One Airflow and two endpoints for all tests of this folder. Each test has a separate scene.

A proxy counts the sent bytes, and the tests read the arrived data from the disk. So the checks of
this module do not depend on reports of the endpoints or of Airflow.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dray.testing.endpoints import Endpoint, Root, find_program
from dray.testing.proxy import Proxy
from integration.harness import tree
from integration.harness.airflow import Airflow, Run, connection
from integration.harness.program import ROOT
from integration.harness.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.client import Client, Transfer

OUT = ROOT / "integration" / "out" / "airflow"
MIB = tree.MIB
#: With these limits a session gets at most 15 MiB for its buffers (as in integration/endpoint).
LIMITS = {"memory": "64MiB", "transfers_active": 4}
#: Maximum number of bytes that are sent again after an endpoint has ended: the buffers, and one
#: sync group (docs/explanation/durability.md).
RESENT_BYTES_MAX = 15 * MIB + 64 * MIB
#: Name of the file with OpenLineage's events, one on each line, beside the folder of the Airflow.
LINEAGE = "lineage.jsonl"
DATA_BYTES = 96 * MIB
#: Number and size of the small files that a scene has in addition to large ones. A small file is
#: sent again or adopted as a whole, and never resumed.
SMALL_FILES, SMALL_BYTES = 40, 999
#: Maximum number of bytes that are sent while a test reads the counters.
LOOKED_BYTES = MIB
#: Overhead of frames, TLS records and object heads, as a fraction of the data.
OVERHEAD = 0.01


class World(NamedTuple):
    """An Airflow and two endpoints: ``a``, the source, and ``b``, the destination.

    Airflow has the connections ``dray_a`` and ``dray_b``, and those that the example DAGs use.
    """

    airflow: Airflow
    a: Endpoint
    b: Endpoint
    #: The proxy in front of ``a``. ``b`` fetches the data of ``a`` through this proxy.
    proxy: Proxy


@contextlib.contextmanager
def connected(world: World, endpoint: Endpoint) -> Iterator[Endpoint]:
    """Start an endpoint, and give it the connection ``dray_NAME`` in Airflow's database."""
    name = f"dray_{endpoint.name}"
    try:
        endpoint.start()
        host, _, port = endpoint.address.rpartition(":")
        fields = {
            "connection_id": name,
            "conn_type": "dray",
            "host": host,
            "port": int(port),
            "password": endpoint.token(),
            "extra": json.dumps({"pin": endpoint.key}),
        }
        world.airflow.ask("POST", "connections", fields)
        yield endpoint
        world.airflow.ask("DELETE", f"connections/{name}")
    finally:
        endpoint.close()


@contextlib.contextmanager
def make_world(
    request: pytest.FixtureRequest,
    begin: Callable[[Airflow], object],
    services: Callable[[contextlib.ExitStack, Path], dict[str, str]] | None = None,
) -> Iterator[World]:
    """Start two endpoints and an Airflow, and end them.

    :param begin: starts the Airflow's components.
    :param services: starts other servers, and returns Airflow's options for them.
    """
    try:
        program = find_program()
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    folder = Path(tempfile.mkdtemp(prefix="dray-airflow-", dir=os.environ.get("DRAY_TEST_DIR")))
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        # The endpoint needs the proxy's address in its configuration, so the proxy starts first.
        # The proxy's upstream is set when the endpoint has an address.
        proxy = Proxy("127.0.0.1:1")
        stack.callback(proxy.close)
        config = {"limits": LIMITS}
        behind = {**config, "advertise": proxy.address}
        tiers = (Root("tape", {"tier": "slow"}), Root("nvme", {"tier": "fast"}))
        roots = (Root("data"), Root("detector"), *tiers)
        a = Endpoint(folder / "a", "a", roots=roots, program=program, config=behind)
        archives = (Root("data"), Root("archive"))
        b = Endpoint(folder / "b", "b", roots=archives, program=program, config=config)
        for endpoint in (a, b):
            stack.callback(endpoint.kill)
            endpoint.start()
        proxy.upstream = a.address
        options = {
            **{f"AIRFLOW_CONN_DRAY_{name}": connection(a) for name in ("A", "SITE", "BEAMLINE")},
            **{f"AIRFLOW_CONN_DRAY_{name}": connection(b) for name in ("B", "PARTNER", "ARCHIVE")},
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            # The user `nobody` has no role, and therefore no permission.
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer,nobody:",
            # Report only the lineage of DAGs that enable it.
            "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "append": True, "log_file_path": str(folder / LINEAGE)}
            ),
            **(services(stack, folder) if services is not None else {}),
        }
        dags = [Path(__file__).parent / "dags", ROOT / "dags"]
        airflow = Airflow(folder / "airflow", dags, options=options)
        stack.callback(keep_logs, airflow, request)
        stack.callback(airflow.close)
        begin(airflow.prepare())
        airflow.await_ready()
        yield World(airflow, a, b, proxy)


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Start the Airflow and the endpoints, once for all tests."""
    with make_world(request, Airflow.start) as world:
        yield world


def keep_logs(airflow: Airflow, request: pytest.FixtureRequest) -> None:
    """Keep the logs of Airflow if a test has failed."""
    if request.session.testsfailed:
        shutil.rmtree(OUT, ignore_errors=True)
        for name in ("processes", "logs"):
            if (airflow.folder / name).is_dir():
                shutil.copytree(airflow.folder / name, OUT / name)


class Scene:
    """The data of one test at both endpoints. The checks do not rely on the endpoints' reports.

    :param name: name of the scene's folder below the root ``data`` of each endpoint.
    """

    def __init__(self, world: World, name: str) -> None:
        """Store the paths. No file is created yet."""
        self.world = world
        self.airflow = world.airflow
        self.name = name
        self.here = world.a.root(name)
        self.there = world.b.root(name)
        self.before = self._counted()

    def make(self, sizes: dict[str, int]) -> None:
        """Write files of these sizes at ``a``."""
        for number, (name, size) in enumerate(sizes.items()):
            path = self.here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            tree.make_file(path, size, seed=number + 1)
        self.wanted = tree.describe(self.here)
        self.size = sum(sizes.values())

    def make_large(self, size: int = DATA_BYTES) -> None:
        """Write large, medium and small files."""
        parts = {
            "large": size // 2,
            "less/one": size // 4,
            "less/other": size // 4 - SMALL_FILES * SMALL_BYTES,
        }
        small = {f"small/{number:03}": SMALL_BYTES for number in range(SMALL_FILES)}
        self.make({**parts, **small})

    def begin(self, dag_id: str, run_id: str = "", *, rate: int = 0, **more: object) -> Run:
        """Start a run that moves the data of the scene, at most ``rate`` bytes per second."""
        conf: dict[str, object] = {
            "source": f"/data/{self.name}/",
            "destination": f"/data/{self.name}",
            **({"rate_max": rate} if rate else {}),
            **more,
        }
        return self.airflow.trigger(dag_id, run_id or self.name, conf)

    # --- its results ------------------------------------------------------------------------------

    def _counted(self) -> int:
        return self.world.proxy.counted()[1]

    def carried(self) -> int:
        """Return the bytes sent for this scene on data connections."""
        return self._counted() - self.before

    def excess(self) -> int:
        """Return the sent bytes that exceed the size of the data."""
        return self.carried() - self.size

    def unsafe(self, safe: int) -> int:
        """Return how many bytes may be sent again after a fault: sent bytes that were not durable.

        If the transfer wrongly starts from zero, it also sends the ``safe`` bytes again.

        :param safe: bytes that were durable before the fault.
        """
        assert safe >= 8 * LOOKED_BYTES, (
            "too little data to distinguish a resumed run from a new one"
        )
        return max(0, self.carried() - safe) + LOOKED_BYTES

    def check(self, resent_max: int = 0) -> None:
        """Fail unless every file has arrived unchanged, and little was sent more than once."""
        found = files(tree.describe(self.there))
        assert tree.differences(files(self.wanted), found) == []
        assert tree.leftovers(self.world.b.root()) == []
        excess = self.excess()
        print(
            f"{self.name}: {excess / MIB:.2f} MiB of {self.size / MIB:.0f} travelled twice"
            f" (bound: {resent_max / MIB:.2f})"
        )
        assert excess <= resent_max + OVERHEAD * self.size + (64 << 10)

    def check_undisturbed(self) -> None:
        """Fail unless one transfer has moved all data in its first attempt and first try."""
        transfer = self.transfer()
        assert (transfer.attempt, transfer.tries) == (1, 1)
        self.check()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Fail if a final name ever has incomplete content."""
        with Watcher(self.there, Watcher.of(self.wanted)) as watcher:
            yield
        assert watcher.violations == []

    def client(self) -> Client:
        """Return a client of ``b``, which drives the transfers. The caller closes the client."""
        return self.world.b.client()

    def transfers(self) -> list[Transfer]:
        """Return the transfers to this scene's destination, oldest first."""
        with self.client() as client:
            found = list(client.transfers(destination=f"/data/{self.name}"))
        living = [str(each.request["destination"]) for each in found if not each.is_terminal]
        assert len(living) == len(set(living)), "two transfers write to the same place"
        return found[::-1]

    def transfer(self) -> Transfer:
        """Return the only transfer to this scene's destination."""
        found = self.transfers()
        assert len(found) == 1, found
        return found[0]

    def await_transfer(
        self,
        look: Callable[[Transfer], bool],
        what: str,
        *,
        map_index: int = -1,
        seconds: float = 120.0,
    ) -> Transfer:
        """Wait until a condition holds for the newest transfer of a task."""

        def newest() -> Transfer | None:
            found = [
                each
                for each in self.transfers()
                if each.request["labels"]["map_index"] == str(map_index)
            ]
            return found[-1] if found and look(found[-1]) else None

        found = self.airflow.wait_for(newest, f"transfer of {self.name}: {what}", seconds)
        assert found is not None
        return found

    def await_moving(self, count: int = 8 * MIB, **which: int) -> Transfer:
        """Wait until the newest transfer of a task has ``count`` durable bytes, while it runs."""

        def look(transfer: Transfer) -> bool:
            assert not transfer.is_terminal, f"{transfer.state} before {count} bytes were durable"
            return transfer.bytes.durable >= count

        return self.await_transfer(look, f"{count} bytes are safe", **which)


def files(described: dict[bytes, tree.Entry]) -> dict[bytes, tree.Entry]:
    """Return the entries without folders, whose times are those of their last changes."""
    return {path: entry for path, entry in described.items() if entry.kind != "directory"}


@pytest.fixture
def scene(world: World, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a scene with the name of the test. Afterwards restart ended components."""
    scene = Scene(world, re.sub(r"\W+", "-", request.node.name).strip("-")[:60])
    yield scene
    for endpoint in (world.a, world.b):
        if not endpoint.is_running:
            endpoint.start()
    shutil.rmtree(scene.here, ignore_errors=True)
    shutil.rmtree(scene.there, ignore_errors=True)
