"""The rollout loop on a scripted sampler: endings, masks, token identity, independence of order."""

import random
import time

import numpy as np
import pytest
from scripted import ScriptedSampler
from tiny_tokenizer import TinyTokenizer

from jaxtool import protocol, rollout
from jaxtool.config import RolloutConfig
from jaxtool.tools.base import ToolRunner
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

TEXT = TinyTokenizer()
QUESTIONS = [Question(f"q{i}", f"question {i}?", ("yes",)) for i in range(3)]
PROMPTS = [TEXT.encode(f"Problem: {q.question}\n") for q in QUESTIONS]
LIMITS = RolloutConfig(
    max_turns=2, max_response_tokens=900, max_turn_tokens=90, max_observation_tokens=80, on_no_action="retry"
)
SEARCH = "<think>a</think><search>{}</search>"
ANSWER = "<think>b</think><answer>yes</answer>"


class Echo:
    name = "search"

    def __call__(self, query):
        if query == "slow":
            time.sleep(0.05)
        if query == "boom":
            raise RuntimeError("secret detail")
        return ToolStatus.OK, f"Doc 1(Title: {query}) about {query}"


@pytest.fixture
def tools():
    runner = ToolRunner({"search": Echo()}, 4, 5.0)
    yield runner
    runner.close()


def play(script, tools, limits=LIMITS, order=0, group_size=2, questions=QUESTIONS):
    sampler = ScriptedSampler(PROMPTS, TEXT, script, order)
    episodes, _ = rollout.play(
        sampler, tools, TEXT, questions, PROMPTS[: len(questions)], limits,
        group_size=group_size, temperature=1.0, seed=0, step=1,
    )  # fmt: skip
    return episodes, sampler


def one(texts, tools, limits=LIMITS):
    """The single episode whose generations are `texts`."""
    episodes, _ = play(lambda key, turn: texts[turn], tools, limits, group_size=1, questions=QUESTIONS[:1])
    return episodes[0]


