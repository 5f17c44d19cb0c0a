"""Chunked log-probabilities equal the plain ones, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtool import logprobs


@pytest.mark.parametrize("n", [3, 256, 700])
def test_values_and_gradients(n):
    rng = np.random.default_rng(n)
    hidden = jnp.asarray(rng.normal(size=(n, 8)), jnp.float32)
    params = {"embed": jnp.asarray(rng.normal(size=(40, 8)), jnp.float32)}
    targets = rng.integers(0, 37, n)
    mask = rng.random(n) < 0.4
    mask[0] = True
    direction = rng.normal(size=(2, n)).astype(np.float32)

    def ours(params, hidden):
        lp, entropy = logprobs.token_logprobs(params, hidden, targets, mask, temperature=0.6, num_tokens=37)
        return jnp.sum(lp * direction[0] + entropy * direction[1]), (lp, entropy)

    def plain(params, hidden):
        table = jax.nn.log_softmax((hidden @ params["embed"].T)[:, :37] / 0.6)
        lp = jnp.where(mask, table[np.arange(n), targets], 0.0)
        entropy = jnp.where(mask, -jnp.sum(jnp.exp(table) * table, axis=-1), 0.0)
        return jnp.sum(lp * direction[0] + entropy * direction[1]), (lp, entropy)

    (gradient, values), (wanted, plain_values) = (
        jax.grad(f, argnums=(0, 1), has_aux=True)(params, hidden) for f in (ours, plain)
    )
    for a, b in zip(
        jax.tree.leaves((values, gradient)), jax.tree.leaves((plain_values, wanted)), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=5e-5)


def test_nothing_to_score():
    params = {"embed": jnp.ones((40, 8))}
    f = lambda h: logprobs.token_logprobs(
        params, h, np.zeros(5, np.int32), np.zeros(5, bool), temperature=1.0, num_tokens=37
    )[0].sum()
    value, gradient = jax.value_and_grad(f)(jnp.ones((5, 8)))
    assert value == 0 and np.all(np.asarray(gradient) == 0)
