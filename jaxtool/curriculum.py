"""Step -> stage of the curriculum.  Host code.

The few-shot curriculum of ICRL (Algorithm 1, arXiv:2603.08068): the prompt shows ever fewer
demonstrations, in practice 3, 2, then 0, for a number of steps each.  Steps count from 1.
"""

import dataclasses
from collections.abc import Sequence

from jaxtool.config import CurriculumConfig


@dataclasses.dataclass(frozen=True)
class Stage:
    index: int  # from 0
    shots: int  # demonstrations in the prompt
    first_step: int  # from 1
    num_steps: int

    @property
    def last_step(self) -> int:
        return self.first_step + self.num_steps - 1


def stages(cfg: CurriculumConfig) -> list[Stage]:
    """The stages in order; together they cover steps 1..sum of their lengths."""
    result: list[Stage] = []
    for index, (shots, num_steps) in enumerate(cfg.stages):
        first_step = result[-1].last_step + 1 if result else 1
        result.append(Stage(index, shots, first_step, num_steps))
    return result


def stage_at(step: int, stages: Sequence[Stage]) -> Stage:
    """The stage that `step` belongs to.

    Raises:
        ValueError: the step is outside the curriculum.
    """
    for stage in stages:
        if stage.first_step <= step <= stage.last_step:
            return stage
    raise ValueError(
        f"step {step} is in no stage; expected 1 to {stages[-1].last_step} (config.curriculum.stages)"
    )