ENDINGS = {
    "answer at once": ([ANSWER], {}, FinishReason.ANSWERED, 1, 0),
    "search, answer": ([SEARCH.format("x"), ANSWER], {}, FinishReason.ANSWERED, 2, 1),
    "answer after the last allowed search": ([SEARCH.format("x")] * 2 + [ANSWER], {}, FinishReason.ANSWERED, 3, 2),
    "one search too many is not executed": ([SEARCH.format("x")] * 3, {}, FinishReason.MAX_TURNS, 3, 2),
    "no action, retried": (["hm", ANSWER], {}, FinishReason.ANSWERED, 2, 0),
    "no action to the end": (["hm"] * 3, {}, FinishReason.MAX_TURNS, 3, 0),
    "no action ends": (["hm"], {"on_no_action": "end"}, FinishReason.NO_ACTION, 1, 0),
    "empty query is no call": (["<search> </search>", ANSWER], {}, FinishReason.ANSWERED, 2, 0),
    "a turn cut by length": (["x" * 200, ANSWER], {}, FinishReason.ANSWERED, 2, 0),
    "response full": (["x" * 900], {"max_turn_tokens": 900}, FinishReason.MAX_TOKENS, 1, 0),
    "no room for the observation": (
        [SEARCH.format("x")], {"max_response_tokens": 60, "max_turn_tokens": 60}, FinishReason.MAX_TOKENS, 1, 1,
    ),
    "no turns allowed": ([SEARCH.format("x")], {"max_turns": 0}, FinishReason.MAX_TURNS, 1, 0),
    "a failing tool is an observation": ([SEARCH.format("boom"), ANSWER], {}, FinishReason.ANSWERED, 2, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(name, tools):
    import dataclasses

    texts, changes, reason, turns, calls = ENDINGS[name]
    episode = one(texts, tools, dataclasses.replace(LIMITS, **changes))
    assert (episode.finish_reason, episode.turns, len(episode.tool_records)) == (reason, turns, calls)


def test_a_failing_tool_says_so_without_details(tools):
    episode = one([SEARCH.format("boom"), ANSWER], tools)
    assert "(RuntimeError)" in episode.texts[1] and "secret" not in episode.texts[1]


def random_script(key, turn):
    rng = random.Random(f"{key}{turn}")
    return rng.choice(
        [SEARCH.format(rng.choice(["slow", "boom", "x", "a longer query about something"])), ANSWER, "hm",
         "<search></search>", "é日" * rng.randint(1, 60), "<answer>no</answer>\n"]
    )  # fmt: skip


@pytest.mark.parametrize("order", range(8))
def test_invariants(order, tools):
    episodes, sampler = play(random_script, tools, order=order, group_size=6)
    assert [(e.question.uid, e.sample) for e in episodes] == [(q.uid, s) for q in QUESTIONS for s in range(6)]
    by_key = {tuple(int(k) for k in rollout.episode_key(0, 1, e.question.uid, e.sample)): e for e in episodes}
    wanted = {key: np.zeros(len(e.prompt_ids) + len(e.ids), bool) for key, e in by_key.items()}
    for key, context, sampled in sampler.seen:
        episode = by_key[key]
        whole = episode.prompt_ids + episode.ids
        # What the policy was shown is a prefix of what it is trained on, and what it said follows.
        assert whole[: len(context)] == context
        assert whole[len(context) : len(context) + len(sampled)] == sampled
        wanted[key][len(context) : len(context) + len(sampled)] = True
    for key, episode in by_key.items():
        # The mask is exactly the sampled positions.
        np.testing.assert_array_equal(episode.loss_mask, wanted[key][len(episode.prompt_ids) :])
        assert episode.finish_reason is not None
        assert len(episode.ids) <= LIMITS.max_response_tokens
        assert len(episode.logprobs) == episode.loss_mask.sum()
        assert len(episode.tool_records) <= LIMITS.max_turns and episode.turns <= LIMITS.max_turns + 1
        for role, text in zip([r for r, _ in episode.roles], episode.texts, strict=True):
            assert role == POLICY or text == protocol.RETRY or text.endswith("</information>\n")


def test_order_and_neighbours_do_not_matter(tools):
    plain = lambda episodes: [(e.ids, e.roles, e.finish_reason, e.logprobs) for e in episodes]
    first, _ = play(random_script, tools, order=0, group_size=4)
    second, _ = play(random_script, tools, order=5, group_size=4)
    alone, _ = play(random_script, tools, order=1, group_size=4, questions=QUESTIONS[:1])
    assert plain(first) == plain(second)
    assert plain(first)[:4] == plain(alone)


def test_observations_keep_their_closing_tag_when_cut(tools):
    long_query = "w" * 70
    episode = one([f"<search>{long_query}</search>", ANSWER], tools)
    role, count = episode.roles[1]
    assert role == OBSERVATION and count <= 80
    assert episode.texts[1].endswith("</information>\n") and episode.texts[1].count("w") < 2 * 70


def test_keys_name_the_episode():
    keys = [
        tuple(rollout.episode_key(*name))
        for name in (
            (0, 1, "a", 0),
            (0, 1, "a", 1),
            (0, 1, "b", 0),
            (0, 2, "a", 0),
            (1, 1, "a", 0),
            (0, 1, "a1", 0),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert tuple(rollout.episode_key(0, 1, "a", 0)) == keys[0]


def test_an_outage_stops_and_a_few_failures_do_not():
    episode = Episode(QUESTIONS[0], 0, [1])
    failed = ToolRecord(ToolCall("search", "x"), ToolResult("search failed: 503", ToolStatus.ERROR))
    worked = ToolRecord(ToolCall("search", "x"), ToolResult("ok", ToolStatus.OK))
    episode.tool_records = [failed] * 4 + [worked] * 4
    rollout.check_outage([episode], 0.5, "step 3")
    episode.tool_records = [failed] * 7
    rollout.check_outage([episode], 0.5, "step 3")
    episode.tool_records = [failed] * 5 + [worked] * 4
    with pytest.raises(RuntimeError, match="5 of the 9 tool calls of step 3 failed.*503.*max_outage_frac"):
        rollout.check_outage([episode], 0.5, "step 3")
