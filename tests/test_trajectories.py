"""Trajectories: the exact form of the design, whole files, equal bytes."""

import dataclasses
import gzip
import json

import pytest

from jaxtool import trajectories
from jaxtool.types import (
    OBSERVATION,
    POLICY,
    Episode,
    FinishReason,
    Question,
    Reward,
    ToolCall,
    ToolRecord,
    ToolResult,
    ToolStatus,
)

LOGPROBS = [-0.1, -1.0 / 3.0, -2.5e-8]


def episode(uid="eval-1", sample=0, text="<search>Lima ü</search>"):
    record = ToolRecord(ToolCall("search", "Lima ü"), ToolResult("Doc 1", ToolStatus.OK, 0.12345678))
    return Episode(
        question=Question(uid, "Where?", ("Peru", "Perú")),
        sample=sample,
        prompt_ids=[5, 6, 7],
        ids=[1, 2, 3, 4],
        roles=[(POLICY, 2), (OBSERVATION, 1), (POLICY, 1)],
        texts=[text, "\n<information>Doc 1</information>\n", "<answer>Peru</answer>"],
        logprobs=LOGPROBS,
        turns=2,
        tool_records=[record],
        finish_reason=FinishReason.ANSWERED,
    )


REWARD = Reward(0.98, {"accuracy": 1.0, "format": 0.9})


def write(run, episodes, step=12):
    trajectories.write(run, step, 1, 2, episodes, [REWARD] * len(episodes), [0.5] * len(episodes))


def test_one_line_per_rollout_in_the_form_of_the_design(tmp_path):
    write(tmp_path, [episode(sample=0), episode(sample=1), episode("eval-2")])
    with gzip.open(tmp_path / "trajectories/step_000012.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["uid"], row["sample"]) for row in rows] == [("eval-1", 0), ("eval-1", 1), ("eval-2", 0)]
    assert rows[1] == {
        "uid": "eval-1",
        "step": 12,
        "stage": 1,
        "shots": 2,
        "question": "Where?",
        "answers": ["Peru", "Perú"],
        "sample": 1,
        "response_ids": [1, 2, 3, 4],
        "roles": [["policy", 2], ["observation", 1], ["policy", 1]],
        "logprobs": LOGPROBS,
        "advantage": 0.5,
        "reward": {"total": 0.98, "accuracy": 1.0, "format": 0.9},
        "turns": 2,
        "tool_calls": [
            {"tool": "search", "input": "Lima ü", "output": "Doc 1", "status": "ok", "latency_s": 0.123457}
        ],
        "finish_reason": "answered",
        "text": "<search>Lima ü</search>\n<information>Doc 1</information>\n<answer>Peru</answer>",
    }
    assert list(trajectories.read(tmp_path, 12)) == rows
    with gzip.open(tmp_path / "trajectories/prompts_000012.jsonl.gz", "rt") as file:
        assert [json.loads(line) for line in file] == [
            {"uid": "eval-1", "prompt_ids": [5, 6, 7]},
            {"uid": "eval-2", "prompt_ids": [5, 6, 7]},
        ]
    assert trajectories.read_prompts(tmp_path, 12) == {"eval-1": [5, 6, 7], "eval-2": [5, 6, 7]}
    assert trajectories.steps(tmp_path) == [12]


def test_equal_episodes_are_equal_bytes(tmp_path, monkeypatch):
    write(tmp_path / "a", [episode()])
    monkeypatch.setattr("time.time", lambda: 5e8)
    write(tmp_path / "another name", [episode()])
    for name in ("step_000012.jsonl.gz", "prompts_000012.jsonl.gz"):
        first, second = (tmp_path / run / "trajectories" / name for run in ("a", "another name"))
        assert first.read_bytes() == second.read_bytes()


def test_files_appear_whole_or_not_at_all(tmp_path):
    write(tmp_path, [episode()])
    before = trajectories.step_path(tmp_path, 12).read_bytes()
    broken = dataclasses.replace(episode(sample=1), turns=object())  # fails in the second line
    with pytest.raises(TypeError):
        write(tmp_path, [episode(text="changed"), broken])
    assert trajectories.step_path(tmp_path, 12).read_bytes() == before
    write(tmp_path, [episode(text="again")])
    assert next(trajectories.read(tmp_path, 12))["text"].startswith("again")
    names = {path.name for path in (tmp_path / "trajectories").iterdir()}
    assert names == {"step_000012.jsonl.gz", "prompts_000012.jsonl.gz"}


def test_text_and_numbers_that_json_has_no_word_for(tmp_path):
    odd = dataclasses.replace(episode(text="a\ud800\u2028b"), logprobs=[float("nan"), float("-inf"), -1.0])
    write(tmp_path, [odd])
    data = gzip.decompress(trajectories.step_path(tmp_path, 12).read_bytes())
    assert data.count(b"\n") == 1 and b"NaN" not in data and b"Infinity" not in data
    row = json.loads(data.decode("utf-8"))
    assert row["logprobs"] == [None, None, -1.0]
    assert row["text"].startswith("a\ud800\u2028b")


def test_two_prompts_for_one_question_are_an_error(tmp_path):
    other = dataclasses.replace(episode(sample=1), prompt_ids=[5])
    with pytest.raises(ValueError, match="question 'eval-1' has two different prompts in step 12"):
        write(tmp_path, [episode(), other])


def test_one_reward_and_advantage_per_episode(tmp_path):
    with pytest.raises(ValueError, match="1 episodes, 1 rewards and 0 advantages"):
        trajectories.write(tmp_path, 1, 0, 3, [episode()], [REWARD], [])


def test_absent_and_damaged_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="step_000003.jsonl.gz does not exist"):
        list(trajectories.read(tmp_path, 3))
    write(tmp_path, [episode()])
    path = trajectories.step_path(tmp_path, 12)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="step_000012.jsonl.gz"):
        list(trajectories.read(tmp_path, 12))
