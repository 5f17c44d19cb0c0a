"""advantages.py against a plain Python loop, and its properties."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtool.advantages import group_normalised

REWARDS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.28, 1.0, -3.0, math.nan]), st.integers(0, 3)))


def oracle(rewards, ids, std):
    """Python floats; `statistics` has the two deviations."""
    result = []
    for reward, group in zip(rewards, ids, strict=True):
        members = [r for r, g in zip(rewards, ids, strict=True) if g == group and not math.isnan(r)]
        if math.isnan(reward) or len(set(members)) == 1:
            result.append(0.0)
            continue
        deviation = statistics.stdev(members) if std == "sample" else statistics.pstdev(members)
        result.append((reward - statistics.fmean(members)) / (deviation + 1e-6))
    return result


@pytest.mark.parametrize("std", ["sample", "population"])
@given(pairs=REWARDS)
def test_agrees_with_the_loop(std, pairs):
    rewards, ids = [r for r, _ in pairs], [g for _, g in pairs]
    advantages, is_scored = group_normalised(rewards, ids, std)
    np.testing.assert_allclose(advantages, oracle(rewards, ids, std), rtol=1e-6, atol=1e-7)
    assert is_scored.tolist() == [not math.isnan(r) for r in rewards]
    assert (advantages.dtype, is_scored.dtype) == (np.float32, bool)


def test_worked_group():
    # mean 0.25, deviations 0.5 (n - 1) and 0.4330127 (n)
    rewards, ids = [1.0, 0.0, 0.0, 0.0], ["q"] * 4
    np.testing.assert_allclose(group_normalised(rewards, ids)[0], [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    population = group_normalised(rewards, ids, "population")[0]
    np.testing.assert_allclose(population, [1.7320508, -0.5773503, -0.5773503, -0.5773503], atol=1e-5)


def test_groups_are_kept_apart():
    advantages, _ = group_normalised([1, 0, 1, 0, 0, 0], ["a", "b", "b", "a", "c", "c"])
    np.testing.assert_allclose(advantages, [0.70710, -0.70710, 0.70710, -0.70710, 0, 0], atol=1e-4)


@given(REWARDS, st.randoms(use_true_random=False))
def test_order_changes_nothing_bit_for_bit(pairs, shuffler):
    order = list(range(len(pairs)))
    shuffler.shuffle(order)
    rewards, ids = [r for r, _ in pairs], [f"q{g}" for _, g in pairs]
    straight, _ = group_normalised(rewards, ids)
    shuffled, _ = group_normalised([rewards[i] for i in order], [ids[i] for i in order])
    assert shuffled.tobytes() == straight[order].tobytes()


def test_order_changes_nothing_where_naive_sums_differ():
    rewards = [1e16, 1.0, -1e16, 3.0]  # summed from the left this is 3 or 4 by order
    straight, _ = group_normalised(rewards, [0] * 4)
    for order in itertools.permutations(range(4)):
        shuffled, _ = group_normalised([rewards[i] for i in order], [0] * 4)
        assert shuffled.tobytes() == straight[list(order)].tobytes()


def test_equal_rewards_and_single_rollouts_give_exactly_zero():
    assert group_normalised([0.1] * 3 + [5.0], [0, 0, 0, 1])[0].tolist() == [0.0] * 4


def test_nan_is_left_out_and_hurts_nobody():
    advantages, is_scored = group_normalised([1.0, math.nan, 0.0, math.nan, 7.0], [0, 0, 0, 1, 1])
    assert is_scored.tolist() == [True, False, True, False, True]
    without, _ = group_normalised([1.0, 0.0], [0, 0])
    assert advantages.tolist() == [without[0], 0.0, without[1], 0.0, 0.0]


def test_no_rollouts():
    advantages, is_scored = group_normalised([], [])
    assert advantages.shape == is_scored.shape == (0,)


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="expected one id for each reward"):
        group_normalised([1.0, 2.0], [0])
    with pytest.raises(ValueError, match="reward 1 is infinite"):
        group_normalised([1.0, math.inf], [0, 0])
