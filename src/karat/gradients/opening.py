"""Opening: any function of any framework becomes a `Problem`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients.adapter import Adapter, adapter_of
from karat.gradients.calls import SEED, Call, is_complex, is_float
from karat.gradients.nesting import Leaf, filled, taken
from karat.gradients.opened import OpenedProblem
from karat.gradients.problem import Slot
from karat.gradients.report import Excluded
from karat.gradients.written import Backward

if TYPE_CHECKING:
    from karat.gradients.problem import Array

Inputs = Sequence[Any] | Mapping[str, Any] | Any


def open_problem(  # noqa: PLR0913 - all but two are optional, and each is a fact about the function
    fn: Callable[..., Any],
    inputs: Inputs,
    *,
    op: str | None = None,
    names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Sequence[str | int] | str | int | None = None,
    backward: Backward | None = None,
    framework: str | None = None,
) -> OpenedProblem:
    """The function at the given inputs, as a problem.

    `inputs` are its arguments: a tuple or list, a dict by keyword, or one tensor. They may be nested, and hold
    what is no tensor. `names` default to the function's own parameters; a tensor in a list goes by `xs.0`. `wrt`
    says which are checked, by name or by position; by default every floating or complex tensor.
    """
    args, named = _arguments(inputs)
    labels, rename = _labels(fn, args, named, names)
    adapter = adapter_of(_everything(args, named, kwargs), framework)
    args, named = _brought(adapter, args, framework), _brought(adapter, named, framework)
    leaves: list[Leaf] = []
    form_args = tuple(
        taken(one, adapter.owns, label, leaves)
        for one, label in zip(args, labels[: len(args)], strict=True)
    )
    form_named = {
        key: taken(one, adapter.owns, label, leaves)
        for (key, one), label in zip(named.items(), labels[len(args) :], strict=True)
    }
    leaves = _renamed(leaves, rename)
    chosen = _chosen(leaves, adapter, wrt, labels)
    # What kwargs hold is bound, whatever it is.
    form_named |= {
        key: taken(one, adapter.owns, key, leaves)
        for key, one in _brought(adapter, dict(kwargs or {}), framework).items()
    }
    call = Call(fn, (form_args, form_named), leaves, chosen, adapter)
    problem = OpenedProblem(op=op or _name_of(fn), call=call, adapter=adapter, backward=backward)
    problem.excluded = _excluded(leaves, chosen, adapter)
    _look(problem, output_names)
    return problem


def _look(problem: OpenedProblem, output_names: Sequence[str] | None) -> None:
    """The first runs: what goes in and out, and whether it can be done in double precision."""
    adapter, call = problem.adapter, problem.call
    given = [call.leaves[index] for index in call.chosen]
    problem.inputs = tuple(_slot(adapter, leaf.name, leaf.value) for leaf in given)
    with adapter.scope():
        problem.point = tuple(_read_only(adapter.to_numpy(leaf.value)) for leaf in given)
        known = given or call.leaves
        problem.device = adapter.device_of(known[0].value) if known else "cpu"
        native = all(slot.dtype in {"float64", "complex128"} for slot in problem.inputs)
        found = [] if native else _first_run(problem, None)
        try:
            wide = _first_run(problem, "float64")
        except Exception as error:  # kernels refuse a dtype with any error there is
            if native:
                raise
            problem.double = False
            wide = found
            problem.notes += (f"no double precision: {type(error).__name__}: {_first_line(error)}",)
    found = found or wide
    call.outputs = tuple(n for n, leaf in enumerate(wide) if is_float(adapter.dtype_of(leaf.value)))
    labels = _output_names(found, call.outputs, output_names)
    problem.outputs = tuple(_slot(adapter, labels[n], found[n].value) for n in call.outputs)
    problem.excluded += tuple(
        Excluded(name=labels[n], why=f"{adapter.dtype_of(leaf.value)} has no gradient")
        for n, leaf in enumerate(wide)
        if n not in call.outputs
    )


def _first_run(problem: OpenedProblem, precision: str | None) -> list[Leaf]:
    """Everything that came out, with names."""
    adapter, call = problem.adapter, problem.call
    problem.double = precision is not None
    inputs = problem.natives(problem.point, None)
    found: list[Leaf] = []

    def run(given: Sequence[Any]) -> tuple[Any, ...]:
        args, kwargs = call.arguments(given, precision)
        found.extend(call.results(call.fn(*args, **kwargs)))
        return tuple(leaf.value for leaf in found)

    problem.forwards += 1
    with adapter.seeded(SEED, problem.device) as drew:
        adapter.forward(run, inputs)
        if drew() and call.random_on is None:
            call.random_on = problem.device
            problem.notes += ("random numbers are drawn; each run starts from the same seed",)
    return found


def _read_only(array: Array) -> Array:
    # What was computed at the point is kept by who it is.
    array.flags.writeable = False
    return array


def _slot(adapter: Adapter, name: str, value: Any) -> Slot:
    dtype = adapter.dtype_of(value)
    return Slot(name=name, shape=adapter.shape_of(value), dtype=dtype, complex=is_complex(dtype))


def _arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, list | tuple):
        return tuple(inputs), {}
    return (inputs,), {}


def _everything(*parts: Any) -> list[object]:
    found: list[Leaf] = []
    taken(list(parts), lambda value: not isinstance(value, list | tuple | dict), "", found)
    return [leaf.value for leaf in found]


def _brought(adapter: Adapter, value: Any, framework: str | None) -> Any:
    """Numpy arrays become tensors where the user named the framework; else they stay what they are."""
    if framework is None or adapter.name == "numpy":
        return value
    found: list[Leaf] = []
    form = taken(value, lambda one: isinstance(one, np.ndarray | np.generic), "", found)
    return filled(form, [_as_tensor(adapter, np.asarray(leaf.value)) for leaf in found])


def _as_tensor(adapter: Adapter, array: Array) -> Any:
    name = str(array.dtype.name)
    wide = array.astype(np.float64) if is_float(name) and not is_complex(name) else array
    with adapter.scope():
        return adapter.from_numpy(wide, name, None)


def _labels(
    fn: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
    names: Sequence[str] | None,
) -> tuple[list[str], Sequence[str] | None]:
    """A name per argument; names that are meant for the tensors inside them are given back."""
    count = len(args) + len(named)
    if names is not None and len(names) == count:
        return list(names), None
    return [*_parameters(fn, len(args)), *named], names


def _parameters(fn: Callable[..., Any], count: int) -> list[str]:
    """The function's own names for its first arguments."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return [f"x{n}" for n in range(count)]
    found: list[str] = []
    for one in parameters:
        if one.kind is one.VAR_POSITIONAL:
            found += [f"{one.name}.{n}" for n in range(count - len(found))]
        elif one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}:
            found.append(one.name)
    return found[:count] if len(found) >= count else [f"x{n}" for n in range(count)]


