"""Pairs: a wrong backward of the kinds that people write, and its right twin with the same forward.

The modules beside this one hold them, by framework, and import that framework; whoever wants them asks `pairs_of`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Backward = Callable[..., tuple[Any, ...]]
"""(cotangent, output, *inputs) → a gradient per input."""
Inputs = Callable[[np.random.Generator], tuple[Array, ...]]
MODULES = (
    "torch_elementwise",
    "torch_layers",
    "torch_shapes",
    "torch_habits",
    "jax_ops",
    "jax_layers",
    "paddle_ops",
    "numpy_ops",
    "numpy_layers",
)


class Case(NamedTuple):
    """What `karat.gradcheck` is called with."""

    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    options: dict[str, Any]


class Pair(NamedTuple):
    """A wrong backward and its right twin."""

    name: str
    framework: str
    right: Callable[[], Callable[..., Any]]
    """Makes the function, anew for each check: what a wrong one leaves on its class must not reach the next."""
    wrong: Callable[[], Callable[..., Any]]
    inputs: Inputs
    tensor: Callable[[Array, str], Any]
    options: Mapping[str, Any]
    options_wrong: Mapping[str, Any]

    def case(self, *, wrong: bool, seed: int, device: str = "cpu") -> Case:
        """One of the twins at the point that the seed chooses."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        inputs = tuple(self.tensor(array, device) for array in self.inputs(rng))
        fn = self.wrong() if wrong else self.right()
        chosen = {**self.options, **(self.options_wrong if wrong else {})}
        return Case(fn, inputs, chosen)


class Shelf(list[Pair]):
    """The pairs of one module, and how its framework is given a backward."""

    def __init__(
        self,
        framework: str,
        op: Callable[[Callable[..., Any], Backward], Callable[..., Any]],
        tensor: Callable[[Array, str], Any],
    ) -> None:
        super().__init__()
        self.framework, self.op, self.tensor = framework, op, tensor

    def pair(
        self,
        name: str,
        forward: Callable[..., Any],
        inputs: Inputs,
        *,
        right: Backward,
        wrong: Backward,
        **options: Any,
    ) -> None:
        """A forward with two backwards."""
        self.append(
            Pair(
                name,
                self.framework,
                lambda: self.op(forward, right),
                lambda: self.op(forward, wrong),
                inputs,
                self.tensor,
                options,
                {},
            )
        )

    def functions(
        self,
        name: str,
        inputs: Inputs,
        *,
        right: Callable[[], Callable[..., Any]],
        wrong: Callable[[], Callable[..., Any]],
        options_wrong: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Two functions that differ in their derivatives by other means than one backward."""
        self.append(Pair(name, self.framework, right, wrong, inputs, self.tensor, options, options_wrong or {}))


def normal(*shapes: tuple[int, ...], scale: float = 1.0) -> Inputs:
    """Normal numbers, an array per shape."""
    return lambda rng: tuple(scale * rng.standard_normal(shape) for shape in shapes)


def between(low: float, high: float, *shapes: tuple[int, ...]) -> Inputs:
    """Numbers of an interval, an array per shape."""
    return lambda rng: tuple(rng.uniform(low, high, shape) for shape in shapes)


def complex_normal(*shapes: tuple[int, ...]) -> Inputs:
    """Complex numbers, an array per shape."""
    return lambda rng: tuple(rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in shapes)


def square_normal(*shapes: tuple[int, ...]) -> Inputs:
    """Well-conditioned matrices: 3·I plus noise."""
    return lambda rng: tuple(3 * np.eye(shape[-1]) + 0.3 * rng.standard_normal(shape) for shape in shapes)


@functools.cache
def pairs_of(module: str) -> tuple[Pair, ...]:
    """The pairs of one module; imports its framework."""
    return tuple(importlib.import_module(f"factories.wrong_backwards.{module}").PAIRS)


def framework_of(module: str) -> str:
    """The framework that a module of pairs needs."""
    return module.partition("_")[0]
