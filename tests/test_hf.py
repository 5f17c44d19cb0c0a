import json
import os
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import tiny
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from jaxtool.models import hf, hf_export, hf_names, hf_write

FAMILIES = ("llama", "qwen2", "qwen3")


def stored_tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def leaves(tree: dict) -> dict[tuple[str, ...], np.ndarray]:
    flat = {(key,): leaf for key, leaf in tree.items() if key != "layers"}
    return flat | {("layers", key): leaf for key, leaf in tree["layers"].items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_loaded_matrices_do_what_the_stored_ones_do(family, tmp_path):
    """Each leaf is applied as the decoder does, and compared with torch's x W^T of the raw tensors."""
    folder = tiny.make_hf_folder(tmp_path, family, tie=False, shards=3)
    tree, raw = hf.load(folder, "float32"), stored_tensors(folder)
    cfg = hf.read_config(folder)
    x = np.random.default_rng(1).normal(size=cfg.hidden_size).astype(np.float32)
    size, queries = cfg.head_dim, cfg.queries_per_kv
    for layer in range(cfg.num_layers):
        name = f"model.layers.{layer}."
        params = {key: leaf[layer] for key, leaf in tree["layers"].items()}
        qkv = np.einsum("d,dkne->kne", x, params["qkv"]) + params.get("qkv_bias", 0.0)
        for which, entry in (("q", slice(0, queries)), ("k", slice(-2, -1)), ("v", slice(-1, None))):
            heads = raw[f"{name}self_attn.{which}_proj.weight"] @ x
            heads = heads + raw.get(f"{name}self_attn.{which}_proj.bias", 0.0)
            np.testing.assert_allclose(qkv[:, entry].reshape(-1), heads, rtol=1e-4, atol=1e-5)
        head = np.random.default_rng(2).normal(size=(cfg.num_heads, size)).astype(np.float32)
        out = np.einsum("kne,kned->d", head.reshape(cfg.num_kv_heads, queries, size), params["out"])
        np.testing.assert_allclose(
            out, raw[f"{name}self_attn.o_proj.weight"] @ head.reshape(-1), rtol=1e-4, atol=1e-5
        )
        gate, up = np.einsum("d,dcf->cf", x, params["gate_up"])
        np.testing.assert_allclose(gate, raw[f"{name}mlp.gate_proj.weight"] @ x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(up, raw[f"{name}mlp.up_proj.weight"] @ x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            gate @ params["down"], raw[f"{name}mlp.down_proj.weight"] @ gate, rtol=1e-4
        )
        assert np.array_equal(params["attention_norm"], raw[f"{name}input_layernorm.weight"])
        assert np.array_equal(params["mlp_norm"], raw[f"{name}post_attention_layernorm.weight"])
        if family == "qwen3":
            assert np.array_equal(params["q_norm"], raw[f"{name}self_attn.q_norm.weight"])
            assert np.array_equal(params["k_norm"], raw[f"{name}self_attn.k_norm.weight"])
    assert np.array_equal(tree["embed"], raw["model.embed_tokens.weight"])
    assert np.array_equal(tree["final_norm"], raw["model.norm.weight"])
    assert np.array_equal(tree["head"], raw["lm_head.weight"])
    assert {path: leaf.shape for path, leaf in leaves(tree).items()} == hf_names.leaf_shapes(cfg)


def test_dtypes(tmp_path):
    stored = tiny.make_hf_folder(tmp_path, "qwen2", dtype="bfloat16")
    wide, narrow = leaves(hf.load(stored, "float32")), leaves(hf.load(stored, "bfloat16"))
    for path in wide:
        assert wide[path].dtype == np.float32 and narrow[path].dtype == ml_dtypes.bfloat16
        assert np.array_equal(wide[path], narrow[path].astype(np.float32))
    with pytest.raises(ValueError, match="dtype 'int8' is none of float32, bfloat16, float16"):
        hf.load(stored, "int8")


def test_any_part_of_a_leaf_can_be_filled(tmp_path):
    folder = tiny.make_hf_folder(tmp_path, "qwen3", tie=False, shards=2)
    whole = leaves(hf.load(folder, "float32"))

    def put(path, shape, dtype, fill):
        index = tuple(slice(size // 3, None) for size in shape)
        assert np.array_equal(fill(index), whole[path][index]) and fill(index).dtype == dtype
        return fill(tuple(slice(None) for _ in shape))

    again = leaves(hf.load(folder, "float32", put))
    assert all(np.array_equal(again[path], whole[path]) for path in whole)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_transpose_over_several_blocks(dtype):
    matrix = np.random.default_rng(0).normal(size=(300, 7)).astype(dtype)
    turned = hf_names.transpose(matrix)
    assert turned.dtype == dtype and turned.flags.c_contiguous
    assert np.array_equal(turned, matrix.T)


def test_leaves_on_devices(tmp_path):
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec

    from jaxtool.models import place

    folder = tiny.make_hf_folder(tmp_path, "qwen2", dtype="bfloat16", shards=2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fsdp",))
    widths = {
        path: NamedSharding(mesh, PartitionSpec(None, "fsdp")) for path in (("embed",), ("layers", "qkv"))
    }
    put = place.onto(lambda path, shape: widths.get(path, NamedSharding(mesh, PartitionSpec())))
    whole, placed = leaves(hf.load(folder, "bfloat16")), leaves(hf.load(folder, "bfloat16", put))
    for path, leaf in placed.items():
        assert leaf.sharding.is_equivalent_to(
            widths.get(path, NamedSharding(mesh, PartitionSpec())), leaf.ndim
        )
        assert np.array_equal(np.asarray(leaf), whole[path])


def damage_missing_shard(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()


def damage_truncated(folder):
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def damage_stray(folder):
    save_file({"x": np.zeros(1)}, folder / "adapter_model.safetensors")


def damage_index_json(folder):
    (folder / hf.INDEX).write_text("{")


def damage_index_entry(folder):
    index = json.loads((folder / hf.INDEX).read_text())
    index["weight_map"]["model.norm.bias"] = "model-00001-of-00002.safetensors"
    (folder / hf.INDEX).write_text(json.dumps(index))


def damage_index_lacks(folder):
    index = json.loads((folder / hf.INDEX).read_text())
    del index["weight_map"]["model.norm.weight"]
    (folder / hf.INDEX).write_text(json.dumps(index))


def damage_index_swapped(folder):
    index = json.loads((folder / hf.INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    index["weight_map"] = {k: files[1 - files.index(v)] for k, v in index["weight_map"].items()}
    (folder / hf.INDEX).write_text(json.dumps(index))


def damage_no_index(folder):
    (folder / hf.INDEX).unlink()


def damage_no_weights(folder):
    for path in folder.glob("model*"):
        path.unlink()


def damage_no_config(folder):
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_missing_shard, "names model-00002-of-00002.safetensors, which is not in the folder"),
        (damage_truncated, "model-00002-of-00002.safetensors is truncated"),
        (damage_stray, "adapter_model.safetensors is not named in model.safetensors.index.json"),
        (damage_index_json, "index.json is not valid JSON"),
        (
            damage_index_entry,
            "places model.norm.bias in model-00001-of-00002.safetensors, which does not hold",
        ),
        (damage_index_lacks, "holds model.norm.weight, but model.safetensors.index.json does not list it"),
        (damage_index_swapped, "but model.safetensors.index.json places it in"),
        (damage_no_index, "needs either model.safetensors alone or model.safetensors.index.json"),
        (damage_no_weights, "its safetensors files: none"),
        (damage_no_config, "holds no config.json"),
    ],
)
def test_a_damaged_sharded_folder_is_refused(damage, message, tmp_path):
    folder = tiny.make_hf_folder(tmp_path, "llama", shards=2)
    hf.check_folder(folder)
    damage(folder)
    with pytest.raises(ValueError, match=message):
        hf.load(folder, "float32")


def rename(tensors):
    tensors["model.layers.0.mlp.gate.weight"] = tensors.pop("model.layers.0.mlp.gate_proj.weight")


def remove(tensors):
    del tensors["model.layers.1.mlp.gate_proj.weight"], tensors["model.norm.weight"]


def add(tensors):
    tensors["model.layers.2.mlp.gate_proj.weight"] = tensors["model.layers.1.mlp.gate_proj.weight"]


def reshape(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].copy()


def retype(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int32)


def other_head(tensors):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + np.float32(1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            rename,
            r"lacks model.layers.0.mlp.gate_proj.weight.*nearest unknown name: .*mlp.gate.weight",
        ),
        (remove, "lacks model.layers.1.mlp.gate_proj.weight and 1 more tensors, which config.json implies"),
        (add, "holds model.layers.2.mlp.gate_proj.weight, which config.json does not imply"),
        (reshape, r"model.norm.weight has shape \[31\], config.json implies \[32\]"),
        (retype, "model.norm.weight is stored as I32, expected one of F32, BF16, F16"),
        (
            other_head,
            "tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight",
        ),
    ],
)
def test_wrong_tensors_are_refused(change, message, tmp_path):
    folder = tiny.make_hf_folder(tmp_path, "llama")
    tensors = stored_tensors(folder)
    change(tensors)
    tiny.save_tensors(folder, tensors)
    with pytest.raises(ValueError, match=message):
        hf.check_folder(folder)


def test_an_untied_folder_without_head_is_refused(tmp_path):
    folder = tiny.make_hf_folder(tmp_path, "qwen2", tie=False)
    tensors = stored_tensors(folder)
    del tensors["lm_head.weight"]
    tiny.save_tensors(folder, tensors)
    with pytest.raises(ValueError, match="lacks lm_head.weight"):
        hf.check_folder(folder)


def make_source(kind: str, folder: pathlib.Path) -> pathlib.Path:
    if kind == "tied, head stored":
        tiny.make_hf_folder(folder, "qwen2", tie=True, dtype="bfloat16")
        tensors = stored_tensors(folder)
        tiny.save_tensors(folder, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    elif kind == "mixed dtypes":
        tiny.make_hf_folder(folder, "qwen3", tie=False, dtype="bfloat16")
        tensors = stored_tensors(folder)
        norms = {name: tensor.astype(np.float32) for name, tensor in tensors.items() if "norm" in name}
        tiny.save_tensors(folder, tensors | norms, shards=2)
    else:
        family, tied, shards = kind.split()
        tiny.make_hf_folder(folder, family, tie=tied == "tied", dtype="bfloat16", shards=int(shards))
    (folder / "chat_template.jinja").write_bytes(b"{{ messages }}\r\n")
    (folder / "README.md").write_text("a card of the source, not of the export")
    return folder


@pytest.mark.parametrize(
    "kind",
    ["llama tied 1", "llama untied 3", "qwen2 tied 2", "qwen3 untied 1", "tied, head stored", "mixed dtypes"],
)
@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
def test_export_after_import_is_the_same_bits(kind, shard_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(hf_write, "SHARD_BYTES", shard_bytes)
    source, out = make_source(kind, tmp_path / "source"), tmp_path / "out"
    hf_export.export(hf.load(source, "float32"), hf.read_config(source), source, out)
    before, after = stored_tensors(source), stored_tensors(out)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype and after[name].shape == tensor.shape
        assert after[name].tobytes() == tensor.tobytes(), name
    files = sorted(out.glob("*.safetensors"))
    assert len(files) == 1 if shard_bytes == 10**9 else len(files) > 1
    for file in files:
        with safe_open(file, framework="numpy") as opened:
            assert opened.metadata() == {"format": "pt"}
    copied = (
        "config.json generation_config.json tokenizer.json tokenizer_config.json chat_template.jinja".split()
    )
    for name in copied:
        assert (out / name).read_bytes() == (source / name).read_bytes()
    index = [hf.INDEX] if len(files) > 1 else []
    assert sorted(path.name for path in out.iterdir()) == sorted(
        copied + [file.name for file in files] + index
    )
    hf.check_folder(out)


@pytest.mark.parametrize("kind", ["qwen2 tied 2", "llama untied 1"])
def test_transformers_reads_the_export(kind, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(hf_write, "SHARD_BYTES", 20_000)
    source, out = make_source(kind, tmp_path / "source"), tmp_path / "out"
    hf_export.export(hf.load(source, "bfloat16"), hf.read_config(source), source, out)
    ids = torch.arange(12)[None]
    one, two = (AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (source, out))
    assert torch.equal(one, two)


def test_export_in_another_dtype(tmp_path):
    source, out = tiny.make_hf_folder(tmp_path / "source", "llama"), tmp_path / "out"
    hf_export.export(hf.load(source, "float32"), hf.read_config(source), source, out, dtype="bfloat16")
    assert {info.dtype for info in hf.check_folder(out).tensors.values()} == {"BF16"}
    assert json.loads((out / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_failed_export_leaves_the_earlier_one(tmp_path, monkeypatch):
    source, out = tiny.make_hf_folder(tmp_path / "source", "llama"), tmp_path / "out"
    tree, cfg = hf.load(source, "float32"), hf.read_config(source)
    hf_export.export(tree, cfg, source, out)
    before = (out / "model.safetensors").read_bytes()

    def full(*unused):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(hf_write, "_write_file", full)
        hf_export.export(tree, cfg, source, out)
    assert (out / "model.safetensors").read_bytes() == before
    tree["final_norm"] = tree["final_norm"] + 1
    hf_export.export(tree, cfg, source, out)
    assert (out / "model.safetensors").read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_the_earlier_export_comes_back_when_the_swap_fails(tmp_path, monkeypatch):
    out, replace = tmp_path / "out", os.replace
    out.mkdir()
    (out / "config.json").write_text("old")

    def fails_once(source, target):
        if pathlib.Path(target) == out and pathlib.Path(source).name == "new":
            raise OSError("gone")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails_once)
    with pytest.raises(OSError), hf_write.aside(out) as fresh:
        (fresh / "config.json").write_text("new")
    assert (out / "config.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_export_refuses(tmp_path):
    source = tiny.make_hf_folder(tmp_path / "source", "llama")
    tree, cfg = hf.load(source, "float32"), hf.read_config(source)
    other = tiny.make_hf_folder(tmp_path / "other", "llama", num_hidden_layers=3)
    with pytest.raises(ValueError, match="is the folder that the export copies from"):
        hf_export.export(tree, cfg, source, source)
    with pytest.raises(ValueError, match="not of the shape that .*config.json describes"):
        hf_export.export(tree, cfg, other, tmp_path / "out")
    with pytest.raises(ValueError, match="layers/qkv of shape"):
        wrong = tree | {"layers": tree["layers"] | {"qkv": tree["layers"]["qkv"][:1]}}
        hf_export.export(wrong, cfg, source, tmp_path / "out")
    with pytest.raises(ValueError, match="lacks final_norm"):
        hf_export.export({k: v for k, v in tree.items() if k != "final_norm"}, cfg, source, tmp_path / "out")
    (other / "notes.md").write_text("mine")
    with pytest.raises(ValueError, match="holds notes.md, which is no part of an export"):
        hf_export.export(tree, cfg, source, other)
    assert (other / "notes.md").exists()
    shutil.rmtree(other)
    other.write_text("a file")
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        hf_export.export(tree, cfg, source, other)
