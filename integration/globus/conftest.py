"""Fixtures: the local service with two collections, and an executor that uses it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dray.client import Request
from dray_globus import GlobusExecutor, Settings
from integration.globus.service import CLIENT_ID, CLIENT_SECRET, Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = "11111111-1111-4111-8111-111111111111"
THERE = "22222222-2222-4222-8222-222222222222"


@dataclass(frozen=True, slots=True)
class Globus:
    """The local service and the folders of its two collections."""

    service: Service
    here: Path
    there: Path
    state: Path

    def settings(self, **words: object) -> Settings:
        """Return settings for the service."""
        usual: dict[str, object] = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "base_url": self.service.url,
            "auth_url": self.service.url,
            "state": self.state,
            "tokens": self.state / "tokens.json",
        }
        return Settings(**{**usual, **words})  # type: ignore[arg-type]

    def executor(self, **words: object) -> GlobusExecutor:
        """Return an executor that polls often."""
        import time

        return GlobusExecutor(
            self.settings(**words), sleep=lambda seconds: time.sleep(min(seconds, 0.05))
        )

    def request(self, source: str, destination: str, **words: object) -> Request:
        """Return a request between the two collections."""
        return Request(
            f"globus://{HERE}{source}",
            f"globus://{THERE}{destination}",
            **{"id": uuid.uuid4().hex, **words},  # type: ignore[arg-type]
        )


@pytest.fixture
def globus(tmp_path: Path) -> Iterator[Globus]:
    """Yield the service with two empty collections."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with Service({HERE: here, THERE: there}) as service:
        yield Globus(service, here, there, tmp_path / "state")
