"""The configuration of a run: frozen dataclasses, one per stage.  Host code.

A config file states only what differs from the defaults here; `--config.a.b=value` overrides it
(`config_loader.py`).  `validate` checks the whole once, when everything has been put together.
"""

import dataclasses
import functools
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    path: str = "quickstart"  # a Hugging Face folder, a hub id, or "quickstart" (SmolLM2-135M-Instruct)
    dtype: Literal["float32", "bfloat16"] = "float32"  # weights, activations; log-probs, Adam stay float32
    remat: bool = True  # recompute each layer in the backward pass: less memory, a third more work


@dataclasses.dataclass(frozen=True)
class QuestionsConfig:
    train_file: str = "worldfacts/train.jsonl"  # JSONL or .jsonl.gz; see `files.py` for how names are found
    limit: int | None = None  # first n rows after the seeded shuffle
    hops: tuple[int, ...] = ()  # keep rows whose metadata.hops is listed; empty keeps all
    types: tuple[str, ...] = ()  # keep rows whose metadata.type is listed; empty keeps all
    on_overlong: Literal["error", "filter"] = "error"  # prompts above prompt.max_tokens


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    file: str = "worldfacts/corpus.jsonl"  # JSONL or .jsonl.gz of {"id", "contents": "\"title\"\ntext"}


@dataclasses.dataclass(frozen=True)
class PromptConfig:
    demonstrations: str = "worldfacts/demonstrations.txt"
    chat_template: bool = False  # one user message through the tokenizer's chat template, or plain text
    max_tokens: int = 5000


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    stages: tuple[tuple[int, int], ...] = ((3, 16), (2, 12), (0, 24))  # (demonstrations, steps)
    data: Literal["disjoint", "shared"] = "disjoint"  # stages draw from partitions, or from all questions
    reset: bool = False  # a new optimiser, schedule and reference at each stage, as the authors' scripts do


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    group_size: int = 8
    questions_per_step: int = 4
    temperature: float = 1.0
    max_turns: int = 6  # executed tool calls; one more generation may then answer
    max_response_tokens: int = 2048  # policy + observation tokens of an episode
    max_turn_tokens: int = 1024  # of one generation
    max_observation_tokens: int = 200  # observation tags included
    on_no_action: Literal["retry", "end"] = "retry"
    slots: int = 32  # rows that decode together
    max_logprob_gap: float = 1e-4  # stop when |sampler - learner| / max(1, |log-prob|) exceeds it
    trajectories_every: int = 1  # write trajectories every k-th step; 0 never


@dataclasses.dataclass(frozen=True)
class RewardConfig:
    accuracy_weight: float = 0.8  # alpha of the ICRL paper's Eq. 7; the format weighs 1 - alpha


@dataclasses.dataclass(frozen=True)
class LossConfig:
    clip_low: float = 0.2  # ratio is clipped to [1 - clip_low, 1 + clip_high]
    clip_high: float = 0.2
    kl_coef: float = 0.001  # weight of KL(policy || reference), k3; 0: no reference model is kept
    entropy_coef: float = 0.0
    advantage_std: Literal["sample", "population"] = "sample"  # ddof 1 or 0 in the group's standard deviation


@dataclasses.dataclass(frozen=True)
class OptimConfig:
    learning_rate: float = 1e-6
    warmup_steps: int = 0  # the first step has learning_rate / warmup_steps, then linear, then constant
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.01
    grad_clip: float = 1.0  # global norm
    microbatch_questions: int = 1  # questions, with their rollouts, in one backward pass


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    engine: Literal["bm25", "retriever", "serper"] = "bm25"
    top_k: int = 3
    url: str = "http://127.0.0.1:8000/retrieve"  # of the retriever
    timeout_s: float = 30.0  # per call, tries and waits included


@dataclasses.dataclass(frozen=True)
class ToolsConfig:
    search: SearchConfig = SearchConfig()
    threads: int = 16
    max_outage_frac: float = 0.5  # stop when more than this share of a step's calls failed


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    every: int = 0  # steps; 0: only before and after training
    files: tuple[str, ...] = ("worldfacts/eval.jsonl",)
    limit: int | None = 128  # first n questions of each file after a seeded shuffle
    hops: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    shots: int = 0
    temperature: float = 0.0
    max_turns: int | None = None  # executed tool calls; None: as in training
    tools: ToolsConfig | None = None  # None: as in training


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    every: int = 10  # steps; the last step is always saved
    keep: int = 2
    export_hf: bool = True  # write a Hugging Face folder after the last step


