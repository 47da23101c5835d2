"""Calls: a function with its arguments, seen flat: differentiable tensors in, differentiable tensors out.

Tensors are taken out of tuples, lists and dicts, and put back. What is not differentiated is bound: integers and
non-tensors as they are, floating tensors in the precision of the run, so that a float32 weight beside a checked input
does not stand in the way of a double-precision run.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import msgspec
import numpy as np

from karat.findings import suggest
from karat.gradients.adapters import Adapter, Linearised
from karat.gradients.problem import MalformedGradient, misuse
from karat.tensors.dtypes import TABLE


class LeafPlace(msgspec.Struct, frozen=True):
    index: int


class Leaf(msgspec.Struct, frozen=True):
    """A tensor that was found, under the name of the way to it: `xs.0`."""

    name: str
    value: Any
    made: Callable[[Any], Any] | None = None  # what the function takes in its place: a sparse tensor with these values


def flatten(value: Any, is_leaf: Callable[[object], bool], name: str, found: list[Leaf]) -> Any:
    """The same structure with a `Place` for every leaf; the leaves go to `found`."""
    if is_leaf(value):
        found.append(Leaf(name, value))
        return LeafPlace(len(found) - 1)
    prefix = f"{name}." if name else ""
    if isinstance(value, dict):
        return {key: flatten(one, is_leaf, f"{prefix}{key}", found) for key, one in value.items()}
    if isinstance(value, list | tuple):
        parts = [flatten(one, is_leaf, f"{prefix}{n}", found) for n, one in enumerate(value)]
        return _like(value, parts)
    if is_dataclass(value) and not isinstance(value, type):
        # What a model returns; options on the way in hold no tensors, and stay what they are.
        before = len(found)
        parts = flatten({one.name: getattr(value, one.name) for one in fields(value)}, is_leaf, name, found)
        return parts if len(found) > before else value
    return value


def unflatten(form: Any, leaves: Sequence[Any]) -> Any:
    """The structure again, with these leaves in their places."""
    if isinstance(form, LeafPlace):
        return leaves[form.index]
    if isinstance(form, dict):
        return {key: unflatten(one, leaves) for key, one in form.items()}
    if isinstance(form, list | tuple):
        return _like(form, [unflatten(one, leaves) for one in form])
    return form


def _like(value: Any, parts: list[Any]) -> Any:
    if isinstance(value, list):
        return parts
    if hasattr(value, "_fields"):  # a named tuple, which takes its fields one by one
        return type(value)(*parts)
    # One written in C, as torch.max returns, takes them together.
    return type(value)(parts) if hasattr(value, "n_sequence_fields") else tuple(parts)


_BASE = "torch.autograd.function"


def argument_names(
    fn: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], names: Sequence[str] | None
) -> list[str]:
    """A name per argument: those given, or else the function's own."""
    if names is not None:
        names = [names] if isinstance(names, str) else [str(name) for name in names]
        if len(names) != len(args) + len(named):
            said = f"names: expected a name for each of {len(args) + len(named)} arguments, found {len(names)}"
            raise misuse(said, "names=(…) with as many names as the function has arguments")
        return names
    owner = _class_applied(fn)
    found: list[str] = []
    with suppress(TypeError, ValueError):
        # A class that is applied, and a module, say what they take in their forward.
        taken = list(inspect.signature(getattr(owner or fn, "forward", fn)).parameters.values())
        # First comes a context, but where a class has a setup_context of its own.
        own = getattr(getattr(owner, "setup_context", None), "__module__", _BASE) != _BASE
        for one in taken if owner is None or own else taken[1:]:
            if one.kind is one.VAR_POSITIONAL:
                found += [f"{one.name}.{n}" for n in range(len(args) - len(found))]
            elif one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}:
                found.append(one.name)
    if len(found) < len(args):
        found = [f"x{n}" for n in range(len(args))]
    return [*found[: len(args)], *named]


