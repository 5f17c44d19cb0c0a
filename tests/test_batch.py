"""Episodes -> microbatches: the shift, the mask, the weights, the buckets; expected arrays by hand."""

import numpy as np
import pytest

from jaxtool import batch
from jaxtool.types import OBSERVATION, POLICY, Episode, Question


def episode(uid, sample, prompt, *runs):
    made = Episode(Question(uid, "?", ("a",)), sample, list(prompt))
    for role, ids in runs:
        made.ids += ids
        made.roles.append((role, len(ids)))
        if role == POLICY:
            made.logprobs += [-0.5 * i for i in ids]
    return made


GROUPS = [
    [
        episode("a", 0, [1, 2, 3, 4], (POLICY, [10, 11]), (OBSERVATION, [12]), (POLICY, [13])),
        episode("a", 1, [1, 2, 3, 4], (POLICY, [14])),
    ],
    [
        episode("b", 0, [1, 2, 9], (POLICY, [15] * 20)),
        episode("b", 1, [1, 2, 9], (POLICY, [16])),
    ],
]
ADVANTAGES = [np.array([1.0, -1.0], np.float32), np.array([0.0, 0.0], np.float32)]
SHAPE = batch.BatchShape(questions=1, group_size=2, question_size=3, response_sizes=(16, 32))


def build(**changes):
    options = {"only_with_advantage": False} | changes
    return batch.build(GROUPS, ADVANTAGES, 2, SHAPE, **options)


def test_one_row_by_hand():
    long, short = build()
    assert long.inputs.shape == (1, 2, 32) and short.inputs.shape == (1, 2, 16)
    np.testing.assert_array_equal(short.questions, [[3, 0, 0]])
    np.testing.assert_array_equal(short.question_lengths, [1])
    np.testing.assert_array_equal(short.inputs[0, 0, :5], [4, 10, 11, 12, 13])
    np.testing.assert_array_equal(short.targets[0, 0, :5], [10, 11, 12, 13, 0])
    np.testing.assert_array_equal(short.loss_mask[0, 0, :5], [True, True, False, True, False])
    np.testing.assert_array_equal(short.sampler_logprobs[0, 0, :5], [-5, -5.5, 0, -6.5, 0])
    np.testing.assert_array_equal(short.lengths, [[4, 1]])
    np.testing.assert_array_equal(short.advantages, [[1, -1]])
    # Four policy tokens in the group, two questions: each token weighs 1 / 8.
    np.testing.assert_allclose(short.weights[0, 0, :5], [1 / 8, 1 / 8, 0, 1 / 8, 0])
    np.testing.assert_allclose(short.weights[0, 1, :2], [1 / 8, 0])
    np.testing.assert_allclose(long.weights.sum() + short.weights.sum(), 1.0)
    # Its prompt is the prefix and one more token: the question's own part is empty.
    np.testing.assert_array_equal(long.question_lengths, [0])
    np.testing.assert_array_equal(long.inputs[0, 0, :3], [9, 15, 15])


def test_groups_without_advantage_still_count_in_the_weights():
    (kept,) = build(only_with_advantage=True)
    np.testing.assert_allclose(kept.weights.sum(), 0.5)


def test_a_full_row_loses_nothing():
    full = [[episode("c", s, [1, 2, 5], (POLICY, list(range(20, 36)))) for s in range(2)]]
    (made,) = batch.build(full, ADVANTAGES[:1], 2, SHAPE, only_with_advantage=False)
    assert made.inputs.shape == (1, 2, 16)
    np.testing.assert_array_equal(made.inputs[0, 0], [5, *range(20, 35)])
    np.testing.assert_array_equal(made.targets[0, 0], range(20, 36))


def test_a_response_that_fits_nowhere_is_refused():
    long = [[episode("c", s, [1, 2, 5], (POLICY, [7] * 33)) for s in range(2)]]
    with pytest.raises(ValueError, match="a response of 33 tokens; expected at most 32"):
        batch.build(long, ADVANTAGES[:1], 2, SHAPE, only_with_advantage=False)


def test_an_episode_without_policy_tokens_weighs_nothing():
    silent = [[episode("c", s, [1, 2, 5]) for s in range(2)]]
    (made,) = batch.build(silent, ADVANTAGES[:1], 2, SHAPE, only_with_advantage=False)
    assert made.weights.sum() == 0 and not made.loss_mask.any()


def test_buckets_are_few_and_hold_the_longest():
    assert batch.response_buckets(160) == (80, 128, 160)
    for n in (1, 15, 16, 17, 144, 2048):
        sizes = batch.response_buckets(n)
        assert len(sizes) <= 3 and sizes[-1] >= n and all(size % 16 == 0 for size in sizes)
