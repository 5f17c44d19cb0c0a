"""Puts the leaves that `hf.load` reads onto devices.  Boundary: shards are filled from host memory.

A stacked leaf is filled in place, a layer at a time, so that host memory above the finished arrays is
about one layer's tensors, however large the leaf and however it is sharded.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jaxtool.models import hf, hf_names


def onto(sharding_of: Callable[[hf_names.Path, tuple[int, ...]], Sharding]) -> hf.Put:
    """A `put` for `hf.load` that gives each leaf the sharding that `sharding_of(path, shape)` names.

    For one device: onto(lambda path, shape: SingleDeviceSharding(device)).
    """

    def put(path: hf_names.Path, shape: tuple[int, ...], dtype: np.dtype, fill: hf.Fill) -> jax.Array:
        sharding = sharding_of(path, shape)
        if path[0] != "layers":
            return jax.make_array_from_callback(shape, sharding, fill, dtype=dtype)
        return _fill_layers(shape, dtype, sharding, fill)

    return put


def _fill_layers(shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding, fill: hf.Fill) -> jax.Array:
    one = (1, *shape[1:])
    layer_sharding = sharding
    if isinstance(sharding, NamedSharding):  # whatever splits L, a single layer is not split along it
        layer_sharding = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec[1:]))
    stacked = jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)()
    write = jax.jit(
        jax.lax.dynamic_update_slice_in_dim, static_argnums=3, donate_argnums=0, out_shardings=sharding
    )
    for number in range(shape[0]):

        def part(index: hf.Index, number: int = number) -> np.ndarray:
            return fill((slice(number, number + 1), *index[1:]))

        layer = jax.make_array_from_callback(one, layer_sharding, part, dtype=dtype)
        stacked = write(stacked, layer, number, 0)
        stacked.block_until_ready()  # else the host runs ahead, and layers pile up in its memory
    return stacked
