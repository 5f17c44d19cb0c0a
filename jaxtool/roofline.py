"""How fast this machine multiplies matrices, measured.  Boundary."""

import time

import jax
import jax.numpy as jnp

SIZE = 2048


def matmul_rate(dtype: jnp.dtype) -> float:
    """Operations a second of a 2048^3 product on one device, best of five."""
    a = jnp.full((SIZE, SIZE), 0.5, dtype)
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        product(a, a).block_until_ready()
        times.append(time.perf_counter() - started)
    return 2.0 * SIZE**3 / min(times)
