"""Rewards of groups -> advantages.  Host code: numpy only.

Axes: R rollouts.  A group is the rollouts of one question, named by an explicit id, so the order of
the rollouts, or a prompt that occurs twice, changes nothing.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

EPSILON = 1e-6  # keeps a nearly constant group finite; of verl's GRPO, where it is added to the deviation

_DDOF = {"sample": 1, "population": 0}


def group_normalised(
    rewards: Sequence[float] | np.ndarray,
    group_ids: Sequence[Hashable] | np.ndarray,
    std: Literal["sample", "population"] = "sample",
) -> tuple[np.ndarray, np.ndarray]:
    """A_i = (r_i - mean) / (std + 1e-6) over the group of i.

    Section 4.1.2 of Shao et al. 2024 (arXiv:2402.03300).  A group whose rewards are all equal, and so
    a group of one, has advantage exactly 0.  A NaN reward (an episode that could not be scored) has
    advantage 0 and takes no part in its group's statistics.  Sums are exact (`math.fsum`), so the
    result does not depend on the order within a group.

    Args:
        rewards: [R]; NaN for an episode to leave out.
        group_ids: [R]; equal for the rollouts of one question.
        std: divisor n - 1 or n under the root.

    Returns:
        Advantages, f32 [R], and the mask of the rewards that counted, bool [R].

    Raises:
        ValueError: lengths differ, or a reward is infinite.
    """
    rewards = np.asarray(rewards, np.float64)
    if rewards.shape != (len(group_ids),):
        raise ValueError(
            f"{rewards.shape} rewards for {len(group_ids)} group ids; expected one id for each reward"
        )
    if np.isinf(rewards).any():
        raise ValueError(f"reward {int(np.argmax(np.isinf(rewards)))} is infinite; expected a number or NaN")
    is_scored = ~np.isnan(rewards)
    groups: dict[Hashable, list[int]] = {}
    for i in np.flatnonzero(is_scored):
        groups.setdefault(group_ids[i], []).append(i)
    advantages = np.zeros(len(rewards), np.float32)
    for members in groups.values():
        advantages[members] = _normalised(rewards[members], _DDOF[std])
    return advantages, is_scored


def _normalised(rewards: np.ndarray, ddof: int) -> np.ndarray:
    # Equal rewards are tested as such: 3 x 0.1 has a mean that is not quite 0.1.
    if np.all(rewards == rewards[0]):
        return np.zeros_like(rewards)
    centred = rewards - math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum(centred**2) / (len(rewards) - ddof))
    return centred / (deviation + EPSILON)
