"""jaxtool: reinforcement learning of tool use for language models, in JAX.

Read `train.py` first; `ls jaxtool/` is the way of the data.
"""

__version__ = "0.1.0"
