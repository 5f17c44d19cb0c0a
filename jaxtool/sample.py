"""One episode, shown as it happens.  Boundary."""

import dataclasses
import sys

import jax.numpy as jnp

from jaxtool import assemble, compilations, rollout, weights
from jaxtool.config import Config
from jaxtool.engines import Engines
from jaxtool.models import decoder
from jaxtool.shown import harmless
from jaxtool.types import POLICY, Episode, Question

COLOURS = {POLICY: "\033[36m", "observation": "\033[33m"}


def run(cfg: Config, question: str, checkpoint: str | None) -> Episode:
    """Plays `question` with evaluation's tools, demonstrations and temperature, and prints each turn."""
    compilations.prepare(cfg.model.dtype)
    asked = Question("question", question, ("",))
    parts = assemble.load(cfg)
    held_out = next(iter(parts.eval_plans.values()))
    prompt = parts.prompts.ids(question, cfg.eval.shots)
    plan = dataclasses.replace(held_out, question_size=len(prompt) - len(held_out.prefix_ids))
    params = (
        weights.load_checkpoint(checkpoint, parts.model) if checkpoint else weights.load_initial(cfg, parts)
    )
    engine = Engines(parts).make([plan], cfg.rollout, 1, 1)
    engine.start(decoder.cast(params, jnp.dtype(cfg.model.dtype)), plan.prefix_ids, [prompt])
    show(f"[prompt, {cfg.eval.shots} demonstrations, {len(prompt)} tokens] {question}\n", None)
    episodes, _ = rollout.play(
        engine, parts.eval_tools, parts.tokenizer, [asked], [prompt], cfg.rollout,
        group_size=1, temperature=cfg.eval.temperature, seed=cfg.seed, step=0,
        watch=lambda episode, role, text: show(f"[{role}] {text.strip()}\n", role),
    )  # fmt: skip
    parts.close()
    show(f"[{episodes[0].finish_reason}, {len(episodes[0].tool_records)} tool calls]\n", None)
    return episodes[0]


def show(text: str, role: str | None) -> None:
    """Prints a turn, coloured on a terminal; control characters of model and tool text are shown, not run."""
    colour = COLOURS.get(role, "") if sys.stdout.isatty() else ""
    print(f"{colour}{harmless(text)}{chr(27) + '[0m' if colour else ''}", end="", flush=True)
