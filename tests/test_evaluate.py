"""Intervals of evaluation: exact where nothing varies, near the normal one where much does."""

import numpy as np
import pytest

from jaxtool import evaluate


def test_interval_of_equal_scores_is_a_point():
    assert evaluate.interval(np.ones(30)) == (1.0, 1.0)


def test_interval_is_that_of_the_normal_approximation_for_many_questions():
    values = (np.arange(2000) % 4 == 0).astype(float)
    low, high = evaluate.interval(values)
    half = 1.96 * np.sqrt(0.25 * 0.75 / 2000)
    assert low == pytest.approx(0.25 - half, abs=0.002) and high == pytest.approx(0.25 + half, abs=0.002)
