"""Shards: a partition, even in bytes, files and storage targets."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray_airflow.shards import FILE_COST_BYTES, Shard, ShardFile, plan_shards

DATASETS = st.lists(
    st.tuples(st.integers(0, 50_000_000), st.sampled_from(["", "ost0", "ost1", "ost2"])),
    max_size=60,
).map(lambda all: [ShardFile(f"f{n:03}", size, target) for n, (size, target) in enumerate(all)])


def cost(shard: Shard) -> int:
    return shard.bytes + len(shard.files) * FILE_COST_BYTES


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
    """Sizes over five orders of magnitude, as a lab's are, and all the large ones on one target."""
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


def test_tuples_do_and_nothing_gives_nothing() -> None:
    assert plan_shards([], 4) == ()
    (only,) = plan_shards([("a", 1), ("b", 2, "ost1")], 1)
    assert (only.paths, only.bytes, only.targets) == (("a", "b"), 3, {"": 1, "ost1": 2})


@pytest.mark.parametrize(
    ("files", "count", "words"),
    [
        ([("a", 1), ("a", 2)], 2, "a is there twice"),
        ([("a", -1)], 2, "a has -1 bytes"),
        ([], 0, "must be 1 to 1000"),
        ([], 1001, "must be 1 to 1000"),
    ],
)
def test_what_makes_no_sense_is_refused(
    files: list[tuple[str, int]], count: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan_shards(files, count)
