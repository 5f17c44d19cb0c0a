"""config.py: what `validate` accepts and refuses."""

import dataclasses

import pytest

from jaxtool import config
from jaxtool.config import Config, ConfigError
from jaxtool.config_loader import flatten

WRONG = {
    "eval.max_turns": [-1],
    "eval.files": [()],
    "model.path": (" ",),
    "questions.train_file": ("",),
    "corpus.file": ("",),
    "prompt.demonstrations": ("",),
    "questions.limit": (0,),
    "questions.hops": ((0,),),
    "prompt.max_tokens": (0,),
    "curriculum.stages": ((), ((3, 0),), ((-1, 4),)),
    "rollout.group_size": (1, 0),
    "rollout.questions_per_step": (0,),
    "rollout.temperature": (0.0, -1.0),
    "rollout.max_turns": (-1,),
    "rollout.max_response_tokens": (0,),
    "rollout.max_turn_tokens": (0, 2049),
    "rollout.max_observation_tokens": (0,),
    "rollout.slots": (0,),
    "rollout.max_logprob_gap": (0.0,),
    "rollout.trajectories_every": (-1,),
    "reward.accuracy_weight": (-0.1, 1.1),
    "loss.clip_low": (-0.1, 1.1),
    "loss.clip_high": (-0.1,),
    "loss.kl_coef": (-0.1,),
    "loss.entropy_coef": (-0.1,),
    "optim.learning_rate": (-1e-6,),
    "optim.warmup_steps": (-1,),
    "optim.beta1": (1.0, -0.1),
    "optim.beta2": (1.0,),
    "optim.weight_decay": (-0.1,),
    "optim.grad_clip": (0.0,),
    "optim.microbatch_questions": (0, 3),
    "tools.search.top_k": (0,),
    "tools.search.url": ("127.0.0.1:8000",),
    "tools.search.timeout_s": (0.0,),
    "tools.threads": (0,),
    "tools.max_outage_frac": (1.5,),
    "eval.every": (-1,),
    "eval.limit": (0,),
    "eval.hops": ((0,),),
    "eval.shots": (-1,),
    "eval.temperature": (-0.5,),
    "checkpoint.every": (0,),
    "checkpoint.keep": (0,),
    "seed": (-1, 2**31),
}


def with_value(section, key, value):
    name, _, rest = key.partition(".")
    inner = with_value(getattr(section, name), rest, value) if rest else value
    return dataclasses.replace(section, **{name: inner})


def test_defaults_are_valid():
    config.validate(Config())


@pytest.mark.parametrize("key, value", [(k, v) for k, values in WRONG.items() for v in values])
def test_value_out_of_range_is_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=f"config.{key} is .*; expected") as error:
        config.validate(with_value(Config(), key, value))
    assert "\n" not in str(error.value)


def test_every_number_and_list_has_a_check():
    checked = set(WRONG) | {"init_from", "eval.tools", "eval.files", "questions.types", "eval.types"}
    numbers = {k for k, v in flatten(Config()) if not isinstance(v, (str, bool))}
    assert numbers <= checked


def test_evaluation_tools_are_checked_too():
    tools = with_value(Config().tools, "search.top_k", 0)
    with pytest.raises(ConfigError, match="config.eval.tools.search.top_k is 0"):
        config.validate(with_value(Config(), "eval.tools", tools))


def test_derived_values():
    cfg = with_value(Config(), "curriculum.stages", ((3, 5), (0, 7)))
    assert (cfg.num_steps, cfg.max_shots) == (12, 3)
    assert with_value(cfg, "eval.shots", 4).max_shots == 4
    assert cfg.eval_tools is cfg.tools
    own = with_value(cfg.tools, "threads", 2)
    assert with_value(cfg, "eval.tools", own).eval_tools is own
