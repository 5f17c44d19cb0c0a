"""Whole runs on a tiny model: the loop, resume after a kill, export, evaluation, bad input."""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
import stubbed_train
import tiny

from jaxtool import checkpoint, config, config_loader, evaluate, protocol, sample, train, weights
from jaxtool.models import decoder, hf

ROOT = pathlib.Path(__file__).parent.parent
VARYING = ("timing_s/", "perf/", "budget/device_seconds")

CONFIG = """
from jaxtool import config

def get_config():
    return config.Config(
        model=config.ModelConfig(path={model!r}),
        questions=config.QuestionsConfig(train_file={questions!r}),
        corpus=config.CorpusConfig(file={corpus!r}),
        prompt=config.PromptConfig(demonstrations={demonstrations!r}, max_tokens=600),
        curriculum=config.CurriculumConfig(stages=((1, 2), (0, 3))),
        rollout=config.RolloutConfig(
            group_size=2, questions_per_step=2, temperature=1.0, max_turns=1, max_response_tokens=80,
            max_turn_tokens=12, max_observation_tokens=60, slots=4,
        ),
        loss=config.LossConfig(kl_coef=0.1, entropy_coef=0.05),
        optim=config.OptimConfig(learning_rate=1e-2, warmup_steps=2),
        eval=config.EvalConfig(files=({questions!r},), limit=3),
        checkpoint=config.CheckpointConfig(every=2, keep=3),
        tensorboard=False,
    )
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with model, questions, corpus, demonstrations and configuration."""
    folder = tmp_path_factory.mktemp("world")
    tiny.make_hf_folder(folder / "model", "qwen2", max_position_embeddings=1024)
    rows = [{"id": f"q{i}", "question": f"What is {i}?", "golden_answers": [str(i)]} for i in range(12)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents = [{"id": str(i), "contents": f'"Number {i}"\nThe number {i} is {i}.'} for i in range(12)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (folder / "demos.txt").write_text(
        "Example Problem: a?\nExample Solution: <think>t</think><search>a</search>\n"
        '<information>Doc 1(Title: "A") a</information>\n<think>t</think><answer>a</answer>\n'
    )
    (folder / "config.py").write_text(
        CONFIG.format(
            model=str(folder / "model"), questions=str(folder / "q.jsonl"), corpus=str(folder / "corpus.jsonl"),
            demonstrations=str(folder / "demos.txt"),
        )
    )  # fmt: skip
    return folder


def load(world, *overrides):
    return config_loader.load(world / "config.py", overrides)


@pytest.fixture(autouse=True)
def hashed_actions(monkeypatch):
    """The tiny model writes no tags: what a text asks for is taken from its hash."""
    monkeypatch.setattr(protocol, "parse", stubbed_train.parse)


@pytest.fixture(scope="module")
def whole(world):
    """An uninterrupted run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "parse", stubbed_train.parse)
        train.run(load(world), world / "whole")
    return world / "whole"


def metrics(run_dir):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(VARYING)} for row in rows]


def trajectories(run_dir):
    found = {}
    for path in sorted((run_dir / "trajectories").iterdir()):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for line in lines:
            for call in line.get("tool_calls", ()):
                del call["latency_s"]
        found[path.name] = lines
    return found


def last_params(run_dir, world):
    return weights.load_checkpoint(str(run_dir), hf.read_config(world / "model"))


def assert_same_run(run_dir, whole, world):
    assert metrics(run_dir) == metrics(whole)
    assert trajectories(run_dir) == trajectories(whole)
    for a, b in zip(
        jax.tree.leaves(last_params(run_dir, world)), jax.tree.leaves(last_params(whole, world)), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_run_leaves_what_the_design_says(whole, world):
    rows = metrics(whole)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["curriculum/shots"] for row in rows[1:]] == [1, 1, 0, 0, 0]
    assert all(row["rollout/logprob_diff_max"] <= 1e-4 for row in rows[1:])
    assert "val/q/em" in rows[0] and "val/q/em" in rows[-1]
    assert checkpoint.steps(whole) == [2, 4, 5]
    assert json.loads((whole / "config.json").read_text())["config"]["seed"] == 0
    lines = trajectories(whole)["step_000001.jsonl.gz"]
    assert len(lines) == 4
    for line in lines:
        policy = sum(n for role, n in line["roles"] if role == "policy")
        assert policy == len(line["logprobs"]) and sum(n for _, n in line["roles"]) == len(
            line["response_ids"]
        )
    start = weights.load_folder(world / "model")
    moved = max(
        float(abs(a - b).max())
        for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(last_params(whole, world)), strict=True)
    )
    assert moved > 1e-3


def test_the_runs_have_tools_turns_and_unequal_rewards(whole):
    """What the other tests compare is not empty."""
    lines = [line for name, step in trajectories(whole).items() if name.startswith("step") for line in step]
    assert sum(len(line["tool_calls"]) for line in lines) > 5
    assert any(line["turns"] == 2 for line in lines) and any(line["advantage"] != 0 for line in lines)
    assert any(role == "observation" for line in lines for role, _ in line["roles"])


@pytest.mark.parametrize("moment", ["trajectories:3", "row:4", "save:2"])
def test_killed_and_started_again_ends_as_uninterrupted(moment, whole, world):
    """In the middle of a step, between a metrics row and its checkpoint, and after a checkpoint."""
    run_dir = world / f"killed_{moment.replace(':', '_')}"
    command = [
        sys.executable,
        str(ROOT / "tests" / "stubbed_train.py"),
        str(world / "config.py"),
        str(run_dir),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([*command, moment], env=environment, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert checkpoint.steps(run_dir) == [2]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "going on after step 2" in done.stderr
    assert_same_run(run_dir, whole, world)


def test_a_half_written_checkpoint_is_not_seen(whole, world):
    import shutil

    run_dir = world / "partial"
    shutil.copytree(whole, run_dir)
    shutil.rmtree(run_dir / "checkpoints" / "000005")
    broken = run_dir / "checkpoints" / "000005"
    broken.mkdir()
    (broken / "arrays").mkdir()
    train.run(load(world), run_dir)
    assert_same_run(run_dir, whole, world)


def test_another_configuration_does_not_go_on_with_a_run(whole, world):
    with pytest.raises(ValueError, match=r"config.optim.learning_rate was 0.01 and is 0.02"):
        train.run(load(world, "--config.optim.learning_rate=0.02"), whole)


def test_the_export_is_the_trained_model(whole, world):
    exported = weights.load_folder(whole / "hf" / "000005")
    for a, b in zip(jax.tree.leaves(exported), jax.tree.leaves(last_params(whole, world)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_transformers_gives_the_exported_model_the_same_logits(whole, world):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from jaxtool.models import tree

    ids = np.random.default_rng(0).integers(0, 300, (2, 17))
    model = AutoModelForCausalLM.from_pretrained(whole / "hf" / "000005", dtype=torch.float32)
    with torch.no_grad():
        wanted = model(torch.tensor(ids)).logits.numpy()
    params = last_params(whole, world)
    hidden = tree.flat_hidden(
        params,
        hf.read_config(world / "model"),
        ids,
        np.broadcast_to(np.arange(17), ids.shape),
        np.ones_like(ids),
    )
    np.testing.assert_allclose(decoder.logits(params, hidden), wanted, atol=1e-3)


def test_evaluation_of_a_checkpoint_and_of_its_export_agree(whole, world):
    one = evaluate.run(load(world), str(whole), None).data
    other = evaluate.run(load(world), str(whole / "hf" / "000005"), None).data
    assert one == other and one["sets"]["q"]["n"] == 3
    assert one["sets"]["q"]["searches_mean"] == metrics(whole)[-1]["val/q/searches"]


def test_init_from_starts_with_other_weights_and_a_fresh_optimiser(whole, world):
    cfg = load(world, f"--config.init_from={whole}:2", "--config.curriculum.stages=((0,1),)")
    train.run(cfg, world / "from")
    rows = metrics(world / "from")
    assert rows[1]["actor/updates"] == 1 and rows[1]["actor/lr"] == pytest.approx(0.005)
    np.testing.assert_allclose(rows[1]["actor/kl_loss"], 0, atol=1e-6)


def test_reset_starts_optimiser_and_reference_anew_and_survives_a_resume(world):
    cfg = load(
        world, "--config.curriculum.reset=True", "--config.checkpoint.every=1", "--config.checkpoint.keep=9"
    )
    train.run(cfg, world / "reset")
    rows = metrics(world / "reset")
    assert [row["actor/lr"] for row in rows[1:]] == pytest.approx([0.005, 0.01, 0.005, 0.01, 0.01])
    np.testing.assert_allclose(rows[3]["actor/kl_loss"], 0, atol=1e-6)
    assert rows[2]["actor/kl_loss"] > 1e-6
    import shutil

    for last in (2, 3):
        again = world / f"reset_again_{last}"
        shutil.copytree(world / "reset", again)
        for step in range(last + 1, 6):
            shutil.rmtree(again / "checkpoints" / f"{step:06d}")
        train.run(cfg, again)
        assert_same_run(again, world / "reset", world)


def test_one_episode_is_shown(whole, world, capsys):
    episode = sample.run(load(world), "What is 5?", str(whole))
    shown = capsys.readouterr().out
    assert "[policy]" in shown and str(episode.finish_reason) in shown


def test_control_characters_are_shown_not_run(capsys):
    sample.show("a\x1b[2Jb", None)
    assert capsys.readouterr().out == "a\\x1b[2Jb"


BAD = {
    "missing question file": (
        ("--config.questions.train_file=nowhere.jsonl",),
        "questions.train_file.*nowhere.jsonl",
    ),
    "unknown key": (("--config.rolout.group_size=4",), "rollout"),
    "prompt limit": (("--config.prompt.max_tokens=90",), "config.prompt.max_tokens is 90 and the longest"),
    "no such model": (("--config.model.path=nowhere",), "model.path is 'nowhere'"),
    "too few demonstrations": (("--config.curriculum.stages=((5,1),)",), "5 demonstrations"),
    "too few questions": (("--config.rollout.questions_per_step=7",), "questions_per_step is 7"),
    "no held-out set": (("--config.eval.files=",), "config.eval.files"),
    "two sets of one name": (("--config.eval.files=a/t.jsonl,b/t.jsonl",), "t.jsonl"),
    "observations without room": (
        ("--config.rollout.max_observation_tokens=5",),
        "max_observation_tokens is 5",
    ),
    "start from nowhere": (("--config.init_from=nowhere",), "config.init_from is 'nowhere'"),
    "context": (("--config.rollout.max_response_tokens=1000",), "takes at most 1024"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_before_the_model_is_loaded(name, world, monkeypatch):
    monkeypatch.setattr(weights, "load_initial", lambda *a: pytest.fail("the model was loaded"))
    overrides, message = BAD[name]
    with pytest.raises((ValueError, OSError), match=message) as error:
        train.run(load(world, *overrides), world / "never")
    assert "\n" not in str(error.value)


def test_bad_rows_corpus_and_model_type(world, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "load_initial", lambda *a: pytest.fail("the model was loaded"))
    empty, row, corpus = tmp_path / "empty.jsonl", tmp_path / "row.jsonl", tmp_path / "corpus.jsonl"
    empty.write_text("")
    row.write_text('{"id": 1, "question": "a?", "golden_answers": ["a"]}\n{"id": 2, "question": "b?"}\n')
    corpus.write_text("")
    tiny.make_hf_folder(tmp_path / "model", "llama")
    described = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(described | {"model_type": "mamba"}))
    for override, message in (
        (f"questions.train_file={empty}", "has no question"),
        (f"questions.train_file={row}", "row 2 of .* has no 'golden_answers'"),
        (f"corpus.file={corpus}", "no document"),
        (f"model.path={tmp_path / 'model'}", "mamba"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            train.run(load(world, f"--config.{override}"), tmp_path / "never")


def test_the_gate_stops_the_run(world):
    cfg = load(world)
    train.check_gap({"rollout/logprob_diff_max": 9e-5, "actor/grad_norm": 1.0}, cfg, 1)
    for bad in ({"rollout/logprob_diff_max": 2e-4, "actor/grad_norm": 1.0},
                {"rollout/logprob_diff_max": float("nan"), "actor/grad_norm": 1.0},
                {"rollout/logprob_diff_max": 0.0, "actor/grad_norm": float("inf")}):  # fmt: skip
        with pytest.raises(RuntimeError, match="of step 1 is"):
            train.check_gap(bad, cfg, 1)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.py")), ids=lambda p: p.stem)
def test_every_configuration_loads(path):
    cfg = config_loader.load(path)
    assert isinstance(cfg, config.Config)
    assert f"--config configs/{path.relative_to(ROOT / 'configs')}" in path.read_text()


def test_a_checkpoint_is_exported_by_command(whole, world):
    out = world / "exported"
    command = [sys.executable, str(ROOT / "launch" / "convert.py"), "export", str(whole)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "5", str(out)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same = [
        (out / f).read_bytes() == (whole / "hf" / "000005" / f).read_bytes()
        for f in ("model.safetensors", "config.json")
    ]
    assert same == [True, True]
    done = subprocess.run([*command, "3", str(out)], env=environment, capture_output=True, text=True)
    assert "no complete checkpoint of step 3; there are: 2, 4, 5" in done.stderr


def test_the_final_table_holds_the_means_of_the_rows(whole, world):
    from jaxtool import curriculum, report
    from jaxtool.metrics import read_metrics

    cfg = load(world)
    shown = report.final_table(
        read_metrics(whole / "metrics.jsonl"), curriculum.stages(cfg.curriculum), ["q"]
    )
    rows = metrics(whole)
    line = next(line for line in shown.splitlines() if line.startswith("0-shot, end"))
    assert line.split()[2:] == [
        "5",
        *(
            f"{rows[5][name]:.3f}"
            for name in ("critic/rewards/mean", "reward/accuracy", "reward/format", "tool/valid_calls/mean")
        ),
    ]
    after = next(line for line in shown.splitlines() if line.startswith("q, after"))
    assert after.split()[2:4] == ["5", f"{rows[5]['val/q/em']:.3f}"]
