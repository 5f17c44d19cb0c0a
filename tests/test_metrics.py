"""Metric names, the metrics of a rollout batch, and writers that cannot stop a run."""

import json
import math
import sys

import numpy as np
import pytest

from jaxtool.metrics import METRICS, MetricsLog, check_names, read_metrics, rollout_metrics
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


def episode(
    uid="a", sample=0, prompt=10, parts=((POLICY, 4, "<answer>x</answer>"),), statuses=(), finish="answered"
):
    ids = [0] * sum(n for _, n, _ in parts)
    policy = sum(n for role, n, _ in parts if role == POLICY)
    return Episode(
        question=Question(uid, "q", ("x",)),
        sample=sample,
        prompt_ids=[1] * prompt,
        ids=ids,
        roles=[(role, n) for role, n, _ in parts],
        texts=[text for _, _, text in parts],
        logprobs=[-1.0] * policy,
        turns=sum(role == POLICY for role, _, _ in parts),
        tool_records=[
            ToolRecord(ToolCall("search", "x"), ToolResult("y", ToolStatus(s), 0.1)) for s in statuses
        ],
        finish_reason=FinishReason(finish),
    )


def reward(total, accuracy, form):
    return Reward(total, {"accuracy": accuracy, "format": form})


def test_rollout_metrics_of_four_worked_episodes():
    call, result = "<search>q</search>", "\n<information>y</information>\n"
    episodes = [
        episode(
            "a",
            0,
            10,
            [(POLICY, 5, call), (OBSERVATION, 7, result), (POLICY, 4, "<answer>x</answer>")],
            ["ok"],
        ),
        episode(
            "a",
            1,
            10,
            [(POLICY, 6, call), (OBSERVATION, 2, result), (POLICY, 4, call)],
            ["timeout"],
            "max_turns",
        ),
        episode("b", 0, 30, [(POLICY, 8, "no end")], [], "max_tokens"),
        episode(
            "b",
            1,
            30,
            [(POLICY, 2, call), (OBSERVATION, 1, result)] * 3,
            ["error", "empty", "ok"],
            "context_full",
        ),
    ]
    rewards = [reward(1.0, 1, 1), reward(0.2, 0, 1), reward(0.05, 0, 0.25), reward(0.05, 0, 0.25)]
    found = rollout_metrics(episodes, rewards)
    finish = {f"rollout/finish/{r}": 0.0 for r in FinishReason}
    finish |= {f"rollout/finish/{r}": 0.25 for r in ("answered", "max_turns", "max_tokens", "context_full")}
    assert found == pytest.approx(
        {
            "critic/rewards/mean": 1.3 / 4,
            "reward/accuracy": 0.25,
            "reward/format": 2.5 / 4,
            "response_length/mean": (16 + 12 + 8 + 9) / 4,
            "response_length/policy_mean": (9 + 10 + 8 + 6) / 4,
            "prompt_length/mean": 20,
            "num_turns/mean": (2 + 2 + 1 + 3) / 4,
            "tool/calls/mean": 6 / 4,  # the second episode's last call was not executed
            "tool/valid_calls/mean": 5 / 4,
            "tool/error_rate": 2 / 5,
            "tool/timeout_rate": 1 / 5,
            "tool/empty_rate": 1 / 5,
            "rollout/truncated_frac": 0.5,
            "rollout/zero_variance_frac": 0.5,
        }
        | finish
    )
    check_names(found)


def test_rollout_metrics_without_calls_or_tokens():
    empty = episode(parts=(), finish="max_tokens")
    found = rollout_metrics([empty], [reward(0, 0, 0)])
    assert found["tool/error_rate"] == found["tool/calls/mean"] == found["response_length/mean"] == 0
    assert found["rollout/zero_variance_frac"] == 1
    with pytest.raises(ValueError, match="1 episodes with 0 rewards"):
        rollout_metrics([empty], [])
    with pytest.raises(ValueError, match="0 episodes"):
        rollout_metrics([], [])


def test_groups_go_by_uid_not_by_place():
    episodes = [episode(uid) for uid in "abab"]
    rewards = [reward(total, 0, 0) for total in (1, 2, 1, 3)]
    assert rollout_metrics(episodes, rewards)["rollout/zero_variance_frac"] == 0.5


def test_every_metric_has_meaning_and_unit():
    assert all(metric.meaning and metric.unit for metric in METRICS.values())
    design = """
        step curriculum/stage curriculum/shots curriculum/noise critic/rewards/mean num_turns/mean
        actor/pg_loss actor/kl_loss actor/entropy actor/pg_clipfrac actor/grad_norm actor/lr actor/updates
        perf/throughput perf/mfu perf/compilations rollout/logprob_diff_max timing_s/prefill timing_s/decode
        timing_s/tool_wait timing_s/reference timing_s/update timing_s/checkpoint timing_s/step
        val/nq/em val/nq/f1 val/2wiki-x.y/searches budget/policy_tokens budget/prompt_tokens
        budget/observation_tokens budget/tool_calls budget/tool_cost budget/flops budget/device_seconds
    """
    check_names(design.split())


