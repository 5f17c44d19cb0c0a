"""Log-probabilities and entropies of given tokens, shared by policy, old and reference.  Device code.

No [tokens, V] array outlives a chunk, forward or backward: the head is applied to a few hundred
tokens at a time and recomputed in the backward pass.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxtool.models import decoder
from jaxtool.sampler.sampling import scale_and_mask

CHUNK = 256  # tokens whose logits exist at the same time


def token_logprobs(
    params: decoder.Params,
    hidden: Float[Array, "n D"],
    targets: Int[Array, "n"],
    mask: Bool[Array, "n"],
    *,
    temperature: float,
    num_tokens: int,
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    """log softmax(logits / temperature)[target] in nats, and the entropy of that distribution.

    Masked tokens (mask False) get 0 for both and cost nothing: kept tokens are gathered to the front,
    and chunks without any are skipped.

    Args:
        temperature: the sampler's, or the importance ratio is not 1 on-policy.
        num_tokens: vocabulary entries that have a token; the padded rest is excluded.
    """
    n = targets.shape[0]
    size = min(CHUNK, n)
    chunks = -(-n // size)
    order = jnp.argsort(~mask, stable=True)  # kept tokens first
    pad = chunks * size - n
    take = lambda a: jnp.pad(a[order], ((0, pad),) + ((0, 0),) * (a.ndim - 1)).reshape(
        chunks, size, *a.shape[1:]
    )

    @jax.checkpoint
    def of_chunk(head, hidden, targets):
        logits = jnp.einsum("nd,vd->nv", hidden, head).astype(jnp.float32)
        scaled = scale_and_mask(logits, jnp.full(size, temperature), num_tokens)
        lse = jax.nn.logsumexp(scaled, axis=-1)
        chosen = jnp.take_along_axis(scaled, targets[:, None], axis=-1)[:, 0]
        entropy = lse - jnp.sum(jnp.exp(scaled - lse[:, None]) * scaled, axis=-1)
        return chosen - lse, entropy

    head = decoder.head(params)

    def body(_, chunk):
        hidden, targets, keep = chunk
        nothing = (jnp.zeros(size), jnp.zeros(size))
        result = jax.lax.cond(keep.any(), lambda: of_chunk(head, hidden, targets), lambda: nothing)
        return None, tuple(jnp.where(keep, a, 0.0) for a in result)

    _, (logprobs, entropies) = jax.lax.scan(body, None, (take(hidden), take(targets), take(mask)))
    restore = lambda a: jnp.zeros(n).at[order].set(a.reshape(-1)[:n])
    return restore(logprobs), restore(entropies)
