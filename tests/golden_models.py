"""The tiny models whose logits golden/decoder.npz holds."""

import numpy as np

VARIANTS = {
    "llama": dict(family="llama"),
    "llama_scaled": dict(
        family="llama", tie=False,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 32},
    ),
    "qwen2": dict(family="qwen2"),
    "qwen2_untied": dict(family="qwen2", tie=False),
    "qwen3": dict(family="qwen3"),
    "qwen3_untied": dict(family="qwen3", tie=False, rope_theta=1e6),
}  # fmt: skip
IDS = np.random.default_rng(0).integers(0, 320, (2, 40))
