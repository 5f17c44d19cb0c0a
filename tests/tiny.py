"""A tiny random Hugging Face folder of each family, for tests; it shares no code with jaxtool, and no torch.

The tokenizer is byte-level BPE with Qwen's split pattern, so `>` fuses with the newlines after it, and
`</search>` is `</`, `search`, `>` or `</`, `sea`, `rch`, `>` depending on how it was sampled.
"""

import json
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MERGES = (
    "< /|> Ċ|>Ċ Ċ|s e|se a|r c|rc h|sea rch|a n|s w|an sw|e r|answ er|t h|i n|th in|thin k|Ġ t|h e|Ġt he|"
    "o n|Ġ a|i s|Ġ s|Ġ o|o f|Ġo f|Ġ i|Ġi s|r e|e n|Ġ c|a t|o r|i t|Ġ p|in f|inf or|infor m|inform at|"
    "i on|informat ion|D o|Do c"
).split("|")
CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer_files(folder: pathlib.Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json; 256 bytes, the merges, then three special tokens."""
    vocab = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def make_config(family: str, tie: bool, dtype: str, **sizes: Any) -> dict[str, Any]:
    """config.json in the spelling of transformers 4; `sizes` adds or overrides keys, None takes one out."""
    config = {
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family] + "ForCausalLM"],
        "model_type": family,
        "vocab_size": 320,  # padded: the tokenizer has fewer
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tie,
        "bos_token_id": None,
        "eos_token_id": 256 + len(MERGES) + 2,
        "torch_dtype": dtype,
    }
    if family == "qwen3":
        config["head_dim"] = 16  # twice hidden_size / num_attention_heads
    config |= sizes
    return {key: value for key, value in config.items() if value is not None}


def random_tensors(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Every tensor of the checkpoint under its Hugging Face name, float32."""
    rng = np.random.default_rng(seed)
    width, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", width // heads)

    def weight(*shape: int) -> np.ndarray:
        return rng.normal(0.0, 0.15, shape).astype(np.float32)

    def norm(size: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, size).astype(np.float32)

    tensors = {"model.embed_tokens.weight": weight(vocab, width)}
    for layer in range(config["num_hidden_layers"]):
        attention, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            tensors[f"{attention}{name}_proj.weight"] = weight(count * head_dim, width)
            if config["model_type"] == "qwen2":
                tensors[f"{attention}{name}_proj.bias"] = weight(count * head_dim)
        if config["model_type"] == "qwen3":
            tensors[f"{attention}q_norm.weight"] = norm(head_dim)
            tensors[f"{attention}k_norm.weight"] = norm(head_dim)
        tensors[f"{attention}o_proj.weight"] = weight(width, heads * head_dim)
        tensors[f"{mlp}gate_proj.weight"] = weight(inner, width)
        tensors[f"{mlp}up_proj.weight"] = weight(inner, width)
        tensors[f"{mlp}down_proj.weight"] = weight(width, inner)
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = norm(width)
        tensors[f"model.layers.{layer}.post_attention_layernorm.weight"] = norm(width)
    tensors["model.norm.weight"] = norm(width)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = weight(vocab, width)
    return tensors


def make_hf_folder(
    folder: str | pathlib.Path,
    family: str = "llama",
    tie: bool = True,
    dtype: str = "float32",
    seed: int = 0,
    shards: int = 1,
    **sizes: Any,
) -> pathlib.Path:
    """Writes a complete folder and returns its path.

    Args:
        folder: made if it does not exist.
        family: "llama", "qwen2" or "qwen3".
        dtype: "float32" or "bfloat16", of the stored tensors.
        shards: number of safetensors files; above one an index is written.
        sizes: keys of config.json, such as num_hidden_layers=4 or rope_scaling={...}.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(family, tie, dtype, **sizes)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    generation = {"do_sample": True, "eos_token_id": [config["eos_token_id"], config["eos_token_id"] - 2]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1), encoding="utf-8")
    make_tokenizer_files(folder)
    stored = np.float32 if dtype == "float32" else ml_dtypes.bfloat16
    save_tensors(folder, {k: v.astype(stored) for k, v in random_tensors(config, seed).items()}, shards)
    return folder


def save_tensors(folder: pathlib.Path, tensors: dict[str, np.ndarray], shards: int = 1) -> None:
    """Writes the tensors, in place of any that are there."""
    for old in (*folder.glob("*.safetensors"), *folder.glob("*.index.json")):
        old.unlink()
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]  # one layer's tensors lie in several files
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
