import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file

from jaxtool.models import resolve

SCRIPT = pathlib.Path(__file__).parents[1] / "launch" / "convert.py"


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_is_quick():
    start = time.monotonic()
    done = run("--help")
    assert time.monotonic() - start < 2
    assert done.returncode == 0 and "python launch/convert.py copy" in done.stdout


def test_inspect_prints_what_the_model_is(tmp_path):
    folder = tiny.make_hf_folder(
        tmp_path / "model", "qwen3", tie=False, dtype="bfloat16", shards=2, mystery=1
    )
    done = run("inspect", folder, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert (facts["family"], facts["parameters"], facts["vocab_size"]) == ("qwen3", 42208, 320)
    assert facts["dtype"] == "bfloat16" and facts["memory_bytes"] == {"float32": 168832, "bfloat16": 84416}
    assert facts["tokenizer"]["chat_template"] == "ChatML" and facts["tokenizer"]["tokens"] == 303
    assert facts["config_keys"]["mystery"] == "unknown, kept" and facts["stored_tensors"] == 25
    text = run("inspect", folder).stdout
    for line in ("qwen3, 42,208 parameters", "hidden_act", "checked", "<|im_end|>", "head_dim           16"):
        assert line in text


def test_inspect_of_a_public_model_needs_no_hub():
    done = run("inspect", "Qwen/Qwen2.5-7B-Instruct", "--json")
    facts = json.loads(done.stdout.splitlines()[-1])
    assert (facts["family"], facts["parameters"], facts["dtype"]) == ("qwen2", 7_615_616_512, "bfloat16")
    assert len(resolve.PUBLIC_MODELS) == 5


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_copy_gives_the_same_tensors(stored, dtype, tmp_path):
    source, out = tiny.make_hf_folder(tmp_path / "source", "qwen2", dtype=stored), tmp_path / "out"
    done = run("copy", source, out, *(("--dtype", dtype) if dtype else ()))
    assert done.returncode == 0, done.stderr
    before, after = (load_file(folder / "model.safetensors") for folder in (source, out))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == dtype or dtype is None and after[name].dtype == tensor.dtype
        assert np.array_equal(after[name], tensor.astype(after[name].dtype))
    assert json.loads((out / "config.json").read_text())["torch_dtype"] == (dtype or stored)


def test_errors_are_one_sentence(tmp_path):
    done = run("inspect", tmp_path / "missing")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "no such folder" in done.stderr