@dataclasses.dataclass(frozen=True)
class Config:
    model: ModelConfig = ModelConfig()
    init_from: str | None = None  # weights of another run (RUN or RUN:STEP) or folder, with a fresh optimiser
    questions: QuestionsConfig = QuestionsConfig()
    corpus: CorpusConfig = CorpusConfig()
    prompt: PromptConfig = PromptConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    tools: ToolsConfig = ToolsConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tensorboard: bool = True
    seed: int = 0

    @property
    def num_steps(self) -> int:
        return sum(steps for _, steps in self.curriculum.stages)

    @property
    def max_shots(self) -> int:
        """Largest number of demonstrations that any prompt of the run shows."""
        return max(self.eval.shots, *(shots for shots, _ in self.curriculum.stages))

    @property
    def eval_tools(self) -> ToolsConfig:
        """Tools of evaluation: its own, or those of training."""
        return self.tools if self.eval.tools is None else self.eval.tools


class ConfigError(ValueError):
    """One sentence about a key of the configuration: what was given and what was expected."""


def value_at(cfg: Any, key: str) -> Any:
    """Value of a dotted key such as "rollout.group_size"."""
    return functools.reduce(getattr, key.split("."), cfg)


def validate(cfg: Config) -> None:
    """Checks ranges and what must fit together, once, after all overrides.

    Raises:
        ConfigError: for the first key out of range, with its value and the range.
    """

    def require(is_right: bool, key: str, expected: str) -> None:
        if not is_right:
            raise ConfigError(f"config.{key} is {value_at(cfg, key)!r}; expected {expected}")

    def at_least(low: float, *keys: str) -> None:
        for key in keys:
            require(value_at(cfg, key) is None or value_at(cfg, key) >= low, key, f"at least {low}")

    def within(low: float, high: float, *keys: str) -> None:
        for key in keys:
            require(low <= value_at(cfg, key) <= high, key, f"a number from {low} to {high}")

    def positive(*keys: str) -> None:
        for key in keys:
            require(value_at(cfg, key) > 0, key, "a number above 0")

    for key in ("model.path", "questions.train_file", "corpus.file", "prompt.demonstrations"):
        require(bool(value_at(cfg, key).strip()), key, "a file, folder or name")
    require(bool(cfg.eval.files), "eval.files", "at least one question file")
    stages = cfg.curriculum.stages
    require(bool(stages), "curriculum.stages", "at least one (demonstrations, steps) pair")
    require(
        all(shots >= 0 and steps >= 1 for shots, steps in stages),
        "curriculum.stages",
        "(demonstrations, steps) pairs with demonstrations >= 0 and steps >= 1",
    )
    for key in ("questions.hops", "eval.hops"):
        require(all(hops >= 1 for hops in value_at(cfg, key)), key, "numbers of hops >= 1")

    at_least(1, "questions.limit", "prompt.max_tokens", "rollout.questions_per_step", "rollout.slots")
    at_least(2, "rollout.group_size")  # a group of one has no baseline: its advantage would always be 0
    at_least(1, "rollout.max_response_tokens", "rollout.max_turn_tokens", "rollout.max_observation_tokens")
    at_least(0, "rollout.max_turns", "rollout.trajectories_every", "optim.warmup_steps", "eval.every")
    at_least(
        0,
        "eval.max_turns",
        "eval.shots",
        "eval.temperature",
        "loss.clip_high",
        "loss.kl_coef",
        "loss.entropy_coef",
    )
    at_least(0, "optim.learning_rate", "optim.weight_decay")
    at_least(1, "eval.limit", "checkpoint.every", "checkpoint.keep", "optim.microbatch_questions")
    positive("rollout.temperature", "rollout.max_logprob_gap", "optim.grad_clip")
    within(0, 1, "reward.accuracy_weight", "loss.clip_low")
    for key in ("optim.beta1", "optim.beta2"):
        require(0 <= value_at(cfg, key) < 1, key, "a number in [0, 1)")
    require(0 <= cfg.seed < 2**31, "seed", "a whole number from 0 to 2147483647")
    require(
        cfg.rollout.max_turn_tokens <= cfg.rollout.max_response_tokens,
        "rollout.max_turn_tokens",
        f"at most config.rollout.max_response_tokens = {cfg.rollout.max_response_tokens}",
    )
    require(
        cfg.rollout.questions_per_step % cfg.optim.microbatch_questions == 0,
        "optim.microbatch_questions",
        f"a divisor of config.rollout.questions_per_step = {cfg.rollout.questions_per_step}",
    )
    for tools in ("tools", "eval.tools"):
        if value_at(cfg, tools) is None:
            continue
        at_least(1, f"{tools}.search.top_k", f"{tools}.threads")
        positive(f"{tools}.search.timeout_s")
        within(0, 1, f"{tools}.max_outage_frac")
        is_address = value_at(cfg, f"{tools}.search.url").startswith(("http://", "https://"))
        require(
            "@" not in value_at(cfg, f"{tools}.search.url"),
            f"{tools}.search.url",
            "no user or password in it",
        )
        require(is_address, f"{tools}.search.url", "an address that begins with http:// or https://")
