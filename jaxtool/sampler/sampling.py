"""Logits -> one token a row and its log-probability.  Device code.

Every row has its own key and temperature, so a row's token does not depend on its neighbours.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

BLOCK = 256  # vocabulary entries that share one first-level draw
MASKED = -1e30


def scale_and_mask(
    logits: Float[Array, "*B V"], temperature: Float[Array, "*B"], num_tokens: int
) -> Float[Array, "*B V"]:
    """logits / temperature (1 where it is 0), entries from `num_tokens` on masked: they have no token.

    The learner's log-probabilities go through the same function (`logprobs.py`).
    """
    safe = jnp.where(temperature > 0, temperature, 1.0)
    scaled = logits.astype(jnp.float32) / safe[..., None]
    return jnp.where(jnp.arange(logits.shape[-1]) < num_tokens, scaled, MASKED)


def sample(
    logits: Float[Array, "R V"],
    keys: UInt32[Array, "R 2"],
    positions: Int[Array, "R"],
    temperature: Float[Array, "R"],
    num_tokens: int,
) -> tuple[Int[Array, "R"], Float[Array, "R"]]:
    """A token from softmax(logits / temperature), or the largest where the temperature is 0.

    Exact in distribution by Gumbel's maximum in two levels: a block of 256 entries is drawn from
    the log-sum-exps of the blocks, then an entry inside it.  About V / 256 + 256 draws a row
    instead of V, and no cumulative sum, whose rounding would move tokens.

    Args:
        positions: folded into the row's key, so that a token depends on its place in the episode
            and not on when it was computed.

    Returns:
        The tokens, and their log-probability in nats under the full distribution at the sampling
        temperature (at temperature 1 for greedy rows).
    """
    rows, vocab = logits.shape
    num_blocks = -(-vocab // BLOCK)
    scaled = scale_and_mask(logits, temperature, num_tokens)
    padded = jnp.pad(scaled, ((0, 0), (0, num_blocks * BLOCK - vocab)), constant_values=MASKED)
    blocks = padded.reshape(rows, num_blocks, BLOCK)
    block_lse = jax.nn.logsumexp(blocks, axis=-1)

    def noise(key, position):
        return jax.random.gumbel(jax.random.fold_in(key, position), (num_blocks + BLOCK,))

    gumbel = jax.vmap(noise)(keys, positions)
    block = jnp.argmax(block_lse + gumbel[:, :num_blocks], axis=-1)
    inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    drawn = block * BLOCK + jnp.argmax(inside + gumbel[:, num_blocks:], axis=-1)
    token = jnp.where(temperature > 0, drawn, jnp.argmax(scaled, axis=-1)).astype(jnp.int32)
    logprob = jnp.take_along_axis(scaled, token[:, None], axis=-1)[:, 0] - jax.nn.logsumexp(
        block_lse, axis=-1
    )
    return token, logprob
