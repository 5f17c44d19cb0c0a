"""config_loader.py: config files, overrides, plain data."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtool import config_loader
from jaxtool.config import Config, ConfigError


def override(*arguments):
    return config_loader.override(Config(), [f"--config.{a}" for a in arguments])


def write(tmp_path, body):
    path = tmp_path / "run.py"
    path.write_text("from jaxtool.config import *\n" + body)
    return path


def test_load_runs_the_file_and_then_overrides(tmp_path):
    body = "def get_config():\n    return Config(seed=3, optim=OptimConfig(learning_rate=1, grad_clip=2.0))\n"
    cfg = config_loader.load(write(tmp_path, body), ["--config.optim.grad_clip=0.5"])
    assert (cfg.seed, cfg.optim.grad_clip) == (3, 0.5)
    assert cfg.optim.learning_rate == 1.0 and type(cfg.optim.learning_rate) is float


@pytest.mark.parametrize(
    "argument, key, value",
    [
        ("rollout.group_size=16", "rollout.group_size", 16),
        ("optim.learning_rate=2e-6", "optim.learning_rate", 2e-6),
        ("optim.learning_rate=1", "optim.learning_rate", 1.0),
        ("model.remat=False", "model.remat", False),
        ("model.path=/a=b c", "model.path", "/a=b c"),
        ("model.path=1", "model.path", "1"),
        ("model.dtype=bfloat16", "model.dtype", "bfloat16"),
        ("questions.limit=none", "questions.limit", None),
        ("questions.limit=7", "questions.limit", 7),
        ("init_from=None", "init_from", None),
        ("init_from=runs/a:3", "init_from", "runs/a:3"),
        ("questions.hops=1", "questions.hops", (1,)),
        ("questions.hops=1,2", "questions.hops", (1, 2)),
        ("questions.hops=()", "questions.hops", ()),
        ("questions.hops=", "questions.hops", ()),
        ("curriculum.stages=((3, 2), (0, 1))", "curriculum.stages", ((3, 2), (0, 1))),
        ("curriculum.stages=[[3,2],[0,1]]", "curriculum.stages", ((3, 2), (0, 1))),
        ("curriculum.stages=(3,2),(0,1)", "curriculum.stages", ((3, 2), (0, 1))),
        ("eval.files=a.jsonl, b.jsonl", "eval.files", ("a.jsonl", "b.jsonl")),
        ("eval.files=('a,1.jsonl',)", "eval.files", ("a,1.jsonl",)),
    ],
)
def test_values_are_parsed_by_declared_type(argument, key, value):
    found = dict(config_loader.flatten(override(argument)))[key]
    assert found == value and type(found) is type(value)


def test_overrides_are_applied_together():
    # each alone would break config.rollout.max_turn_tokens <= max_response_tokens
    cfg = override("rollout.max_turn_tokens=4000", "rollout.max_response_tokens=5000")
    assert (cfg.rollout.max_turn_tokens, cfg.rollout.max_response_tokens) == (4000, 5000)
    with pytest.raises(ConfigError, match="config.rollout.max_turn_tokens is 4000"):
        override("rollout.max_turn_tokens=4000")


def test_eval_tools_start_from_the_training_tools():
    cfg = override("eval.tools.search.top_k=5", "tools.search.engine=serper", "tools.threads=2")
    assert (cfg.tools.search.top_k, cfg.eval.tools.search.top_k) == (3, 5)
    assert cfg.eval.tools.search.engine == "serper" and cfg.eval.tools.threads == 2
    again = config_loader.override(cfg, ["--config.eval.tools.threads=9"])  # its own are kept
    assert (again.eval.tools.search.top_k, again.eval.tools.threads) == (5, 9)
    with pytest.raises(ConfigError, match="config.eval.tools is given both"):
        override("eval.tools=none", "eval.tools.threads=9")


@pytest.mark.parametrize(
    "argument, sentence",
    [
        (
            "rollout.group_sise=3",
            "unknown key config.rollout.group_sise; did you mean config.rollout.group_size?",
        ),
        ("group_size=3", "unknown key config.group_size; did you mean config.rollout.group_size?"),
        ("rolout.group_size=3", "unknown key config.rolout.group_size; did you mean config.rollout"),
        ("eval.tools.search.topk=3", "did you mean config.eval.tools.search.top_k?"),
        ("xyzzy=3", "unknown key config.xyzzy; the valid ones here are model, init_from"),
        ("seed.x=3", "config.seed has no keys below it"),
        ("rollout=3", "config.rollout is a section; give one of its keys"),
        ("seed=1.5", "config.seed is 1.5; expected a whole number"),
        ("seed=True", "config.seed is True; expected a whole number"),
        ("seed=abc", "config.seed is 'abc'; expected a whole number"),
        ("optim.learning_rate=nan", "config.optim.learning_rate is nan; expected a finite number"),
        ("model.remat=1", "config.model.remat is 1; expected true or false"),
        ("model.dtype=float16", "config.model.dtype is 'float16'; expected one of 'float32', 'bfloat16'"),
        ("curriculum.stages=(3,2)", r"config.curriculum.stages\[0\] is 3; expected \(int, int\)"),
        ("curriculum.stages=((3,2,1),)", r"config.curriculum.stages\[0\] is \(3, 2, 1\)"),
        (
            "curriculum.stages=__import__('os')",
            r"config.curriculum.stages is .*; expected a list of \(int, int\)",
        ),
        ("questions.hops=(1,'a')", r"config.questions.hops\[1\] is 'a'"),
        ("rollout.group_size=1", "config.rollout.group_size is 1; expected at least 2"),
        ("seed", "cannot read the argument '--config.seed'; expected --config.key=value"),
    ],
)
def test_wrong_overrides_are_one_sentence(argument, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")) as error:
        override(argument)
    assert "\n" not in str(error.value)


def test_a_key_given_twice_is_refused():
    with pytest.raises(ConfigError, match="config.seed is given twice, as '1' and as '2'"):
        override("seed=1", "seed=2")


@pytest.mark.parametrize(
    "body, sentence",
    [
        (
            "def get_config():\n    return Config(rollout=RolloutConfig(group_sise=3))",
            "did you mean 'group_size'",
        ),
        ("def get_config():\n    return Config(sed=3)", "Config has no key 'sed'; did you mean 'seed'"),
        ("def get_config():\n    return Config(seed='3')", "config.seed is '3'; expected a whole number"),
        ("def get_config():\n    return Config(rollout=3)", "config.rollout is 3; expected"),
        ("def get_config():\n    return Config(seed=-1)", "config.seed is -1; expected"),
        ("def get_config():\n    return {}", "returned a dict; expected a Config"),
        ("x = 1", r"defines no get_config\(\)"),
        ("def get_config(:", "is not valid Python: .* in line 2"),
    ],
)
def test_wrong_config_files_are_one_sentence(tmp_path, body, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config_loader.load(write(tmp_path, body))


def test_errors_of_the_users_own_code_stay_as_they_are(tmp_path):
    with pytest.raises(TypeError, match="unsupported operand"):
        config_loader.load(write(tmp_path, "def get_config():\n    return 1 + 'a'"))


def test_missing_config_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no config file .*nothing.py"):
        config_loader.load(tmp_path / "nothing.py")


def test_lists_in_a_config_file_become_tuples(tmp_path):
    body = "def get_config():\n    return Config(curriculum=CurriculumConfig(stages=[[3, 2], [0, 1]]))"
    assert config_loader.load(write(tmp_path, body)).curriculum.stages == ((3, 2), (0, 1))


NAMES = st.text("abc/.=-_ 0é", min_size=1).filter(str.strip)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**31 - 1),
        "init_from": st.none() | NAMES,
        "tensorboard": st.booleans(),
        "optim": st.builds(
            lambda x, y: dataclasses.replace(Config().optim, learning_rate=x, weight_decay=y),
            st.floats(0, 1e3),
            st.floats(0, 1e3),
        ),
        "curriculum": st.builds(
            lambda stages: dataclasses.replace(Config().curriculum, stages=tuple(stages)),
            st.lists(st.tuples(st.integers(0, 9), st.integers(1, 999)), min_size=1),
        ),
        "eval": st.builds(
            lambda files, tools: dataclasses.replace(Config().eval, files=tuple(files), tools=tools),
            st.lists(NAMES, min_size=1, max_size=3),
            st.none() | st.just(dataclasses.replace(Config().tools, threads=3)),
        ),
    },
)


@given(CHANGES)
def test_plain_data_and_described_text_read_back(changes):
    cfg = dataclasses.replace(Config(), **changes)
    assert config_loader.from_dict(json.loads(json.dumps(config_loader.to_dict(cfg)))) == cfg
    lines = [line.split(" = ", 1) for line in config_loader.describe(cfg).splitlines()]
    assert config_loader.override(Config(), [f"--config.{key}={text}" for key, text in lines]) == cfg


def test_from_dict_refuses_what_it_does_not_know():
    with pytest.raises(
        ConfigError, match="unknown key config.rollout.slot; did you mean config.rollout.slots"
    ):
        config_loader.from_dict({"rollout": {"slot": 3}})
    assert config_loader.from_dict({"seed": 3}) == dataclasses.replace(Config(), seed=3)