@pytest.mark.parametrize(
    ("name", "nearest"), [("reward/acuracy", "reward/accuracy"), ("val/nq/emm", "val/<set>/em"), ("x", "")]
)
def test_unknown_names_are_errors_with_the_nearest(tmp_path, name, nearest):
    with pytest.raises(ValueError, match=f"unknown metric '{name}'.*'{nearest}"):
        MetricsLog(tmp_path, False).write(1, {name: 1.0})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_jsonl_has_one_object_per_step(tmp_path):
    log = MetricsLog(tmp_path / "run", False)
    log.write(0, {"val/nq/em": 0.5})
    log.write(1, {"reward/accuracy": np.float32(0.25), "actor/updates": np.int64(3)})
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()  # before close: a kill loses nothing
    assert [json.loads(line) for line in lines] == [
        {"step": 0, "val/nq/em": 0.5},
        {"step": 1, "reward/accuracy": 0.25, "actor/updates": 3},
    ]
    log.close()
    assert read_metrics(tmp_path / "run/metrics.jsonl")[1]["actor/updates"] == 3


def test_steps_ascend_also_over_restarts(tmp_path):
    log = MetricsLog(tmp_path, False)
    log.write(1, {})
    with pytest.raises(ValueError, match="step 1 come after those of step 1"):
        log.write(1, {})
    with pytest.raises(ValueError, match="ascend"):
        MetricsLog(tmp_path, False).write(1, {})


@pytest.mark.parametrize("value", ["0.5", None, True, [1]])
def test_values_must_be_numbers(tmp_path, value):
    with pytest.raises(ValueError, match="'reward/format' is .*; expected a number"):
        MetricsLog(tmp_path, False).write(1, {"reward/format": value})


def test_not_finite_is_null_and_warned_once(tmp_path):
    log = MetricsLog(tmp_path, False)
    with pytest.warns(UserWarning, match="actor/grad_norm is nan; written as null") as caught:
        log.write(1, {"actor/grad_norm": math.nan})
        log.write(2, {"actor/grad_norm": np.float32(math.inf)})
    assert len(caught) == 1

    def refuse(constant):
        raise AssertionError(constant)

    rows = [
        json.loads(line, parse_constant=refuse) for line in open(tmp_path / "metrics.jsonl", encoding="utf-8")
    ]
    assert [row["actor/grad_norm"] for row in rows] == [None, None]


def test_resuming_equals_never_having_stopped(tmp_path):
    def write(log, steps):
        for step in steps:
            log.write(step, {"critic/rewards/mean": step / 3})

    write(MetricsLog(tmp_path / "whole", False), range(1, 8))
    killed = MetricsLog(tmp_path / "killed", False)
    write(killed, range(1, 6))
    path = tmp_path / "killed/metrics.jsonl"
    with open(path, "a") as file:
        file.write('{"step": 6, "critic/rew')  # killed in the middle of a write
    resumed = MetricsLog(tmp_path / "killed", False)
    resumed.truncate_after(4)
    write(resumed, range(5, 8))
    assert path.read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nnot json\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 2 of .*metrics.jsonl"):
        read_metrics(tmp_path / "metrics.jsonl")
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_tensorboard_gets_the_scalars(tmp_path):
    log = MetricsLog(tmp_path, True)
    log.write(1, {"reward/format": 0.75})
    log.close()
    (event,) = (tmp_path / "tensorboard").iterdir()
    data = event.read_bytes()
    assert b"reward/format" in data and np.float32(0.75).tobytes() in data


def test_a_broken_tensorboard_costs_only_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    log = MetricsLog(tmp_path, True)
    with pytest.warns(UserWarning, match="TensorBoard cannot be written") as caught:
        log.write(1, {"reward/format": 0.5})
        log.write(2, {"reward/format": 0.5})
    log.close()
    assert len(caught) == 1 and log.errors == 2
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2


def test_a_writer_that_fails_later_does_not_stop_the_run(tmp_path):
    class Broken:
        def add_scalar(self, *args):
            raise OSError(28, "No space left on device")

        def close(self):
            raise RuntimeError("queue is closed")

    log = MetricsLog(tmp_path, True)
    log._writer = Broken()
    with pytest.warns(UserWarning, match="No space left"):
        log.write(1, {"reward/format": 0.5})
    log.close()
    assert log.errors == 2


def test_a_full_disk_does_not_stop_the_run(tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    log = MetricsLog(tmp_path / "run", False)
    with pytest.warns(UserWarning, match="metrics.jsonl cannot be written"):
        log.write(1, {"reward/format": 0.5})
    assert log.errors == 1
