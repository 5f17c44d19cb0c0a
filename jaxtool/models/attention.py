"""Attention over several blocks of keys with one softmax.  Device code.

A row of the prefix tree attends to keys that lie in different arrays: the prefix that all rows
share, the block of questions, its own tokens.  Each block gives a `Partial`; `merge` turns them into
what one softmax over all keys together would give, without moving a key:

    m = max_i m_i;   out = sum_i exp(m_i - m) out_i / sum_i exp(m_i - m) sum_i

which is the rescaling of online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867).
Rows and heads that share keys are folded into one axis by the caller, so that a shared block costs
one matrix product and not one per row.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

MASKED = -1e30  # finite: a block without any visible key gives sum 0 and not NaN


class Partial(NamedTuple):
    """One block's share of the attention of tokens with K x N query heads; *B any leading axes."""

    out: Array  # [*B, T, K, N, E] sum_s exp(score_s - max) v_s
    max: Array  # f32 [*B, T, K, N] largest visible score; MASKED / 2 where none is
    sum: Array  # f32 [*B, T, K, N] sum_s exp(score_s - max)

    def reshape(self, *tokens: int) -> "Partial":
        """The same with the axes before K replaced by `tokens`."""
        k, n, e = self.out.shape[-3:]
        return Partial(
            self.out.reshape(*tokens, k, n, e),
            self.max.reshape(*tokens, k, n),
            self.sum.reshape(*tokens, k, n),
        )


def partial_attention(
    q: Float[Array, "*B T K N E"],
    k: Float[Array, "*B K S E"],
    v: Float[Array, "*B K S E"],
    visible: Bool[Array, "..."],
) -> Partial:
    """Unnormalised attention of T tokens to one block of S keys, scores scaled by E^-1/2.

    The tokens and the N query heads of a key head are folded into one axis of a matrix product.

    Args:
        visible: [S], or broadcastable to [*B, T, S] with T in full; which keys each token sees.
    """
    *batch, t, heads, n, e = q.shape
    folded = jnp.moveaxis(q, -3, -4).reshape(*batch, heads, t * n, e)
    scores = jnp.einsum("...kme,...kse->...kms", folded, k).astype(jnp.float32) * e**-0.5
    # A finite bias, and not `where` on the exponentials, keeps XLA's loops over S simple and fast.
    bias = jnp.where(visible, 0.0, MASKED)
    if visible.ndim > 1:
        bias = jnp.repeat(bias, n, axis=-2)[..., None, :, :]
    scores = scores + bias
    # The maximum cancels in `merge`, so no gradient flows through it.  Where no key is visible it is
    # held far above MASKED, so that every exponential is exactly 0.
    top = jax.lax.stop_gradient(jnp.maximum(scores.max(axis=-1), MASKED / 2))
    weights = jnp.exp(scores - top[..., None])
    total = weights.sum(axis=-1)
    out = jnp.einsum("...kms,...kse->...kme", weights.astype(v.dtype), v)

    def by_token(a, *rest):  # [*B, K, T N, *rest] -> [*B, T, K, N, *rest]
        return jnp.moveaxis(a.reshape(*batch, heads, t, n, *rest), len(batch), len(batch) + 1)

    return Partial(by_token(out, e), by_token(top), by_token(total))


def merge(*parts: Partial) -> Float[Array, "... E"]:
    """The softmax-weighted values over the keys of all parts together, [*B, T, K, N, E]."""
    if len(parts) == 1:
        return (parts[0].out / parts[0].sum[..., None]).astype(parts[0].out.dtype)
    top = functools.reduce(jnp.maximum, [p.max for p in parts])
    scales = [jnp.exp(p.max - top) for p in parts]
    total = sum(scale * p.sum for scale, p in zip(scales, parts))
    out = sum(scale[..., None] * p.out.astype(jnp.float32) for scale, p in zip(scales, parts))
    return (out / total[..., None]).astype(parts[0].out.dtype)
