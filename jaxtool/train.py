"""The training loop.  Boundary; the first file to read.

One step: questions -> prompts -> rollout -> rewards -> advantages -> microbatches -> update.  `Run`
holds what lives across steps, `Run.train_step` is the step, `run` is the whole command.
"""

import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxtool import (
    advantages,
    assemble,
    batch,
    checkpoint,
    compilations,
    config_loader,
    curriculum,
    evaluate,
    flops,
    losses,
    memory,
    report,
    rollout,
    roofline,
    trajectories,
    update,
    weights,
)
from jaxtool.config import Config
from jaxtool.engines import Engines
from jaxtool.metrics import MetricsLog, rollout_metrics
from jaxtool.models import decoder
from jaxtool.progress import Progress
from jaxtool.questions import QuestionStream
from jaxtool.rewards import combine
from jaxtool.types import Episode, GroupBatch


class Run:
    """State and programs of a training run.

    Attributes:
        params, opt_state: float32, as the optimiser sees them.
        reference: frozen parameters for the KL term, or None without one.
        streams: where each stage stands in its questions.
        totals: the running `budget/...` numbers.
    """

    def __init__(self, parts: assemble.Parts, run_dir: pathlib.Path):
        cfg = self.cfg = parts.cfg
        self.parts, self.run_dir = parts, run_dir
        self.dtype = jnp.dtype(cfg.model.dtype)
        self.optimizer = update.make_optimizer(cfg.optim)
        self.learner = update.Learner(
            parts.model,
            self.optimizer,
            losses.Objective(cfg.loss.clip_low, cfg.loss.clip_high, cfg.loss.kl_coef, cfg.loss.entropy_coef),
            temperature=cfg.rollout.temperature,
            num_tokens=parts.tokenizer.vocab_size,
            dtype=self.dtype,
            remat=cfg.model.remat,
        )
        self.engines = Engines(parts)
        self.streams = [
            QuestionStream(plan.questions, cfg.seed + 1009 * i) for i, plan in enumerate(parts.plans)
        ]
        self.totals = dict.fromkeys(
            ("policy_tokens", "prompt_tokens", "observation_tokens", "tool_calls", "flops", "device_seconds"),
            0,
        )
        self.stage: curriculum.Stage | None = None
        self.params = weights.load_initial(cfg, parts)
        self.opt_state = self.optimizer.init(self.params)
        self.reference = self._freeze() if cfg.loss.kl_coef else None
        self.updates = 0
        self.matmul_rate = roofline.matmul_rate(self.dtype)

    def _freeze(self) -> decoder.Params:
        return jax.tree.map(lambda leaf: jnp.array(leaf, self.dtype, copy=True), self.params)

    def enter(self, stage: curriculum.Stage) -> None:
        """Prepares a stage's engine and shapes, and resets what the configuration says it should."""
        cfg, plan = self.cfg, self.parts.plans[stage.index]
        size = cfg.rollout.questions_per_step
        self.engine = self.engines.make([plan], cfg.rollout, size, cfg.rollout.group_size)
        self.shape = batch.BatchShape(
            cfg.optim.microbatch_questions, cfg.rollout.group_size, self.engine.question_size,
            batch.response_buckets(cfg.rollout.max_response_tokens),
        )  # fmt: skip
        self.stage = stage

    def reset(self) -> None:
        """A new optimiser, schedule and reference, as between the authors' three separate runs."""
        self.opt_state = self.optimizer.init(self.params)
        if self.reference is not None:
            self.reference = self._freeze()

    def train_step(self, step: int, phase) -> dict[str, float]:
        """One rollout round and its update; returns the step's metrics."""
        cfg, parts, clock = self.cfg, self.parts, _Clock()
        stage, plan = self.stage, parts.plans[self.stage.index]
        before = dict(self.engine.timings)

        phase("rollout")
        questions = self.streams[stage.index].take(cfg.rollout.questions_per_step)
        prompts = [parts.prompts.ids(q.question, stage.shots) for q in questions]
        self.engine.start(decoder.cast(self.params, self.dtype), plan.prefix_ids, prompts)
        episodes, tool_wait = rollout.play(
            self.engine, parts.tools, parts.tokenizer, questions, prompts, cfg.rollout,
            group_size=cfg.rollout.group_size, temperature=cfg.rollout.temperature, seed=cfg.seed, step=step,
        )  # fmt: skip
        clock.lap("rollout")
        rollout.check_outage(episodes, cfg.tools.max_outage_frac, f"step {step}")

        rewards = [combine.icrl(episode, cfg.reward) for episode in episodes]
        scaled, _ = advantages.group_normalised(
            [r.total for r in rewards], [e.question.uid for e in episodes], cfg.loss.advantage_std
        )
        batches = batch.build(
            _groups(episodes, cfg.rollout.group_size),
            list(scaled.reshape(-1, cfg.rollout.group_size)),
            len(plan.prefix_ids),
            self.shape,
            only_with_advantage=not (cfg.loss.kl_coef or cfg.loss.entropy_coef),
        )
        reference = None
        if self.reference is not None:
            phase("reference")
            reference = self.learner.reference_logprobs(
                self.reference, self.engine.prefix_ids, len(plan.prefix_ids), batches
            )
            jax.block_until_ready(reference)
            clock.lap("reference")

        phase("update")
        learning_rate = float(update.learning_rate(cfg.optim)(self._schedule_count()))
        self.params, self.opt_state, metrics = self.learner.update(
            self.params, self.opt_state, self.engine.prefix, self.engine.prefix_ids, len(plan.prefix_ids),
            batches, reference,
        )  # fmt: skip
        self.updates += 1
        clock.lap("update")

        metrics |= rollout_metrics(episodes, rewards) | clock.metrics()
        metrics |= {f"timing_s/{name}": total - before[name] for name, total in self.engine.timings.items()}
        metrics |= {
            "curriculum/stage": stage.index,
            "curriculum/shots": stage.shots,
            "actor/lr": learning_rate,
            "actor/updates": self.updates,
            "timing_s/tool_wait": tool_wait,
            "perf/compilations": compilations.count(),
        }
        self._add_totals(episodes, batches, metrics)
        if cfg.rollout.trajectories_every and step % cfg.rollout.trajectories_every == 0:
            trajectories.write(self.run_dir, step, stage.index, stage.shots, episodes, rewards, scaled)
        check_gap(metrics, cfg, step)
        return metrics

    def _schedule_count(self) -> int:
        return self.updates if not self.cfg.curriculum.reset else self.updates - (self.stage.first_step - 1)

    def _add_totals(
        self, episodes: list[Episode], batches: list[GroupBatch], metrics: dict[str, float]
    ) -> None:
        policy = sum(e.num_policy_tokens for e in episodes)
        response = sum(len(e.ids) for e in episodes)
        prompt = sum(len(e.prompt_ids) for e in episodes)
        seconds = metrics["timing_s/step"]
        self.totals["policy_tokens"] += policy
        self.totals["observation_tokens"] += response - policy
        self.totals["prompt_tokens"] += prompt
        self.totals["tool_calls"] += sum(len(e.tool_records) for e in episodes)
        self.totals["device_seconds"] += seconds * jax.device_count()
        flops_done = self._flops(episodes, batches)
        self.totals["flops"] += flops_done
        metrics["perf/mfu"] = flops_done / seconds / jax.device_count() / self.matmul_rate
        metrics["perf/throughput"] = (prompt + response) / seconds / jax.device_count()
        metrics |= {f"budget/{name}": value for name, value in self.totals.items()}

    def _flops(self, episodes: list[Episode], batches: list[GroupBatch]) -> float:
        """Rollout of all episodes, update (and reference) of the groups that were run."""
        model, prefix = self.parts.model, len(self.parts.plans[self.stage.index].prefix_ids)
        groups = _groups(episodes, self.cfg.rollout.group_size)
        played = [(len(g[0].prompt_ids) - prefix, [len(e.ids) for e in g]) for g in groups]
        trained = [
            (int(asked), lengths.tolist())
            for batch in batches
            for asked, lengths in zip(batch.question_lengths, batch.lengths, strict=True)
            if lengths.any()
        ]
        sampled = flops.forward(model, prefix, played, sum(e.num_policy_tokens for e in episodes))
        learned = flops.forward(model, prefix, trained, int(sum(b.loss_mask.sum() for b in batches)))
        return sampled + learned * (3 + (self.reference is not None))

    def evaluate(self, step: int) -> dict[str, float]:
        """Scores of every held-out set, written to run_dir/eval and returned as `val/...` metrics."""
        metrics: dict[str, float] = {}
        started = time.perf_counter()
        rollout_cfg, params = self.cfg.rollout, decoder.cast(self.params, self.dtype)
        plans = self.parts.eval_plans
        engine = self.engines.make(list(plans.values()), rollout_cfg, rollout_cfg.slots, 1)
        for name, plan in plans.items():
            scores = evaluate.evaluate(self.parts, engine, params, plan)
            report.write_predictions(self.run_dir, step, name, scores)
            metrics |= scores.metrics(name)
        engine.release()
        return metrics | {"timing_s/eval": time.perf_counter() - started}

    def _keeps_reference(self) -> bool:
        """Whether it cannot be had again from the model's folder."""
        return self.reference is not None and bool(self.cfg.curriculum.reset or self.cfg.init_from)

    def save(self, step: int) -> None:
        arrays = {"params": self.params, "opt_state": self.opt_state}
        if self._keeps_reference():
            arrays["reference"] = self.reference
        state = {
            "step": step,
            "updates": self.updates,
            "streams": [stream.state() for stream in self.streams],
            "totals": self.totals,
            "config": config_loader.to_dict(self.cfg),
        }
        checkpoint.save(self.run_dir, step, arrays, state, self.cfg.checkpoint.keep)

    def restore(self, step: int) -> None:
        like = {"params": self.params, "opt_state": self.opt_state}
        if self._keeps_reference():
            like["reference"] = self.reference
        arrays, state = checkpoint.load(self.run_dir, step, like)
        self.params, self.opt_state = arrays["params"], arrays["opt_state"]
        self.reference = arrays.get("reference", self.reference)
        self.updates, self.totals = state["updates"], state["totals"]
        for stream, saved in zip(self.streams, state["streams"], strict=True):
            stream.restore(saved)


