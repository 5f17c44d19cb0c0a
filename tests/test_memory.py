"""A run that cannot fit is refused with the numbers, before anything is loaded."""

import pathlib

import pytest

from jaxtool import config_loader, memory
from jaxtool.models.config import from_hf
from jaxtool.models.resolve import public_config

CONFIG = pathlib.Path(__file__).parent.parent / "configs" / "icrl_7b.py"
MODEL = from_hf(public_config("Qwen/Qwen2.5-7B-Instruct"), "public")


def test_the_7b_run_needs_its_weights_four_times_and_two_copies():
    rows = memory.needs(config_loader.load(CONFIG), MODEL, 5000)
    n = MODEL.num_parameters
    assert rows["weights, float32"] == 4 * n and rows["optimiser moments and gradients"] == 12 * n
    assert rows["reference"] == 2 * n and rows["copy for the forward pass"] == 2 * n
    # 28 layers, 4 key heads of 128, keys and values in bfloat16: 57,344 bytes a position
    assert rows["keys and values of the prompts"] == 5000 * 57344
    assert rows["keys and values of the rows"] == 512 * 2048 * 57344


def test_refused_with_the_numbers():
    rows = {"weights, float32": 3 * memory.GIB, "reference": 1 * memory.GIB}
    memory.check(rows, 4 * memory.GIB, "this machine")
    with pytest.raises(ValueError, match=r"needs 4.0 GiB \(weights, float32: 3.0\) and this machine has 3.9"):
        memory.check(rows, 3.9 * memory.GIB, "this machine")


def test_this_machine_has_some():
    assert memory.available() > 0
