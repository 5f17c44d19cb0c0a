"""A GGUF file -> Hugging Face folder: config.json, float32 safetensors, tokenizer.  Host code.

Weights are dequantised by the `gguf` package, one tensor at a time.  GGUF's llama layout interleaves the
two halves of every query and key head; that is undone here.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from gguf import GGUFReader, TokenType
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from jaxtool.models import hf_names, hf_write
from jaxtool.models.config import FAMILIES, from_hf

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def convert(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the model and tokenizer of a GGUF file into an existing empty folder.

    Raises:
        ValueError: an architecture, rope scaling or tokenizer that is not supported, or missing tensors.
    """
    reader = GGUFReader(file)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(fields, tensors, file)
    cfg = from_hf(config, str(file))
    shapes = hf_names.tensor_shapes(cfg)
    for name, shape in shapes.items():
        found = tensors.get(_gguf_name(name))
        if found is None or tuple(map(int, reversed(found.shape))) != shape:
            what = "is missing" if found is None else f"has shape {found.shape.tolist()[::-1]}"
            raise ValueError(f"{file}: tensor {_gguf_name(name)} {what}, expected {list(shape)}.")
    if len(tensors) != len(shapes):
        extra = sorted(set(tensors) - set(map(_gguf_name, shapes)))
        raise ValueError(f"{file}: tensor {extra[0]} is not supported.")  # such as rope_freqs.weight

    heads = {"self_attn.q_proj.weight": cfg.num_heads, "self_attn.k_proj.weight": cfg.num_kv_heads}

    def read(name: str) -> np.ndarray:
        tensor = tensors[_gguf_name(name)]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shapes[name])
        count = heads.get(name.split(".", 3)[-1])
        return _uninterleave(values, count) if count and cfg.family == "llama" else values

    hf_write.write_json(folder / "config.json", config)
    plan = {name: (shape, np.dtype(np.float32)) for name, shape in shapes.items()}
    hf_write.write_tensors(folder, plan, read)
    _write_tokenizer(fields, folder, file)


def _config(fields: dict[str, Any], tensors: dict[str, Any], file: pathlib.Path) -> dict[str, Any]:
    """The model's config.json in the spelling that transformers 4 and 5 read."""
    family = fields["general.architecture"]
    if family not in FAMILIES:
        raise ValueError(f"{file}: architecture {family!r} is none of {', '.join(FAMILIES)}.")
    if fields.get(f"{family}.rope.scaling.type", "none") != "none":
        raise ValueError(f"{file}: rope scaling in GGUF is not supported.")
    heads, width = fields[f"{family}.attention.head_count"], fields[f"{family}.embedding_length"]
    config = {
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "model_type": family,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": width,
        "intermediate_size": fields[f"{family}.feed_forward_length"],
        "num_hidden_layers": fields[f"{family}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{family}.attention.head_count_kv", heads),
        "head_dim": fields.get(f"{family}.attention.key_length", width // heads),
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(fields[f"{family}.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _shortest(fields.get(f"{family}.rope.freq_base", 10000.0)),
        "max_position_embeddings": fields[f"{family}.context_length"],
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float32",
    }
    for kind, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        config[f"{kind}_token_id"] = fields.get(f"tokenizer.ggml.{key}_token_id")
    return config


def _shortest(value: float) -> float:
    """The decimal number that was stored as float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _gguf_name(name: str) -> str:
    fixed = {
        hf_names.EMBED: "token_embd.weight",
        hf_names.FINAL_NORM: "output_norm.weight",
        hf_names.HEAD: "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_NAMES[stem]}.{kind}"


def _uninterleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """[heads E, D] with rows (0, E/2, 1, E/2 + 1, ...) of each head -> rows in order."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def _write_tokenizer(fields: dict[str, Any], folder: pathlib.Path, file: pathlib.Path) -> None:
    kind = (fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"{file}: tokenizer {kind!r} is not supported, only ('gpt2', 'smollm').")
    tokens: Sequence[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # "smollm": every digit alone, then GPT-2's split
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    special = [token for token, type_ in zip(tokens, types, strict=True) if type_ == TokenType.CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))

    ids = {key: fields.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "unknown", "padding")}
    named = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    config: dict[str, Any] = {f"{named[key]}_token": tokens[i] for key, i in ids.items() if i is not None}
    hf_write.write_json(folder / "special_tokens_map.json", config)
    config |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields[f"{fields['general.architecture']}.context_length"],
        "clean_up_tokenization_spaces": False,
    }
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    hf_write.write_json(folder / "tokenizer_config.json", config)
    generation = {
        f"{kind}_token_id": ids[key] for kind, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    hf_write.write_json(
        folder / "generation_config.json", {k: v for k, v in generation.items() if v is not None}
    )
