"""Prompts of a stage: the shared prefix, its bounds, what is refused or left out."""

import dataclasses

import pytest
from test_train import load, world  # noqa: F401  (world is a fixture)

from jaxtool import assemble, dry_run


def test_common_prefix_leaves_a_token_to_each():
    assert assemble.common_prefix([[1, 2, 3], [1, 2, 4], [1, 2]]) == [1]
    assert assemble.common_prefix([[1], [1]]) == []
    assert assemble.common_prefix([[1, 2], [3, 2]]) == []


def test_every_prompt_begins_with_the_prefix_and_fits(world):  # noqa: F811
    parts = assemble.load(load(world))
    for plan in (*parts.plans, *parts.eval_plans.values()):
        assert plan.prefix_ids
        for question in plan.questions:
            ids = parts.prompts.ids(question.question, plan.shots)
            assert ids[: len(plan.prefix_ids)] == plan.prefix_ids
            assert 1 <= len(ids) - len(plan.prefix_ids) <= plan.question_size
    one, none = parts.plans
    assert len(one.prefix_ids) > len(none.prefix_ids) + 20  # the demonstration is in the prefix
    assert not {q.uid for q in one.questions} & {q.uid for q in none.questions}
    parts.close()


def test_long_prompts_are_refused_with_the_lengths_or_left_out_and_counted(world, capsys):  # noqa: F811
    rows = (world / "q.jsonl").read_text().splitlines()
    long = rows[0].replace("What is 0?", "What is " + "very " * 60 + "long?")
    (world / "long.jsonl").write_text("\n".join([long, *rows[1:]]))
    parts = assemble.load(load(world))
    limit = max(plan.max_tokens for plan in parts.plans) + 12
    parts.close()
    overrides = (
        f"--config.questions.train_file={world / 'long.jsonl'}",
        f"--config.prompt.max_tokens={limit}",
    )
    with pytest.raises(
        ValueError, match=rf"config.prompt.max_tokens is {limit} and the longest .-shot prompt"
    ):
        assemble.load(load(world, *overrides))
    parts = assemble.load(load(world, *overrides, "--config.questions.on_overlong=filter"))
    assert "left out 1 of " in capsys.readouterr().out
    parts.close()


def test_dry_run_shows_prompts_and_says_what_a_run_costs(world, monkeypatch):  # noqa: F811
    from jaxtool.models import hf

    monkeypatch.setattr(hf, "load", lambda *a: pytest.fail("the weights were read"))
    shown = dry_run.describe(load(world))
    assert shown.count("--- prompt of") == 6 and "Actual Problem: What is" in shown
    assert "at most 8 tool calls" in shown and "at most 12 tool calls" in shown
    assert "memory: " in shown and "time: at least" in shown


def test_a_run_can_do_without_demonstrations(world):  # noqa: F811
    cfg = load(world, "--config.curriculum.stages=((0,2),)")
    cfg = dataclasses.replace(cfg, prompt=dataclasses.replace(cfg.prompt, demonstrations="nowhere.txt"))
    parts = assemble.load(cfg)
    assert [plan.shots for plan in parts.plans] == [0]
    parts.close()
