"""Forward pass over a prefix tree: shared prefix -> questions -> rollouts.  Device code.

Every token of the tree is computed once.  The prefix and the questions give keys and values, which
the rollouts read where they lie; the same functions serve the sampler's prefill and the learner, so
that both see the same numbers.

Axes as in `types.py`.  Keys and values are kept as [L, ..., K, positions, E].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxtool.models.attention import merge, partial_attention
from jaxtool.models.config import DecoderConfig
from jaxtool.models.decoder import Params, embed, run_layers


class KeysValues(NamedTuple):
    k: Array
    v: Array


def prefix_keys_values(
    params: Params, cfg: DecoderConfig, tokens: Int[Array, "P"], *, remat: bool = False
) -> KeysValues:
    """Keys and values [L, K, P, E] of the prefix, which starts at position 0.

    Entries beyond the prefix's length are computed from padding; readers mask them.
    """
    positions = jnp.arange(tokens.shape[0])
    causal = positions[:, None] >= positions

    def attend(q, k, v, carry, xs):
        own = KeysValues(k.swapaxes(-3, -2), v.swapaxes(-3, -2))
        return merge(partial_attention(q, own.k, own.v, causal)), carry, own

    _, _, kept = run_layers(params, cfg, embed(params, tokens), positions, attend, remat=remat)
    return kept


def question_keys_values(
    params: Params,
    cfg: DecoderConfig,
    prefix: KeysValues,
    prefix_length: Int[Array, ""],
    tokens: Int[Array, "Q U"],
    *,
    remat: bool = False,
) -> KeysValues:
    """Keys and values [L, Q, K, U, E] of the questions' own tokens, each after the shared prefix."""
    offsets = jnp.arange(tokens.shape[1])
    causal = offsets[:, None] >= offsets
    in_prefix = jnp.arange(prefix.k.shape[2]) < prefix_length

    def attend(q, k, v, carry, xs):
        own = KeysValues(k.swapaxes(-3, -2), v.swapaxes(-3, -2))
        shared = partial_attention(q.reshape(-1, *q.shape[-3:]), xs.k, xs.v, in_prefix)
        out = merge(shared.reshape(*tokens.shape), partial_attention(q, own.k, own.v, causal))
        return out, carry, own

    positions = jnp.broadcast_to(prefix_length + offsets, tokens.shape)
    _, _, kept = run_layers(params, cfg, embed(params, tokens), positions, attend, xs=prefix, remat=remat)
    return kept


def rollout_hidden(
    params: Params,
    cfg: DecoderConfig,
    prefix: KeysValues,
    prefix_length: Int[Array, ""],
    questions: KeysValues,
    question_lengths: Int[Array, "Q"],
    tokens: Int[Array, "Q G T"],
    *,
    remat: bool = False,
) -> Float[Array, "Q G T D"]:
    """Final hidden states of G rollouts a question, attending to [prefix | their question | themselves].

    Padding follows the rollout, so causality alone keeps it from being seen.
    """
    num_questions, group, width = tokens.shape
    offsets = jnp.arange(width)
    causal = offsets[:, None] >= offsets
    in_prefix = jnp.arange(prefix.k.shape[2]) < prefix_length
    in_question = jnp.arange(questions.k.shape[3]) < question_lengths[:, None]
    in_question = jnp.broadcast_to(
        in_question[:, None], (num_questions, group * width, in_question.shape[-1])
    )

    def attend(q, k, v, carry, xs):
        prefix_l, questions_l = xs
        heads = q.shape[-3:]
        shared = partial_attention(q.reshape(-1, *heads), prefix_l.k, prefix_l.v, in_prefix)
        asked = partial_attention(
            q.reshape(num_questions, group * width, *heads), questions_l.k, questions_l.v, in_question
        )
        own = partial_attention(q, k.swapaxes(-3, -2), v.swapaxes(-3, -2), causal)
        out = merge(shared.reshape(*tokens.shape), asked.reshape(*tokens.shape), own)
        return out, carry, ()

    positions = prefix_length + question_lengths[:, None, None] + jnp.broadcast_to(offsets, tokens.shape)
    hidden, _, _ = run_layers(
        params, cfg, embed(params, tokens), positions, attend, xs=(prefix, questions), remat=remat
    )
    return hidden


def flat_hidden(
    params: Params,
    cfg: DecoderConfig,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    *,
    remat: bool = False,
) -> Float[Array, "B T D"]:
    """Final hidden states of packed or padded rows: a token sees earlier ones of its own segment."""
    offsets = jnp.arange(tokens.shape[1])
    visible = (offsets[:, None] >= offsets) & (segment_ids[:, :, None] == segment_ids[:, None, :])

    def attend(q, k, v, carry, xs):
        return merge(partial_attention(q, k.swapaxes(-3, -2), v.swapaxes(-3, -2), visible)), carry, ()

    hidden, _, _ = run_layers(params, cfg, embed(params, tokens), positions, attend, remat=remat)
    return hidden
