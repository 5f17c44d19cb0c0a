"""Held-out questions -> scores with confidence intervals.  Boundary.

Greedy by default; the tools, the number of demonstrations and the temperature are evaluation's own.
"""

import dataclasses

import numpy as np

from jaxtool import rollout
from jaxtool.assemble import Parts, PromptPlan
from jaxtool.models.decoder import Params
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
    episodes: list[Episode] = []
    for start in range(0, len(plan.questions), engine.num_questions):
        asked = plan.questions[start : start + engine.num_questions]
        prompts = [parts.prompts.ids(q.question, plan.shots) for q in asked]
        engine.start(params, plan.prefix_ids, prompts)
        played, _ = rollout.play(
            engine, parts.eval_tools, parts.tokenizer, asked, prompts, cfg.rollout,
            group_size=1, temperature=cfg.eval.temperature, seed=cfg.seed, step=0,
        )  # fmt: skip
        episodes += played
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


def paired_difference(after: np.ndarray, before: np.ndarray) -> tuple[float, float, float]:
    """Mean of after - before over the same questions, and its 95 % bootstrap interval."""
    difference = after - before
    return float(difference.mean()), *interval(difference)
