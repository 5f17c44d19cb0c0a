"""Everything that a run needs to go on, in run_dir/checkpoints/000012, whole or not at all.  Boundary.

A checkpoint is written beside its place, made durable, and moved there; older ones go only then.  Arrays
are stored by orbax; the position of the data, the totals and the configuration are plain JSON.
"""

import json
import os
import pathlib
import shutil
from typing import Any

import jax
import orbax.checkpoint as ocp


def directory(run_dir: str | os.PathLike) -> pathlib.Path:
    # orbax takes absolute paths only, and a relative one would change its meaning with the directory
    return pathlib.Path(run_dir).absolute() / "checkpoints"


def steps(run_dir: str | os.PathLike) -> list[int]:
    """Steps of the complete checkpoints, ascending."""
    folder = directory(run_dir)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(int(p.name) for p in found if p.name.isdigit() and (p / "run.json").is_file())


def save(run_dir: str | os.PathLike, step: int, arrays: Any, run: dict[str, Any], keep: int) -> None:
    """Writes a checkpoint and removes all but the newest `keep`.

    Args:
        arrays: pytree of arrays.
        run: JSON data that belongs to them.
    """
    folder = directory(run_dir)
    final, aside = folder / f"{step:06d}", folder / f".{step:06d}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(aside / "arrays", arrays)
    _write_durable(aside / "run.json", json.dumps(run, indent=1))
    _sync_tree(aside)
    if final.exists():
        shutil.rmtree(final)
    os.replace(aside, final)
    _sync(folder)
    for old in steps(run_dir)[:-keep]:
        # Out of sight first: a kill in the middle leaves no half of a checkpoint that looks whole.
        os.replace(folder / f"{old:06d}", folder / f".{old:06d}.old")
    for doomed in folder.glob(".*.old"):
        shutil.rmtree(doomed)


def load(run_dir: str | os.PathLike, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
    """The arrays, placed as `like` (arrays or ShapeDtypeStructs with shardings), and the JSON data.

    Raises:
        ValueError: there is no such checkpoint; the steps that exist are named.
    """
    folder = _complete(run_dir, step)
    with ocp.StandardCheckpointer() as checkpointer:
        arrays = checkpointer.restore(folder / "arrays", jax.tree.map(_abstract, like))
    return arrays, json.loads((folder / "run.json").read_text(encoding="utf-8"))


def load_params(run_dir: str | os.PathLike, step: int, like: Any) -> Any:
    """The model's parameters alone, for evaluation, export, or another run to start from."""
    folder = _complete(run_dir, step) / "arrays"
    target = {"params": jax.tree.map(_abstract, like)}
    restore_args = ocp.checkpoint_utils.construct_restore_args(target)
    with ocp.PyTreeCheckpointer() as checkpointer:
        args = ocp.args.PyTreeRestore(item=target, restore_args=restore_args, partial_restore=True)
        return checkpointer.restore(folder, args=args)["params"]


def _complete(run_dir: str | os.PathLike, step: int) -> pathlib.Path:
    folder = directory(run_dir) / f"{step:06d}"
    if not (folder / "run.json").is_file():
        existing = ", ".join(map(str, steps(run_dir))) or "none"
        raise ValueError(f"{run_dir} has no complete checkpoint of step {step}; there are: {existing}")
    return folder


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = leaf.sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _write_durable(path: pathlib.Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_tree(folder: pathlib.Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
