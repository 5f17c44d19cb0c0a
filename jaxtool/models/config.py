"""config.json of a Hugging Face folder -> DecoderConfig, the shape of one decoder.  Host code.

Three families share one decoder: "llama" (LLaMA 3.x, SmolLM2), "qwen2" (Qwen2, Qwen2.5) and "qwen3"
(dense).  Both spellings of config.json are read: transformers 4 (`rope_theta`, `rope_scaling`) and
transformers 5 (`rope_parameters`).  What the decoder does not compute is refused by name.
"""

import dataclasses
import difflib
from typing import Any

import numpy as np

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Frequency scaling of LLaMA 3.1 and later; all four numbers come from config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    family: str  # one of FAMILIES
    vocab_size: int  # rows of the embedding, padding included
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    qkv_bias: bool  # query, key and value projections have a bias
    qk_norm: bool  # RMS norm of every query and key head
    tie_embeddings: bool  # the output head is the embedding
    max_positions: int

    @property
    def queries_per_kv(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def num_parameters(self) -> int:
        width, heads = self.hidden_size, self.num_heads + 2 * self.num_kv_heads
        layer = 2 * width + width * heads * self.head_dim  # two norms; q, k, v
        layer += self.num_heads * self.head_dim * width + 3 * width * self.intermediate_size
        layer += heads * self.head_dim if self.qkv_bias else 0
        layer += 2 * self.head_dim if self.qk_norm else 0
        tables = 1 if self.tie_embeddings else 2
        return tables * self.vocab_size * width + self.num_layers * layer + width


# What `inspect` says about each key of config.json.  "used": from_hf reads it into DecoderConfig;
# "checked": only the value under which it changes nothing is accepted; "kept": no part of the forward
# pass, exported unchanged.
KEY_USES = (
    dict.fromkeys(
        "model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling rope_parameters "
        "tie_word_embeddings max_position_embeddings eos_token_id".split(),
        "used",
    )
    | dict.fromkeys(
        "hidden_act attention_bias mlp_bias use_sliding_window sliding_window max_window_layers layer_types "
        "quantization_config partial_rotary_factor rope_interleaved".split(),
        "checked",
    )
    | dict.fromkeys(
        "architectures attention_dropout bos_token_id pad_token_id dtype torch_dtype initializer_range "
        "pretraining_tp use_cache transformers_version _name_or_path".split(),
        "kept",
    )
)


def key_uses(config: dict[str, Any]) -> dict[str, str]:
    """What jaxtool does with each key: "used", "checked", "kept" or "unknown, kept"."""
    return {key: KEY_USES.get(key, "unknown, kept") for key in config}


def from_hf(config: dict[str, Any], where: str) -> DecoderConfig:
    """Reads the content of a config.json.

    Missing keys take the value that transformers gives them for the family.

    Args:
        config: the parsed config.json.
        where: file or model name, for messages.

    Raises:
        ValueError: an unknown family, a value that the decoder cannot honour, or inconsistent sizes.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        near = difflib.get_close_matches(str(family), FAMILIES, n=1, cutoff=0.4)
        hint = f" (nearest: {near[0]!r})" if near else ""
        raise ValueError(f"{where}: model_type {family!r} is none of {', '.join(FAMILIES)}{hint}.")
    _refuse(config, family, where)

    sizes = {key: _positive(config, key, where) for key in _SIZES}
    heads = sizes["num_attention_heads"]
    default = heads if family == "llama" or "num_key_value_heads" in config else None
    kv_heads = _positive(config, "num_key_value_heads", where, default=default)
    if heads % kv_heads:
        raise ValueError(
            f"{where}: {heads} num_attention_heads are no multiple of {kv_heads} num_key_value_heads."
        )
    theta, scaling = _rope(config, where)
    tie = config.get("tie_word_embeddings", False)
    if not isinstance(tie, bool):
        raise ValueError(f"{where}: tie_word_embeddings is {tie!r}, expected true or false.")
    return DecoderConfig(
        family=family,
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        intermediate_size=sizes["intermediate_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=_head_dim(config, family, sizes["hidden_size"], heads, where),
        rms_norm_eps=_number(config, "rms_norm_eps", where, default=1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tie_embeddings=tie,
        max_positions=sizes["max_position_embeddings"],
    )


def inv_frequencies(cfg: DecoderConfig) -> np.ndarray:
    """Rotary frequencies in radians per position, float64 [E/2].

    theta^(-2i/E); with Llama3Scaling, wavelengths above original_max_positions / low_freq_factor are
    stretched by `factor`, those below original_max_positions / high_freq_factor stay, and those between
    are blended linearly in original_max_positions / wavelength (Llama 3.1 model card and code, 2024).
    """
    base = cfg.rope_theta ** (-np.arange(0, cfg.head_dim, 2, dtype=np.float64) / cfg.head_dim)
    scaling = cfg.rope_scaling
    if scaling is None:
        return base
    turns = scaling.original_max_positions * base / (2 * np.pi)  # full turns within the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)  # 1: unchanged, 0: fully stretched
    return keep * base + (1.0 - keep) * base / scaling.factor


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def _refuse(config: dict[str, Any], family: str, where: str) -> None:
    """Raises on values that would change the forward pass in a way the decoder does not have."""
    required = {"hidden_act": "silu", "mlp_bias": False}
    required |= {"partial_rotary_factor": 1.0, "rope_interleaved": False}
    if family != "qwen2":  # where it is on, the output projection has a bias too
        required["attention_bias"] = False
    for key, value in required.items():
        if config.get(key) not in (None, value):
            raise ValueError(f"{where}: {key} {config[key]!r} is not supported, only {value!r}.")
    if config.get("quantization_config") is not None:
        raise ValueError(f"{where}: quantization_config is not supported, only unquantised weights.")
    if set(config.get("layer_types") or ()) - {"full_attention"}:
        raise ValueError(f"{where}: layer_types other than 'full_attention' are not supported.")
    window = config.get("sliding_window")
    # Qwen configs name a window that is off; where it is on it starts at layer max_window_layers.
    windowed = config.get("use_sliding_window", family == "llama")
    first = config.get("max_window_layers", 28) if family != "llama" else 0
    if windowed and window is not None and first < config.get("num_hidden_layers", 0):
        raise ValueError(f"{where}: sliding_window {window!r} is on, and sliding windows are not supported.")


def _rope(config: dict[str, Any], where: str) -> tuple[float, Llama3Scaling | None]:
    parameters = config.get("rope_parameters") or {}
    if not all(isinstance(config.get(key) or {}, dict) for key in ("rope_parameters", "rope_scaling")):
        raise ValueError(f"{where}: rope_parameters and rope_scaling must be objects.")
    if any(isinstance(value, dict) for value in parameters.values()):
        raise ValueError(f"{where}: rope_parameters differs by layer type, which is not supported.")
    scaling = {k: v for k, v in parameters.items() if k != "rope_theta"} or config.get("rope_scaling") or {}

    thetas = [source["rope_theta"] for source in (parameters, config) if source.get("rope_theta") is not None]
    if len(set(thetas)) > 1:
        raise ValueError(
            f"{where}: rope_theta {thetas[1]!r} contradicts rope_parameters.rope_theta {thetas[0]!r}."
        )
    theta = _number({"rope_theta": thetas[0] if thetas else None}, "rope_theta", where, default=10000.0)

    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if scaling.get("partial_rotary_factor") not in (None, 1.0):
        raise ValueError(f"{where}: rope scaling with a partial_rotary_factor is not supported.")
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"{where}: rope scaling {kind!r} is not supported, only 'default' and 'llama3'.")
    numbers = {key: _number(scaling, key, f"{where}: rope scaling") for key in ("factor", *_LLAMA3_BANDS)}
    if numbers["high_freq_factor"] <= numbers["low_freq_factor"]:
        raise ValueError(f"{where}: rope scaling needs high_freq_factor > low_freq_factor, got {numbers}.")
    original = _positive(scaling, "original_max_position_embeddings", f"{where}: rope scaling")
    return theta, Llama3Scaling(original_max_positions=original, **numbers)


_LLAMA3_BANDS = ("low_freq_factor", "high_freq_factor")


def _head_dim(config: dict[str, Any], family: str, width: int, heads: int, where: str) -> int:
    """An explicit head_dim wins; Qwen3 means 128 where the key is absent."""
    if config.get("head_dim") is None and not (family == "qwen3" and "head_dim" not in config):
        if width % heads:
            raise ValueError(
                f"{where}: no head_dim, and hidden_size {width} does not split into {heads} heads."
            )
        head_dim = width // heads
    else:
        head_dim = _positive(config, "head_dim", where, default=128)
    if head_dim % 2:
        raise ValueError(f"{where}: head_dim {head_dim} is odd; rotary embeddings need pairs.")
    return head_dim


def _positive(config: dict[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = default if config.get(key) is None else config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{where}: {key} is {value!r}, expected a positive whole number.")
    return value


def _number(config: dict[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = default if config.get(key) is None else config[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{where}: {key} is {value!r}, expected a positive number.")
    return float(value)
