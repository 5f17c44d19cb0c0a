"""Questions -> finished episodes: sampler and tools in turn until every episode has ended.  Host code.

Tool calls run on threads while the other episodes decode.  What an episode holds depends on its
prompt, its key and its tools' answers alone, whatever order those answers come in.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Protocol, runtime_checkable

import numpy as np

from jaxtool import protocol
from jaxtool.config import RolloutConfig
from jaxtool.types import (
    OBSERVATION,
    POLICY,
    Episode,
    FinishReason,
    Question,
    ToolCall,
    ToolRecord,
    ToolResult,
    ToolStatus,
)

OUTAGE_CALLS = 8  # fewer say nothing about the tool


@runtime_checkable
class Sampler(Protocol):
    """The engine as the rollout sees it; `sampler/engine.py` says what each call does."""

    def open(self, question: int, *, key: np.ndarray, temperature: float, budget: int) -> int: ...
    def step(self) -> list: ...
    def extend(self, session: int, ids: Sequence[int], *, budget: int) -> None: ...
    def close(self, session: int) -> None: ...
    def is_running(self) -> bool: ...


@runtime_checkable
class Tools(Protocol):
    def submit(self, call: ToolCall) -> Future[ToolResult]: ...


@runtime_checkable
class Text(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...


def episode_key(seed: int, step: int, uid: str, sample: int) -> np.ndarray:
    """u32 [2], the PRNG key of one episode; a token's position is folded in on the device."""
    digest = hashlib.blake2b(f"{seed}\0{step}\0{uid}\0{sample}".encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint32).copy()


def play(
    sampler: Sampler,
    tools: Tools,
    text: Text,
    questions: Sequence[Question],
    prompts: Sequence[list[int]],
    cfg: RolloutConfig,
    *,
    group_size: int,
    temperature: float,
    seed: int,
    step: int,
    watch: Callable[[Episode, str, str], None] = lambda episode, role, text: None,
) -> tuple[list[Episode], float]:
    """Plays `group_size` episodes of every question on a sampler that was started with `prompts`.

    A failed tool call is an observation that the policy can react to, never an exception.

    Args:
        watch: called with (episode, role, text) after every generation and observation.

    Returns:
        The episodes, question by question, and the seconds in which nothing decoded because every
        open episode waited for its tool.
    """
    episodes: dict[int, Episode] = {}  # session -> episode
    finished: list[Episode] = []
    calls: dict[Future[ToolResult], tuple[int, ToolCall]] = {}
    tool_wait = 0.0

    for i, question in enumerate(questions):
        for sample in range(group_size):
            episode = Episode(question, sample, list(prompts[i]))
            finished.append(episode)
            session = sampler.open(
                i, key=episode_key(seed, step, question.uid, sample), temperature=temperature,
                budget=_budget(episode, cfg),
            )  # fmt: skip
            episodes[session] = episode

    def end(session: int, reason: FinishReason) -> None:
        episodes.pop(session).finish_reason = reason
        sampler.close(session)

    def observe(session: int, ids: list[int], shown: str) -> None:
        episode = episodes[session]
        if len(episode.ids) + len(ids) >= cfg.max_response_tokens:
            return end(session, FinishReason.MAX_TOKENS)
        _append(episode, OBSERVATION, ids, shown)
        watch(episode, OBSERVATION, shown)
        sampler.extend(session, ids, budget=_budget(episode, cfg))

    while episodes:
        for future in [f for f in calls if f.done()]:
            session, call = calls.pop(future)
            result = future.result()
            episodes[session].tool_records.append(ToolRecord(call, result))
            shown = protocol.observation_text(result.output, text, cfg.max_observation_tokens)
            observe(session, text.encode(shown), shown)
        for generation in sampler.step():
            session, episode = generation.session, episodes[generation.session]
            completion = text.decode(generation.ids)
            _append(episode, POLICY, generation.ids, completion)
            episode.logprobs += generation.logprobs
            episode.turns += 1
            watch(episode, POLICY, completion)
            action = protocol.parse(completion)
            if isinstance(action, protocol.Answer):
                end(session, FinishReason.ANSWERED)
            elif len(episode.ids) >= cfg.max_response_tokens:
                end(session, FinishReason.MAX_TOKENS)
            elif isinstance(action, protocol.NoAction) and cfg.on_no_action == "end":
                end(session, FinishReason.NO_ACTION)
            elif episode.turns > cfg.max_turns:
                end(session, FinishReason.MAX_TURNS)
            elif isinstance(action, protocol.Search):
                call = ToolCall("search", action.query)
                calls[tools.submit(call)] = session, call
            else:
                observe(session, text.encode(protocol.RETRY), protocol.RETRY)
        if calls and not sampler.is_running():
            started = time.perf_counter()
            wait(calls, return_when=FIRST_COMPLETED)
            tool_wait += time.perf_counter() - started
    return finished, tool_wait


def _budget(episode: Episode, cfg: RolloutConfig) -> int:
    return min(cfg.max_turn_tokens, cfg.max_response_tokens - len(episode.ids))


def _append(episode: Episode, role: str, ids: list[int], text: str) -> None:
    episode.ids += ids
    episode.roles.append((role, len(ids)))
    episode.texts.append(text)


def check_outage(episodes: Sequence[Episode], limit: float, where: str) -> None:
    """Stops when too many calls failed: the policy would learn, or show, that searching is useless.

    Raises:
        RuntimeError: more than `limit` of at least `OUTAGE_CALLS` calls ended in an error or a timeout.
    """
    results = [record.result for episode in episodes for record in episode.tool_records]
    failed = [r for r in results if r.status in (ToolStatus.ERROR, ToolStatus.TIMEOUT)]
    if len(results) >= OUTAGE_CALLS and len(failed) > limit * len(results):
        raise RuntimeError(
            f"{len(failed)} of the {len(results)} tool calls of {where} failed, the last with "
            f"{failed[-1].output!r}; expected at most {limit:.0%} (config.tools.max_outage_frac)"
        )
