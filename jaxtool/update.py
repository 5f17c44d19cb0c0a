"""One optimiser step from the microbatches of one rollout round.  Boundary.

The prefix tree is kept in the backward pass: a microbatch gives the gradient of its loss to the
parameters and to the keys and values of the prefix; these add up, and go back through the prefix
once.  The result equals the flat computation, in which every row repeats its whole prompt.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxtool import logprobs, losses
from jaxtool.config import OptimConfig
from jaxtool.models import decoder, tree
from jaxtool.models.config import DecoderConfig
from jaxtool.models.decoder import Params
from jaxtool.types import GroupBatch

SUMS = ("actor/pg_loss", "actor/entropy", "actor/pg_clipfrac", "actor/kl_loss")
MEANS = ("actor/entropy", "actor/pg_clipfrac", "actor/kl_loss")  # over the tokens that were run
WEIGHT = "weight"
GAP_MAX, GAP_SUM, GAP_COUNT = "rollout/logprob_diff_max", "gap_sum", "gap_count"


def make_optimizer(cfg: OptimConfig) -> optax.GradientTransformation:
    """Global-norm clipping, then AdamW (arXiv:1711.05101) with linear warm-up to a constant rate."""
    return optax.chain(
        optax.clip_by_global_norm(cfg.grad_clip),
        optax.adamw(learning_rate(cfg), b1=cfg.beta1, b2=cfg.beta2, weight_decay=cfg.weight_decay),
    )


def learning_rate(cfg: OptimConfig) -> optax.Schedule:
    """Rate of the update with the given index (from 0): rises over `warmup_steps`, none of them at 0."""
    if not cfg.warmup_steps:
        return optax.constant_schedule(cfg.learning_rate)
    return lambda count: cfg.learning_rate * jnp.minimum(1.0, (count + 1) / cfg.warmup_steps)


class Learner:
    """The compiled programs of the update, for one model and objective."""

    def __init__(
        self,
        cfg: DecoderConfig,
        optimizer: optax.GradientTransformation,
        objective: losses.Objective,
        *,
        temperature: float,
        num_tokens: int,
        dtype: jnp.dtype,
        remat: bool,
    ):
        """
        Args:
            objective: coefficients of the loss.
            dtype: of the forward and backward pass; parameters and optimiser state are float32.
        """
        self._dtype = dtype
        self._cfg, self._optimizer, self._objective = cfg, optimizer, objective
        self._temperature, self._num_tokens, self._remat = temperature, num_tokens, remat
        self._prefix = jax.jit(lambda params, tokens: tree.prefix_keys_values(params, cfg, tokens))
        self._score = jax.jit(self._logprobs_of)
        self._accumulate = jax.jit(self._accumulate_fn, donate_argnums=(0,))
        self._apply = jax.jit(self._apply_fn, donate_argnums=(0, 1))

    def reference_logprobs(
        self, params: Params, prefix_ids: np.ndarray, prefix_length: int, batches: Sequence[GroupBatch]
    ) -> list[Array]:
        """log pi_ref(targets) [Q, G, T] of every microbatch."""
        prefix = self._prefix(params, prefix_ids)
        return [self._score(params, prefix, np.int32(prefix_length), batch)[0] for batch in batches]

    def update(
        self,
        params: Params,
        opt_state: optax.OptState,
        prefix: tree.KeysValues,
        prefix_ids: np.ndarray,
        prefix_length: int,
        batches: Sequence[GroupBatch],
        ref_logprobs: Sequence[Array] | None = None,
    ) -> tuple[Params, optax.OptState, dict[str, float]]:
        """Runs all microbatches and the optimiser once; `params` and `opt_state` are donated.

        Args:
            prefix: keys and values of the prefix under `params`, as the sampler computed them.
            prefix_ids: i32 [P], padded.
            ref_logprobs: one [Q, G, T] a microbatch, or None without a KL term.
        """
        total = self._zeros(params, prefix)
        for i, batch in enumerate(batches):
            ref = None if ref_logprobs is None else ref_logprobs[i]
            total = self._accumulate(total, params, prefix, np.int32(prefix_length), batch, ref)
        params, opt_state, metrics = self._apply(params, opt_state, total, prefix_ids)
        metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
        count, weight = metrics.pop(GAP_COUNT), metrics.pop(WEIGHT)
        metrics |= {name: metrics[name] / max(weight, 1e-30) for name in MEANS}
        metrics["rollout/logprob_diff_mean"] = metrics.pop(GAP_SUM) / max(count, 1.0)
        if ref_logprobs is None:
            del metrics["actor/kl_loss"]
        return params, opt_state, metrics

    def _zeros(self, params, prefix):
        metrics = {name: jnp.zeros(()) for name in (*SUMS, WEIGHT, GAP_MAX, GAP_SUM, GAP_COUNT)}
        # float32 also where the forward pass is not, or the sum would depend on the microbatches
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (params, prefix))
        return zeros, metrics

    def _logprobs_of(self, params, prefix, prefix_length, batch: GroupBatch):
        questions = tree.question_keys_values(
            params, self._cfg, prefix, prefix_length, batch.questions, remat=self._remat
        )
        hidden = tree.rollout_hidden(
            params, self._cfg, prefix, prefix_length, questions, batch.question_lengths, batch.inputs,
            remat=self._remat,
        )  # fmt: skip
        shape = batch.targets.shape
        flat = logprobs.token_logprobs(
            params,
            hidden.reshape(-1, hidden.shape[-1]),
            batch.targets.reshape(-1),
            batch.loss_mask.reshape(-1),
            temperature=self._temperature,
            num_tokens=self._num_tokens,
        )
        return tuple(a.reshape(shape) for a in flat)

    def _accumulate_fn(self, total, params, prefix, prefix_length, batch: GroupBatch, ref_logprobs):
        def loss_fn(params, prefix):
            computed = decoder.cast(params, self._dtype)
            new, entropies = self._logprobs_of(computed, prefix, prefix_length, batch)
            # One update a rollout round: what sampled is what is updated, so old is the value of new.
            old = jax.lax.stop_gradient(new)
            loss, metrics = losses.policy_loss(
                new, entropies, old, ref_logprobs, batch.advantages, batch.weights, self._objective
            )
            gap = jnp.where(batch.loss_mask, jnp.abs(old - batch.sampler_logprobs), 0.0)
            metrics[WEIGHT] = jnp.sum(batch.weights)
            metrics[GAP_MAX] = jnp.max(gap / jnp.maximum(1.0, jnp.abs(old)))
            metrics |= {GAP_SUM: jnp.sum(gap), GAP_COUNT: jnp.sum(batch.loss_mask).astype(jnp.float32)}
            return loss, metrics

        grads, metrics = jax.grad(loss_fn, argnums=(0, 1), has_aux=True)(params, prefix)
        total_grads, total_metrics = total
        summed = {name: total_metrics[name] + metrics.get(name, 0.0) for name in total_metrics}
        summed[GAP_MAX] = jnp.maximum(total_metrics[GAP_MAX], metrics[GAP_MAX])
        return jax.tree.map(jnp.add, total_grads, grads), summed

    def _apply_fn(self, params, opt_state, total, prefix_ids):
        (grads, prefix_grads), metrics = total

        def prefix_of(params):
            computed = decoder.cast(params, self._dtype)
            return tree.prefix_keys_values(computed, self._cfg, prefix_ids, remat=self._remat)

        back = jax.vjp(prefix_of, params)[1]
        prefix_grads = jax.tree.map(lambda leaf: leaf.astype(self._dtype), prefix_grads)
        grads = jax.tree.map(jnp.add, grads, back(prefix_grads)[0])
        updates, opt_state = self._optimizer.update(grads, opt_state, params)
        metrics["actor/grad_norm"] = optax.tree.norm(grads)
        return optax.apply_updates(params, updates), opt_state, metrics
