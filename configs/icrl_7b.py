"""ICRL as published, Qwen2.5-7B-Instruct on Natural Questions (arXiv:2603.08068).

From the paper: 8 rollouts a question, 64 questions a step, temperature 1, top-p 1, learning rate 1e-6,
clip 0.2, KL 0.001, alpha 0.8, prompts of 5,000 and responses of 2,048 tokens, 6 searches, top 3
documents, bfloat16, stages of 3, 2 and 0 demonstrations.
From the authors' script, where the paper is silent: 100 steps a stage, AdamW 0.9/0.999 with weight
decay 0.01, warm-up over 10 steps, sample standard deviation, chat template, no entropy bonus kept (the
script's 0.001 is its framework's default and is not in the paper).
Ours: observations of at most 200 tokens, so that six fit into a response; optimiser state and schedule
go on across stages (config.curriculum.reset = True does as the three separate runs of the script).

Needs the checkpoint (model.path: a folder, or the hub), a question file in FlashRAG's schema
(questions.train_file), held-out files (eval.files), demonstrations (prompt.demonstrations) and a
search engine, by one key: tools.search.engine = bm25 (with corpus.file), retriever (with
tools.search.url) or serper (with SERPER_API_KEY in the environment).
Hardware: 4 x A100-80G in the paper; this configuration has not been run here.
Command: python launch/train.py --config configs/icrl_7b.py
"""

from jaxtool import config


def get_config() -> config.Config:
    return config.Config(
        model=config.ModelConfig(path="Qwen/Qwen2.5-7B-Instruct", dtype="bfloat16", remat=True),
        questions=config.QuestionsConfig(train_file="data/nq/train.jsonl"),
        corpus=config.CorpusConfig(file="data/wiki18/corpus.jsonl"),
        prompt=config.PromptConfig(
            demonstrations="worldfacts/demonstrations.txt", chat_template=True, max_tokens=5000
        ),
        curriculum=config.CurriculumConfig(stages=((3, 100), (2, 100), (0, 100))),
        rollout=config.RolloutConfig(
            group_size=8,
            questions_per_step=64,
            temperature=1.0,
            max_turns=6,
            max_response_tokens=2048,
            max_turn_tokens=1024,
            max_observation_tokens=200,
            on_no_action="retry",
            slots=512,
            max_logprob_gap=0.05,  # mean over tokens, nats: bfloat16
        ),
        reward=config.RewardConfig(accuracy_weight=0.8),
        loss=config.LossConfig(
            clip_low=0.2, clip_high=0.2, kl_coef=0.001, entropy_coef=0.0, advantage_std="sample"
        ),
        optim=config.OptimConfig(
            learning_rate=1e-6,
            warmup_steps=10,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            microbatch_questions=1,
        ),
        tools=config.ToolsConfig(search=config.SearchConfig(engine="bm25", top_k=3)),
        eval=config.EvalConfig(
            every=50,
            files=tuple(
                f"data/{name}.jsonl"
                for name in ("triviaqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
            ),
            limit=500,
        ),
        checkpoint=config.CheckpointConfig(every=50),
    )
