"""Config -> everything a run needs but the weights, checked.  Host code.

Cheap and small things come first, so that a wrong file, row or limit ends in one sentence within
seconds, before a model is loaded or a program compiled.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

from jaxtool import curriculum, files, protocol, questions, tokenizer, tools
from jaxtool.config import Config
from jaxtool.models import hf, resolve
from jaxtool.models.config import DecoderConfig
from jaxtool.prompts import PromptBuilder, load_demonstrations
from jaxtool.tools.base import ToolRunner
from jaxtool.types import Question

# Begin a question in as many ways as a tokenizer may merge with what stands before it.
PROBES = ("What", "who", "7", "(a", '"A', "é", "国")
EVAL_SEED = 0
MARGIN = 8  # tokens by which a question's own part may exceed the estimate made without its prompt


@dataclasses.dataclass(frozen=True)
class PromptPlan:
    """The prompts of one set of questions with one number of demonstrations.

    Attributes:
        prefix_ids: what every prompt begins with.
        question_size: most tokens that follow it.
        max_tokens: bound of the longest prompt.
    """

    shots: int
    questions: list[Question]
    prefix_ids: list[int]
    question_size: int

    @property
    def max_tokens(self) -> int:
        return len(self.prefix_ids) + self.question_size


@dataclasses.dataclass(frozen=True)
class Parts:
    """What `load` found; the weights are still on disk."""

    cfg: Config
    folder: pathlib.Path
    model: DecoderConfig
    tokenizer: tokenizer.Tokenizer
    prompts: PromptBuilder
    stages: list[curriculum.Stage]
    plans: list[PromptPlan]  # one a stage
    eval_plans: dict[str, PromptPlan]  # by the name of the set
    tools: ToolRunner
    eval_tools: ToolRunner

    @property
    def prompt_tokens(self) -> int:
        """Most prompt tokens that a step of training keeps in its caches, shared ones once."""
        asked = self.cfg.rollout.questions_per_step
        return max(len(plan.prefix_ids) + asked * plan.question_size for plan in self.plans)

    def close(self) -> None:
        for runner in {id(r): r for r in (self.tools, self.eval_tools)}.values():
            runner.close()


def load(cfg: Config) -> Parts:
    """Reads and checks questions, corpus, demonstrations, tokenizer and the model's config.json.

    Raises:
        ValueError, FileNotFoundError: one sentence about the first thing that is wrong.
    """
    stages = curriculum.stages(cfg.curriculum)
    demonstrations = _demonstrations(cfg, cfg.max_shots)
    train = questions.load(
        cfg.questions.train_file,
        "config.questions.train_file",
        hops=cfg.questions.hops,
        types=cfg.questions.types,
    )
    train = questions.select(train, cfg.questions.limit, cfg.seed)
    if cfg.curriculum.data == "disjoint":
        per_stage = questions.partition(train, [stage.num_steps for stage in stages])
    else:
        per_stage = [train] * len(stages)
    held_out = {_set_name(file): _eval_questions(cfg, file) for file in cfg.eval.files}
    if len(held_out) < len(cfg.eval.files):
        raise ValueError(
            f"config.eval.files is {cfg.eval.files}, in which two sets have one name; expected different file names"
        )
    if "bm25" in (cfg.tools.search.engine, cfg.eval_tools.search.engine):
        files.find(cfg.corpus.file, "config.corpus.file")

    folder = resolve.resolve(cfg.model.path)
    model = hf.read_config(folder)
    text = tokenizer.load(folder)
    if text.vocab_size > model.vocab_size:
        raise ValueError(
            f"{folder} (config.model.path) has a tokenizer of {text.vocab_size} tokens and a model of "
            f"{model.vocab_size}; expected at least as many rows in the model"
        )
    builder = PromptBuilder(text, demonstrations, cfg.prompt.chat_template)
    plans = [_plan(cfg, builder, text, stage.shots, qs) for stage, qs in zip(stages, per_stage, strict=True)]
    for plan in plans:
        if len(plan.questions) < cfg.rollout.questions_per_step:
            raise ValueError(
                f"config.rollout.questions_per_step is {cfg.rollout.questions_per_step} and the {plan.shots}-shot "
                f"stage has {len(plan.questions)} questions; expected at most as many"
            )
    eval_plans = {name: _plan(cfg, builder, text, cfg.eval.shots, qs) for name, qs in held_out.items()}
    context = (
        max(plan.max_tokens for plan in [*plans, *eval_plans.values()]) + cfg.rollout.max_response_tokens
    )
    if context > model.max_positions:
        raise ValueError(
            f"the longest prompt and config.rollout.max_response_tokens make {context} tokens; {folder} "
            f"(config.model.path) takes at most {model.max_positions}"
        )
    _check_observations(cfg, text)
    # Last, as a large corpus takes long to index.
    runner = tools.make(cfg.tools, cfg.corpus.file)
    eval_runner = runner if cfg.eval_tools == cfg.tools else tools.make(cfg.eval_tools, cfg.corpus.file)
    return Parts(cfg, folder, model, text, builder, stages, plans, eval_plans, runner, eval_runner)


def _demonstrations(cfg: Config, most: int) -> list[str]:
    if not most:
        return []
    return load_demonstrations(files.find(cfg.prompt.demonstrations, "config.prompt.demonstrations"), most)


def _eval_questions(cfg: Config, file: str) -> list[Question]:
    found = questions.load(file, "config.eval.files", hops=cfg.eval.hops, types=cfg.eval.types)
    # One seed for all runs: arms that are compared answer the same questions.
    return questions.select(found, cfg.eval.limit, EVAL_SEED)


def _set_name(file: str) -> str:
    return pathlib.Path(file).name.split(".")[0]


def _check_observations(cfg: Config, text: tokenizer.Tokenizer) -> None:
    """The information tags, and room to answer after them, must fit."""
    tags, limit = len(protocol.observation_ids("", text, 10**6)), cfg.rollout.max_observation_tokens
    if not tags < limit < cfg.rollout.max_response_tokens:
        raise ValueError(
            f"config.rollout.max_observation_tokens is {limit}; expected more than the {tags} tokens of its tags and "
            f"less than config.rollout.max_response_tokens = {cfg.rollout.max_response_tokens}"
        )


def common_prefix(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The longest beginning that all share, leaving each at least one token more."""
    shortest = min(len(s) for s in sequences)
    n = 0
    while n < shortest - 1 and all(s[n] == sequences[0][n] for s in sequences):
        n += 1
    return list(sequences[0][:n])


