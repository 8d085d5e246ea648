"""Datasets, files and requests of a Rucio whose RSEs are folders of endpoints."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dray.testing.endpoints import Endpoint
    from integration.rucio.server import Rucio


class RucioScene:
    """The calls that tests with any transfertool need."""

    def __init__(self, folder: Path) -> None:
        """Store the folder of the tests. Nothing is started."""
        self.folder = folder
        self.ends: dict[str, Endpoint] = {}
        self.rucio: Rucio | None = None
        self._numbers = itertools.count(1)

    def do(self, name: str, /, **words: Any) -> Any:  # noqa: ANN401 - JSON
        """Call a function in Rucio's environment."""
        assert self.rucio is not None
        return self.rucio.do(name, **words)

    def dataset(self, rse: str, sizes: Mapping[str, int]) -> tuple[str, dict[str, str]]:
        """Upload a new dataset. Return the name of the dataset and the checksums of its files."""
        number = next(self._numbers)
        folder = self.folder / f"upload-{number}"
        folder.mkdir()
        named = {f"{number}.{name}": size for name, size in sizes.items()}
        sums = self.do("upload", rse=rse, dataset=f"ds{number}", folder=str(folder), sizes=named)
        shutil.rmtree(folder)
        return f"ds{number}", sums

    def file(self, site: str, folder: str, name: str) -> Path:
        """Return the path of a file in an RSE, or a path that does not exist."""
        found = list(self.ends[site].root(folder).glob(f"mock/*/*/{name}"))
        return found[0] if found else self.ends[site].root(f"{folder}/not-there/{name}")

    def requests(self, *names: str) -> list[dict[str, Any]]:
        """Return Rucio's requests for these files, oldest first."""
        return [each for each in self.do("requests") if each["name"] in names]
