"""The pieces of a decoder layer.  Device code: pure functions of arrays.

Axes as in `types.py`; `*B` stands for any leading axes.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int


def rms_norm(x: Float[Array, "*B D"], scale: Float[Array, "D"], eps: float) -> Float[Array, "*B D"]:
    """scale * x / sqrt(mean(x^2) + eps), the mean in float32; Zhang & Sennrich 2019 (arXiv:1910.07467)."""
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + eps)
    return scale * normed.astype(x.dtype)


def rope_tables(
    positions: Int[Array, "*B"], inv_frequencies: Float[Array, "half"], dtype: jnp.dtype
) -> tuple[Float[Array, "*B half"], Float[Array, "*B half"]]:
    """cos and sin of position x frequency, the angle in float32; Su et al. 2021 (arXiv:2104.09864)."""
    angles = positions[..., None].astype(jnp.float32) * inv_frequencies
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def rotate(
    x: Float[Array, "*B heads E"], cos: Float[Array, "*B half"], sin: Float[Array, "*B half"]
) -> Float[Array, "*B heads E"]:
    """Rotates the pairs (i, i + E/2) of every head, the pairing of Hugging Face checkpoints."""
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = cos[..., None, :], sin[..., None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def gated_mlp(
    x: Float[Array, "*B D"], gate_up: Float[Array, "D 2 F"], down: Float[Array, "F D"]
) -> Float[Array, "*B D"]:
    """(silu(x W_gate) * (x W_up)) W_down; Shazeer 2020 (arXiv:2002.05202)."""
    hidden = checkpoint_name(jnp.einsum("...d,dcf->...cf", x, gate_up), "hidden")
    return (jax.nn.silu(hidden[..., 0, :]) * hidden[..., 1, :]) @ down
