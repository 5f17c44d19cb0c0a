"""Your model, your questions, your demonstrations: the tutorial of the README, as a run of four steps.

Command: python launch/train.py --config configs/tutorial.py
"""

from jaxtool import config


def get_config() -> config.Config:
    return config.Config(
        model=config.ModelConfig(path="quickstart", remat=False),
        questions=config.QuestionsConfig(train_file="docs/tutorial/train.jsonl"),
        corpus=config.CorpusConfig(file="docs/tutorial/corpus.jsonl"),
        prompt=config.PromptConfig(demonstrations="docs/tutorial/demonstrations.txt", max_tokens=1024),
        curriculum=config.CurriculumConfig(stages=((3, 2), (2, 1), (0, 1))),
        rollout=config.RolloutConfig(
            group_size=4,
            questions_per_step=2,
            temperature=0.5,
            max_turns=2,
            max_response_tokens=176,
            max_turn_tokens=64,
            max_observation_tokens=80,
            on_no_action="end",
            slots=8,
        ),
        loss=config.LossConfig(kl_coef=0.0),
        optim=config.OptimConfig(learning_rate=4e-5, beta2=0.95, weight_decay=0.0),
        tools=config.ToolsConfig(search=config.SearchConfig(top_k=2)),
        eval=config.EvalConfig(files=("docs/tutorial/held_out.jsonl",), shots=3),
    )
