"""The driving endpoint names the bottleneck of a transfer, at either end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.endpoint.scene import Data, Scenes, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SIZE = 32 * tree.MIB
SLOW = 8 * tree.MIB


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make a folder with one file."""
    source = tmp_path_factory.mktemp("one") / "served" / "tree"
    source.mkdir(parents=True)
    tree.make_file(source / "data", SIZE, seed=5)
    data = Data(source, tree.describe(source))
    yield data
    data.remove()


@pytest.mark.parametrize("what", ["rate", "network"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_transfer_names_its_bottleneck(
    start_endpoint: Callable[..., Endpoint], one: Data, push: bool, what: str
) -> None:
    with Scenes(start_endpoint, one).make(push=push) as scene:
        if what == "network":
            scene.proxy.bytes_per_second = SLOW
        scene.submit(rate_max=SLOW if what == "rate" else None, streams=1)
        done = scene.wait()
        assert done.state == "done", words(done)
        assert done.bottleneck == what, done.profile
        assert done.profile.source[what] > 0.5 * SIZE / SLOW, done.profile
        assert done.profile.sink["arrival"] > 0.5 * SIZE / SLOW, done.profile
        # The endpoint has stored the bottleneck and the profile.
        again = scene.client().transfer("t")
        assert (again.bottleneck, again.profile) == (done.bottleneck, done.profile)
