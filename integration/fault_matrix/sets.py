"""The two sets of files: few big files, and many small files."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from integration.harness import tree

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1 << 10
BIG_FILES, BIG_BYTES = 4, 24 * tree.MIB
SMALL_FILES, SMALL_FOLDERS = 1500, 30
#: Bounds of the sizes of small files. About half of the files are smaller than an object. These
#: files have no records in the object log.
SMALL_BYTES = (1 * KIB, 32 * KIB)


@dataclass
class DataSet:
    """A tree of files to transfer, and the pace of its transfers."""

    name: str
    #: The folder that the source exports. The tree is the folder ``tree`` in it.
    served: Path
    wanted: dict[bytes, tree.Entry]
    object_bytes: int
    #: Rate in bytes per second, so low that a transfer takes about five seconds.
    rate: int

    @property
    def source(self) -> Path:
        """The tree."""
        return self.served / "tree"

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(entry.size for entry in self.wanted.values())


def _make_big(top: Path) -> None:
    top.mkdir(parents=True)
    for number in range(BIG_FILES):
        tree.make_file(top / f"big{number}", BIG_BYTES + 4099 * number, seed=number)


def _make_small(top: Path) -> None:
    chance = random.Random(7)
    for number in range(SMALL_FILES):
        folder = top / f"folder{number % SMALL_FOLDERS:02}"
        folder.mkdir(parents=True, exist_ok=True)
        size = chance.randrange(*SMALL_BYTES)
        tree.make_file(folder / f"file{number:04}", size, seed=1000 + number)


def load(name: str, folder: Path) -> DataSet:
    """Return the set ``big`` or ``small``. The set is made if ``folder`` does not contain it."""
    served, description = folder / name, folder / f"{name}.pickle"
    if not description.exists():
        (_make_big if name == "big" else _make_small)(served / "tree")
        description.write_bytes(pickle.dumps(tree.describe(served / "tree")))
    # The file was written by this program, in a folder of its own.
    wanted = pickle.loads(description.read_bytes())  # noqa: S301
    objects, rate = (256 * KIB, 20 * tree.MIB) if name == "big" else (16 * KIB, 5 * tree.MIB)
    return DataSet(name, served, wanted, objects, rate)


NAMES = ("big", "small")
