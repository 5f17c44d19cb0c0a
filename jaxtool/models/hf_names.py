"""Where each leaf of the parameter tree stands in a Hugging Face checkpoint.  Host code.

A leaf under "layers" is stacked over L; for one layer it is packed from, and unpacked into, the tensors
named in `layer_leaves`.  torch's Linear keeps [out, in], the tree keeps [in, ...out], so matrices are
transposed here and nowhere else.  Axes as in `types.py`, F the inner width of the MLP.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxtool.models.config import DecoderConfig

Path = tuple[str, ...]  # keys into the nested tree, such as ("layers", "qkv")
EMBED, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclasses.dataclass(frozen=True)
class LayerLeaf:
    names: tuple[str, ...]  # tensors of one layer, without "model.layers.<i>."
    shapes: tuple[tuple[int, ...], ...]  # theirs in the checkpoint
    shape: tuple[int, ...]  # of the leaf, without L
    pack: Callable[..., np.ndarray]  # the tensors -> [shape]
    unpack: Callable[[np.ndarray], tuple[np.ndarray, ...]]  # [shape] -> the tensors


def single_leaves(cfg: DecoderConfig) -> dict[Path, tuple[str, tuple[int, ...]]]:
    """Leaves that are one tensor of the checkpoint, as it stands: path -> name and shape."""
    leaves = {
        ("embed",): (EMBED, (cfg.vocab_size, cfg.hidden_size)),
        ("final_norm",): (FINAL_NORM, (cfg.hidden_size,)),
    }
    if not cfg.tie_embeddings:
        leaves[("head",)] = (HEAD, (cfg.vocab_size, cfg.hidden_size))
    return leaves


def layer_leaves(cfg: DecoderConfig) -> dict[str, LayerLeaf]:
    """Leaves under "layers": key -> how one layer of it is made."""
    width, inner, size = cfg.hidden_size, cfg.intermediate_size, cfg.head_dim
    groups, queries = cfg.num_kv_heads, cfg.queries_per_kv  # K, N
    outs = (groups * queries * size, groups * size, groups * size)
    qkv_names = tuple(f"self_attn.{which}_proj" for which in "qkv")

    def pack_qkv(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        """[K N E, *D], [K E, *D] twice -> [*D, K, N+2, E]: the query heads of a group, its key, its value."""
        heads = [part.reshape(groups, -1, size, *part.shape[1:]) for part in (query, key, value)]
        joined = np.concatenate(heads, axis=1)
        if joined.ndim == 3:
            return joined
        return transpose(joined.reshape(-1, width)).reshape(width, groups, queries + 2, size)

    def unpack_qkv(leaf: np.ndarray) -> tuple[np.ndarray, ...]:
        joined = leaf
        if leaf.ndim == 4:
            joined = transpose(leaf.reshape(width, -1)).reshape(groups, queries + 2, size, width)
        parts = np.split(joined, [queries, queries + 1], axis=1)
        return tuple(part.reshape(-1, *part.shape[3:]) for part in parts)

    def norm(name: str, axis: int) -> LayerLeaf:
        return LayerLeaf((f"{name}.weight",), ((axis,),), (axis,), lambda x: x, lambda x: (x,))

    leaves = {
        "attention_norm": norm("input_layernorm", width),
        "qkv": LayerLeaf(
            names=tuple(f"{name}.weight" for name in qkv_names),
            shapes=tuple((out, width) for out in outs),
            shape=(width, groups, queries + 2, size),
            pack=pack_qkv,
            unpack=unpack_qkv,
        ),
    }
    if cfg.qkv_bias:
        leaves["qkv_bias"] = LayerLeaf(
            names=tuple(f"{name}.bias" for name in qkv_names),
            shapes=tuple((out,) for out in outs),
            shape=(groups, queries + 2, size),
            pack=pack_qkv,
            unpack=unpack_qkv,
        )
    if cfg.qk_norm:
        leaves["q_norm"] = norm("self_attn.q_norm", size)
        leaves["k_norm"] = norm("self_attn.k_norm", size)
    return leaves | {
        "out": LayerLeaf(
            names=("self_attn.o_proj.weight",),
            shapes=((width, outs[0]),),
            shape=(groups, queries, size, width),
            pack=lambda x: transpose(x).reshape(groups, queries, size, width),
            unpack=lambda x: (transpose(x.reshape(-1, width)),),
        ),
        "mlp_norm": norm("post_attention_layernorm", width),
        "gate_up": LayerLeaf(
            names=("mlp.gate_proj.weight", "mlp.up_proj.weight"),
            shapes=((inner, width), (inner, width)),
            shape=(width, 2, inner),
            pack=lambda *gate_up: transpose(np.concatenate(gate_up)).reshape(width, 2, inner),
            unpack=lambda x: tuple(np.split(transpose(x.reshape(width, -1)), 2)),
        ),
        "down": LayerLeaf(
            names=("mlp.down_proj.weight",),
            shapes=((width, inner),),
            shape=(inner, width),
            pack=transpose,
            unpack=lambda x: (transpose(x),),
        ),
    }


def leaf_shapes(cfg: DecoderConfig) -> dict[Path, tuple[int, ...]]:
    """Shape of every leaf of the parameter tree."""
    layers = {("layers", key): (cfg.num_layers, *leaf.shape) for key, leaf in layer_leaves(cfg).items()}
    return {path: shape for path, (_, shape) in single_leaves(cfg).items()} | layers


def tensor_shapes(cfg: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the checkpoint, in the order in which they are written."""
    single = dict(single_leaves(cfg).values())
    shapes = {EMBED: single.pop(EMBED)}
    leaves = layer_leaves(cfg)
    for layer in range(cfg.num_layers):
        for leaf in leaves.values():
            shapes |= zip((layer_name(layer, name) for name in leaf.names), leaf.shapes, strict=True)
    return shapes | single


def transpose(matrix: np.ndarray) -> np.ndarray:
    """The transposed matrix, in memory order.

    By blocks, and bf16 by its bits: numpy's own copy of a transposed view misses the cache at every
    element, and made reading a checkpoint several times slower.
    """
    bits = matrix.view(np.uint16) if matrix.dtype.itemsize == 2 else matrix
    out = np.empty(bits.shape[::-1], bits.dtype)
    for start in range(0, bits.shape[0], 128):
        out[:, start : start + 128] = bits[start : start + 128].T
    return out.view(matrix.dtype)


def layer_name(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{name}"
