"""The objective against a float64 loop written from the paper's equations, and its safety."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtool import losses

OBJECTIVE = losses.Objective(clip_low=0.2, clip_high=0.28, kl_coef=0.05, entropy_coef=0.01)


def streams(seed, rows=6, width=9):
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, width)) < 0.6
    new = rng.normal(size=(rows, width)) * 0.7 - 2
    old = new + rng.normal(size=(rows, width)) * 0.3
    ref = new + rng.normal(size=(rows, width)) * 0.3
    return dict(
        logprobs=new,
        entropies=rng.random((rows, width)) * 3,
        old_logprobs=old,
        ref_logprobs=ref,
        advantages=rng.normal(size=rows),
        weights=np.where(mask, rng.random((rows, width)), 0.0),
    )


def oracle(logprobs, entropies, old_logprobs, ref_logprobs, advantages, weights):
    total = 0.0
    for i in range(weights.shape[0]):
        for t in range(weights.shape[1]):
            if weights[i, t] == 0:
                continue
            ratio = np.exp(logprobs[i, t] - old_logprobs[i, t])
            clipped = min(max(ratio, 1 - 0.2), 1 + 0.28)
            surrogate = min(ratio * advantages[i], clipped * advantages[i])
            d = ref_logprobs[i, t] - logprobs[i, t]
            kl = np.exp(d) - d - 1
            total += weights[i, t] * (-surrogate + 0.05 * kl - 0.01 * entropies[i, t])
    return total


def on_device(values):
    return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}


def test_the_fixture_reaches_every_branch():
    seen = set()
    for seed in range(6):
        s = streams(seed)
        ratio = np.exp(s["logprobs"] - s["old_logprobs"])
        zone = np.digitize(ratio, [0.8, 1.28])
        sign = np.broadcast_to(s["advantages"][:, None] > 0, ratio.shape)
        seen |= set(zip(zone[s["weights"] > 0].tolist(), sign[s["weights"] > 0].tolist()))
    assert len(seen) == 6


@pytest.mark.parametrize("seed", range(6))
def test_matches_the_oracle(seed):
    s = streams(seed)
    loss, _ = losses.policy_loss(**on_device(s), objective=OBJECTIVE)
    np.testing.assert_allclose(loss, oracle(**s), rtol=2e-5, atol=2e-6)


def test_tokens_without_weight_do_not_matter_whatever_they_hold():
    s = on_device(streams(0))
    junk = lambda x: jnp.where(s["weights"] > 0, x, jnp.nan)
    spoiled = s | {n: junk(s[n]) for n in ("old_logprobs", "ref_logprobs", "entropies")}
    f = lambda lp, values: losses.policy_loss(**(values | {"logprobs": lp}), objective=OBJECTIVE)[0]
    assert float(f(s["logprobs"], s)) == float(f(s["logprobs"], spoiled))
    gradient = jax.grad(f)(junk(s["logprobs"]), spoiled)
    assert np.isfinite(gradient).all() and np.all(np.asarray(gradient)[np.asarray(s["weights"]) == 0] == 0)


def test_on_policy_the_gradient_is_that_of_reinforce():
    s = on_device(streams(1))
    objective = losses.Objective(0.2, 0.2, 0.0, 0.0)
    f = lambda lp: losses.policy_loss(**(s | {"logprobs": lp, "ref_logprobs": None}), objective=objective)[0]
    gradient = jax.grad(f)(s["old_logprobs"])
    np.testing.assert_allclose(gradient, -s["weights"] * s["advantages"][:, None], atol=1e-7)


@pytest.mark.parametrize("difference", [100.0, -100.0, 1e4, -1e4])
def test_extreme_log_ratios_stay_finite(difference):
    s = on_device(streams(2))
    far = s | {"old_logprobs": s["logprobs"] - difference, "ref_logprobs": s["logprobs"] + difference}
    f = lambda lp: losses.policy_loss(**(far | {"logprobs": lp}), objective=OBJECTIVE)[0]
    value, gradient = jax.value_and_grad(f)(s["logprobs"])
    assert np.isfinite(value) and np.isfinite(gradient).all()


def test_no_weight_at_all_gives_zero():
    s = on_device(streams(3)) | {"weights": jnp.zeros((6, 9))}
    f = lambda lp: losses.policy_loss(**(s | {"logprobs": lp}), objective=OBJECTIVE)[0]
    value, gradient = jax.value_and_grad(f)(s["logprobs"])
    assert value == 0 and np.all(np.asarray(gradient) == 0)
