"""Memory that a run needs, before anything is loaded.  Host code."""

import os

from jaxtool.config import Config
from jaxtool.models.config import DecoderConfig

GIB = 2.0**30
BYTES = {"float32": 4, "bfloat16": 2}


def needs(cfg: Config, model: DecoderConfig, prompt_tokens: int) -> dict[str, float]:
    """Bytes of everything that lives through a step; the activations of a microbatch come on top."""
    rollout, width = cfg.rollout, BYTES[cfg.model.dtype]
    weights = 4.0 * model.num_parameters
    position = 2.0 * model.num_layers * model.num_kv_heads * model.head_dim * width
    slots = min(rollout.slots, rollout.questions_per_step * rollout.group_size)
    return {
        "weights, float32": weights,
        "optimiser moments and gradients": 3 * weights,
        "copy for the forward pass": model.num_parameters * width if width < 4 else 0.0,
        "reference": model.num_parameters * width if cfg.loss.kl_coef else 0.0,
        "keys and values of the rows": slots * rollout.max_response_tokens * position,
        "keys and values of the prompts": prompt_tokens * position,
    }


def table(rows: dict[str, float]) -> list[str]:
    total = f"memory: {sum(rows.values()) / GIB:.1f} GiB and the activations of one microbatch"
    return [total, *(f"  {name:34s} {size / GIB:8.2f} GiB" for name, size in rows.items())]


def available() -> float:
    """Bytes of host memory that can still be had; infinite where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
    except OSError:
        return float("inf")
    limit = float(fields["MemAvailable"].split()[0]) * 1024
    return min(limit, _cgroup_room())


def _cgroup_room() -> float:
    """What the control group of this process leaves, for containers."""
    try:
        folder = "/sys/fs/cgroup"
        with open(os.path.join(folder, "memory.max"), encoding="ascii") as file:
            limit = file.read().strip()
        with open(os.path.join(folder, "memory.current"), encoding="ascii") as file:
            used = file.read().strip()
        return float(limit) - float(used)
    except (OSError, ValueError):  # no such files, or "max"
        return float("inf")


def check(rows: dict[str, float], limit: float, where: str) -> None:
    """Refuses a run that cannot fit.

    Raises:
        ValueError: with the numbers and the keys that change them.
    """
    total = sum(rows.values())
    if total > limit:
        largest = max(rows, key=lambda name: rows[name])
        raise ValueError(
            f"the run needs {total / GIB:.1f} GiB ({largest}: {rows[largest] / GIB:.1f}) and {where} has "
            f"{limit / GIB:.1f}; expected a smaller config.model.path, config.rollout.slots or "
            "config.rollout.max_response_tokens, or a larger machine"
        )
