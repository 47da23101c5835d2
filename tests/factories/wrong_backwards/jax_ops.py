"""Wrong backwards of jax, element by element and index by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from factories.wrong_backwards.jax_function import op, shelf
from factories.wrong_backwards.pair import between, complex_normal, normal

PAIRS = shelf()
INDEX = np.array([0, 2, 2, 1, 2])


def with_jvp(factor: float) -> Callable[..., Any]:
    """A sine whose derivative, by a rule for forward mode, is off by a factor."""

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    @sine.defjvp  # type: ignore[untyped-decorator]
    def rule(primals: Any, tangents: Any) -> Any:
        return jnp.sin(primals[0]), factor * jnp.cos(primals[0]) * tangents[0]

    return lambda x: sine(x) * 2


def with_second_order(factor: float) -> Callable[..., Any]:
    """A right first derivative whose own derivative is off by a factor."""
    slope = op(jnp.cos, lambda g, _o, x: (-factor * jnp.sin(x) * g,))
    return op(jnp.sin, lambda g, _o, x: (g * slope(x),))


PAIRS.pair(
    "sine: the sign is wrong in jax",
    jnp.cos,
    normal((6,)),
    right=lambda g, _o, x: (-g * jnp.sin(x),),
    wrong=lambda g, _o, x: (g * jnp.sin(x),),
)
PAIRS.pair(
    "cube: half the gradient",
    lambda x: x**3,
    normal((6,)),
    right=lambda g, _o, x: (3 * x * x * g,),
    wrong=lambda g, _o, x: (1.5 * x * x * g,),
)
PAIRS.pair(
    "exponential: the cotangent's sign alone",
    jnp.exp,
    normal((6,)),
    right=lambda g, y, _x: (g * y,),
    wrong=lambda g, y, _x: (jnp.sign(g) * y,),
)
PAIRS.pair(
    "logarithm: off by 1e-6",
    jnp.log,
    between(0.5, 2, (6,)),
    right=lambda g, _o, x: (g / x,),
    wrong=lambda g, _o, x: (g / (x + 1e-6),),
)
PAIRS.pair(
    "square: one index of 100,000 gets twice its gradient",
    lambda x: x * x,
    between(0.5, 1.5, (100_000,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: ((2 * x * g).at[65_536].multiply(2),),
)
PAIRS.pair(
    "exponential: one index of 100,000 is off by one per cent in jax",
    jnp.exp,
    between(-1, 1, (100_000,)),
    right=lambda g, y, _x: (g * y,),
    wrong=lambda g, y, _x: ((g * y).at[4_096].multiply(1.01),),
)
PAIRS.pair(
    "sine: the last element is forgotten in jax",
    jnp.sin,
    normal((1000,)),
    right=lambda g, _o, x: (g * jnp.cos(x),),
    wrong=lambda g, _o, x: ((g * jnp.cos(x)).at[-1].set(0),),
)
PAIRS.pair(
    "relu6: the upper bound is forgotten",
    lambda x: jnp.clip(x, 0, 6),
    lambda rng: (rng.uniform(-1, 1, 12) + [-3, 3, 9] * 4,),
    right=lambda g, _o, x: (g * ((x > 0) & (x < 6)),),
    wrong=lambda g, _o, x: (g * (x > 0),),
)
PAIRS.pair(
    "take: duplicate indices overwrite each other",
    lambda x: x[INDEX],
    normal((4, 2)),
    right=lambda g, _o, x: (jnp.zeros_like(x).at[INDEX].add(g),),
    wrong=lambda g, _o, x: (jnp.zeros_like(x).at[INDEX].set(g),),
)
PAIRS.pair(
    "shift: the gradient is shifted the same way",
    lambda x: jnp.concatenate((jnp.zeros(1), x[:-1])),
    normal((7,)),
    right=lambda g, _o, _x: (jnp.concatenate((g[1:], jnp.zeros(1))),),
    wrong=lambda g, _o, _x: (jnp.concatenate((jnp.zeros(1), g[:-1])),),
)
PAIRS.pair(
    "diagonal: written to the diagonal above",
    lambda x: jnp.diagonal(x) ** 2,
    normal((4, 4)),
    right=lambda g, _o, x: (jnp.diag(2 * g * jnp.diagonal(x)),),
    wrong=lambda g, _o, x: (jnp.diag(2 * g[:3] * jnp.diagonal(x)[:3], 1),),
)
PAIRS.pair(
    "complex product: the conjugate is missing in jax",
    lambda z, w: z * w,
    complex_normal((4,), (4,)),
    # jax's convention: the cotangent of z is the transpose without conjugates.
    right=lambda g, _o, z, w: (g * w, g * z),
    wrong=lambda g, _o, z, w: (g * w, g * z.conj()),
)
PAIRS.pair(
    "square: wrong in bfloat16 only, in jax",
    lambda x: x * x,
    normal((40,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (2 * x * g * (0.75 if x.dtype == jnp.bfloat16 else 1),),
    dtypes=("bfloat16",),
)
PAIRS.functions(
    "sine by a forward rule: off by one per cent",
    normal((6,)),
    right=lambda: with_jvp(1.0),
    wrong=lambda: with_jvp(1.01),
    modes=("reverse", "forward"),
)
PAIRS.functions(
    "sine: the second derivative alone has the wrong sign",
    normal((6,)),
    right=lambda: with_second_order(1.0),
    wrong=lambda: with_second_order(-1.0),
    order=2,
)
PAIRS.functions(
    "cosine times sine: one factor is stopped",
    normal((6,)),
    right=lambda: lambda x: jnp.cos(x) * jnp.sin(x),
    wrong=lambda: lambda x: jnp.cos(x) * jax.lax.stop_gradient(jnp.sin(x)),
)
