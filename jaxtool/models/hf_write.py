"""Writes a Hugging Face folder aside and swaps it in.  Host code.

Tensors are streamed into safetensors files one at a time, so writing needs memory for one tensor only;
a folder appears whole or not at all.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

SHARD_BYTES = 5 * 10**9  # transformers' own limit when these formats began; every loader accepts it
DTYPE_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # numpy's name -> safetensors'
Plan = dict[str, tuple[tuple[int, ...], np.dtype]]  # tensor name -> shape, dtype


def write_tensors(folder: pathlib.Path, plan: Plan, read: Callable[[str], np.ndarray]) -> None:
    """Writes the planned tensors in files of at most SHARD_BYTES, with an index if there are several.

    Args:
        read: name -> the tensor, of the planned shape and dtype; called once for each, in file order.
    """
    shards: list[Plan] = [{}]
    for name, (shape, dtype) in plan.items():
        size = _num_bytes(shape, dtype)
        if shards[-1] and sum(_num_bytes(*entry) for entry in shards[-1].values()) + size > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = shape, dtype
    if len(shards) == 1:
        _write_file(folder / "model.safetensors", shards[0], read)
        return
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / file, shard, read)
        weight_map |= dict.fromkeys(shard, file)
    total = sum(_num_bytes(*entry) for entry in plan.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path: pathlib.Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def aside(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a new folder beside `out`, which takes out's place when the block ends without an error.

    A folder that was there is moved away just before and deleted after; everything is on disk before.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    fresh, old = work / "new", work / "old"
    fresh.mkdir()
    try:
        yield fresh
        for path in sorted(fresh.rglob("*")) + [fresh]:
            _sync(path)
        if out.exists():
            os.replace(out, old)
        os.replace(fresh, out)
        _sync(out.parent)
    finally:
        if old.exists() and not out.exists():
            os.replace(old, out)
        shutil.rmtree(work, ignore_errors=True)


def _num_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _write_file(path: pathlib.Path, plan: Plan, read: Callable[[str], np.ndarray]) -> None:
    """The safetensors format: header length (u64, little endian), JSON header, tensors without gaps."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # older loaders refuse a file without it
    names = sorted(plan, key=lambda name: -plan[name][1].itemsize)  # stable; wide types first keep alignment
    offset = 0
    for name in names:
        shape, dtype = plan[name]
        end = offset + _num_bytes(shape, dtype)
        header[name] = {"dtype": DTYPE_NAMES[dtype.name], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = read(name)
            assert (tensor.shape, tensor.dtype) == plan[name], (name, tensor.shape, tensor.dtype)
            # bf16 has no buffer protocol; its bytes do
            file.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