def _renamed(leaves: list[Leaf], names: Sequence[str] | None) -> list[Leaf]:
    if names is None:
        _refuse_twice([leaf.name for leaf in leaves])
        return leaves
    if len(names) != len(leaves):
        raise UsageError(
            f"gradcheck: expected a name for each of {len(leaves)} tensors, found {len(names)} names",
            next_command="names=(…) with as many names as the function has arguments",
        )
    _refuse_twice(names)
    return [Leaf(name, leaf.value) for name, leaf in zip(names, leaves, strict=True)]


def _refuse_twice(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise UsageError(
            f"gradcheck: expected names that differ, found {twice[0]!r} twice",
            next_command="names=(…) with a name of its own for every input",
        )


def _chosen(
    leaves: Sequence[Leaf],
    adapter: Adapter,
    wrt: Sequence[str | int] | str | int | None,
    labels: Sequence[str],
) -> list[int]:
    floats = [n for n, leaf in enumerate(leaves) if is_float(adapter.dtype_of(leaf.value))]
    if wrt is None:
        return floats
    wanted = [wrt] if isinstance(wrt, str | int) else list(wrt)
    found: list[int] = []
    for one in wanted:
        name = labels[one] if isinstance(one, int) and -len(labels) <= one < len(labels) else one
        under = [
            n
            for n, leaf in enumerate(leaves)
            if leaf.name == name or leaf.name.startswith(f"{name}.")
        ]
        _refuse_unknown(name, under, leaves, adapter)
        found += under
    return sorted(set(found) & set(floats))


def _refuse_unknown(
    name: str | int, under: list[int], leaves: Sequence[Leaf], adapter: Adapter
) -> None:
    known = [leaf.name for leaf in leaves]
    if not under:
        raise UsageError(
            f"gradcheck: wrt: expected an input out of {', '.join(known)}, found {name!r}{suggest(str(name), known)}",
            next_command=f"wrt=({known[0]!r},)" if known else "pass a tensor",
        )
    dtypes = [adapter.dtype_of(leaves[n].value) for n in under]
    if not any(is_float(dtype) for dtype in dtypes):
        raise UsageError(
            f"gradcheck: wrt: expected a floating or complex input, found {name!r}, which is {dtypes[0]}",
            next_command="leave wrt out: integers and booleans have no gradient to check",
        )


def _excluded(
    leaves: Sequence[Leaf], chosen: Sequence[int], adapter: Adapter
) -> tuple[Excluded, ...]:
    found = []
    for n, leaf in enumerate(leaves):
        if n in chosen:
            continue
        dtype = adapter.dtype_of(leaf.value)
        why = "not asked for" if is_float(dtype) else f"{dtype} has no gradient"
        found.append(Excluded(name=leaf.name, why=why))
    return tuple(found)


def _output_names(
    found: Sequence[Leaf], floats: Sequence[int], given: Sequence[str] | None
) -> list[str]:
    """Names of all tensors that come out; `out` if there is one."""
    if given is not None:
        if len(given) == len(found):
            return list(given)
        if len(given) == len(floats):
            return [
                given[list(floats).index(n)] if n in floats else f"out.{leaf.name}"
                for n, leaf in enumerate(found)
            ]
        raise UsageError(
            f"gradcheck: expected a name for each of {len(found)} outputs, found {len(given)} names",
            next_command="output_names=(…) with a name per output",
        )
    return [_output_name(leaf.name) for leaf in found]


def _output_name(path: str) -> str:
    """`out`, `out.0`, or the key under which a dict has it."""
    if not path:
        return "out"
    return f"out.{path}" if path[0].isdigit() else path


def _name_of(fn: Callable[..., Any]) -> str:
    inner = getattr(fn, "func", fn)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""
