"""A real tree is sent from endpoint to endpoint, in every way: both directions, both channels."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from dray import DrayPermanentError
from dray.client import Request, Selection, copy
from integration.endpoint.scene import FULL, Data, Scenes, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

MIB = tree.MIB
#: Number of bytes of a file's content that are searched for on the wire.
SAMPLE = 64


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Make a tree with every kind of odd entry, and one file of many objects."""
    source = tmp_path_factory.mktemp("odd") / "served" / "tree"
    tree.make_tree(source, 2000 if FULL else 600, seed=2)
    tree.make_file(source / "many-objects", 40 * MIB + 4097, seed=3)
    data = Data(source, tree.describe(source))
    yield data
    data.remove()


@pytest.mark.parametrize("streams", [1, 8])
@pytest.mark.parametrize("clear_data", [False, True], ids=["tls", "clear"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_a_tree_with_every_oddity_arrives_identical(
    start_endpoint: Callable[..., Endpoint], odd: Data, push: bool, clear_data: bool, streams: int
) -> None:
    scenes = Scenes(start_endpoint, odd)
    config = {"clear_data": clear_data}
    with (
        scenes.make(push=push, config=config, keep=True) as scene,
        scene.watched(),
    ):
        scene.submit(streams=streams, clear_data=clear_data, rate_max=None)
        done = scene.wait()
        assert (done.state, done.error, done.failures) == ("done", None, ()), words(done)
        scene.check_identical()
        files = [entry for entry in odd.wanted.values() if entry.kind == "file"]
        assert (done.files.done, done.files.failed) == (len(files), 0), words(done)
        assert done.bytes.durable == sum(entry.size for entry in files), words(done)
        data = [each for each in scene.proxy.connections if each.is_data]
        assert len(data) == streams
        with (odd.source / "many-objects").open("rb") as file:
            file.seek(20 * MIB)
            sample = file.read(SAMPLE)
        kept = [each.kept_up if push else each.kept_down for each in data]
        assert any(sample in bytes(each) for each in kept) == clear_data
        # A second transfer sends no data.
        before = scene.carried()
        scene.submit("again", streams=streams, clear_data=clear_data)
        again = scene.wait("again")
        assert (again.state, again.files.failed) == ("done", 0), words(again)
        assert scene.carried() - before < MIB
        scene.check_identical()


@pytest.mark.parametrize("refuser", ["active", "passive"])
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
def test_clear_data_that_one_end_forbids_is_refused_at_submission(
    start_endpoint: Callable[..., Endpoint], odd: Data, push: bool, refuser: str
) -> None:
    scenes = Scenes(start_endpoint, odd)
    ends = ({"clear_data": refuser == "passive"}, {"clear_data": refuser == "active"})
    with scenes.make(push=push, config=ends[0], passive=ends[1], keep=True) as scene:
        if refuser == "active":
            # The endpoint detects this at the submission, and the transfer does not start.
            with pytest.raises(DrayPermanentError) as caught:
                scene.submit(clear_data=True, rate_max=None)
            error: object = caught.value
            assert caught.value.kind == "unsupported"
        else:
            scene.submit(clear_data=True, rate_max=None)
            ended = scene.wait()
            assert ended.state == "failed", words(ended)
            assert ended.error is not None
            assert ended.error.kind == "unsupported", words(ended)
            error = ended.error
        assert "unencrypted" in str(error)
        sample = (odd.source / "many-objects").read_bytes()[:SAMPLE]
        kept = [bytes(each.kept_up + each.kept_down) for each in scene.proxy.connections]
        assert not any(sample in each for each in kept), "the content was sent without TLS"
        assert os.listdir(scene.sink.root()) == []
        # Without the option for clear data, the transfer succeeds.
        scene.submit(rate_max=None)
        assert scene.wait().state == "done"
        scene.check_identical()


@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("clear_data", [False, True], ids=["tls", "clear"])
def test_a_folder_that_was_broken_off_is_resumed_every_way(
    scenes: Scenes, push: bool, clear_data: bool
) -> None:
    scenes.seconds(push=push)
    with scenes.make(push=push, config={"clear_data": clear_data}) as scene, scene.watched():
        scene.submit(streams=8, clear_data=clear_data)
        scene.await_carried(70 * MIB)
        scene.client().cancel("t")
        while not scene.client().transfer("t").is_terminal:
            time.sleep(0.02)
        kept = scene.client().transfer("t").bytes.durable
        assert kept > 0
        before = scene.carried()
        # Resume with one stream and with encrypted data connections. The sink keeps durable data,
        # however it was sent.
        scene.submit(streams=1, clear_data=False, rate_max=None)
        done, _ = scene.check_done()
        assert done.bytes.resumed > 0, words(done)
        assert scene.carried() - before <= 130 * MIB - kept


@pytest.mark.parametrize("active", ["source", "destination"])
def test_the_copy_of_the_client_takes_files_and_folders(scenes: Scenes, active: str) -> None:
    with scenes.make(push=active == "source") as scene:
        ends = {
            "source": scene.client(scene.source),
            "destination": scene.client(scene.sink),
            "active": active,
        }
        one = copy(scene.source.place("tree/large2"), scene.sink.place("new"), **ends)  # type: ignore[arg-type]
        assert one.wait(timeout_seconds=60).state == "done"
        wanted = tree.hash_file(scene.data.source / "large2")
        assert tree.hash_file(scene.sink.root("new")) == wanted
        into = copy(scene.source.place("tree/large2"), scene.sink.place("in/"), **ends)  # type: ignore[arg-type]
        assert into.wait(timeout_seconds=60).state == "done"
        assert tree.hash_file(scene.sink.root("in/large2")) == wanted
        contents = copy(
            scene.source.place("tree/"),
            scene.sink.place("contents/"),
            request=Request(sources=(), destination="", selection=Selection(recursive=True)),
            **ends,  # type: ignore[arg-type]
        )
        assert contents.wait(timeout_seconds=60).state == "done"
        entries = tree.describe(scene.sink.root("contents"))
        kept = {path: entry for path, entry in scene.data.wanted.items() if path}
        del entries[b""]
        assert tree.differences(kept, entries) == []
        assert tree.leftovers(scene.sink.root()) == []