def device_memory() -> tuple[float, str]:
    """Bytes that a run may take, and where they are."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    return (float(stats["bytes_limit"]), "the device") if stats else (memory.available(), "this machine")


class _Clock:
    """Seconds of the parts of a step."""

    def __init__(self):
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        laps = self._laps | {"step": time.perf_counter() - self._start}
        return {f"timing_s/{name}": seconds for name, seconds in laps.items()}


def _groups(episodes: list[Episode], size: int) -> list[list[Episode]]:
    return [episodes[i : i + size] for i in range(0, len(episodes), size)]


def check_gap(metrics: dict[str, float], cfg: Config, step: int) -> None:
    """Stops when sampler and learner disagree: in float32 by the largest relative gap, in bfloat16 by the mean."""
    name = "rollout/logprob_diff_max" if cfg.model.dtype == "float32" else "rollout/logprob_diff_mean"
    if not metrics[name] <= cfg.rollout.max_logprob_gap:
        raise RuntimeError(
            f"{name} of step {step} is {metrics[name]:.2e}; expected at most {cfg.rollout.max_logprob_gap:.2e} "
            "(config.rollout.max_logprob_gap): sampler and learner do not see the same policy"
        )
    if not np.isfinite(metrics["actor/grad_norm"]):
        raise RuntimeError(
            f"actor/grad_norm of step {step} is {metrics['actor/grad_norm']}; expected a number"
        )


def run(cfg: Config, run_dir: str | pathlib.Path) -> dict[str, float]:
    """Trains from the start, or from the run directory's last checkpoint; returns its last row of metrics."""
    run_dir = pathlib.Path(run_dir).absolute()
    compilations.prepare(cfg.model.dtype)
    parts = assemble.load(cfg)
    if cfg.init_from:
        weights.find(cfg.init_from, "config.init_from")
    report.open_run(run_dir, cfg, resumed=bool(checkpoint.steps(run_dir)))
    memory.check(memory.needs(cfg, parts.model, parts.prompt_tokens), *device_memory())
    state = Run(parts, run_dir)
    saved = checkpoint.steps(run_dir)
    first = saved[-1] + 1 if saved else 1
    log = MetricsLog(run_dir, cfg.tensorboard)
    log.truncate_after(first - 1 if saved else -1)
    progress = Progress(cfg.num_steps, first - 1)
    if saved:
        state.restore(saved[-1])
        progress.note(f"going on after step {saved[-1]} of {run_dir}")
    else:
        progress.phase("evaluation")
        log.write(0, state.evaluate(0) | {"perf/compilations": compilations.count()})
        progress.note(report.evaluation_line(log.rows[-1]))

    saving = 0.0  # seconds of the checkpoint before the step
    for step in range(first, cfg.num_steps + 1):
        stage = curriculum.stage_at(step, parts.stages)
        if stage != state.stage:
            if cfg.curriculum.reset and step == stage.first_step > 1:
                state.reset()
            state.enter(stage)
            progress.note(
                f"stage {stage.index}: {stage.shots} demonstrations, {state.engine.shapes}, update {state.shape.response_sizes}"
            )
        metrics = state.train_step(step, progress.phase)
        last = step == cfg.num_steps
        if last or (cfg.eval.every and step % cfg.eval.every == 0):
            progress.phase("evaluation")
            metrics |= state.evaluate(step)
        metrics |= {"timing_s/checkpoint": saving, "perf/tracker_errors": log.errors}
        # The row first: a kill before the checkpoint is complete drops the row again, on resuming, and
        # the other order would lose it.
        log.write(step, metrics)
        progress.step(step, metrics)
        saving = 0.0
        if last or step % cfg.checkpoint.every == 0:
            progress.phase("checkpoint")
            started = time.perf_counter()
            state.save(step)
            saving = time.perf_counter() - started
    progress.close()
    log.close()
    if cfg.checkpoint.export_hf:
        weights.export(state.params, parts, run_dir / "hf" / f"{cfg.num_steps:06d}")
    print(report.final_table(log.rows, parts.stages, list(parts.eval_plans)))
    parts.close()
    return log.rows[-1]
