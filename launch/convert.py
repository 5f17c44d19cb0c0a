"""Looks at a model and moves it between Hugging Face folders.

Examples:
    python launch/convert.py inspect Qwen/Qwen2.5-7B-Instruct
    python launch/convert.py copy models/qwen models/qwen_copy --dtype bfloat16
    python launch/convert.py export runs/icrl_quickstart 10 models/searcher
"""

import argparse
import json
import pathlib
from typing import Any

# imported here only: what answers --help at once; the rest below, where it is used
from jaxtool import cli
from jaxtool.models.config import DecoderConfig, from_hf, key_uses


def inspect(path: str) -> dict[str, Any]:
    """Facts of a model from its config.json and headers; nothing of the model's size is allocated."""
    from jaxtool.models import hf, resolve

    config = resolve.public_config(path)
    folder = None if config else resolve.resolve(path)
    where = path if folder is None else str(folder / "config.json")
    config = config or hf.read_json(folder / "config.json")
    cfg = from_hf(config, where)
    facts = {
        "path": path,
        "family": cfg.family,
        "parameters": cfg.num_parameters,
        "vocab_size": cfg.vocab_size,
        "dtype": config.get("dtype") or config.get("torch_dtype"),
        "sizes": _sizes(cfg),
        "memory_bytes": {"float32": 4 * cfg.num_parameters, "bfloat16": 2 * cfg.num_parameters},
        "config_keys": key_uses(config),
        "tokenizer": None,
        "stored_tensors": None,
    }
    if folder is not None:
        if any(folder.glob("*.safetensors")):
            facts["stored_tensors"] = len(hf.check_folder(folder).tensors)
        if (folder / "tokenizer.json").is_file():
            facts["tokenizer"] = _tokenizer(folder)
    return facts


def _sizes(cfg: DecoderConfig) -> dict[str, Any]:
    scaling = cfg.rope_scaling
    return {
        "layers": cfg.num_layers,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "heads": cfg.num_heads,
        "kv_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "max_positions": cfg.max_positions,
        "rope_theta": cfg.rope_theta,
        "rope_scaling": f"llama3 x {scaling.factor:g}" if scaling else None,
        "qkv_bias": cfg.qkv_bias,
        "qk_norm": cfg.qk_norm,
        "tied_embeddings": cfg.tie_embeddings,
    }


def _tokenizer(folder: pathlib.Path) -> dict[str, Any]:
    from jaxtool import tokenizer

    loaded = tokenizer.load(folder)
    return {
        "tokens": loaded.vocab_size,
        "eos_ids": sorted(loaded.eos_ids),
        "special_tokens": loaded.special_tokens,
        "chat_template": _template_name(loaded.chat_template),
    }


def _template_name(template: str | None) -> str | None:
    """The chat format, told by the marker that opens its turns."""
    if template is None:
        return None
    markers = {"<|im_start|>": "ChatML", "<|start_header_id|>": "Llama 3"}
    return next((name for marker, name in markers.items() if marker in template), "other")


def show(facts: dict[str, Any]) -> str:
    lines = [f"{facts['path']}: {facts['family']}, {facts['parameters']:,} parameters"]
    lines += [f"  {name:18} {value}" for name, value in facts["sizes"].items()]
    lines.append(f"  {'vocab_size':18} {facts['vocab_size']} (rows of the embedding)")
    lines.append(f"  {'stored dtype':18} {facts['dtype']}")
    lines += [f"  memory {dtype:11} {size / 1e9:.2f} GB" for dtype, size in facts["memory_bytes"].items()]
    if facts["stored_tensors"] is not None:
        lines.append(
            f"  {'stored tensors':18} {facts['stored_tensors']}, names, shapes and dtypes as expected"
        )
    if facts["tokenizer"] is not None:
        lines += [f"  {name:18} {value}" for name, value in facts["tokenizer"].items()]
    lines.append(
        "  keys of config.json (used: part of the model; checked: only refused unless off; kept: exported):"
    )
    lines += [f"    {key:26} {use}" for key, use in facts["config_keys"].items()]
    return "\n".join(lines)


def copy(source: str, out: str, dtype: str | None) -> None:
    """Import and export: the same tensors, bit for bit, unless `dtype` asks for another."""
    from jaxtool.models import hf, hf_export, resolve

    folder = resolve.resolve(source)
    checked = hf.check_folder(folder)
    stored = {hf.STORED[info.dtype].name for info in checked.tensors.values()}
    in_memory = stored.pop() if len(stored) == 1 else "float32"  # which holds bf16 and f16 exactly
    hf_export.export(hf.load(folder, in_memory), checked.cfg, folder, out, dtype)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser(
        "inspect", help="print what a model is and what jaxtool does with its config"
    )
    command.add_argument("path", help="folder, .gguf file, hub id, or 'quickstart'")
    command.add_argument("--json", action="store_true", help="print one JSON object (default: text)")

    command = commands.add_parser("copy", help="import a Hugging Face folder and export it again")
    command.add_argument("source", help="folder, .gguf file, hub id, or 'quickstart'")
    command.add_argument("out", help="folder to write; replaced if it is an earlier export")
    command.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="stored dtype (default: the source's)"
    )

    command = commands.add_parser("export", help="write a training checkpoint as a Hugging Face folder")
    command.add_argument("run_dir", help="run directory of launch/train.py")
    command.add_argument("step", type=int, help="step of the checkpoint")
    command.add_argument("out", help="folder to write; replaced if it is an earlier export")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse()
    with cli.one_sentence(debug=False):
        if arguments.command == "inspect":
            facts = inspect(arguments.path)
            print(json.dumps(facts) if arguments.json else show(facts))
        elif arguments.command == "export":
            from jaxtool import weights

            weights.export_checkpoint(arguments.run_dir, arguments.step, arguments.out)
            print(f"wrote {arguments.out}")
        else:
            copy(arguments.source, arguments.out, arguments.dtype)
            print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
