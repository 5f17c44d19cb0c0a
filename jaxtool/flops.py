"""Operations that a step's tree needs, each shared token counted once.  Host code.

A multiplication and an addition are two operations.  Norms, rotations and softmax are left out.
"""

from collections.abc import Sequence

from jaxtool.models.config import DecoderConfig


def forward(
    model: DecoderConfig, prefix: int, groups: Sequence[tuple[int, Sequence[int]]], head_tokens: int
) -> float:
    """One forward pass over a prefix tree.

    Args:
        prefix: tokens of the shared prefix.
        groups: for each question its own tokens and the lengths of its rollouts.
        head_tokens: tokens whose logits are needed.
    """
    tokens, pairs = prefix, prefix * prefix / 2  # pairs: (token, token that it attends to)
    for question, rollouts in groups:
        tokens += question
        pairs += question * (prefix + question / 2)
        for length in rollouts:
            tokens += length
            pairs += length * (prefix + question + length / 2)
    tables = 1 if model.tie_embeddings else 2
    body = model.num_parameters - tables * model.vocab_size * model.hidden_size
    attention = 4 * model.num_layers * model.num_heads * model.head_dim
    return 2.0 * body * tokens + attention * pairs + 2.0 * model.vocab_size * model.hidden_size * head_tokens
