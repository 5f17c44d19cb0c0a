"""ICRL with a 135M model on a laptop: the whole curve, in at most 25 minutes on two CPU cores.

Source: the method of arXiv:2603.08068 in small.  SmolLM2-135M-Instruct in float32, one-hop questions
about countries (WorldFacts), BM25 top 2, stages of 3, 2 and 0 demonstrations.
Command: python launch/train.py --config configs/icrl_smollm2_135m.py
Control, without demonstrations from the start:
    python launch/train.py --config configs/icrl_smollm2_135m.py --config.curriculum.stages='((0,40),)' --run_dir runs/control
"""

from jaxtool import config

COUNTRY_FACTS = ("capital", "currency", "demonym")


def get_config() -> config.Config:
    return config.Config(
        model=config.ModelConfig(path="quickstart", remat=False),
        questions=config.QuestionsConfig(hops=(1,), types=COUNTRY_FACTS),
        prompt=config.PromptConfig(max_tokens=1024),
        curriculum=config.CurriculumConfig(stages=((3, 8), (2, 8), (0, 24))),
        rollout=config.RolloutConfig(
            group_size=8,
            questions_per_step=2,
            temperature=0.5,
            max_turns=2,
            max_response_tokens=176,
            max_turn_tokens=64,
            max_observation_tokens=80,
            on_no_action="end",
            slots=32,
        ),
        loss=config.LossConfig(kl_coef=0.0),
        optim=config.OptimConfig(
            learning_rate=3e-5, beta2=0.95, weight_decay=0.0, grad_clip=1.0, microbatch_questions=1
        ),
        tools=config.ToolsConfig(search=config.SearchConfig(top_k=2)),
        eval=config.EvalConfig(hops=(1,), types=COUNTRY_FACTS, limit=100),
        checkpoint=config.CheckpointConfig(every=10),
    )
