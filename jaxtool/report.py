"""What a run says of itself: config.json, predictions, the final table.  Host code."""

import json
import pathlib
import platform
import subprocess
from collections.abc import Sequence

import jaxtool
from jaxtool import children, config_loader
from jaxtool.config import Config
from jaxtool.curriculum import Stage
from jaxtool.progress import table
from jaxtool.rewards.format import answer
from jaxtool.trajectories import write_lines

# What a resumed run may change without becoming another run.
FREE = ("checkpoint.", "tensorboard", "rollout.trajectories_every", "tools.threads", "tools.search.timeout_s")


def open_run(run_dir: pathlib.Path, cfg: Config, resumed: bool) -> None:
    """Prints the effective configuration and writes config.json, or checks the one that is there.

    Raises:
        ValueError: the directory holds a run with another configuration; the keys are named.
    """
    path = run_dir / "config.json"
    print(config_loader.describe(cfg))
    if resumed:
        saved = dict(config_loader.flatten(config_loader.from_dict(json.loads(path.read_text())["config"])))
        now = dict(config_loader.flatten(cfg))
        changed = [
            k for k in now.keys() | saved.keys() if now.get(k) != saved.get(k) and not k.startswith(FREE)
        ]
        if changed:
            names = "; ".join(
                f"config.{k} was {saved.get(k)!r} and is {now.get(k)!r}" for k in sorted(changed)
            )
            raise ValueError(
                f"{run_dir} holds a run with another configuration ({names}); expected a new run_dir"
            )
    run_dir.mkdir(parents=True, exist_ok=True)
    versions = {"jaxtool": jaxtool.__version__, "commit": _commit(), "python": platform.python_version()}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"config": config_loader.to_dict(cfg), "version": versions}, indent=1))
    temporary.replace(path)


def _commit() -> str | None:
    """The commit of the source tree, None outside of one."""
    try:
        found = subprocess.run(
            ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=5, check=True, env=children.environment(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def predictions_path(run_dir: pathlib.Path, step: int, name: str) -> pathlib.Path:
    return run_dir / "eval" / f"step_{step:06d}_{name}.jsonl.gz"


def write_predictions(run_dir: pathlib.Path, step: int, name: str, scores) -> None:
    """One line a question of an `evaluate.Scores`."""
    rows = (
        {
            "uid": episode.question.uid,
            "question": episode.question.question,
            "answers": list(episode.question.answers),
            "prediction": answer(episode.segments),
            "em": scores.em[i],
            "f1": scores.f1[i],
            "searches": int(scores.searches[i]),
            "finish_reason": episode.finish_reason,
            "text": "".join(episode.texts),
        }
        for i, episode in enumerate(scores.episodes)
    )
    write_lines(predictions_path(run_dir, step, name), rows)


def evaluation_line(row: dict) -> str:
    """The evaluation in a row of the metrics, in one line."""
    shown = [
        f"{name.removeprefix('val/')} {value:.3f}" for name, value in row.items() if name.startswith("val/")
    ]
    return f"evaluation after step {row['step']}: " + ", ".join(shown)


def final_table(metrics: Sequence[dict], stages: Sequence[Stage], sets: Sequence[str]) -> str:
    """Training at the start and end of each stage, and evaluation before and after, as text.

    Start and end are the means over the stage's first and last quarter of steps, at most 4.
    """
    rows = {row["step"]: row for row in metrics}
    names = ("critic/rewards/mean", "reward/accuracy", "reward/format", "tool/valid_calls/mean")
    lines = [["training", "steps", "reward", "accuracy", "format", "valid searches"]]
    for stage in stages:
        n = min(4, max(1, stage.num_steps // 4))
        for label, first in (("start", stage.first_step), ("end", stage.last_step - n + 1)):
            part = [rows[s] for s in range(first, first + n)]
            means = [sum(row[name] for row in part) / n for name in names]
            steps = f"{first}-{first + n - 1}" if n > 1 else f"{first}"
            lines.append([f"{stage.shots}-shot, {label}", steps, *means])
    last = max(rows)
    evaluation = [["evaluation", "step", "exact match", "F1", "format", "valid searches", "searched"]]
    keys = ("em", "f1", "format", "searches", "searched_frac")
    for name in sets:
        for label, step in (("before", 0), ("after", last)):
            evaluation.append([f"{name}, {label}", step, *(rows[step][f"val/{name}/{key}"] for key in keys)])
    return f"\n{table(lines)}\n\n{table(evaluation)}"
