"""How trainings are divided into batches, and which settings successive halving keeps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sweep.small import options
from triglot.core.errors import TriglotError
from triglot.shared.machine import memory
from triglot.sweep import batches, halving
from triglot.sweep.learning import Learning
from triglot.sweep.plan import SweepPlan, make_plan

pytestmark = pytest.mark.packaging

RATES = "learning_rate=0.1,0.2,0.3,0.4,0.5"


@pytest.fixture(scope="module")
def plan() -> SweepPlan:
    """Plan five settings in one group, of 16 updates."""
    return make_plan(options(over=(RATES,), num_seeds=3))


def divided(plan: SweepPlan, size: int, settings: Any = range(5)) -> list[batches.Batch]:
    return batches.divide(plan, [size], stage=0, settings=settings, spans=[(0, 16)], is_last=True)


@pytest.mark.parametrize(
    ("size", "lengths"),
    [(100, [15]), (15, [15]), (14, [9, 6]), (6, [6, 6, 3]), (5, [3] * 5), (2, [2] * 7 + [1])],
)
def test_batches_are_of_about_equal_size(plan: SweepPlan, size: int, lengths: list[int]) -> None:
    found = divided(plan, size)
    assert [len(batch) for batch in found] == lengths
    pairs = [pair for batch in found for pair in batch.pairs]
    assert pairs == [(setting, seed) for setting in range(5) for seed in range(3)]
    if size >= 3:
        assert all(batch.seeds == (0, 1, 2) * (len(batch) // 3) for batch in found)


def test_only_living_settings_are_divided(plan: SweepPlan) -> None:
    (batch,) = divided(plan, 100, settings=[1, 4])
    assert batch.settings == (1, 1, 1, 4, 4, 4)
    assert divided(plan, 100, settings=[]) == []


def test_half_of_the_free_memory_is_used(plan: SweepPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sum(batches.bytes_of_one(plan.groups[0]).values())
    monkeypatch.setattr(memory, "free", lambda: 20 * one)
    assert batches.capacities(plan) == [10]
    assert f"{batches._bytes(one)} per run" in batches.describe(plan, divided(plan, 10))
    chosen = replace(plan, options=replace(plan.options, batch=12))
    assert batches.capacities(chosen) == [12]
    monkeypatch.setattr(memory, "free", lambda: 11 * one)
    with pytest.raises(TriglotError, match=r"--batch 12 needs at least .*: lower it"):
        batches.capacities(chosen)
    monkeypatch.setattr(memory, "free", lambda: one // 2)
    with pytest.raises(TriglotError, match="are free: lower"):
        batches.capacities(plan)


def test_the_estimate_grows_with_the_environments(plan: SweepPlan) -> None:
    larger = make_plan(options(over=(RATES,), num_seeds=3, config={"num_envs": 64}))
    one, many = (sum(batches.bytes_of_one(p.groups[0]).values()) for p in (plan, larger))
    assert many > one


def with_halving(plan: SweepPlan, **changes: Any) -> SweepPlan:
    return replace(plan, options=replace(plan.options, halving=True, **changes))


@pytest.mark.parametrize(
    ("eta", "stops", "counts"), [(2, [2, 4, 8, 16], [5, 3, 2, 1]), (3, [2, 6, 16], [5, 2, 1])]
)
def test_each_rung_trains_longer_and_keeps_fewer(
    plan: SweepPlan, eta: int, stops: list[int], counts: list[int]
) -> None:
    plan = with_halving(plan, eta=eta)
    rungs = halving.count_rungs(plan)
    spans = [halving.spans(plan, stage)[0] for stage in range(rungs + 1)]
    assert spans == list(zip([0, *stops], stops, strict=False))
    assert halving.expected(plan) == counts


def test_a_short_training_has_fewer_rungs(plan: SweepPlan) -> None:
    (group,) = plan.groups
    steps = 3 * group.experiment.steps_per_update
    group = replace(group, experiment=replace(group.experiment, total_steps=steps))
    short = replace(plan, groups=(group,))
    assert halving.count_rungs(with_halving(short)) == 1
    with pytest.raises(TriglotError, match="needs at least 4 updates"):
        halving.count_rungs(with_halving(short, eta=4))


NAN = math.nan


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([5, 4, 3, 2, 1], [0, 1, 2]),
        ([1, 2, 3, 4, 5], [2, 3, 4]),
        ([1, 1, 1, 1, 1], [0, 1, 2]),
        ([NAN, 2, NAN, 1, -9], [1, 3, 4]),
        ([-math.inf, -1, -2, NAN, 0], [1, 2, 4]),
        ([NAN] * 5, [0, 1, 2, 3, 4]),
    ],
)
def test_the_better_half_is_kept(plan: SweepPlan, scores: list[float], kept: list[int]) -> None:
    named = dict(enumerate(scores))
    assert halving.survivors(with_halving(plan), range(5), named) == kept


def test_environments_are_halved_one_by_one() -> None:
    over = ("env=gridworld:3x3,max_steps=8,gridworld:2x2", "learning_rate=0.1,0.2")
    plan = make_plan(options(over=over, halving=True))
    assert len(plan.groups) == 2
    assert halving.survivors(plan, range(4), {0: 1, 1: 2, 2: 900, 3: 800}) == [1, 2]


@pytest.mark.parametrize("sizes", [[1] * 500, [500], [7] * 71 + [3]])
def test_sums_do_not_depend_on_the_chunks(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    episodes = rng.integers(0, 3, (2, 500)).astype(np.float32)
    returns = np.where(episodes > 0, rng.normal(size=(2, 500)), NAN).astype(np.float32)

    def added(sizes: list[int]) -> Learning:
        learning, done = Learning.empty(2, 500), 0
        for size in sizes:
            part = slice(done, done + size)
            metrics = {"episode_return": returns[:, part], "num_episodes": episodes[:, part]}
            learning.add(done, metrics)
            done += size
        return learning

    one, other = added(sizes), added([13] * 38 + [6])
    np.testing.assert_array_equal(one.returns, other.returns)
    again = Learning.unpacked(500, one.packed())
    np.testing.assert_array_equal(again.returns, one.returns)
    assert one.episodes.sum() == episodes.sum() and one.returns.shape == (2, 200)
    ends = one.ends()
    assert ends[0] == 3 and ends[-1] == 500
    first = (returns[:, :3] * episodes[:, :3], episodes[:, :3])
    mean = np.nansum(first[0], axis=1) / first[1].sum(axis=1)
    np.testing.assert_allclose(one.curves()[:, 0], mean, rtol=1e-6)


def test_the_recent_return_is_of_the_last_tenth() -> None:
    learning = Learning.empty(2, 20)
    returns = np.tile(np.arange(20.0), (2, 1))
    episodes = np.ones((2, 20))
    episodes[1, 5:] = 0
    learning.add(0, {"episode_return": returns, "num_episodes": episodes})
    assert learning.recent(20).tolist() == [18.5, 2.0], "the second has none since update 5"
    assert learning.recent(10)[0] == 9.0