def _plan(
    cfg: Config, builder: PromptBuilder, text: tokenizer.Tokenizer, shots: int, asked: list[Question]
) -> PromptPlan:
    prefix = common_prefix([builder.ids(probe, shots) for probe in PROBES])
    # Whole prompts are long and alike: questions are measured alone, the longest few exactly.
    own = {q.uid: len(text.encode(q.question)) for q in asked}
    longest = sorted(asked, key=lambda q: own[q.uid])[-16:]
    around = max(len(builder.ids(q.question, shots)) - len(prefix) - own[q.uid] for q in longest)
    room = cfg.prompt.max_tokens - len(prefix) - around - MARGIN
    kept = [q for q in asked if own[q.uid] <= room]
    if len(kept) < len(asked) and (cfg.questions.on_overlong == "error" or not kept):
        worst = max(own.values())
        raise ValueError(
            f"config.prompt.max_tokens is {cfg.prompt.max_tokens} and the longest {shots}-shot prompt has up to "
            f"{len(prefix) + worst + around + MARGIN} tokens ({len(prefix)} of instruction and demonstrations, "
            f"{worst} of question); expected a larger limit, or config.questions.on_overlong = 'filter'"
        )
    if len(kept) < len(asked):
        print(
            f"left out {len(asked) - len(kept)} of {len(asked)} questions: prompts above {cfg.prompt.max_tokens}"
        )
    size = max(own[q.uid] for q in kept) + around + MARGIN
    return PromptPlan(shots, kept, prefix, size)