def refuse_twice(names: Sequence[str], argument: str, what: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            said = f"{argument}: expected names that differ, found {name!r} twice or more"
            raise misuse(said, f"{argument}=(…) with a name of its own for every {what}")


def output_names(found: Sequence[Leaf], given: Sequence[str] | None) -> list[str]:
    """Names of all tensors that come out; `out` if there is one."""
    # `out`, `out.0`, or the key under which a dict has it.
    names = [f"out.{leaf.name}" if leaf.name[:1].isdigit() else leaf.name or "out" for leaf in found]
    if given is not None:
        if len(given) != len(found):
            said = f"output_names: expected a name for each of {len(found)} outputs, found {len(given)} names"
            raise misuse(said, "output_names=(…) with a name per output")
        names = list(given)
    refuse_twice(names, "output_names", "output")
    return names


def function_name(fn: Callable[..., Any]) -> str:
    """A function's default name: `tanh` for torch.tanh, `Softmax` for Softmax.apply."""
    inner = getattr(fn, "func", fn)
    owner = _class_applied(inner)
    if owner is not None:
        name = owner.__qualname__
    elif inspect.isfunction(inner) or inspect.ismethod(inner):
        name = inner.__qualname__
    else:
        # The qualified name of what is written in C has a class of the framework's in it, which says nothing.
        name = getattr(inner, "__name__", None) or type(inner).__qualname__
    if str(getattr(inner, "__module__", "")).startswith("paddle."):
        name = name.removeprefix("_")
    return str(name).rpartition("<locals>.")[2]


def takes_positional_only(fn: Callable[..., Any], count: int) -> bool:
    """Whether a function takes its first arguments by their order alone: `np.tanh`, `Softmax.apply`, `f(x, /)`."""
    if _class_applied(fn) is not None:
        return True
    try:
        parameters = list(inspect.signature(fn).parameters.values())[:count]
    except (TypeError, ValueError):
        # Ufuncs of older numpys have no signature; what else has none takes names, or says that it does not.
        return hasattr(fn, "nin") and hasattr(fn, "nout")
    return bool(parameters) and all(one.kind is one.POSITIONAL_ONLY for one in parameters)


def _class_applied(fn: Callable[..., Any]) -> type | None:
    """The autograd.Function or PyLayer whose `apply` this is."""
    owner = getattr(fn, "__self__", None)
    named = getattr(fn, "__name__", "") == "apply" and hasattr(owner, "backward")
    return owner if named and isinstance(owner, type) else None


SEED = 20240229  # where random functions start, in every run
_COMPLEX = {"float64": "complex128", "float32": "complex64", "float16": "complex32"}
_REAL = {whole: part for part, whole in _COMPLEX.items()}


# Every dtype whose tensors can have gradients.
FLOATS = tuple(name for name, of in TABLE.items() if of.kind in {"float", "complex"})


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_complex(dtype: str) -> bool:
    return dtype in TABLE and TABLE[dtype].kind == "complex"


def of_precision(dtype: str, given: str) -> str:
    """The dtype of that precision, complex if the given one is, and only then."""
    if is_complex(dtype) == is_complex(given):
        return dtype
    return (_COMPLEX if is_complex(given) else _REAL).get(dtype, dtype)


@dataclass(eq=False, slots=True)
class BoundCall:
    """A function and its arguments; the leaves at `chosen` are what goes in."""

    fn: Callable[..., Any]
    form: tuple[tuple[Any, ...], Mapping[str, Any]]
    leaves: Sequence[Leaf]
    chosen: Sequence[int]
    adapter: Adapter
    outputs: tuple[int, ...] | None = None  # which that come out are differentiable; known after the first run
    holds: bool = False  # whether the last argument is a module's parameters, by name
    random_on: str | None = None  # the device on which the function was seen to draw random numbers
    _bound: dict[str | None, tuple[Any, ...]] = field(default_factory=dict, init=False)
    _functions: dict[str | None, Callable[..., Any]] = field(default_factory=dict, init=False)
    _plain: bool = field(init=False)  # as nearly always: every argument is a tensor that goes in

    def __post_init__(self) -> None:
        as_given = all(self.leaves[index].made is None for index in self.chosen)
        self._plain = as_given and self.form == (tuple(LeafPlace(index) for index in self.chosen), {})

    def of(self, fn: Callable[..., Any]) -> BoundCall:
        """Another function with the same arguments and outputs."""
        return replace(self, fn=fn, holds=False)

    def arguments(self, inputs: Sequence[Any], dtype: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if dtype not in self._bound:
            # What stays as it is, in the precision of the run; None: as given.
            bound = [leaf.value for index, leaf in enumerate(self.leaves) if index not in self.chosen]
            for n, value in enumerate(bound):
                given = self.adapter.dtype_of(value)
                if dtype is not None and is_float(given):
                    bound[n] = self.adapter.cast(value, of_precision(dtype, given))
            self._bound[dtype] = tuple(bound)
        if self._plain:
            return tuple(inputs), {}
        makers = (self.leaves[index].made for index in self.chosen)
        inputs = [one if made is None else made(one) for one, made in zip(inputs, makers, strict=True)]
        leaves = [self.adapter.fresh(one) for one in self._bound[dtype]]
        for index, one in zip(self.chosen, inputs, strict=True):
            leaves.insert(index, one)
        args, kwargs = self.form
        return unflatten(args, leaves), unflatten(kwargs, leaves)

    def results(self, result: Any) -> list[Leaf]:
        found: list[Leaf] = []
        flatten(result, self.adapter.owns, "", found)
        return [Leaf(leaf.name, self.adapter.dense(leaf.value)) for leaf in found]

    def differentiable(self, found: Sequence[Leaf]) -> tuple[Any, ...]:
        """Those of the results that have gradients, the same ones in every run."""
        if self.outputs is None:
            return tuple(one.value for one in found if is_float(self.adapter.dtype_of(one.value)))
        if self.outputs and self.outputs[-1] >= len(found):
            said = f"expected {self.outputs[-1] + 1} tensors or more from {self.fn!r}, as at first, found {len(found)}"
            raise misuse(said, "return the same structure whatever the inputs are")
        return tuple(found[index].value for index in self.outputs)

    def flat(self, dtype: str | None) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """The function over the differentiable tensors alone, in a run of that precision."""
        owns, dense = self.adapter.owns, self.adapter.dense
        alone = self.function(dtype) if self._plain and not self.holds and self.random_on is None else None

        def run(inputs: Sequence[Any]) -> tuple[Any, ...]:
            if alone is None:
                args, kwargs = self.arguments(inputs, dtype)
                result = self.invoke(args, kwargs, dtype)
            else:
                result = alone(*inputs)
            if self.outputs == (0,) and owns(result):  # as nearly always
                return (dense(result),)
            return self.differentiable(self.results(result))

        return run

    def invoke(self, args: Sequence[Any], kwargs: Mapping[str, Any], dtype: str | None) -> Any:
        """What the function returns; what it draws at random is the same each time, so that it is a function."""
        fn = self.function(dtype)
        if self.holds:
            fn, args, kwargs = self.adapter.call_with, (fn, args[-1], args[:-1], kwargs), {}
        with nullcontext() if self.random_on is None else self.adapter.seeded(SEED, self.random_on):
            return fn(*args, **kwargs)

    def function(self, dtype: str | None) -> Callable[..., Any]:
        if dtype not in self._functions:
            self._functions[dtype] = self.adapter.function(self.fn, dtype)
        return self._functions[dtype]


Backward = Callable[[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], Any]
"""`backward(inputs, outputs, cotangents) -> gradients`, written by hand.

`inputs` are the arguments as the function took them, `outputs` and `cotangents` every tensor that came out of it
(None as the cotangent of an integer). Gradients come back for all arguments, for the tensors among them, for the
floating ones, or for those that are checked; as a tuple, a dict by name, or as the one there is.
"""


def linearise_written(
    call: BoundCall, backward: Backward, inputs: Sequence[Any], wanted: Sequence[bool], dtype: str | None
) -> Linearised:
    """A forward run, and the hand-written backward that goes with it."""
    args, kwargs = call.arguments(inputs, dtype)
    found = call.results(call.invoke(args, kwargs, dtype))
    every = tuple(one.value for one in found)
    arguments = (*args, *kwargs.values())

    def pullback(cotangents: Sequence[Any | None]) -> tuple[Any, ...]:
        """What the backward gives; where a cotangent is left out it sees zeros."""
        given: list[Any] = [None] * len(every)
        for index, one in zip(call.outputs or (), cotangents, strict=True):
            out = every[index]
            zeros = np.zeros(call.adapter.shape_of(out))
            given[index] = call.adapter.from_numpy(zeros, call.adapter.dtype_of(out), like=out) if one is None else one
        gradients = _by_input(call, arguments, backward(arguments, every, tuple(given)))
        return tuple(one for one, want in zip(gradients, wanted, strict=True) if want)

    return Linearised(call.differentiable(found), pullback)


def _by_input(call: BoundCall, arguments: Sequence[Any], result: Any) -> list[Any]:
    """What a hand-written backward gave, for each input that is checked."""
    chosen = [call.leaves[index].name for index in call.chosen]
    tensors = [leaf.name for leaf in call.leaves]
    if isinstance(result, dict):
        for key in result:
            if key not in tensors:
                raise MalformedGradient(
                    f"backward: expected gradients by name ({', '.join(tensors)}), found {key!r}{suggest(str(key), tensors)}"
                )
        return [result.get(name) for name in chosen]
    found = _gradients_in(result, call.adapter.owns)
    floats = [leaf.name for leaf in call.leaves if is_float(call.adapter.dtype_of(leaf.value))]
    for names in (chosen, floats, tensors):
        if len(names) == len(found):
            by_name = dict(zip(names, found, strict=True))
            return [by_name[name] for name in chosen]
    if len(found) == len(arguments):
        # One gradient per argument, None for those that are not tensors.
        own = [g for arg, g in zip(arguments, found, strict=True) if call.adapter.owns(arg)]
        return [own[index] for index in call.chosen]
    wanted = f"1 gradient ({chosen[0]})" if len(chosen) == 1 else f"{len(chosen)} gradients ({', '.join(chosen)})"
    raise MalformedGradient(f"backward: expected {wanted}, each an array or None, found {len(found)}")


def _gradients_in(result: Any, owns: Callable[[object], bool]) -> list[Any]:
    if owns(result) or result is None or not isinstance(result, list | tuple):
        return [result]
    return [one for part in result for one in _gradients_in(part, owns)]
