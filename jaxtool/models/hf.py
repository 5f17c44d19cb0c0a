"""A Hugging Face folder -> parameter tree.  Host code: numpy only.

Everything that can be wrong with a folder is found from its index and headers before a weight is read.
Weights are then read a layer at a time; the caller's `put` says where each array lies, so that host
memory above the finished arrays is about one layer's tensors.  The way back is in `hf_export.py`.
"""

import dataclasses
import difflib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from jaxtool.models import hf_names
from jaxtool.models.config import DecoderConfig, from_hf

INDEX = "model.safetensors.index.json"
STORED = {"F32": np.dtype(np.float32), "BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype(np.float16)}

Index = tuple[slice, ...]  # one slice per axis
Fill = Callable[[Index], np.ndarray]  # reads that part of a leaf, in the wanted dtype
Put = Callable[[hf_names.Path, tuple[int, ...], np.dtype, Fill], Any]  # path, shape, dtype, fill -> array


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    file: pathlib.Path
    shape: tuple[int, ...]
    dtype: str  # as the header spells it, such as "BF16"


@dataclasses.dataclass(frozen=True)
class CheckedFolder:
    folder: pathlib.Path
    cfg: DecoderConfig
    tensors: dict[str, TensorInfo]

    @property
    def has_head(self) -> bool:
        return hf_names.HEAD in self.tensors


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Raises ValueError when the file is missing or holds no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path.parent} holds no {path.name}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, expected a JSON object.")
    return content


def read_config(folder: str | pathlib.Path) -> DecoderConfig:
    """The decoder's shape from the folder's config.json."""
    path = pathlib.Path(folder) / "config.json"
    return from_hf(read_json(path), str(path))


def check_folder(folder: str | pathlib.Path) -> CheckedFolder:
    """Checks index, names, shapes and dtypes against config.json, from headers alone.

    Only a tied checkpoint that also stores an output head has its two tables compared.

    Raises:
        ValueError: what is missing, extra, renamed, truncated, stray or of another shape or dtype.
    """
    folder = pathlib.Path(folder)
    cfg = read_config(folder)
    tensors = _read_headers(folder)
    if cfg.num_layers > len(tensors):  # before a name is made for each
        raise ValueError(f"{folder} has {len(tensors)} tensors, config.json implies {cfg.num_layers} layers.")
    expected = hf_names.tensor_shapes(cfg)
    if cfg.tie_embeddings and hf_names.HEAD in tensors:
        expected[hf_names.HEAD] = expected[hf_names.EMBED]
    _check_names(folder, expected, tensors)
    for name, info in tensors.items():
        if info.shape != expected[name]:
            shapes = f"has shape {list(info.shape)}, config.json implies {list(expected[name])}"
            raise ValueError(f"{info.file}: {name} {shapes}.")
        if info.dtype not in STORED:
            raise ValueError(
                f"{info.file}: {name} is stored as {info.dtype}, expected one of {', '.join(STORED)}."
            )
    checked = CheckedFolder(folder, cfg, tensors)
    if cfg.tie_embeddings and checked.has_head:
        _check_tied(checked)
    return checked


def load(folder: str | pathlib.Path, dtype: str, put: Put | None = None) -> dict[str, Any]:
    """Reads the weights into the decoder's parameter tree.

    Args:
        dtype: "float32" or "bfloat16"; stored tensors are converted to it.
        put: makes one array from (path, shape, dtype, fill) and may call `fill` with any part of the leaf,
            in any order; parts of one layer are cheapest one after another.  None: numpy arrays.
    """
    checked = check_folder(folder)
    wanted = numpy_dtype(dtype)
    put = put or _numpy
    tree: dict[str, Any] = {"layers": {}}
    with _Files(checked) as files:
        for path, (name, shape) in hf_names.single_leaves(checked.cfg).items():
            tree[path[0]] = put(path, shape, wanted, _single_fill(files, name, wanted))
        for key, leaf in hf_names.layer_leaves(checked.cfg).items():
            shape = (checked.cfg.num_layers, *leaf.shape)
            tree["layers"][key] = put(("layers", key), shape, wanted, _layer_fill(files, leaf, wanted))
    return tree


