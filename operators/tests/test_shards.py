"""Tests of shards: a partition that is even in bytes, files and, if known, storage targets."""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.client import Client, Place, Request, Selection
from dray_airflow.shards import (
    FILE_COST_BYTES,
    PATTERNS_MAX,
    Shard,
    ShardFile,
    group_files,
    plan_shards,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dray.testing.plugin import Two

DATASETS = st.lists(
    st.tuples(st.integers(0, 50_000_000), st.sampled_from(["", "ost0", "ost1", "ost2"])),
    max_size=60,
).map(lambda all: [ShardFile(f"f{n:03}", size, target) for n, (size, target) in enumerate(all)])


def cost(shard: Shard) -> int:
    return shard.bytes + sum(file.files for file in shard.files) * FILE_COST_BYTES


@given(DATASETS, st.integers(1, 12), st.randoms())
@settings(deadline=None, max_examples=120)
def test_every_file_is_in_one_shard_whatever_the_order_they_come_in(
    files: list[ShardFile], count: int, draw: random.Random
) -> None:
    shards = plan_shards(files, count)
    assert sorted(itertools.chain.from_iterable(shard.files for shard in shards)) == files
    assert [shard.index for shard in shards] == list(range(min(count, len(files))))
    shuffled = files[:]
    draw.shuffle(shuffled)
    assert plan_shards(shuffled, count) == shards


@given(DATASETS.filter(bool), st.integers(1, 12))
@settings(deadline=None, max_examples=120)
def test_no_shard_costs_more_than_the_least_and_twice_the_costliest_file(
    files: list[ShardFile], count: int
) -> None:
    costs = [cost(shard) for shard in plan_shards(files, count)]
    largest = max(file.size for file in files) + FILE_COST_BYTES
    assert max(costs) - min(costs) <= 2 * largest


@given(DATASETS.filter(lambda all: 1 < len(all) <= 8), st.integers(2, 3))
@settings(deadline=None, max_examples=100)
def test_the_costliest_shard_is_at_most_twice_the_best_that_can_be(
    files: list[ShardFile], count: int
) -> None:
    best = min(
        max(
            sum(f.size + FILE_COST_BYTES for f, at in zip(files, places, strict=True) if at == each)
            for each in range(count)
        )
        for places in itertools.product(range(count), repeat=len(files))
    )
    assert max(cost(shard) for shard in plan_shards(files, count)) <= 2 * best


@pytest.mark.parametrize("seed", range(20))
def test_files_of_one_size_are_even_in_bytes_files_and_targets(seed: int) -> None:
    draw = random.Random(seed)
    count, targets, each = draw.randint(2, 8), draw.randint(2, 6), draw.randint(3, 40)
    files = [
        ShardFile(f"{target}/{number}", 4 << 20, f"ost{target}")
        for target in range(targets)
        for number in range(each)
    ]
    draw.shuffle(files)
    shards = plan_shards(files, count)
    numbers = [len(shard.files) for shard in shards]
    assert max(numbers) - min(numbers) <= 2
    for target in range(targets):
        on_it = [shard.targets.get(f"ost{target}", 0) // (4 << 20) for shard in shards]
        assert max(on_it) - min(on_it) <= 2, on_it


def test_a_real_mix_is_even_where_dealing_in_turn_is_not() -> None:
    """Sizes over five orders of magnitude, as in a laboratory.

    All large files are on one target.
    """
    draw = random.Random(7)
    files = []
    for number in range(2000):
        size = int(10 ** draw.uniform(3, 8))
        files.append(ShardFile(f"{number:05}", size, "big" if size > 5e7 else f"s{number % 4}"))
    shards = plan_shards(files, 8)
    costs = [cost(shard) for shard in shards]
    assert max(costs) / min(costs) < 1.01
    big = [shard.targets["big"] for shard in shards]
    assert max(big) - min(big) <= 2 * 10**8
    in_turn = [sum(file.size for file in files[at::8]) for at in range(8)]
    assert max(in_turn) / min(in_turn) > 1.05


def test_tuples_are_accepted_and_an_empty_set_has_no_shards() -> None:
    assert plan_shards([], 4) == ()
    (only,) = plan_shards([("a", 1), ("b", 2, "ost1")], 1)
    assert (only.paths, only.bytes, only.targets) == (("a", "b"), 3, {"": 1, "ost1": 2})


@pytest.mark.parametrize(
    ("files", "count", "words"),
    [
        ([("a", 1), ("a", 2)], 2, "a is listed twice"),
        ([("a", -1)], 2, "a has a negative size: -1 bytes"),
        ([], 0, "must be 1 to 1000"),
        ([], 1001, "must be 1 to 1000"),
    ],
)
def test_invalid_arguments_are_refused(
    files: list[tuple[str, int]], count: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan_shards(files, count)


def test_any_number_of_files_is_a_few_patterns_and_even() -> None:
    """Group one folder with 200 000 names that differ only at the end, like a detector's frames."""
    names = [f"run/frame{number:06}.h5" for number in range(200_000)]
    groups = group_files([(name, 10_000) for name in names], 4)
    shards = plan_shards(groups, 4, paths_max=PATTERNS_MAX)
    assert max(len(shard.paths) for shard in shards) <= PATTERNS_MAX
    counts = [sum(file.files for file in shard.files) for shard in shards]
    assert sum(counts) == len(names)
    assert max(counts) < 1.1 * min(counts)
    draw = names[:]
    random.Random(1).shuffle(draw)
    assert group_files([(name, 10_000) for name in draw], 4) == groups


def test_one_part_is_one_pattern_and_a_small_set_is_its_files() -> None:
    assert [group.path for group in group_files([("d/a", 1)], 1)] == ["/**"]
    found = group_files([("d/a", 1), ("d/ab", 1), ("d/b*", 1), ("d/e/x", 1)], 2)
    assert [group.path for group in found] == ["/d/*/**", "/d/a", "/d/ab", "/d/b\\*"]
    assert group_files([], 3) == ()
    with pytest.raises(ValueError, match="twice"):
        group_files([("d/a", 1), ("d/a", 2)], 2)


def test_more_paths_than_shards_may_have_are_refused() -> None:
    files = [(f"f{number}", 1) for number in range(9)]
    assert [len(each.files) for each in plan_shards(files, 3, paths_max=3)] == [3, 3, 3]
    with pytest.raises(ValueError, match="9 paths are too many for 2 shards"):
        plan_shards(files, 2, paths_max=4)


def make_odd(top: Path) -> int:
    """Create many small files. Some names have pattern characters or are not UTF-8."""
    wanted = [f"flat/{number:05}.dat" for number in range(2500)]
    wanted += [f"deep{number}/sub{number % 7}/{number}" for number in range(300)]
    wanted += [
        f"odd/{name}" for name in ("a", "a*", "a?", "aa", "a[b]", "ab", "{a,b}", "\\a", "!a")
    ]
    wanted += ["odd/\n", "odd/caf\udce9.txt", "odd/caf\udce8.txt", "odd/cafe.txt", "flat/sub/x"]
    wanted += ["odd*/a", "odd?/a", ".hidden/.a", "top", "to*"]
    for name in wanted:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (len(name) % 90))
    return len(wanted)


def listed(client: Client, folder: str) -> Iterator[tuple[str, int]]:
    for entry in client.list(f"/data/{folder}"):
        if entry.type == "directory":
            yield from listed(client, f"{folder}/{entry.name}")
        else:
            yield f"{folder}/{entry.name}", entry.size or 0


@pytest.mark.server
@pytest.mark.parametrize("shards", [2, 5])
def test_the_engine_moves_each_file_by_one_shard(two_endpoints: Two, shards: int) -> None:
    a, b = two_endpoints
    count = make_odd(a.root("set"))
    with a.client() as there, b.client() as here:
        groups = group_files(listed(there, "set"), shards)
        planned = plan_shards(groups, shards, paths_max=PATTERNS_MAX)
        assert len(planned) == shards
        done = 0
        for shard in planned:
            name = f"shard{shard.index}"
            ticket = there.mint_ticket(name, "read", ["/data/set"], b.key)
            far = Place(a.place("set"), ticket.ticket, ticket.key, ticket.address)
            chosen = Selection(recursive=True, include=list(shard.paths))
            here.submit(Request(far, "/data/", id=name, selection=chosen))
            moved = here.wait(name, timeout_seconds=120)
            assert moved.state == "done", moved.error
            assert moved.files.done == sum(file.files for file in shard.files)
            assert moved.files.adopted + moved.files.skipped == 0
            done += moved.files.done
    assert done == count
    found = sum(len(files) for _, _, files in os.walk(b.root("set")))
    assert found == count
