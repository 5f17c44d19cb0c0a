"""What a run would do, without loading a model: prompts, shapes, memory, time, tool calls.  Host code."""

import time

import numpy as np

from jaxtool import assemble, batch, config_loader, flops, memory
from jaxtool.config import Config
from jaxtool.models.config import DecoderConfig
from jaxtool.shown import harmless

SHOWN = 3  # prompts of each stage


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
        *memory.table(memory.needs(cfg, parts.model, parts.prompt_tokens)),
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
        lines += [
            harmless(parts.tokenizer.decode(ids)),
            f"--- answers: {harmless(', '.join(question.answers))}",
        ]
    return lines


def step_flops(cfg: Config, model: DecoderConfig, plan: assemble.PromptPlan) -> float:
    """Operations of one step in which every response has the full length."""
    length, size = cfg.rollout.max_response_tokens, cfg.rollout.group_size
    groups = [(plan.question_size, [length] * size)] * cfg.rollout.questions_per_step
    head_tokens = len(groups) * size * length
    forward = flops.forward(model, len(plan.prefix_ids), groups, head_tokens)
    return forward * (4 + bool(cfg.loss.kl_coef))  # rollout, three for the update, reference


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
