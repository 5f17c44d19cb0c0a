"""Counts compiled programs and keeps them on disk.  Boundary."""

import os
import pathlib

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_seen = [0]


def _on_event(event: str, duration: float, **unused: object) -> None:
    if event == _EVENT:
        _seen[0] += 1


jax.monitoring.register_event_duration_secs_listener(_on_event)


def count() -> int:
    """Programs compiled or read from the persistent cache since the process began."""
    return _seen[0]


def prepare(dtype: str) -> None:
    """Persistent compilation cache in the user's cache folder (JAX_COMPILATION_CACHE_DIR moves it), and
    float32 products in float32 where that is the model's dtype: accelerators round them by default."""
    if dtype == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")
    if jax.config.jax_compilation_cache_dir is None:
        root = os.environ.get("JAXTOOL_CACHE") or pathlib.Path.home() / ".cache" / "jaxtool"
        jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(root) / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
