"""The list of metric names, the metrics of a rollout batch, and the writers.  Host code.

Names are stated once, here, with meaning and unit; writing any other name is an error.  A writer that
fails (disk, TensorBoard) is warned about once and counted; it never stops a run.
"""

import difflib
import json
import math
import os
import pathlib
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxtool import protocol
from jaxtool.types import POLICY, Episode, FinishReason, Reward, ToolStatus


class Metric(NamedTuple):
    meaning: str
    unit: str  # "1" for plain numbers, "frac" for shares in [0, 1]


# Means are over the rollouts of the step unless it says otherwise; verl's names where it has one.
METRICS: dict[str, Metric] = {
    "step": Metric("rollout round, from 1; 0 is before training", "1"),
    "curriculum/stage": Metric("stage of the curriculum, from 0", "1"),
    "curriculum/shots": Metric("demonstrations in the prompt", "1"),
    "curriculum/noise": Metric("probability that the search simulator answers with noise", "frac"),
    "critic/rewards/mean": Metric("mean total reward", "1"),
    "reward/accuracy": Metric("mean accuracy part of the reward, before weighting", "1"),
    "reward/format": Metric("mean format part of the reward, before weighting", "1"),
    "actor/pg_loss": Metric("policy-gradient loss over the step's weighted tokens", "1"),
    "actor/kl_loss": Metric("estimated KL(policy || reference), before its coefficient", "nats"),
    "actor/entropy": Metric("entropy of the policy at its own tokens", "nats"),
    "actor/pg_clipfrac": Metric("policy tokens whose ratio is clipped", "frac"),
    "actor/grad_norm": Metric("global norm of the gradient before clipping", "1"),
    "actor/lr": Metric("learning rate of the step's last update", "1"),
    "actor/updates": Metric("optimiser steps so far", "1"),
    "response_length/mean": Metric("policy and observation tokens of an episode", "tokens"),
    "response_length/policy_mean": Metric("policy tokens of an episode", "tokens"),
    "prompt_length/mean": Metric("tokens of a prompt", "tokens"),
    "num_turns/mean": Metric("generations of an episode", "1"),
    "tool/calls/mean": Metric("complete calls that the policy wrote, executed or not", "1"),
    "tool/valid_calls/mean": Metric("executed calls of an episode, whatever the tool answered", "1"),
    "tool/error_rate": Metric("executed calls that failed, timeouts included", "frac"),
    "tool/timeout_rate": Metric("executed calls without an answer in time", "frac"),
    "tool/empty_rate": Metric("executed calls for which the tool found nothing", "frac"),
    "rollout/logprob_diff_max": Metric("max |sampler - learner| / max(1, |learner|) of log-probs", "1"),
    "rollout/logprob_diff_mean": Metric("mean |sampler - learner| of log-probs", "nats"),
    "rollout/truncated_frac": Metric("episodes ended by a token limit", "frac"),
    "rollout/zero_variance_frac": Metric("groups whose rewards are all equal", "frac"),
    "perf/throughput": Metric("prompt and response tokens per second of the step and device", "tokens/s"),
    "perf/mfu": Metric(
        "counted flops per second, of the rate of a matrix product measured at the start", "frac"
    ),
    "perf/compilations": Metric("programs compiled so far", "1"),
    "perf/tracker_errors": Metric("failures of the metric writers so far", "1"),
    "val/<set>/em": Metric("exact match on a held-out set", "frac"),
    "val/<set>/f1": Metric("token F1 on a held-out set", "frac"),
    "val/<set>/searches": Metric("executed searches per question of a held-out set", "1"),
    "val/<set>/searched_frac": Metric("questions of a held-out set with an executed search", "frac"),
    "val/<set>/format": Metric("mean format part of the reward on a held-out set", "1"),
}
METRICS |= {f"rollout/finish/{r}": Metric(f"episodes with finish reason {r}", "frac") for r in FinishReason}
METRICS |= {
    f"timing_s/{phase}": Metric(f"seconds of {meaning}", "s")
    for phase, meaning in {
        "rollout": "sampling and tools, all of it",
        "prefill": "computing prompts and observations in the sampler",
        "decode": "decoding",
        "tool_wait": "waiting for tools, where no decoding hid it",
        "reference": "log-probs of the reference",
        "update": "forward, backward and optimiser",
        "checkpoint": "saving after the step before",
        "eval": "evaluation",
        "step": "the whole step",
    }.items()
}
METRICS |= {
    f"budget/{name}": Metric(f"{meaning} since the start of training", unit)
    for name, meaning, unit in (
        ("policy_tokens", "tokens sampled by the policy", "tokens"),
        ("prompt_tokens", "prompt tokens", "tokens"),
        ("observation_tokens", "observation tokens", "tokens"),
        ("tool_calls", "executed tool calls", "1"),
        ("tool_cost", "cost of tool calls", "$"),
        ("flops", "counted floating-point operations", "flop"),
        ("device_seconds", "seconds times devices", "s"),
    )
}

# What trackers raise: file systems, absent or mismatched packages, and what a writer makes of them.
_TRACKER_ERRORS = (OSError, ImportError, AttributeError, RuntimeError, TypeError, ValueError)


