"""Calls: a function with its arguments, seen flat: differentiable tensors in, differentiable tensors out.

What is not differentiated is bound: integers and non-tensors as they are, floating tensors in the precision of the
run, so that a float32 weight beside a checked input does not stand in the way of a double-precision run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from karat.findings import UsageError
from karat.gradients.adapter import Adapter
from karat.gradients.nesting import Leaf, filled, taken
from karat.tensors.dtypes import TABLE

SEED = 20240229
"""Where random functions start, in every run."""
_COMPLEX = {"float64": "complex128", "float32": "complex64", "float16": "complex32"}
_REAL = {whole: part for part, whole in _COMPLEX.items()}


def is_float(dtype: str) -> bool:
    """Whether tensors of it can have gradients."""
    of = TABLE.get(dtype)
    return of is not None and of.kind in {"float", "complex"}


FLOATS = tuple(name for name in TABLE if is_float(name))
"""Every dtype whose tensors can have gradients."""


def is_complex(dtype: str) -> bool:
    """Whether its elements are complex."""
    of = TABLE.get(dtype)
    return of is not None and of.kind == "complex"


def of_precision(dtype: str, given: str) -> str:
    """The dtype of that precision, complex if the given one is, and only then."""
    if is_complex(dtype) == is_complex(given):
        return dtype
    return (_COMPLEX if is_complex(given) else _REAL).get(dtype, dtype)


class Call:
    """A function and its arguments; the leaves at `chosen` are what goes in."""

    def __init__(
        self,
        fn: Callable[..., Any],
        form: tuple[tuple[Any, ...], Mapping[str, Any]],
        leaves: Sequence[Leaf],
        chosen: Sequence[int],
        adapter: Adapter,
    ) -> None:
        self.fn = fn
        self.form = form
        self.leaves = tuple(leaves)
        self.chosen = tuple(chosen)
        self.adapter = adapter
        self.outputs: tuple[int, ...] | None = None
        """Which of the tensors that come out are differentiable; known after the first run."""
        self.random_on: str | None = None
        """The device on which the function draws random numbers; None if it was not seen to draw any."""
        self._bound: dict[str | None, tuple[Any, ...]] = {}
        self._functions: dict[str | None, Callable[..., Any]] = {}

    def arguments(
        self, inputs: Sequence[Any], dtype: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as the function takes them."""
        leaves = [self.adapter.fresh(one) for one in self._bound_in(dtype)]
        for index, one in zip(self.chosen, inputs, strict=True):
            leaves.insert(index, one)
        args, kwargs = self.form
        return filled(args, leaves), filled(kwargs, leaves)

    def results(self, result: Any) -> list[Leaf]:
        """Every tensor in what the function returned."""
        found: list[Leaf] = []
        taken(result, self.adapter.owns, "", found)
        return found

    def differentiable(self, found: Sequence[Leaf]) -> tuple[Any, ...]:
        """Those of the results that have gradients, the same ones in every run."""
        if self.outputs is None:
            return tuple(one.value for one in found if is_float(self.adapter.dtype_of(one.value)))
        if max(self.outputs, default=-1) >= len(found):
            raise UsageError(
                f"gradcheck: expected {max(self.outputs) + 1} tensors or more from {self.fn!r}, as at first, found {len(found)}",
                next_command="return the same structure whatever the inputs are",
            )
        return tuple(found[index].value for index in self.outputs)

    def flat(self, dtype: str | None) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The function over the differentiable tensors alone, in a run of that precision."""

        def run(inputs: Sequence[Any]) -> tuple[Any, ...]:
            args, kwargs = self.arguments(inputs, dtype)
            return self.differentiable(self.results(self.invoke(args, kwargs, dtype)))

        return run

    def invoke(self, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: str | None) -> Any:
        """What the function returns; what it draws at random is the same each time, so that it is a function."""
        if self.random_on is None:
            return self.function(dtype)(*args, **kwargs)
        with self.adapter.seeded(SEED, self.random_on):
            return self.function(dtype)(*args, **kwargs)

    def function(self, dtype: str | None) -> Callable[..., Any]:
        """What is called in a run of that precision."""
        if dtype not in self._functions:
            self._functions[dtype] = self.adapter.function(self.fn, dtype)
        return self._functions[dtype]

    def _bound_in(self, dtype: str | None) -> tuple[Any, ...]:
        """What stays as it is, in the precision of the run; None: as given."""
        if dtype not in self._bound:
            chosen = set(self.chosen)
            self._bound[dtype] = tuple(
                self._in_precision(leaf.value, dtype)
                for index, leaf in enumerate(self.leaves)
                if index not in chosen
            )
        return self._bound[dtype]

    def _in_precision(self, value: Any, dtype: str | None) -> Any:
        given = self.adapter.dtype_of(value)
        if dtype is None or not is_float(given):
            return value
        return self.adapter.cast(value, of_precision(dtype, given))
