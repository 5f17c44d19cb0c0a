"""curriculum.py: steps -> stages."""

import pytest

from jaxtool import curriculum
from jaxtool.config import CurriculumConfig
from jaxtool.curriculum import Stage

STAGES = curriculum.stages(CurriculumConfig(stages=((3, 2), (2, 1), (0, 3))))


def test_stages_follow_one_another():
    assert STAGES == [Stage(0, 3, 1, 2), Stage(1, 2, 3, 1), Stage(2, 0, 4, 3)]
    assert [stage.last_step for stage in STAGES] == [2, 3, 6]


def test_every_step_has_its_stage():
    assert [curriculum.stage_at(step, STAGES).shots for step in range(1, 7)] == [3, 3, 2, 0, 0, 0]


@pytest.mark.parametrize("step", [0, 7])
def test_a_step_outside_is_refused(step):
    with pytest.raises(ValueError, match=f"step {step} is in no stage; expected 1 to 6"):
        curriculum.stage_at(step, STAGES)
