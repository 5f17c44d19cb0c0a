"""The update against an oracle from the equation on flat rows, and its invariance to microbatches, padding and packing."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_tree import MODELS, flat_context, random_params
from test_tree import PREFIX as PREFIX_KV

from jaxtool import batch, losses, update
from jaxtool.config import OptimConfig
from jaxtool.models import decoder
from jaxtool.types import OBSERVATION, POLICY, Episode, Question

CFG = MODELS["qwen2"]
NUM_TOKENS, TEMPERATURE = 90, 0.7
PREFIX = np.random.default_rng(0).integers(0, 90, 9).tolist()


def make_groups(seed=0, num_questions=3, group=2):
    rng = np.random.default_rng(seed)
    groups = []
    for q in range(num_questions):
        prompt = PREFIX + rng.integers(0, 90, int(rng.integers(1, 6))).tolist()
        episodes = []
        for sample in range(group):
            episode = Episode(Question(f"q{q}", "?", ("a",)), sample, prompt)
            for turn in range(int(rng.integers(1, 3))):
                n, m = int(rng.integers(1, 6)), int(rng.integers(1, 5))
                episode.ids += rng.integers(0, 90, n).tolist()
                episode.roles.append((POLICY, n))
                episode.logprobs += (-3 * rng.random(n)).tolist()
                if turn == 0 and rng.random() < 0.7:
                    episode.ids += rng.integers(0, 90, m).tolist()
                    episode.roles.append((OBSERVATION, m))
            episodes.append(episode)
        groups.append(episodes)
    advantages = [rng.normal(size=group).astype(np.float32) for _ in groups]
    return groups, advantages


def make_batches(groups, advantages, *, questions=1, sizes=(16, 32), size=6):
    shape = batch.BatchShape(questions, len(groups[0]), size, sizes)
    return batch.build(groups, advantages, len(PREFIX), shape, only_with_advantage=False)


PLAIN = losses.Objective(0.2, 0.2, 0.0, 0.0)


def make_learner(objective=PLAIN, optimizer=None, remat=False):
    return update.Learner(
        CFG, optimizer or optax.sgd(1.0), objective, temperature=TEMPERATURE, num_tokens=NUM_TOKENS,
        dtype=jnp.dtype("float32"), remat=remat,
    )  # fmt: skip


def gradient(params, batches, learner, ref=None, pad=3):
    """The gradient that one step of SGD at rate 1 shows, and the metrics."""
    ids = np.array(PREFIX + [0] * pad, np.int32)
    prefix = PREFIX_KV(params, CFG, ids)
    copy = jax.tree.map(jnp.copy, params)
    new, _, metrics = learner.update(
        copy, learner._optimizer.init(params), prefix, ids, len(PREFIX), batches, ref
    )
    return jax.tree.map(lambda a, b: np.asarray(a - b), params, new), metrics


def oracle_loss(params, groups, advantages, ref_params=None, kl_coef=0.0):
    """The ICRL paper's Eq. 3 from flat float32 logits: a mean over questions of token sums over the group's tokens."""
    total = 0.0
    for group, advantage in zip(groups, advantages):
        tokens = sum(e.num_policy_tokens for e in group)
        for episode, a in zip(group, advantage):
            context = np.array(episode.prompt_ids + episode.ids, np.int32)

            def logprobs(p):
                hidden = flat_context(p, CFG, context)
                scores = decoder.logits(p, hidden)[:, :NUM_TOKENS] / TEMPERATURE
                return jax.nn.log_softmax(scores)[
                    np.arange(len(episode.prompt_ids) - 1, len(context) - 1), np.array(episode.ids)
                ]

            kept = jnp.asarray(episode.loss_mask)
            new = logprobs(params)
            ratio = jnp.exp(new - jax.lax.stop_gradient(new))
            term = -ratio * a
            if ref_params is not None:
                d = logprobs(ref_params) - new
                term = term + kl_coef * (jnp.exp(d) - d - 1)
            total += jnp.sum(jnp.where(kept, term, 0.0)) / tokens
    return total / len(groups)


def assert_trees_close(a, b, tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance * max(1.0, float(np.abs(y).max())))


@pytest.mark.parametrize("seed", range(2))
def test_gradient_equals_the_oracle(seed):
    params = random_params(CFG)
    groups, advantages = make_groups(seed)
    ours, metrics = gradient(params, make_batches(groups, advantages), make_learner())
    assert_trees_close(ours, jax.grad(oracle_loss)(params, groups, advantages), 3e-4)
    np.testing.assert_allclose(metrics["actor/pg_loss"], oracle_loss(params, groups, advantages), atol=1e-5)


def test_gradient_with_kl_equals_the_oracle():
    params, ref_params = random_params(CFG), random_params(CFG, seed=5)
    groups, advantages = make_groups(1)
    learner = make_learner(losses.Objective(0.2, 0.2, 0.1, 0.0))
    batches = make_batches(groups, advantages)
    ids = np.array(PREFIX + [0] * 3, np.int32)
    ref = learner.reference_logprobs(ref_params, ids, len(PREFIX), batches)
    ours, metrics = gradient(params, batches, learner, ref)
    wanted = jax.grad(oracle_loss)(params, groups, advantages, ref_params, 0.1)
    assert_trees_close(ours, wanted, 3e-4)
    assert metrics["actor/kl_loss"] > 0


def test_microbatches_padding_and_remat_change_nothing():
    params = random_params(CFG)
    groups, advantages = make_groups(2)
    one, metrics = gradient(params, make_batches(groups, advantages), make_learner())
    variants = {
        "all questions at once": (make_batches(groups, advantages, questions=3), make_learner(), 3),
        "an empty question": (make_batches(groups, advantages, questions=2), make_learner(), 3),
        "wide rows": (make_batches(groups, advantages, sizes=(48,), size=9), make_learner(), 20),
        "remat": (make_batches(groups, advantages), make_learner(remat=True), 3),
        "other order": (make_batches(groups[::-1], advantages[::-1]), make_learner(), 3),
    }
    for name, (batches, learner, pad) in variants.items():
        other, other_metrics = gradient(params, batches, learner, pad=pad)
        assert_trees_close(other, one, 2e-5)
        for key in ("actor/pg_loss", "actor/entropy", "actor/grad_norm", "rollout/logprob_diff_max"):
            np.testing.assert_allclose(other_metrics[key], metrics[key], rtol=2e-4, atol=1e-6, err_msg=name)


def test_observations_do_not_matter_to_the_weights_and_are_not_trained():
    """Weights add up to 1 over policy tokens alone; a changed target under the mask changes nothing."""
    groups, advantages = make_groups(3)
    batches = make_batches(groups, advantages)
    np.testing.assert_allclose(sum(b.weights.sum() for b in batches), 1.0, rtol=1e-6)
    params = random_params(CFG)
    one, _ = gradient(params, batches, make_learner())
    junk = [b._replace(targets=np.where(b.loss_mask, b.targets, 3)) for b in batches]
    other, _ = gradient(params, junk, make_learner())
    assert_trees_close(other, one, 0)


def test_groups_without_advantage_are_left_out_exactly():
    params = random_params(CFG)
    groups, advantages = make_groups(4)
    advantages[1][:] = 0
    shape = batch.BatchShape(1, 2, 6, (32,))
    all_of_them = batch.build(groups, advantages, len(PREFIX), shape, only_with_advantage=False)
    some = batch.build(groups, advantages, len(PREFIX), shape, only_with_advantage=True)
    assert (len(all_of_them), len(some)) == (3, 2)
    a, _ = gradient(params, all_of_them, make_learner())
    b, _ = gradient(params, some, make_learner())
    assert_trees_close(a, b, 1e-6)
    nothing = batch.build(groups, [np.zeros(2, np.float32)] * 3, len(PREFIX), shape, only_with_advantage=True)
    assert len(nothing) == 1
    zero, _ = gradient(params, nothing, make_learner())
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(zero))


def test_the_gap_to_the_sampler_is_reported():
    params = random_params(CFG)
    groups, advantages = make_groups(5)
    batches = make_batches(groups, advantages)
    learner = make_learner()
    ids = np.array(PREFIX + [0] * 3, np.int32)
    exact = learner.reference_logprobs(params, ids, len(PREFIX), batches)
    right = [b._replace(sampler_logprobs=np.asarray(lp)) for b, lp in zip(batches, exact)]
    assert gradient(params, right, learner)[1]["rollout/logprob_diff_max"] < 1e-5
    off = right[0].sampler_logprobs.copy()
    place = tuple(np.argwhere(right[0].loss_mask)[0])
    off[place] -= 0.25
    wrong = [right[0]._replace(sampler_logprobs=off), *right[1:]]
    wanted = 0.25 / max(1.0, abs(float(exact[0][place])))
    np.testing.assert_allclose(
        gradient(params, wrong, learner)[1]["rollout/logprob_diff_max"], wanted, rtol=1e-3
    )


def test_warm_up_starts_above_zero_and_ends_constant():
    schedule = update.learning_rate(OptimConfig(learning_rate=1.0, warmup_steps=4))
    np.testing.assert_allclose([schedule(i) for i in range(6)], [0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_updates_compile_once_for_each_shape():
    from jaxtool import compilations

    params = random_params(CFG)
    learner = make_learner()
    gradient(params, make_batches(*make_groups(6), sizes=(32,)), learner)
    before = compilations.count()
    gradient(params, make_batches(*make_groups(7), sizes=(32,)), learner)
    assert compilations.count() == before
