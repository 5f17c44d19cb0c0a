import json
import pathlib

import numpy as np
import pytest
import tiny

from jaxtool.models.config import DecoderConfig, Llama3Scaling, from_hf, inv_frequencies, key_uses

CONFIGS = pathlib.Path(__file__).parents[1] / "jaxtool" / "data" / "model_configs"
PUBLISHED = {
    "Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen2.5-14B-Instruct": 14_770_033_664,
    "Qwen3-8B": 8_190_735_360,
    "Llama-3.2-3B": 3_212_749_824,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(family: str = "llama", tie: bool = True, **changes) -> DecoderConfig:
    return from_hf(tiny.make_config(family, tie, "float32") | changes, "tiny")


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name):
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    assert from_hf(config, name).num_parameters == PUBLISHED[name]
    assert set(key_uses(config).values()) <= {"used", "checked", "kept"}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tie", [True, False])
def test_parameter_count_of_tiny_models_is_that_of_their_tensors(family, tie):
    config = tiny.make_config(family, tie, "float32")
    tensors = tiny.random_tensors(config, seed=0)
    assert from_hf(config, "tiny").num_parameters == sum(tensor.size for tensor in tensors.values())


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_llama3_frequencies(key):
    # expected: Hugging Face's own function at head size 64, theta 5e5, factor 32, 1, 4, 8192
    scaling = {key if name == "rope_type" else name: value for name, value in LLAMA3.items()}
    cfg = read(head_dim=64, rope_theta=5e5, rope_scaling=scaling)
    got = inv_frequencies(cfg)
    base = 5e5 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(got[:15], base[:15], rtol=1e-12)
    expected = [1.290548e-03, 4.295567e-04, 9.708286e-05, 1.946164e-05]
    np.testing.assert_allclose(got[15:19], expected, rtol=1e-6)
    np.testing.assert_allclose(got[18:], base[18:] / 32, rtol=1e-12)
    np.testing.assert_allclose(got[31], 9.418306e-08, rtol=1e-6)


def test_llama3_factor_comes_from_the_config():
    eight = read(head_dim=64, rope_theta=5e5, rope_scaling=LLAMA3 | {"factor": 8.0})
    np.testing.assert_allclose(inv_frequencies(eight)[18], 1.946164e-05 * 4, rtol=1e-6)


def test_spellings_of_transformers_4_and_5_agree():
    old = read(rope_theta=5e5, rope_scaling=LLAMA3)
    config = tiny.make_config("llama", True, "float32", rope_theta=None, torch_dtype=None)
    new = from_hf(config | {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "dtype": "float32"}, "new")
    assert old == new
    assert new.rope_scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)
    plain = from_hf(config | {"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}, "plain")
    assert (plain.rope_theta, plain.rope_scaling) == (7.0, None)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_what_transformers_writes_is_read(family, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = tiny.make_config(family, False, "bfloat16", rope_theta=2e4)
    (tmp_path / "config.json").write_text(json.dumps(config))
    transformers.AutoConfig.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert from_hf(again, "again") == from_hf(config, "first")
    assert "unknown, kept" not in key_uses(again).values()


def test_explicit_head_dim_wins():
    assert read("qwen3").head_dim == 16  # hidden 32 over 4 heads would be 8
    assert read("llama").head_dim == 8
    assert read("llama", head_dim=None).head_dim == 8
    without = tiny.make_config("qwen3", True, "float32", head_dim=None)
    assert from_hf(without, "qwen3").head_dim == 128  # what transformers takes for Qwen3
    assert from_hf(without | {"head_dim": None}, "qwen3").head_dim == 8


def test_families():
    flags = {family: (read(family).qkv_bias, read(family).qk_norm) for family in ("llama", "qwen2", "qwen3")}
    assert flags == {"llama": (False, False), "qwen2": (True, False), "qwen3": (False, True)}
    assert read(num_key_value_heads=4).queries_per_kv == 1


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen2", {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 1}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 2}),
        ("qwen3", {"use_sliding_window": False, "sliding_window": None, "rope_scaling": None}),
        ("qwen2", {"sliding_window": 4096}),  # transformers' default is off
        ("llama", {"layer_types": ["full_attention"] * 2, "attention_bias": False, "pretraining_tp": 1}),
        ("llama", {"rope_interleaved": False, "is_llama_config": True}),  # SmolLM2
    ],
)
def test_what_is_off_is_accepted(family, changes):
    assert read(family, **changes) == read(family)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llama", {"model_type": "qwen25"}, r"'qwen25' is none of llama, qwen2, qwen3 \(nearest: 'qwen2'\)"),
        ("llama", {"model_type": None}, "model_type None is none of"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ("llama", {"mlp_bias": True}, "mlp_bias True"),
        ("llama", {"attention_bias": True}, "attention_bias True"),
        ("qwen3", {"attention_bias": True}, "attention_bias True"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rope scaling 'linear'"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rope scaling 'dynamic'"),
        ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differs by layer type"),
        ("llama", {"rope_parameters": {"rope_theta": 5e5}}, "rope_theta 10000.0 contradicts"),
        ("llama", {"rope_scaling": "llama3"}, "must be objects"),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, "rope scaling: factor is None"),
        ("llama", {"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor > low_freq_factor"),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
            "window 9 is on",
        ),
        ("llama", {"sliding_window": 4096}, "sliding_window 4096 is on"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ("llama", {"num_key_value_heads": 3}, "4 num_attention_heads are no multiple of 3"),
        ("llama", {"hidden_size": 30}, "hidden_size 30 does not split into 4 heads"),
        ("llama", {"head_dim": 7}, "head_dim 7 is odd"),
        ("llama", {"vocab_size": 0}, "vocab_size is 0, expected a positive whole number"),
        ("llama", {"num_hidden_layers": None}, "num_hidden_layers is None"),
        ("llama", {"rms_norm_eps": "small"}, "rms_norm_eps is 'small'"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(family, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        read(family, **changes)
    assert str(error.value).startswith("tiny: ")


def test_missing_kv_heads_mean_all_heads_for_llama_only():
    config = tiny.make_config("llama", True, "float32", num_key_value_heads=None)
    assert from_hf(config, "llama").num_kv_heads == 4
    with pytest.raises(ValueError, match="num_key_value_heads is None"):
        from_hf(config | {"model_type": "qwen2"}, "qwen2")
