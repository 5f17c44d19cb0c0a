"""Per-token policy-gradient objectives.  Device code.

Every stream is aligned with `targets`: position t holds a fact about the token predicted at t.  What
is returned is a sum over tokens weighted by the host, so losses, metrics and gradients of
microbatches and of devices add up; nothing here divides by a local count.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: beyond it the clipped objective has no gradient left to lose


@dataclasses.dataclass(frozen=True)
class Objective:
    """Coefficients of `policy_loss`; fields as in `config.LossConfig`."""

    clip_low: float
    clip_high: float
    kl_coef: float
    entropy_coef: float


def clipped_surrogate(
    ratio: Float[Array, "..."], advantages: Float[Array, "..."], clip_low: float, clip_high: float
) -> Float[Array, "..."]:
    """PPO's pessimistic surrogate as a loss: -min(r A, clip(r, 1 - low, 1 + high) A).

    Eq. 7 of Schulman et al. 2017 (arXiv:1707.06347).  Element-wise; weighting is the caller's.
    """
    clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    return -jnp.minimum(ratio * advantages, clipped * advantages)


def kl_k3(logprobs: Float[Array, "..."], ref_logprobs: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(d) - d - 1 with d = ref - policy: an unbiased, non-negative estimate of KL(policy || reference).

    "k3" of Schulman 2020 (http://joschu.net/blog/kl-approx.html); d is clamped before the exponential.
    """
    d = jnp.clip(ref_logprobs - logprobs, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return jnp.expm1(d) - d


def policy_loss(
    logprobs: Float[Array, "*B T"],
    entropies: Float[Array, "*B T"],
    old_logprobs: Float[Array, "*B T"],
    ref_logprobs: Float[Array, "*B T"] | None,
    advantages: Float[Array, "*B"],
    weights: Float[Array, "*B T"],
    objective: Objective,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """sum_t w_t (clipped surrogate + kl_coef KL - entropy_coef H), Eq. 3 of arXiv:2603.08068.

    Tokens with weight 0 (observations, padding) contribute nothing, whatever their streams hold.

    Args:
        logprobs: log pi(targets), nats; gradients flow through this and `entropies`.
        old_logprobs: under the parameters that sampled.
        ref_logprobs: under the frozen reference; None leaves the KL term out.

    Returns:
        The loss, and metrics with the same normalisation (names in `metrics.py`).
    """
    kept = weights > 0
    # `where` before `exp`: a masked position may hold anything, and inf * 0 is NaN backwards.
    keep = lambda x: jnp.where(kept, x, 0.0)
    total = lambda x: jnp.sum(weights * x)
    log_ratio = jnp.clip(keep(logprobs - old_logprobs), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = jnp.exp(log_ratio)
    a = jnp.broadcast_to(advantages[..., None], ratio.shape)
    surrogate = total(clipped_surrogate(ratio, a, objective.clip_low, objective.clip_high))
    entropy = total(keep(entropies))
    loss = surrogate - objective.entropy_coef * entropy
    clipped = jnp.where(a >= 0, ratio > 1.0 + objective.clip_high, ratio < 1.0 - objective.clip_low)
    metrics = {
        "actor/pg_loss": surrogate,
        "actor/entropy": entropy,
        "actor/pg_clipfrac": total(clipped & (a != 0)),
    }
    if ref_logprobs is not None:
        kl = total(kl_k3(keep(logprobs), keep(ref_logprobs)))
        loss = loss + objective.kl_coef * kl
        metrics["actor/kl_loss"] = kl
    return loss, metrics
