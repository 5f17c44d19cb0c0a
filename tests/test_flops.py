"""Counted operations against a loop over tokens, and the published figure of the icrl shape."""

import pytest
from test_tree import MODELS

from jaxtool import flops
from jaxtool.models.config import DecoderConfig

SMOLLM = DecoderConfig(
    family="llama", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, rms_norm_eps=1e-5, rope_theta=1e5, rope_scaling=None, qkv_bias=False,
    qk_norm=False, tie_embeddings=True, max_positions=8192,
)  # fmt: skip


def test_against_a_loop_over_the_flat_tree():
    cfg = MODELS["llama"]
    linear = cfg.num_layers * (
        cfg.hidden_size * (cfg.num_heads + 2 * cfg.num_kv_heads) * cfg.head_dim
        + cfg.num_heads * cfg.head_dim * cfg.hidden_size
        + 3 * cfg.hidden_size * cfg.intermediate_size
    )
    prefix, groups, total = 60, [(50, [60, 50]), (40, [70])], 0.0
    per_pair = 4 * cfg.num_layers * cfg.num_heads * cfg.head_dim
    contexts = list(range(prefix))
    for question, rollouts in groups:
        contexts += range(prefix, prefix + question)
        for length in rollouts:
            contexts += range(prefix + question, prefix + question + length)
    total = (
        sum(2 * linear + per_pair * context for context in contexts)
        + 2 * cfg.vocab_size * cfg.hidden_size * 9
    )
    assert flops.forward(cfg, prefix, groups, 9) == pytest.approx(total, rel=0.015)


def test_the_icrl_shape():
    """1,500 demonstration tokens, 4 questions of 100, 8 rollouts of 392, 192 of them policy: 5.1 TFLOP."""
    forward = flops.forward(SMOLLM, 1500, [(100, [392] * 8)] * 4, 32 * 192)
    assert forward == pytest.approx(5.1e12, rel=0.05)
