"""Trajectories on disk: what every rollout of a step read, wrote and earned.  Host code.

    trajectories/step_000012.jsonl.gz   one object per rollout
    trajectories/prompts_000012.jsonl.gz   one object per question: {"uid", "prompt_ids"}

Files appear whole or not at all, and the same episodes give the same bytes (tool latencies aside).
"""

import gzip
import json
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence

from jaxtool.files import read_jsonl
from jaxtool.types import Episode, Reward


def step_path(run_dir: str | os.PathLike, step: int) -> pathlib.Path:
    return pathlib.Path(run_dir) / "trajectories" / f"step_{step:06d}.jsonl.gz"


def prompts_path(run_dir: str | os.PathLike, step: int) -> pathlib.Path:
    return pathlib.Path(run_dir) / "trajectories" / f"prompts_{step:06d}.jsonl.gz"


def write(
    run_dir: str | os.PathLike,
    step: int,
    stage: int,
    shots: int,
    episodes: Sequence[Episode],
    rewards: Sequence[Reward],
    advantages: Sequence[float],
) -> None:
    """Writes both files of a step, replacing those of an earlier attempt at it.

    Raises:
        ValueError: not one reward and advantage per episode, or two prompts for one question.
    """
    if not len(episodes) == len(rewards) == len(advantages):
        raise ValueError(
            f"{len(episodes)} episodes, {len(rewards)} rewards and {len(advantages)} advantages; "
            "expected one of each per episode"
        )
    prompts: dict[str, list[int]] = {}
    for episode in episodes:
        uid = episode.question.uid
        if prompts.setdefault(uid, episode.prompt_ids) != episode.prompt_ids:
            raise ValueError(f"question {uid!r} has two different prompts in step {step}")
    # The prompts first: whoever finds the trajectories of a step finds their prompts too.
    write_lines(
        prompts_path(run_dir, step),
        ({"uid": uid, "prompt_ids": _ints(ids)} for uid, ids in prompts.items()),
    )
    write_lines(
        step_path(run_dir, step),
        (
            {"uid": episode.question.uid, "step": step, "stage": stage, "shots": shots}
            | trajectory(episode, reward, float(advantage))
            for episode, reward, advantage in zip(episodes, rewards, advantages, strict=True)
        ),
    )


def trajectory(episode: Episode, reward: Reward, advantage: float) -> dict:
    """The JSON object of one rollout, without its place in the run."""
    return {
        "question": episode.question.question,
        "answers": list(episode.question.answers),
        "sample": episode.sample,
        "response_ids": _ints(episode.ids),
        "roles": [[role, int(count)] for role, count in episode.roles],
        "logprobs": [_number(logprob) for logprob in episode.logprobs],
        "advantage": _number(advantage),
        "reward": {"total": _number(reward.total)} | {n: _number(v) for n, v in reward.parts.items()},
        "turns": episode.turns,
        "tool_calls": [
            {
                "tool": record.call.tool,
                "input": record.call.input,
                "output": record.result.output,
                "status": str(record.result.status),
                "latency_s": round(record.result.latency_s, 6),
            }
            for record in episode.tool_records
        ],
        "finish_reason": None if episode.finish_reason is None else str(episode.finish_reason),
        "text": "".join(episode.texts),
    }


def read(run_dir: str | os.PathLike, step: int) -> Iterator[dict]:
    """The trajectories of a step, in the order written.

    Raises:
        ValueError: the step has no file, or the file is damaged.
    """
    return _read_lines(step_path(run_dir, step))


def read_prompts(run_dir: str | os.PathLike, step: int) -> dict[str, list[int]]:
    """Prompt token ids by the question's uid; errors as `read`."""
    return {row["uid"]: row["prompt_ids"] for row in _read_lines(prompts_path(run_dir, step))}


def steps(run_dir: str | os.PathLike) -> list[int]:
    """The steps that have trajectories, ascending."""
    folder = pathlib.Path(run_dir) / "trajectories"
    return sorted(int(path.name.split(".")[0][5:]) for path in folder.glob("step_*.jsonl.gz"))


def _ints(ids: Iterable) -> list[int]:
    return [int(i) for i in ids]


def _number(value: float) -> float | None:
    """A float that JSON can carry: null for NaN and infinities, which only a broken run has."""
    value = float(value)
    return value if math.isfinite(value) else None


def write_lines(path: pathlib.Path, rows: Iterable[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    # No name and no time in the gzip header: equal content is equal bytes.
    with open(temporary, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
            # Half a surrogate pair has no UTF-8; its backslash escape is JSON's own.
            zipped.write(line.encode("utf-8", "backslashreplace"))
    os.replace(temporary, path)


def _read_lines(path: pathlib.Path) -> Iterator[dict]:
    if not path.exists():
        raise ValueError(f"{path} does not exist; `rollout.trajectories_every` says which steps are written")
    for _, row in read_jsonl(path, "rollout.trajectories_every"):
        yield row