def _read_headers(folder: pathlib.Path) -> dict[str, TensorInfo]:
    """Every tensor of the folder's safetensors files, checked against the index where there is one."""
    present = sorted(folder.glob("*.safetensors"))
    if not (folder / INDEX).exists():
        if [path.name for path in present] == ["model.safetensors"]:
            return _read_header(present[0])
        names = ", ".join(path.name for path in present) or "none"
        raise ValueError(
            f"{folder} needs either model.safetensors alone or {INDEX}; its safetensors files: {names}."
        )
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ValueError(f"{folder / INDEX}: weight_map must map tensor names to file names.")
    named = {folder / file for file in weight_map.values()}
    for path in sorted(named - set(present)):
        raise ValueError(f"{folder / INDEX} names {path.name}, which is not in the folder.")
    for path in present:
        if path not in named:
            raise ValueError(f"{path} is not named in {INDEX}; move it away if it is no part of the model.")
    tensors: dict[str, TensorInfo] = {}
    for path in present:
        for name, info in _read_header(path).items():
            if weight_map.get(name) != path.name:
                place = f"places it in {weight_map[name]}" if name in weight_map else "does not list it"
                raise ValueError(f"{path} holds {name}, but {INDEX} {place}.")
            tensors[name] = info
    for name in weight_map:
        if name not in tensors:
            raise ValueError(f"{folder / INDEX} places {name} in {weight_map[name]}, which does not hold it.")
    return tensors


def _read_header(path: pathlib.Path) -> dict[str, TensorInfo]:
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            return {n: TensorInfo(path, tuple(s.get_shape()), s.get_dtype()) for n, s in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated or no safetensors file: {error}.") from None


def _check_names(folder: pathlib.Path, expected: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
    missing = [name for name in expected if name not in tensors]
    extra = [name for name in tensors if name not in expected]
    if missing:
        near = difflib.get_close_matches(missing[0], extra, n=1)
        hint = f" (nearest unknown name: {near[0]})" if near else ""
        raise ValueError(f"{folder} lacks {missing[0]}{_others(missing)}, which config.json implies{hint}.")
    if extra:
        raise ValueError(f"{folder} holds {extra[0]}{_others(extra)}, which config.json does not imply.")


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} more tensors" if len(names) > 1 else ""


def _check_tied(checked: CheckedFolder) -> None:
    """A stored head under tie_word_embeddings must be the embedding; compared in blocks of rows."""
    with _Files(checked) as files:
        for start in range(0, checked.cfg.vocab_size, 4096):
            rows = (slice(start, min(start + 4096, checked.cfg.vocab_size)), slice(None))
            if not np.array_equal(files.read(hf_names.EMBED, rows), files.read(hf_names.HEAD, rows)):
                raise ValueError(
                    f"{checked.folder}: tie_word_embeddings is true, but {hf_names.HEAD} differs from "
                    f"{hf_names.EMBED}; set it to false in config.json, or remove the head."
                )


def numpy_dtype(name: str) -> np.dtype:
    """Raises ValueError for names other than those of STORED's dtypes."""
    for dtype in STORED.values():
        if dtype.name == name:
            return dtype
    raise ValueError(f"dtype {name!r} is none of {', '.join(dtype.name for dtype in STORED.values())}.")


def _numpy(path: hf_names.Path, shape: tuple[int, ...], dtype: np.dtype, fill: Fill) -> np.ndarray:
    del path, dtype
    return fill(tuple(slice(None) for _ in shape))


class _Files:
    """Opens each safetensors file once, memory-mapped, and reads tensors from it."""

    def __init__(self, checked: CheckedFolder):
        self.num_layers = checked.cfg.num_layers
        self._tensors = checked.tensors
        self._open: dict[pathlib.Path, Any] = {}

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *unused: object) -> None:
        self._open.clear()

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        file = self._tensors[name].file
        if file not in self._open:
            self._open[file] = safe_open(file, framework="numpy")
        if index is None:
            return self._open[file].get_tensor(name)
        return self._open[file].get_slice(name)[index]


def _single_fill(files: _Files, name: str, dtype: np.dtype) -> Fill:
    return lambda index: files.read(name, index).astype(dtype, copy=False)


def _layer_fill(files: _Files, leaf: hf_names.LayerLeaf, dtype: np.dtype) -> Fill:
    """Packs one layer at a time and remembers the last, as the shards of a layer are asked for in a row."""
    last: list[Any] = [None, None]

    def layer(number: int) -> np.ndarray:
        if last[0] != number:
            last[1] = None  # let go of the old layer before the next is read
            names = [hf_names.layer_name(number, name) for name in leaf.names]
            last[:] = number, leaf.pack(*(files.read(name) for name in names))
        return last[1]

    def fill(index: Index) -> np.ndarray:
        first, *rest = index
        numbers = range(*first.indices(files.num_layers))
        part = np.empty((len(numbers), *layer(numbers[0])[tuple(rest)].shape), dtype)
        for row, number in enumerate(numbers):
            part[row] = layer(number)[tuple(rest)]
        return part

    return fill
