"""Finished episodes -> microbatches of the update.  Host code: numpy only.

The one shift of the package happens here: a row's inputs are the last prompt token and the response
without its last, its targets are the response.  Weights make every later reduction a plain sum.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxtool.types import Episode, GroupBatch


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """The few shapes that a stage's microbatches come in; sizes are in tokens.

    Attributes:
        questions: Q, questions of a microbatch.
        group_size: G.
        question_size: U, of a question's own tokens (prefix and last prompt token not counted).
        response_sizes: T, ascending; a microbatch takes the smallest that holds its longest response.
    """

    questions: int
    group_size: int
    question_size: int
    response_sizes: tuple[int, ...]


def response_buckets(max_response_tokens: int) -> tuple[int, ...]:
    """A half, three quarters and all of the longest response, in multiples of 16."""
    return tuple(sorted({-(-max_response_tokens * quarter // 64) * 16 for quarter in (2, 3, 4)}))


def group_token_weights(num_tokens: Sequence[Sequence[int]]) -> list[float]:
    """For each question the weight of every policy token of its group: 1 / (tokens of the group x questions).

    Eq. 3 of the ICRL paper (arXiv:2603.08068): tokens are averaged within a question's group, then
    questions are averaged.  A group without a policy token has weight 0.
    """
    totals = [sum(group) for group in num_tokens]
    return [1.0 / (total * len(totals)) if total else 0.0 for total in totals]


def build(
    groups: Sequence[Sequence[Episode]],
    advantages: Sequence[np.ndarray],
    prefix_length: int,
    shape: BatchShape,
    *,
    only_with_advantage: bool,
) -> list[GroupBatch]:
    """Microbatches of whole groups, long responses with long ones.

    Args:
        groups: the episodes of each question, G each.
        advantages: f32 [G] for each question.
        prefix_length: tokens that all prompts begin with, left out of the rows.
        only_with_advantage: leave out groups whose advantages are all 0.  Their gradient is exactly 0
            when the loss is the surrogate alone, and they still count in every weight.  One group
            is always kept, so that the step has log-probabilities to check the sampler's against.

    Raises:
        ValueError: an episode fits into no bucket.
    """
    weights = group_token_weights([[e.num_policy_tokens for e in group] for group in groups])
    longest = [max(len(e.ids) for e in group) for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (-longest[i], i))
    if only_with_advantage:
        order = [i for i in order if np.any(advantages[i])] or order[:1]
    microbatches = []
    for start in range(0, len(order), shape.questions):
        chosen = order[start : start + shape.questions]
        width = next((t for t in shape.response_sizes if t >= longest[chosen[0]]), None)
        if width is None:
            raise ValueError(
                f"a response of {longest[chosen[0]]} tokens; expected at most {shape.response_sizes[-1]}"
            )
        batch = _empty(shape, width)
        for q, i in enumerate(chosen):
            _fill(batch, q, groups[i], advantages[i], weights[i], prefix_length)
        microbatches.append(batch)
    return microbatches


def _empty(shape: BatchShape, width: int) -> GroupBatch:
    q, g = shape.questions, shape.group_size
    tokens = lambda dtype: np.zeros((q, g, width), dtype)
    return GroupBatch(
        questions=np.zeros((q, shape.question_size), np.int32),
        question_lengths=np.zeros(q, np.int32),
        inputs=tokens(np.int32),
        targets=tokens(np.int32),
        lengths=np.zeros((q, g), np.int32),
        loss_mask=tokens(bool),
        advantages=np.zeros((q, g), np.float32),
        weights=tokens(np.float32),
        sampler_logprobs=tokens(np.float32),
    )


def _fill(
    batch: GroupBatch,
    q: int,
    group: Sequence[Episode],
    advantages: np.ndarray,
    weight: float,
    prefix_length: int,
) -> None:
    own = group[0].prompt_ids[prefix_length:-1]
    batch.questions[q, : len(own)] = own
    batch.question_lengths[q] = len(own)
    for g, episode in enumerate(group):
        n = len(episode.ids)
        mask = episode.loss_mask
        batch.inputs[q, g, : n + 1] = [episode.prompt_ids[-1], *episode.ids][: batch.inputs.shape[2]]
        batch.targets[q, g, :n] = episode.ids
        batch.lengths[q, g] = n
        batch.loss_mask[q, g, :n] = mask
        batch.advantages[q, g] = advantages[g]
        batch.weights[q, g, :n] = np.where(mask, weight, 0.0)
        batch.sampler_logprobs[q, g, :n][mask] = episode.logprobs
