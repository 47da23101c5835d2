"""Backwards that a person wrote: `backward(inputs, outputs, cotangents) -> gradients`.

`inputs` are the arguments as the function took them, `outputs` and `cotangents` every tensor that came out of it
(None as the cotangent of an integer). Gradients come back for all arguments, for the tensors among them, for the
floating ones, or for those that are checked; as a tuple, a dict by name, or as the one there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from karat.findings import suggest
from karat.gradients.adapter import MalformedGradient
from karat.gradients.calls import Call, is_float

Backward = Callable[[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], Any]


class WrittenLinearised:
    """A forward run, and the backward that goes with it."""

    def __init__(
        self,
        call: Call,
        backward: Backward,
        inputs: Sequence[Any],
        wanted: Sequence[bool],
        dtype: str | None,
    ) -> None:
        self._call = call
        self._backward = backward
        self._wanted = wanted
        args, kwargs = call.arguments(inputs, dtype)
        found = call.results(call.invoke(args, kwargs, dtype))
        self._args = (*args, *kwargs.values())
        self._all = tuple(one.value for one in found)
        self.outputs = call.differentiable(found)

    def pullback(
        self,
        cotangents: Sequence[Any | None],
        *,
        keep: bool = False,  # noqa: ARG002 - nothing is freed
    ) -> tuple[Any, ...]:
        """What the backward gives; where a cotangent is left out it sees zeros."""
        given: list[Any] = [None] * len(self._all)
        for index, one in zip(self._call.outputs or (), cotangents, strict=True):
            given[index] = self._zeros(self._all[index]) if one is None else one
        result = self._backward(self._args, self._all, tuple(given))
        found = self._by_input(result)
        return tuple(one for one, want in zip(found, self._wanted, strict=True) if want)

    def _zeros(self, out: Any) -> Any:
        adapter = self._call.adapter
        return adapter.from_numpy(np.zeros(adapter.shape_of(out)), adapter.dtype_of(out), like=out)

    def _by_input(self, result: Any) -> list[Any]:
        call = self._call
        chosen = [call.leaves[index].name for index in call.chosen]
        if isinstance(result, dict):
            _refuse_unknown(result, [leaf.name for leaf in call.leaves])
            return [result.get(name) for name in chosen]
        found = _flattened(result, call.adapter.owns)
        tensors = [leaf.name for leaf in call.leaves]
        floats = [leaf.name for leaf in call.leaves if is_float(call.adapter.dtype_of(leaf.value))]
        for names in (chosen, floats, tensors):
            if len(names) == len(found):
                by_name = dict(zip(names, found, strict=True))
                return [by_name[name] for name in chosen]
        if len(found) == len(self._args):
            return self._by_argument(found)
        wanted = "1 gradient" if len(chosen) == 1 else f"{len(chosen)} gradients"
        raise MalformedGradient(
            f"backward: expected {wanted} ({', '.join(chosen)}), each an array or None, found {len(found)}"
        )

    def _by_argument(self, found: list[Any]) -> list[Any]:
        """One gradient per argument, None for those that are no tensors."""
        tensors = [
            one for arg, one in zip(self._args, found, strict=True) if self._call.adapter.owns(arg)
        ]
        return [tensors[index] for index in self._call.chosen]


def _refuse_unknown(result: dict[Any, Any], names: list[str]) -> None:
    for key in result:
        if key not in names:
            raise MalformedGradient(
                f"backward: expected gradients by name ({', '.join(names)}), found {key!r}{suggest(str(key), names)}"
            )


def _flattened(result: Any, owns: Callable[[object], bool]) -> list[Any]:
    if owns(result) or result is None or not isinstance(result, list | tuple):
        return [result]
    return [one for part in result for one in _flattened(part, owns)]
