"""The prefix tree computes what the flat forward pass computes, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtool.models import decoder, tree
from jaxtool.models.config import DecoderConfig, Llama3Scaling

SIZES = dict(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16,
    rms_norm_eps=1e-6, rope_theta=1e4, max_positions=256,
)  # fmt: skip
MODELS = {
    "llama": DecoderConfig(
        family="llama", rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 64), qkv_bias=False, qk_norm=False,
        tie_embeddings=True, **SIZES,
    ),
    "qwen2": DecoderConfig(
        family="qwen2", rope_scaling=None, qkv_bias=True, qk_norm=False, tie_embeddings=False, **SIZES
    ),
    "qwen3": DecoderConfig(
        family="qwen3", rope_scaling=None, qkv_bias=False, qk_norm=True, tie_embeddings=True, **SIZES
    ),
}  # fmt: skip


def random_params(cfg, seed=0):
    """Weights large enough that attention is far from uniform, norms and biases away from one and zero."""
    keys = iter(jax.random.split(jax.random.PRNGKey(seed), 64))
    is_norm = lambda leaf: bool(jnp.all(leaf == 1))
    shake = lambda leaf: leaf * (1 if is_norm(leaf) else 8) + 0.1 * jax.random.normal(next(keys), leaf.shape)
    return jax.tree.map(shake, decoder.init_params(cfg, seed))


def random_tree(cfg, seed=0, num_questions=2, group=3):
    rng = np.random.default_rng(seed)
    prefix = rng.integers(0, cfg.vocab_size, 11)
    questions = [rng.integers(0, cfg.vocab_size, n) for n in (5, 3)][:num_questions]
    rollouts = [
        [rng.integers(0, cfg.vocab_size, rng.integers(2, 9)) for _ in range(group)] for _ in questions
    ]
    return prefix, questions, rollouts


PREFIX = jax.jit(tree.prefix_keys_values, static_argnums=1, static_argnames="remat")
QUESTIONS = jax.jit(tree.question_keys_values, static_argnums=1, static_argnames="remat")
ROLLOUTS = jax.jit(tree.rollout_hidden, static_argnums=1, static_argnames="remat")
FLAT = jax.jit(tree.flat_hidden, static_argnums=1, static_argnames="remat")
LONGEST = 96  # every flat context is padded to it, so that few programs are compiled


def tree_hidden(params, cfg, prefix, questions, rollouts, *, prefix_pad=5, remat=False):
    padded_prefix = np.zeros(len(prefix) + prefix_pad, np.int32)
    padded_prefix[: len(prefix)] = prefix
    asked = np.zeros((len(questions), 7), np.int32)
    for i, question in enumerate(questions):
        asked[i, : len(question)] = question
    tokens = np.zeros((len(questions), len(rollouts[0]), 9), np.int32)
    for i, group in enumerate(rollouts):
        for j, row in enumerate(group):
            tokens[i, j, : len(row)] = row
    shared = PREFIX(params, cfg, padded_prefix, remat=remat)
    own = QUESTIONS(params, cfg, shared, np.int32(len(prefix)), asked, remat=remat)
    lengths = np.array([len(q) for q in questions], np.int32)
    return ROLLOUTS(params, cfg, shared, np.int32(len(prefix)), own, lengths, tokens, remat=remat)


def flat_context(params, cfg, tokens):
    """Hidden states of one context, from the flat forward pass."""
    padded = np.zeros((1, LONGEST), np.int32)
    padded[0, : len(tokens)] = tokens
    positions = np.arange(LONGEST)[None]
    return FLAT(params, cfg, padded, positions, (positions < len(tokens)).astype(np.int32))[0, : len(tokens)]


def flat_hidden(params, cfg, prefix, question, rollout):
    hidden = flat_context(params, cfg, np.concatenate([prefix, question, rollout]))
    return hidden[len(prefix) + len(question) :]


def assert_close(ours, wanted, tolerance=5e-5):
    np.testing.assert_allclose(ours, wanted, atol=tolerance * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("family", MODELS)
def test_hidden_states_equal_the_flat_ones(family):
    cfg = MODELS[family]
    params = random_params(cfg)
    prefix, questions, rollouts = random_tree(cfg)
    shared = tree_hidden(params, cfg, prefix, questions, rollouts)
    for i, group in enumerate(rollouts):
        for j, rollout in enumerate(group):
            wanted = flat_hidden(params, cfg, prefix, questions[i], rollout)
            assert_close(shared[i, j, : len(rollout)], wanted)


def test_without_prefix_or_question_tokens():
    """A length of 0 masks the whole block: nothing is NaN, and the result is the flat one."""
    cfg = MODELS["qwen3"]
    params = random_params(cfg)
    _, _, rollouts = random_tree(cfg)
    nothing = np.zeros(0, np.int64)
    shared = tree_hidden(params, cfg, nothing, [nothing, nothing], rollouts)
    wanted = flat_hidden(params, cfg, nothing, nothing, rollouts[1][2])
    assert_close(shared[1, 2, : len(rollouts[1][2])], wanted)


@pytest.mark.parametrize("remat", [False, True])
def test_gradients_equal_the_flat_ones(remat):
    """Through prefix and questions too: each is run once, the flat pass repeats them for every row."""
    cfg = MODELS["qwen2"]
    params = random_params(cfg)
    prefix, questions, rollouts = random_tree(cfg)
    direction = np.random.default_rng(9).normal(size=(2, 3, 9, cfg.hidden_size)).astype(np.float32)

    def shared_loss(params):
        hidden = tree_hidden(params, cfg, prefix, questions, rollouts, remat=remat)
        kept = np.array([[[t < len(r) for t in range(9)] for r in group] for group in rollouts])
        return jnp.sum(jnp.where(kept[..., None], hidden * direction, 0.0))

    def flat_loss(params):
        total = 0.0
        for i, group in enumerate(rollouts):
            for j, rollout in enumerate(group):
                hidden = flat_hidden(params, cfg, prefix, questions[i], rollout)
                total += jnp.sum(hidden * direction[i, j, : len(rollout)])
        return total

    ours, wanted = jax.grad(shared_loss)(params), jax.grad(flat_loss)(params)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(np.abs(b).max())))


def test_packed_rows_do_not_see_each_other():
    cfg = MODELS["llama"]
    params = random_params(cfg)
    rng = np.random.default_rng(4)
    one, two = rng.integers(0, 97, 6), rng.integers(0, 97, 5)
    tokens = np.concatenate([one, two, [0, 0]])[None].astype(np.int32)
    positions = np.concatenate([np.arange(6), np.arange(5), [0, 1]])[None]
    segments = np.array([[1] * 6 + [2] * 5 + [0] * 2])
    packed = FLAT(params, cfg, tokens, positions, segments)[0]
    nothing = np.zeros(0, np.int64)
    assert_close(packed[:6], flat_hidden(params, cfg, nothing, nothing, one))
    assert_close(packed[6:11], flat_hidden(params, cfg, nothing, nothing, two))
