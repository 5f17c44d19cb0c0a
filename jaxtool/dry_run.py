"""What a run would do, without loading a model: prompts, shapes, memory, time, tool calls.  Host code."""

import time

import numpy as np

from jaxtool import assemble, batch, config_loader, flops
from jaxtool.config import Config
from jaxtool.models.config import DecoderConfig

SHOWN = 3  # prompts of each stage
GIB = 2.0**30


def describe(cfg: Config) -> str:
    """The report of `launch/train.py --dry_run`; errors as `assemble.load`."""
    parts = assemble.load(cfg)
    lines = [config_loader.describe(cfg)]
    rate = matmul_rate()
    total = 0.0
    for stage, plan in zip(parts.stages, parts.plans, strict=True):
        lines += _stage(parts, stage, plan)
        seconds = stage.num_steps * step_flops(cfg, parts.model, plan) / rate
        total += seconds
        calls = (
            stage.num_steps * cfg.rollout.questions_per_step * cfg.rollout.group_size * cfg.rollout.max_turns
        )
        lines.append(
            f"at most {calls} tool calls; at least {duration(seconds)} if every response has the full length"
        )
    lines += [
        "",
        *_memory(cfg, parts),
        f"time: at least {duration(total)} for {cfg.num_steps} steps of full responses, at the {rate / 1e9:.0f} GFLOP/s "
        "that a float32 matrix product reaches on this CPU; accelerators are not measured",
    ]
    parts.close()
    return "\n".join(lines)


def _stage(parts: assemble.Parts, stage, plan: assemble.PromptPlan) -> list[str]:
    cfg = parts.cfg
    lines = [
        "",
        f"=== stage {stage.index}: {stage.shots} demonstrations, steps {stage.first_step} to {stage.last_step}, "
        f"{len(plan.questions)} questions",
        f"shapes: shared prefix {len(plan.prefix_ids)} tokens, question at most {plan.question_size}, response "
        f"{', '.join(map(str, batch.response_buckets(cfg.rollout.max_response_tokens)))}",
    ]
    for question in plan.questions[:SHOWN]:
        ids = parts.prompts.ids(question.question, stage.shots)
        role = "user message, chat template" if cfg.prompt.chat_template else "plain text"
        lines += [
            f"--- prompt of {question.uid}: {len(ids)} tokens ({role}; all of them context, none is trained on)"
        ]
        lines += [parts.tokenizer.decode(ids), f"--- answers: {', '.join(question.answers)}"]
    return lines


def _memory(cfg: Config, parts: assemble.Parts) -> list[str]:
    model, rollout = parts.model, cfg.rollout
    width = {"float32": 4, "bfloat16": 2}[cfg.model.dtype]
    weights = model.num_parameters * 4
    position = 2 * model.num_layers * model.num_kv_heads * model.head_dim * width
    slots = min(rollout.slots, rollout.questions_per_step * rollout.group_size)
    rows = {
        "weights, float32": weights,
        "optimiser moments and gradients": 3 * weights,
        "copy for the forward pass": weights // 2 if width == 2 else 0,
        "reference": model.num_parameters * width if cfg.loss.kl_coef else 0,
        "keys and values of the rows": slots * rollout.max_response_tokens * position,
        "keys and values of the prefix": max(plan.max_tokens for plan in parts.plans) * position,
    }
    lines = [f"memory: {sum(rows.values()) / GIB:.1f} GiB and the activations of one microbatch"]
    return lines + [f"  {name:34s} {size / GIB:8.2f} GiB" for name, size in rows.items()]


def step_flops(cfg: Config, model: DecoderConfig, plan: assemble.PromptPlan) -> float:
    """Operations of one step in which every response has the full length."""
    length, size = cfg.rollout.max_response_tokens, cfg.rollout.group_size
    groups = [(plan.question_size, [length] * size)] * cfg.rollout.questions_per_step
    head_tokens = len(groups) * size * length
    forward = flops.forward(model, len(plan.prefix_ids), groups, head_tokens)
    return flops.step(forward, with_reference=bool(cfg.loss.kl_coef))


def matmul_rate() -> float:
    """float32 operations a second of a 1024^3 matrix product on this machine, best of 5."""
    a = np.ones((1024, 1024), np.float32)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - started)
    return 2 * 1024**3 / min(times)


def duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
