"""A Prometheus server that reads the metrics of endpoints and evaluates expressions."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from dray.testing.endpoints import Endpoint

START_SECONDS = 30.0
POLL_SECONDS = 0.1

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus on PATH; tools/bootstrap.sh test"
)


class Prometheus:
    """A server with an empty database. It reads the metrics of the endpoints each second."""

    def __init__(self, folder: Path, endpoints: Sequence[Endpoint], rules: Path) -> None:
        """Start the server.

        :param folder: place for the configuration, the database and the output.
        :param endpoints: endpoints with ``metrics.open``.
        :param rules: file of alert rules.
        """
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "dray",
                    "scheme": "https",
                    # The endpoints of a test have certificates of their own keys.
                    "tls_config": {"insecure_skip_verify": True},
                    "static_configs": [{"targets": [each.address for each in endpoints]}],
                }
            ],
        }
        path, log = folder / "prometheus.yaml", folder / "prometheus.log"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        words = [f"--config.file={path}", f"--storage.tsdb.path={folder / 'series'}"]
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                ["prometheus", *words, "--web.listen-address=127.0.0.1:0"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            self._http = httpx.Client(base_url=_address(log), timeout=30, trust_env=False)
        except BaseException:
            self._end()
            raise

    def ask(self, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
        """Return the data in the answer to a call of the HTTP API.

        :raises ValueError: if Prometheus refuses the call.
        """
        answer = self._http.get(f"/api/v1/{path}", params=query).json()
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        return answer["data"]

    def series(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of an expression now."""
        found = self.ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def await_series(
        self, expression: str, seconds: float = 30
    ) -> list[tuple[dict[str, str], float]]:
        """Wait until an expression has a series. Return no series if the time is over."""
        until = time.monotonic() + seconds
        while not (found := self.series(expression)) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return found

    def _end(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def __enter__(self) -> Self:
        """Return this server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server."""
        self._http.close()
        self._end()


def _address(log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        found = re.search(r'msg="Listening on" address=(\S+)', log.read_text(encoding="utf-8"))
        if found:
            return f"http://{found[1]}"
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"prometheus did not start:\n{log.read_text(encoding='utf-8')}")
