"""A run's initial weights, and its weights as a Hugging Face folder.  Boundary."""

import json
import pathlib

import jax
from jax.sharding import SingleDeviceSharding

from jaxtool import checkpoint, config_loader
from jaxtool.assemble import Parts
from jaxtool.config import Config
from jaxtool.models import decoder, hf, hf_export, place, resolve
from jaxtool.models.config import DecoderConfig


def load_folder(folder: pathlib.Path) -> decoder.Params:
    """float32 parameters of a Hugging Face folder, on the first device."""
    sharding = SingleDeviceSharding(jax.devices()[0])
    return hf.load(folder, "float32", place.onto(lambda path, shape: sharding))


def find(reference: str, key: str) -> tuple[pathlib.Path, int | None]:
    """What `RUN_DIR`, `RUN_DIR:STEP` or a Hugging Face folder means: a folder, and the step of a run.

    Local only: a name that is mistyped is not looked up at a hub.

    Raises:
        ValueError: there is no such folder or checkpoint; `key` names who asked.
    """
    path, colon, step = reference.rpartition(":")
    if not (colon and step.isdigit()):
        path, step = reference, ""
    folder = pathlib.Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"{key} is {reference!r}, and there is no folder {path}; expected RUN, RUN:STEP or a folder"
        )
    saved = checkpoint.steps(folder)
    if saved:
        if step and int(step) not in saved:
            raise ValueError(
                f"{key} is {reference!r}; {path} has checkpoints of steps {', '.join(map(str, saved))}"
            )
        return folder, int(step) if step else saved[-1]
    if step or (folder / "metrics.jsonl").exists():
        raise ValueError(f"{key} is {reference!r}, and {path} has no complete checkpoint")
    return folder, None


def load_checkpoint(reference: str, model: DecoderConfig, key: str = "--checkpoint") -> decoder.Params:
    """Parameters of `RUN_DIR`, `RUN_DIR:STEP` or a Hugging Face folder; the shapes must be `model`'s.

    Raises:
        ValueError: there is no such checkpoint, or it is of another model.
    """
    folder, step = find(reference, key)
    if step is not None:
        return checkpoint.load_params(folder, step, decoder.abstract_params(model))
    found = hf.read_config(folder)
    if found != model:
        raise ValueError(
            f"{key} is {reference!r}, which holds {found}; expected the shape of config.model.path, {model}"
        )
    return load_folder(folder)


def load_initial(cfg: Config, parts: Parts) -> decoder.Params:
    """The weights that training starts from: those of `init_from`, or of the model's folder."""
    if cfg.init_from:
        return load_checkpoint(cfg.init_from, parts.model, "config.init_from")
    return load_folder(parts.folder)


def export(params: decoder.Params, parts: Parts, out: pathlib.Path) -> None:
    """Writes `params` as a Hugging Face folder, in the dtype of the model that training started from."""
    out.parent.mkdir(parents=True, exist_ok=True)
    hf_export.export(jax.device_get(params), parts.model, parts.folder, out)


def export_checkpoint(run_dir: str, step: int, out: str) -> None:
    """Writes a training checkpoint as a Hugging Face folder.

    Raises:
        ValueError: `run_dir` is no run directory, or has no checkpoint of that step.
    """
    described = pathlib.Path(run_dir) / "config.json"
    if not described.is_file():
        raise ValueError(f"{run_dir} is no run directory: it has no config.json")
    cfg = config_loader.from_dict(json.loads(described.read_text(encoding="utf-8"))["config"])
    folder = resolve.resolve(cfg.model.path)
    model = hf.read_config(folder)
    params = checkpoint.load_params(run_dir, step, decoder.abstract_params(model))
    hf_export.export(jax.device_get(params), model, folder, out)
