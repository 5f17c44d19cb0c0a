"""The few types that travel between the stages.  Host code: numpy only.

question -> prompt ids -> Episode -> Reward -> advantage -> GroupBatch -> update

Axes of the package: L layers, D width, H query heads, K key/value heads, N query heads per
key/value head (H = K N), E head size, V vocabulary; P shared prefix positions, Q questions,
U question positions, G rollouts of a question, T response positions, R rows (slots), S cache
positions.
"""

import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np

POLICY = "policy"  # sampled by the policy, trained on
OBSERVATION = "observation"  # put in by a tool (or the retry text), never trained on


@dataclasses.dataclass(frozen=True)
class Question:
    uid: str  # unique over the run; groups, keys and trajectories are named by it
    question: str
    answers: tuple[str, ...]  # every right answer; at least one
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ToolCall:
    tool: str  # name of the tool, such as "search"
    input: str  # stripped text between the call's tags


class ToolStatus(enum.StrEnum):
    OK = "ok"
    EMPTY = "empty"  # the tool answered that there is nothing
    ERROR = "error"
    TIMEOUT = "timeout"


@dataclasses.dataclass(frozen=True)
class ToolResult:
    output: str  # what the policy will read, without the observation tags
    status: ToolStatus
    latency_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class ToolRecord:
    """One executed call of an episode: a valid call, whatever its status."""

    call: ToolCall
    result: ToolResult


class FinishReason(enum.StrEnum):
    ANSWERED = "answered"
    NO_ACTION = "no_action"  # neither a complete call nor a complete answer
    MAX_TURNS = "max_turns"  # tool turns used up and the last generation did not answer
    MAX_TOKENS = "max_tokens"  # max_response_tokens reached
    CONTEXT_FULL = "context_full"  # prompt + response reached the engine's cache
    TOOL_OUTAGE = "tool_outage"  # the tool runner gave the episode up


@dataclasses.dataclass(frozen=True)
class Segment:
    """A maximal run of tokens with one role, with its text (special tokens kept)."""

    role: str  # POLICY or OBSERVATION
    num_tokens: int
    text: str


@dataclasses.dataclass
class Episode:
    """One rollout: an append-only list of token ids after its prompt.

    `ids` holds tokens as they were sampled, plus tool text tokenised once; nothing is decoded
    and encoded again, so every context that the policy was sampled in is a prefix of
    `prompt_ids + ids`.  `roles` says which is which and is written with the token.
    """

    question: Question
    sample: int  # index within the group, 0..G-1
    prompt_ids: list[int]
    ids: list[int] = dataclasses.field(default_factory=list)
    roles: list[tuple[str, int]] = dataclasses.field(default_factory=list)  # (role, number of tokens)
    texts: list[str] = dataclasses.field(default_factory=list)  # one for each entry of `roles`
    logprobs: list[float] = dataclasses.field(default_factory=list)  # nats; policy tokens only, in order
    turns: int = 0  # generations
    tool_records: list[ToolRecord] = dataclasses.field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def segments(self) -> list[Segment]:
        return [Segment(r, n, t) for (r, n), t in zip(self.roles, self.texts, strict=True)]

    @property
    def loss_mask(self) -> np.ndarray:
        """bool [len(ids)]: the token was sampled by the policy."""
        if not self.roles:
            return np.zeros(0, bool)
        return np.concatenate([np.full(n, role == POLICY) for role, n in self.roles])

    @property
    def num_policy_tokens(self) -> int:
        return len(self.logprobs)


@dataclasses.dataclass(frozen=True)
class Reward:
    total: float
    parts: dict[str, float]  # such as {"accuracy": 1.0, "format": 0.9}, before weighting


class GroupBatch(NamedTuple):
    """Q questions with G rollouts each, for one microbatch of the update.

    The tree prefix -> question -> rollout is kept: `prefix` is the part that all prompts of the
    step share, a question's own part stands in `questions`, and a rollout's row starts with the
    last prompt token, so that `targets` is the response itself (the one shift of the package).
    """

    questions: np.ndarray  # i32 [Q, U] prompt tokens after the prefix, without the last
    question_lengths: np.ndarray  # i32 [Q]
    inputs: np.ndarray  # i32 [Q, G, T] last prompt token, then the response without its last
    targets: np.ndarray  # i32 [Q, G, T] the response
    lengths: np.ndarray  # i32 [Q, G] response tokens
    loss_mask: np.ndarray  # bool [Q, G, T] target was sampled by the policy
    advantages: np.ndarray  # f32 [Q, G]
    weights: np.ndarray  # f32 [Q, G, T] 0 off-mask; over all questions of a step they add up to 1
    sampler_logprobs: np.ndarray  # f32 [Q, G, T] nats; 0 off-mask
