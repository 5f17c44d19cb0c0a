"""Held-out questions -> scores with confidence intervals.  Boundary.

Greedy by default; the tools, the number of demonstrations and the temperature are evaluation's own.
"""

import dataclasses
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtool import assemble, compilations, report, rollout, weights
from jaxtool.assemble import Parts, PromptPlan
from jaxtool.config import Config
from jaxtool.engines import Engines
from jaxtool.models import decoder
from jaxtool.models.decoder import Params
from jaxtool.progress import table
from jaxtool.rewards import exact_match, f1
from jaxtool.rewards.combine import icrl
from jaxtool.rewards.format import answer
from jaxtool.sampler.engine import Engine
from jaxtool.types import Episode

RESAMPLES = 2000  # of the bootstrap


@dataclasses.dataclass(frozen=True)
class Scores:
    """One row a question, in the order of the plan."""

    episodes: list[Episode]
    em: np.ndarray
    f1: np.ndarray
    format: np.ndarray
    searches: np.ndarray  # executed

    def metrics(self, name: str) -> dict[str, float]:
        prefix = f"val/{name}"
        return {
            f"{prefix}/em": float(self.em.mean()),
            f"{prefix}/f1": float(self.f1.mean()),
            f"{prefix}/format": float(self.format.mean()),
            f"{prefix}/searches": float(self.searches.mean()),
            f"{prefix}/searched_frac": float((self.searches > 0).mean()),
        }


def evaluate(parts: Parts, engine: Engine, params: Params, plan: PromptPlan) -> Scores:
    """One episode a question, in waves of as many as the engine holds."""
    cfg = parts.cfg
    limits = cfg.rollout
    if cfg.eval.max_turns is not None:
        limits = dataclasses.replace(limits, max_turns=cfg.eval.max_turns)
    episodes: list[Episode] = []
    for start in range(0, len(plan.questions), engine.num_questions):
        asked = plan.questions[start : start + engine.num_questions]
        prompts = [parts.prompts.ids(q.question, plan.shots) for q in asked]
        engine.start(params, plan.prefix_ids, prompts)
        played, _ = rollout.play(
            engine, parts.eval_tools, parts.tokenizer, asked, prompts, limits,
            group_size=1, temperature=cfg.eval.temperature, seed=cfg.seed, step=0,
        )  # fmt: skip
        episodes += played
    rollout.check_outage(episodes, cfg.eval_tools.max_outage_frac, "the evaluation")
    predictions = [answer(e.segments) for e in episodes]
    golds = [e.question.answers for e in episodes]
    return Scores(
        episodes,
        np.array([exact_match.exact_match(p, g) for p, g in zip(predictions, golds)]),
        np.array([f1.f1(p, g) for p, g in zip(predictions, golds)]),
        np.array([icrl(e, cfg.reward).parts["format"] for e in episodes]),
        np.array([len(e.tool_records) for e in episodes], float),
    )


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean (Efron 1979), questions resampled."""
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


@dataclasses.dataclass(frozen=True)
class Result:
    text: str  # for people
    data: dict[str, Any]  # {"sets": {name: {...}}, "average": {...}}


def run(cfg: Config, checkpoint: str | None, out: str | None) -> Result:
    """The whole of `launch/eval.py`: every held-out set of the config, and the average over sets.

    Args:
        checkpoint: RUN_DIR, RUN_DIR:STEP or a Hugging Face folder; None takes `model.path` and `init_from`.
        out: folder for predictions, or None.
    """
    compilations.prepare(cfg.model.dtype)
    parts = assemble.load(cfg)
    params = (
        weights.load_checkpoint(checkpoint, parts.model) if checkpoint else weights.load_initial(cfg, parts)
    )
    params = decoder.cast(params, jnp.dtype(cfg.model.dtype))
    engine = Engines(parts).make(list(parts.eval_plans.values()), cfg.rollout, cfg.rollout.slots, 1)
    sets = {}
    for name, plan in parts.eval_plans.items():
        scores = evaluate(parts, engine, params, plan)
        low, high = interval(scores.em)
        sets[name] = {
            "n": len(scores.em),
            "em": float(scores.em.mean()),
            "em_low": low,
            "em_high": high,
            "f1": float(scores.f1.mean()),
            "searches_mean": float(scores.searches.mean()),
            "searched_frac": float((scores.searches > 0).mean()),
        }
        if out is not None:
            report.write_predictions(pathlib.Path(out), 0, name, scores)
    parts.close()
    average = {key: float(np.mean([row[key] for row in sets.values()])) for key in next(iter(sets.values()))}
    head = ["set", "questions", "exact match", "low", "high", "F1", "searches", "searched"]
    engine_name = cfg.eval_tools.search.engine
    title = f"{checkpoint or cfg.model.path}, {cfg.eval.shots} demonstrations, search by {engine_name}"
    text = table([head, *([name, *row.values()] for name, row in sets.items())])
    return Result(f"{title}\n{text}", {"sets": sets, "average": average})
