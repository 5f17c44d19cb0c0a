"""Parameter tree -> Hugging Face folder, with everything but the weights from the source folder.  Host code.

transformers 4 and 5, vLLM and SGLang open what is written: the source's config.json, generation_config.json,
tokenizer files and chat template byte for byte, its tensor names and dtypes.  A tree that `hf.load` read
and nobody changed gives bitwise the same tensors.
"""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxtool.models import hf, hf_names, hf_write
from jaxtool.models.config import DecoderConfig

COPIED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
TEMPLATES = "additional_chat_templates"  # folder of further templates


def export(
    tree: dict[str, Any],
    cfg: DecoderConfig,
    source: str | pathlib.Path,
    out: str | pathlib.Path,
    dtype: str | None = None,
) -> None:
    """Writes the tree beside `out` and swaps it in.

    Args:
        tree: arrays of numpy or jax; a layer's leaf is fetched at a time.
        source: folder that the model came from; it gives every file but the weights, and the tensors' names.
        out: new, empty, or an earlier export, which is then replaced.
        dtype: stored dtype; None keeps that of each source tensor.

    Raises:
        ValueError: the tree is not of the source's shapes, or `out` holds other things.
    """
    source, out = pathlib.Path(source), pathlib.Path(out)
    checked = hf.check_folder(source)
    if checked.cfg != cfg:
        raise ValueError(f"The model to export is not of the shape that {source / 'config.json'} describes.")
    _check_tree(tree, cfg)
    _check_out(source, out)
    shapes = {
        name: checked.tensors[name].shape
        for name in (*hf_names.tensor_shapes(cfg), hf_names.HEAD)
        if name in checked.tensors
    }
    wanted = {
        name: hf.numpy_dtype(dtype) if dtype else hf.STORED[checked.tensors[name].dtype] for name in shapes
    }
    read = _reader(tree, cfg)
    with hf_write.aside(out) as fresh:
        for name in COPIED:
            if (source / name).is_file():
                shutil.copyfile(source / name, fresh / name)
        if (source / TEMPLATES).is_dir():
            shutil.copytree(source / TEMPLATES, fresh / TEMPLATES)
        if dtype:
            _set_dtype(fresh / "config.json", dtype)
        plan = {name: (shape, wanted[name]) for name, shape in shapes.items()}
        hf_write.write_tensors(fresh, plan, lambda name: read(name).astype(wanted[name], copy=False))


def _reader(tree: dict[str, Any], cfg: DecoderConfig) -> Callable[[str], np.ndarray]:
    """Tensor name -> its values in the tree's dtype."""
    single = {name: path[0] for path, (name, _) in hf_names.single_leaves(cfg).items()}
    single.setdefault(hf_names.HEAD, "embed")  # a tied source that stores the head as well
    leaves = hf_names.layer_leaves(cfg)
    place = {name: (key, i) for key, leaf in leaves.items() for i, name in enumerate(leaf.names)}

    def read(name: str) -> np.ndarray:
        if name in single:
            return np.asarray(tree[single[name]])
        _, _, layer, rest = name.split(".", 3)
        key, i = place[rest]
        return leaves[key].unpack(np.asarray(tree["layers"][key][int(layer)]))[i]

    return read


def _check_tree(tree: dict[str, Any], cfg: DecoderConfig) -> None:
    flat = {(key,): leaf for key, leaf in tree.items() if key != "layers"}
    flat |= {("layers", key): leaf for key, leaf in tree["layers"].items()}
    expected = hf_names.leaf_shapes(cfg)
    for path in expected.keys() ^ flat.keys():
        raise ValueError(
            f"The tree to export {'lacks' if path in expected else 'has an unknown'} {'/'.join(path)}."
        )
    for path, shape in expected.items():
        if tuple(flat[path].shape) != shape:
            raise ValueError(
                f"The tree to export has {'/'.join(path)} of shape {flat[path].shape}, expected {shape}."
            )


def _check_out(source: pathlib.Path, out: pathlib.Path) -> None:
    """An existing folder is replaced only if all that it holds could have been written here."""
    if not out.exists():
        return
    if out.resolve() == source.resolve():
        raise ValueError(f"{out} is the folder that the export copies from; name another one.")
    if not out.is_dir():
        raise ValueError(f"{out} is a file, expected a folder to write.")
    for path in out.iterdir():
        if path.name not in (*COPIED, TEMPLATES, hf.INDEX) and path.suffix != ".safetensors":
            raise ValueError(f"{out} holds {path.name}, which is no part of an export; name a new folder.")


def _set_dtype(path: pathlib.Path, dtype: str) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in [key for key in ("torch_dtype", "dtype") if key in config] or ["torch_dtype"]:
        config[key] = dtype
    hf_write.write_json(path, config)
