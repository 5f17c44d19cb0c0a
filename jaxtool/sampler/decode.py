"""The compiled programs of the sampler: prefill, append, decode.  Device code.

A row (slot) owns a cache of its own tokens and reads the shared prefix and the block of questions in
place.  A row's newest token is `pending`: known, but not yet run through the model.  Decoding feeds it
and draws the next; appending an observation feeds it together with the observation.

    cache:   [prefix | question | last prompt token, sampled ..., observation ...] pending

The cache and the row state are donated and updated in place; a row's numbers do not depend on what
the other rows hold, because every reduction runs within a row and every shape is fixed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxtool.models import decoder
from jaxtool.models.attention import merge, partial_attention
from jaxtool.models.config import DecoderConfig
from jaxtool.models.decoder import Params
from jaxtool.models.tree import KeysValues
from jaxtool.sampler import sampling

RUNNING, STOPPED, END_OF_TEXT, LENGTH, IDLE = range(5)  # status of a row


class Shared(NamedTuple):
    """What all rows read and none writes."""

    prefix: KeysValues  # [L, K, P, E]
    prefix_length: Array  # i32 []
    questions: KeysValues  # [L, K, Q U, E]: the questions' blocks laid end to end
    question_of: Array  # i32 [Q U] which question a position of that block belongs to, -1 for padding


class Rows(NamedTuple):
    """State of R rows; the caches are [L, R, K, S, E]."""

    k: Array
    v: Array
    question: Array  # i32 [R] index of the row's question in the block
    start: Array  # i32 [R] position in the context of the row's first own token
    length: Array  # i32 [R] own tokens in the cache
    pending: Array  # i32 [R] newest token
    status: Array  # i32 [R] RUNNING or how the last generation ended
    stop_state: Array  # i32 [R] of the stop automaton
    budget: Array  # i32 [R] tokens that this generation may still sample
    keys: Array  # u32 [R, 2] of the episode
    temperature: Array  # f32 [R]


class Stops(NamedTuple):
    """When a generation ends."""

    next_state: Array  # [states, V], see `automaton.py`; the last state is the final one
    end_of_text: Array  # i32 [n] token ids


def empty_rows(cfg: DecoderConfig, num_rows: int, size: int, dtype: jnp.dtype) -> Rows:
    """Idle rows with caches of `size` positions."""
    cache = lambda: jnp.zeros((cfg.num_layers, num_rows, cfg.num_kv_heads, size, cfg.head_dim), dtype)
    zeros = lambda: jnp.zeros(num_rows, jnp.int32)
    return Rows(
        cache(), cache(), zeros(), zeros(), zeros(), zeros(), jnp.full(num_rows, IDLE, jnp.int32),
        zeros(), zeros(), jnp.zeros((num_rows, 2), jnp.uint32), jnp.ones(num_rows, jnp.float32),
    )  # fmt: skip


def append(
    params: Params,
    cfg: DecoderConfig,
    shared: Shared,
    rows: Rows,
    which: Int[Array, "A"],
    tokens: Int[Array, "A C"],
    counts: Int[Array, "A"],
) -> Rows:
    """Runs `counts[a]` tokens of chunk a through the model and writes them to the cache of row `which[a]`.

    Unused entries have `which` = R and are dropped.  The row state besides cache and length is the
    caller's to set.
    """
    size = rows.k.shape[3]
    offsets = jnp.arange(tokens.shape[1])
    length = rows.length[which]
    question = rows.question[which]
    in_prefix = jnp.arange(shared.prefix.k.shape[2]) < shared.prefix_length
    in_question = (shared.question_of == question[:, None])[:, None, :]  # [A, 1, QU]
    in_cache = jnp.broadcast_to((jnp.arange(size) < length[:, None])[:, None], (*tokens.shape, size))
    causal = offsets[:, None] >= offsets
    # Padding of a chunk is written nowhere: its column lies beyond the cache.
    columns = jnp.where(offsets < counts[:, None], length[:, None] + offsets, size)

    def attend(q, k, v, carry, xs):
        cache_k, cache_v = carry
        prefix, questions, layer = xs
        everyone = q.reshape(-1, *q.shape[-3:])
        flat_visible = jnp.broadcast_to(in_question, (*tokens.shape, in_question.shape[-1]))
        parts = (
            partial_attention(everyone, prefix.k, prefix.v, in_prefix).reshape(*tokens.shape),
            partial_attention(
                everyone, questions.k, questions.v, flat_visible.reshape(-1, flat_visible.shape[-1])
            ).reshape(*tokens.shape),
            partial_attention(q, cache_k[layer, which], cache_v[layer, which], in_cache),
            partial_attention(q, k.swapaxes(-3, -2), v.swapaxes(-3, -2), causal),
        )
        put = lambda cache, new: cache.at[layer, which[:, None], :, columns].set(new, mode="drop")
        return merge(*parts), (put(cache_k, k), put(cache_v, v)), ()

    positions = rows.start[which][:, None] + length[:, None] + offsets
    xs = (shared.prefix, shared.questions, jnp.arange(cfg.num_layers))
    _, (k, v), _ = decoder.run_layers(
        params, cfg, decoder.embed(params, tokens), positions, attend, carry=(rows.k, rows.v), xs=xs
    )
    return rows._replace(k=k, v=v, length=rows.length.at[which].add(counts, mode="drop"))


def decode_step(params: Params, cfg: DecoderConfig, shared: Shared, rows: Rows) -> tuple[Array, Array, Array]:
    """Feeds every row's pending token; returns its final hidden state [R, D] and the caches.

    Rows that do not run are computed too (the shape is fixed); they write where their next real
    token will overwrite it.
    """
    num_rows, size = rows.k.shape[1], rows.k.shape[3]
    in_prefix = jnp.arange(shared.prefix.k.shape[2]) < shared.prefix_length
    in_question = shared.question_of == rows.question[:, None]  # [R, QU]
    in_cache = (jnp.arange(size) <= rows.length[:, None])[:, None, :]  # [R, 1, S]
    every = jnp.arange(num_rows)

    def attend(q, k, v, carry, xs):
        prefix, questions, layer = xs
        cache_k, cache_v = (
            cache.at[layer, every, :, rows.length].set(new, mode="drop") for cache, new in zip(carry, (k, v))
        )
        own = partial_attention(q[:, None], cache_k[layer], cache_v[layer], in_cache)
        parts = (
            partial_attention(q, prefix.k, prefix.v, in_prefix),
            partial_attention(q, questions.k, questions.v, in_question),
            own.reshape(num_rows),
        )
        return merge(*parts), (cache_k, cache_v), ()

    xs = (shared.prefix, shared.questions, jnp.arange(cfg.num_layers))
    hidden, (k, v), _ = decoder.run_layers(
        params, cfg, decoder.embed(params, rows.pending), rows.start + rows.length, attend,
        carry=(rows.k, rows.v), xs=xs,
    )  # fmt: skip
    return hidden, k, v


def decode(
    params: Params,
    cfg: DecoderConfig,
    shared: Shared,
    rows: Rows,
    stops: Stops,
    num_tokens: int,
    max_steps: int,
    patience: Int[Array, ""],
) -> tuple[Rows, Array, Array, Array]:
    """Samples until `patience` running rows have ended, none runs, or after `max_steps` tokens.

    Args:
        num_tokens: vocabulary entries that have a token.

    Returns:
        The rows, tokens [max_steps, R], log-probabilities [max_steps, R], and the number of steps
        done; what a row sampled are its first entries, as long as it ran.
    """
    num_rows = rows.pending.shape[0]
    final_state = stops.next_state.shape[0] - 1
    running_at_start = jnp.sum(rows.status == RUNNING)

    def wanted(loop):
        step, rows, _, _ = loop
        running = jnp.sum(rows.status == RUNNING)
        return (step < max_steps) & (running > 0) & (running_at_start - running < patience)

    def body(loop):
        step, rows, tokens, logprobs = loop
        hidden, k, v = decode_step(params, cfg, shared, rows)
        runs = rows.status == RUNNING
        token, logprob = sampling.sample(
            decoder.logits(params, hidden), rows.keys, rows.length, rows.temperature, num_tokens
        )
        token = jnp.where(runs, token, rows.pending)
        state = jnp.where(runs, stops.next_state[rows.stop_state, token].astype(jnp.int32), rows.stop_state)
        budget = rows.budget - runs
        status = jnp.select(
            [~runs, state == final_state, jnp.isin(token, stops.end_of_text), budget <= 0],
            [rows.status, jnp.int32(STOPPED), jnp.int32(END_OF_TEXT), jnp.int32(LENGTH)],
            jnp.int32(RUNNING),
        )
        rows = rows._replace(
            k=k, v=v, length=rows.length + runs, pending=token, status=status, stop_state=state, budget=budget
        )
        return step + 1, rows, tokens.at[step].set(token), logprobs.at[step].set(logprob)

    loop = (
        jnp.int32(0), rows, jnp.zeros((max_steps, num_rows), jnp.int32),
        jnp.zeros((max_steps, num_rows), jnp.float32),
    )  # fmt: skip
    step, rows, tokens, logprobs = jax.lax.while_loop(wanted, body, loop)
    return rows, tokens, logprobs, step
