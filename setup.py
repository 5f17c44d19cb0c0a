"""Packaging of jaxtool.  `pip install -e '.[quickstart]'` for users, `'.[dev]'` for developers."""

import pathlib

from setuptools import find_packages, setup

QUICKSTART = ["bm25s>=0.2.12", "gguf>=0.17", "matplotlib>=3.8"]

setup(
    name="jaxtool",
    version="0.1.0",
    description="Reinforcement learning of tool use for language models, in JAX",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["jaxtool", "jaxtool.*"]),
    package_data={"jaxtool.data": ["**/*.jsonl", "**/*.txt", "**/*.json", "**/*.md"]},
    install_requires=[
        "jax>=0.10",
        "flax>=0.12",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11",
        "tensorstore>=0.1.70",
        "jaxtyping>=0.3",
        "transformers>=4.56",
        "tokenizers>=0.22",
        "jinja2>=3.1",
        "huggingface_hub>=0.34",
        "safetensors>=0.6",
        "ml_dtypes>=0.5",
        "numpy>=2.0",
        "requests>=2.31",
        "tensorboardX>=2.6",
        "tqdm>=4.66",
    ],
    extras_require={
        "quickstart": QUICKSTART,
        "dev": QUICKSTART
        + ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "beartype>=0.18", "ruff>=0.6"],
        "gpu": ["jax[cuda12]>=0.10"],
        "tpu": ["jax[tpu]>=0.10"],
    },
)
