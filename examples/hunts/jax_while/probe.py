"""How long a loop of sixteen thousand small steps takes on the CPU: the quickest of several, in milliseconds."""

import timeit

import jax
import jax.numpy as jnp
from jax import lax

values = jnp.arange(2**14)
last = jnp.max(values)


@jax.jit
def loop(start: int) -> jax.Array:
    return lax.while_loop(lambda s: s[0] < last, lambda s: (jnp.maximum(s[0], values[s[1]]), s[1] + 1), (start, start))[
        1
    ]


loop(0).block_until_ready()
print("time:", 1e3 * min(timeit.repeat(lambda: loop(0).block_until_ready(), number=1, repeat=20)))
