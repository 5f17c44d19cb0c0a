"""Two-level Gumbel sampling: exact in distribution, independent rows, log-probs of the full softmax."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtool.sampler import sampling


def softmax64(logits, temperature):
    z = np.asarray(logits, np.float64) / temperature
    p = np.exp(z - z.max())
    return p / p.sum()


def draw(logits, seeds, temperature, num_tokens):
    rows = len(seeds)
    keys = np.stack([np.full(rows, 7, np.uint32), np.asarray(seeds, np.uint32)], axis=1)
    return jax.jit(sampling.sample, static_argnums=4)(
        jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (rows, len(logits))), keys,
        np.zeros(rows, np.int32), np.full(rows, temperature, np.float32), num_tokens,
    )  # fmt: skip


def test_frequencies_are_those_of_the_softmax():
    """600 entries in three blocks, the last of them padding; chi-square over 40,000 draws."""
    logits = np.random.default_rng(0).normal(size=600) * 2
    num_tokens, n = 590, 40_000
    tokens, _ = draw(logits, np.arange(n), 0.7, num_tokens)
    p = softmax64(logits[:num_tokens], 0.7)
    assert int(np.max(tokens)) < num_tokens
    order = np.argsort(-p)
    counts = np.bincount(tokens, minlength=600)[:num_tokens][order]
    # Entries expected fewer than 20 times are counted together.
    kept = int(np.sum(p[order] * n >= 20))
    observed = np.append(counts[:kept], counts[kept:].sum())
    wanted = n * np.append(p[order][:kept], p[order][kept:].sum())
    statistic = float(np.sum((observed - wanted) ** 2 / wanted))
    assert statistic < kept + 5 * np.sqrt(2 * kept), statistic


def test_log_probability_is_that_of_the_full_distribution():
    logits = np.random.default_rng(1).normal(size=600) * 3
    tokens, logprobs = draw(logits, np.arange(50), 0.6, 590)
    p = softmax64(logits[:590], 0.6)
    np.testing.assert_allclose(logprobs, np.log(p[np.asarray(tokens)]), atol=2e-5)


def test_temperature_zero_is_the_largest_also_in_a_mixed_batch():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(4, 300)).astype(np.float32)
    logits[:, 299] = 50.0  # no token has this id
    temperature = np.array([0.0, 1.0, 0.0, 0.5], np.float32)
    keys = rng.integers(0, 2**32, (4, 2), dtype=np.uint32)
    tokens, logprobs = sampling.sample(logits, keys, np.arange(4), temperature, 299)
    for row in (0, 2):
        assert tokens[row] == logits[row, :299].argmax()
        np.testing.assert_allclose(logprobs[row], np.log(softmax64(logits[row, :299], 1.0).max()), atol=1e-5)
    assert np.isfinite(logprobs).all()


def test_a_row_does_not_depend_on_its_neighbours_and_depends_on_its_key_and_position():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(6, 300)).astype(np.float32)
    keys = rng.integers(0, 2**32, (6, 2), dtype=np.uint32)
    sample = jax.jit(sampling.sample, static_argnums=4)
    tokens, logprobs = sample(logits, keys, np.arange(6), np.ones(6, np.float32), 300)
    other = rng.permutation(6)
    moved, moved_logprobs = sample(
        logits[other], keys[other], np.arange(6)[other], np.ones(6, np.float32), 300
    )
    np.testing.assert_array_equal(moved, np.asarray(tokens)[other])
    np.testing.assert_array_equal(moved_logprobs, np.asarray(logprobs)[other])
    flat = np.zeros((64, 300), np.float32)
    same_key = np.broadcast_to(keys[:1], (64, 2))
    by_position, _ = sample(flat, same_key, np.arange(64), np.ones(64, np.float32), 300)
    assert len(set(np.asarray(by_position).tolist())) > 40
