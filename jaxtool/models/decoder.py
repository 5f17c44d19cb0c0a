"""The decoder of LLaMA, Qwen2/2.5 and Qwen3.  Device code.

The Flax modules below hold the parameters of one layer and of the model, and the equation of a
layer; everything else takes `params`, the nested dict of arrays that `nnx.split` gives, with the
layers stacked on axis 0 so that they are scanned and compile time does not grow with depth.

What a token may attend to is not the decoder's business: `run_layers` is given `attend`, which sees
each layer's queries, keys and values.  `tree.py` and `sampler/` build theirs from
`attention.py`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from jaxtool.models import layers
from jaxtool.models.config import DecoderConfig, inv_frequencies

Params = dict[str, Any]
# (queries [*B, K, N, E], keys [*B, K, E], values [*B, K, E], carry, this layer's xs)
#   -> (attended values [*B, K, N, E], carry, this layer's ys)
Attend = Callable[[Array, Array, Array, Any, Any], tuple[Array, Any, Any]]


class DecoderLayer(nnx.Module):
    """Pre-norm attention and gated MLP; query heads of a key/value head stand together (axis N)."""

    def __init__(self, cfg: DecoderConfig, *, rngs: nnx.Rngs, dtype: jnp.dtype = jnp.float32):
        self.cfg = cfg
        d, k, n, e = cfg.hidden_size, cfg.num_kv_heads, cfg.queries_per_kv, cfg.head_dim
        normal = lambda *shape: nnx.Param(0.02 * jax.random.normal(rngs.params(), shape, dtype))
        ones = lambda size: nnx.Param(jnp.ones(size, dtype))
        self.attention_norm = ones(d)
        self.qkv = normal(d, k, n + 2, e)  # N query heads, the key head, the value head
        if cfg.qkv_bias:
            self.qkv_bias = normal(k, n + 2, e)
        if cfg.qk_norm:
            self.q_norm, self.k_norm = ones(e), ones(e)
        self.out = normal(k, n, e, d)
        self.mlp_norm = ones(d)
        self.gate_up = normal(d, 2, cfg.intermediate_size)
        self.down = normal(cfg.intermediate_size, d)

    def __call__(self, x: Array, cos: Array, sin: Array, attend: Callable) -> tuple[Array, Any]:
        """x [*B, D] -> x [*B, D] and whatever `attend` returns beside the attended values."""
        eps = self.cfg.rms_norm_eps
        h = layers.rms_norm(x, self.attention_norm[...], eps)
        qkv = jnp.einsum("...d,dkne->...kne", h, self.qkv[...])
        if self.cfg.qkv_bias:
            qkv = qkv + self.qkv_bias[...]
        q, k, v = qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :]
        if self.cfg.qk_norm:
            q = layers.rms_norm(q, self.q_norm[...], eps)
            k = layers.rms_norm(k, self.k_norm[...], eps)
        q = layers.rotate(q, cos[..., None, :], sin[..., None, :])
        k = layers.rotate(k, cos, sin)
        q, k, v = (checkpoint_name(a, "qkv") for a in (q, k, v))
        attended, kept = attend(q, k, v)
        attended = checkpoint_name(attended, "attended")
        x = x + jnp.einsum("...kne,kned->...d", attended, self.out[...])
        h = layers.rms_norm(x, self.mlp_norm[...], eps)
        return x + layers.gated_mlp(h, self.gate_up[...], self.down[...]), kept


class Decoder(nnx.Module):
    """Embedding, stacked layers, final norm, and a head unless it is tied to the embedding."""

    def __init__(self, cfg: DecoderConfig, *, rngs: nnx.Rngs, dtype: jnp.dtype = jnp.float32):
        normal = lambda *shape: nnx.Param(0.02 * jax.random.normal(rngs.params(), shape, dtype))

        @nnx.split_rngs(splits=cfg.num_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> DecoderLayer:
            return DecoderLayer(cfg, rngs=rngs, dtype=dtype)

        self.embed = normal(cfg.vocab_size, cfg.hidden_size)
        self.layers = stacked(rngs)
        self.final_norm = nnx.Param(jnp.ones(cfg.hidden_size, dtype))
        if not cfg.tie_embeddings:
            self.head = normal(cfg.vocab_size, cfg.hidden_size)


def init_params(cfg: DecoderConfig, seed: int, dtype: jnp.dtype = jnp.float32) -> Params:
    """Random parameters, for tests and benchmarks; normal of deviation 0.02, norms one."""
    return nnx.to_pure_dict(nnx.state(Decoder(cfg, rngs=nnx.Rngs(seed), dtype=dtype)))


def abstract_params(cfg: DecoderConfig, dtype: jnp.dtype = jnp.float32) -> Params:
    """The tree of `jax.ShapeDtypeStruct` that parameters of `cfg` have; nothing is allocated."""
    model = nnx.eval_shape(lambda: Decoder(cfg, rngs=nnx.Rngs(0), dtype=dtype))
    return nnx.to_pure_dict(nnx.state(model))


@functools.lru_cache(maxsize=16)
def _layer_graphdef(cfg: DecoderConfig) -> nnx.GraphDef:
    return nnx.graphdef(nnx.eval_shape(lambda: DecoderLayer(cfg, rngs=nnx.Rngs(0))))


def embed(params: Params, tokens: Int[Array, "*B"]) -> Float[Array, "*B D"]:
    return jnp.take(params["embed"], tokens, axis=0)


def run_layers(
    params: Params,
    cfg: DecoderConfig,
    x: Float[Array, "*B D"],
    positions: Int[Array, "*B"],
    attend: Attend,
    *,
    carry: Any = (),
    xs: Any = (),
    remat: bool = False,
) -> tuple[Float[Array, "*B D"], Any, Any]:
    """All layers and the final norm; returns hidden states, the last carry and the stacked ys.

    Args:
        positions: of every token in its own context, for the rotary embedding.
        attend: see `Attend`.
        carry: handed from layer to layer (a cache that is updated in place).
        xs: arrays with a leading layer axis (keys and values that are only read).
        remat: recompute each layer in the backward pass.
    """
    cos, sin = layers.rope_tables(positions, jnp.asarray(inv_frequencies(cfg), jnp.float32), x.dtype)
    graphdef = _layer_graphdef(cfg)

    def body(state, per_layer):
        x, carry = state
        layer_params, xs_l = per_layer

        def keep(q, k, v):
            out, new_carry, ys = attend(q, k, v, carry, xs_l)
            return out, (new_carry, ys)

        x, (carry, ys) = nnx.merge(graphdef, layer_params)(x, cos, sin, keep)
        return (x, carry), ys

    # Without remat the products with weights are kept for the backward pass; scores and element-wise
    # results are recomputed all the same, which is cheaper than writing and reading them.
    policy = None if remat else jax.checkpoint_policies.save_only_these_names("qkv", "attended", "hidden")
    body = jax.checkpoint(body, prevent_cse=False, policy=policy)
    (x, carry), ys = jax.lax.scan(body, (x, carry), (params["layers"], xs))
    return layers.rms_norm(x, params["final_norm"], cfg.rms_norm_eps), carry, ys


def head(params: Params) -> Float[Array, "V D"]:
    """The output projection; the embedding itself where the two are tied."""
    return params["head"] if "head" in params else params["embed"]


def logits(params: Params, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
    """Unscaled float32 scores over the (padded) vocabulary."""
    return jnp.einsum("...d,vd->...v", hidden, head(params)).astype(jnp.float32)


def cast(params: Params, dtype: jnp.dtype) -> Params:
    """All parameters in `dtype`; the arrays themselves where they have it already."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)