def rollout_metrics(episodes: Sequence[Episode], rewards: Sequence[Reward]) -> dict[str, float]:
    """The metrics that episodes and rewards alone determine; groups go by the question's uid.

    Rates over calls are 0 when there was no call.

    Raises:
        ValueError: no episodes, or not one reward for each.
    """
    if not episodes or len(episodes) != len(rewards):
        raise ValueError(
            f"{len(episodes)} episodes with {len(rewards)} rewards; expected one for each, at least 1"
        )
    statuses = [record.result.status for episode in episodes for record in episode.tool_records]
    finished = [episode.finish_reason for episode in episodes]
    groups = defaultdict(set)
    for episode, reward in zip(episodes, rewards, strict=True):
        groups[episode.question.uid].add(reward.total)

    def call_rate(*kinds: ToolStatus) -> float:
        return sum(status in kinds for status in statuses) / max(len(statuses), 1)

    calls = sum(
        isinstance(protocol.parse(text), protocol.Search)
        for episode in episodes
        for (role, _), text in zip(episode.roles, episode.texts, strict=True)
        if role == POLICY
    )
    truncated = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_FULL)
    metrics = {
        "critic/rewards/mean": _mean(reward.total for reward in rewards),
        "reward/accuracy": _mean(reward.parts["accuracy"] for reward in rewards),
        "reward/format": _mean(reward.parts["format"] for reward in rewards),
        "response_length/mean": _mean(len(episode.ids) for episode in episodes),
        "response_length/policy_mean": _mean(episode.num_policy_tokens for episode in episodes),
        "prompt_length/mean": _mean(len(episode.prompt_ids) for episode in episodes),
        "num_turns/mean": _mean(episode.turns for episode in episodes),
        "tool/calls/mean": calls / len(episodes),
        "tool/valid_calls/mean": len(statuses) / len(episodes),
        "tool/error_rate": call_rate(ToolStatus.ERROR, ToolStatus.TIMEOUT),
        "tool/timeout_rate": call_rate(ToolStatus.TIMEOUT),
        "tool/empty_rate": call_rate(ToolStatus.EMPTY),
        "rollout/truncated_frac": _mean(reason in truncated for reason in finished),
        "rollout/zero_variance_frac": _mean(len(totals) == 1 for totals in groups.values()),
    }
    return metrics | {f"rollout/finish/{r}": _mean(reason == r for reason in finished) for r in FinishReason}


def _mean(values) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def check_names(names) -> None:
    """Raises ValueError for the first name that METRICS does not list."""
    for name in names:
        listed = re.sub(r"^val/[^/]+/", "val/<set>/", name)
        if listed not in METRICS:
            nearest = difflib.get_close_matches(listed, METRICS, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown metric {name!r}; metrics.py lists {nearest!r} as the nearest name")


class MetricsLog:
    """metrics.jsonl of a run, one object per step in ascending order, and TensorBoard beside it.

    `rows` holds what was written, whether or not the file took it; `errors` counts what it did not.  Numbers that are not finite are written as null (JSON has
    no other word), with a warning once per name.
    """

    def __init__(self, run_dir: str | os.PathLike, tensorboard: bool):
        self.errors = 0
        self._dir = pathlib.Path(run_dir)
        self._path = self._dir / "metrics.jsonl"
        self._tensorboard = tensorboard
        self._writer = None
        self._warned: set[str] = set()
        self._last = -1
        self.rows: list[dict] = []
        if self._path.exists():
            self.truncate_after(math.inf)

    def truncate_after(self, step: float) -> None:
        """Drops what was written for later steps, and a line cut short by a kill; for resuming."""
        kept = [row for row in read_metrics(self._path) if row["step"] <= step]
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(temporary, self._path)
        self.rows = kept
        self._last = max((row["step"] for row in kept), default=-1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends one step.

        Raises:
            ValueError: a name that METRICS does not list, a value that is no number, or a step that is
                not after the last one written.
        """
        check_names(metrics)
        if step <= self._last:
            raise ValueError(
                f"metrics of step {step} come after those of step {self._last}; steps must ascend"
            )
        row = {"step": step} | {name: self._number(name, value) for name, value in metrics.items()}
        self._last = step
        self.rows.append(row)
        try:
            self._append(json.dumps(row) + "\n")
        except OSError as error:
            self._failed("metrics.jsonl", error)
        if self._tensorboard:
            try:
                self._write_tensorboard(step, row)
            except _TRACKER_ERRORS as error:
                self._failed("TensorBoard", error)

    def close(self) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except _TRACKER_ERRORS as error:
                self._failed("TensorBoard", error)
            self._writer = None

    def _append(self, line: str) -> None:
        self._dir.mkdir(parents=True, exist_ok=True)
        with open(self._path, "ab") as file:  # closing flushes: a kill loses no step
            size = file.tell()
            try:
                file.write(line.encode())
                file.flush()
            except OSError:
                file.truncate(size)  # half a line would spoil the next one
                raise

    def _write_tensorboard(self, step: int, row: dict) -> None:
        if self._writer is None:
            # Imported here, so that a broken installation costs the tracker alone.
            from tensorboardX import SummaryWriter

            # After a resume, TensorBoard then forgets the steps that are written again.
            self._writer = SummaryWriter(str(self._dir / "tensorboard"), purge_step=step)
        for name, value in row.items():
            if value is not None and name != "step":
                self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def _number(self, name: str, value) -> float | int | None:
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not is_number:
            raise ValueError(f"metric {name!r} is {value!r}; expected a number")
        value = value.item() if isinstance(value, np.generic) else value
        if math.isfinite(value):
            return value
        self._warn(name, f"metric {name} is {value}; written as null")
        return None

    def _failed(self, tracker: str, error: BaseException) -> None:
        self.errors += 1
        self._warn(tracker, f"{tracker} cannot be written ({type(error).__name__}: {error}); the run goes on")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, stacklevel=3)


def read_metrics(path: str | os.PathLike) -> list[dict]:
    """The rows of a metrics.jsonl in order; [] when there is none.

    A last line without its end, left by a kill in the middle of a write, is passed over.

    Raises:
        ValueError: another line is not a JSON object with a step (its number is named).
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    rows = []
    *lines, _cut = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise ValueError(f"line {number} of {path} is not a JSON object with a 'step'")
        rows.append(row)
    return rows
