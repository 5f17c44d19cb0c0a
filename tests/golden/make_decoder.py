"""Makes decoder.npz: logits of transformers (torch, float32) for the tiny models of tests/tiny.py.

python tests/golden/make_decoder.py
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import tiny  # noqa: E402
from golden_models import IDS, VARIANTS  # noqa: E402


def logits(folder) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.numpy()


if __name__ == "__main__":
    made = {}
    for name, variant in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            tiny.make_hf_folder(pathlib.Path(folder) / "m", **variant)
            made[name] = logits(pathlib.Path(folder) / "m")[:, ::8, :16]
    np.savez_compressed(HERE / "decoder.npz", **made)
    print({name: array.shape for name, array in made.items()}, transformers.__version__, torch.__version__)
