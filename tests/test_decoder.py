"""The decoder against transformers: weights, logits, paddings, packing, and golden values without torch."""

import pathlib

import numpy as np
import pytest
import tiny
from golden_models import IDS, VARIANTS

from jaxtool.models import decoder, hf, tree

GOLDEN = pathlib.Path(__file__).parent / "golden"


def ours(folder, ids=IDS, positions=None, segments=None):
    cfg = hf.read_config(folder)
    params = hf.load(folder, "float32")
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape) if positions is None else positions
    segments = np.ones_like(ids) if segments is None else segments
    return np.asarray(decoder.logits(params, tree.flat_hidden(params, cfg, ids, positions, segments)))


@pytest.mark.parametrize("name", VARIANTS)
def test_golden_logits(name, tmp_path):
    """Values of golden/make_decoder.py; they need no torch."""
    tiny.make_hf_folder(tmp_path / "m", **VARIANTS[name])
    with np.load(GOLDEN / "decoder.npz") as golden:
        np.testing.assert_allclose(ours(tmp_path / "m")[:, ::8, :16], golden[name], atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_parity_with_transformers(name, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    tiny.make_hf_folder(tmp_path / "m", **VARIANTS[name])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
    # First the weights: a wrong logit is then the forward pass.
    tree_ = hf.load(tmp_path / "m", "float32")
    np.testing.assert_array_equal(tree_["embed"], model.model.embed_tokens.weight.detach().numpy())
    down = np.stack([layer.mlp.down_proj.weight.detach().numpy().T for layer in model.model.layers])
    np.testing.assert_array_equal(tree_["layers"]["down"], down)
    with torch.no_grad():
        wanted = model(torch.tensor(IDS)).logits.numpy()
    np.testing.assert_allclose(ours(tmp_path / "m"), wanted, atol=1e-4)


def test_parity_with_transformers_under_left_padding(tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    tiny.make_hf_folder(tmp_path / "m", family="qwen3")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
    mask = np.ones_like(IDS)
    mask[0, :13] = 0
    with torch.no_grad():
        wanted = model(torch.tensor(IDS), attention_mask=torch.tensor(mask)).logits.numpy()
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    result = ours(tmp_path / "m", positions=positions, segments=mask)
    np.testing.assert_allclose(result[mask == 1], wanted[mask == 1], atol=1e-4)
    # The other way round, padding on the right needs no mask at all.
    right = ours(tmp_path / "m", IDS[:, :20])
    np.testing.assert_allclose(ours(tmp_path / "m")[:, :20], right, atol=1e-5)


def test_shapes_without_allocation_are_those_of_a_loaded_folder(tmp_path):
    import jax

    tiny.make_hf_folder(tmp_path / "m", family="qwen2", tie=False)
    cfg = hf.read_config(tmp_path / "m")
    shapes = lambda t: jax.tree.map(lambda leaf: leaf.shape, t)
    loaded = hf.load(tmp_path / "m", "float32")
    assert shapes(decoder.abstract_params(cfg)) == shapes(loaded) == shapes(decoder.init_params(cfg, 0))
    assert sum(leaf.size for leaf in jax.tree.leaves(loaded)) == cfg.num_parameters
