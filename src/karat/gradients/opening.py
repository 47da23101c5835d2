"""Opening: any function of any framework becomes a `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import naming
from karat.gradients.adapter import Adapter, adapter_of
from karat.gradients.calls import SEED, Call, is_complex, is_float
from karat.gradients.nesting import Leaf, filled, taken
from karat.gradients.opened import OpenedProblem
from karat.gradients.problem import Slot
from karat.gradients.report import Excluded
from karat.gradients.wording import said
from karat.gradients.written import Backward

if TYPE_CHECKING:
    from karat.gradients.problem import Array

_NAMED = 6
"""Parameters that a note names."""
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

    `inputs` are its arguments: a tuple or list, a dict by keyword (by order, where a function takes no
    keywords), or one tensor. They may be nested, and hold what is no tensor. `names` default to the function's own
    parameters; a tensor in a list goes by `xs.0`. `wrt` says which are checked, by name or by position; by default
    every floating or complex tensor.
    """
    _refuse_uncallable({"fn": fn, "backward": backward or fn})
    if not isinstance(kwargs or {}, Mapping):
        raise UsageError(
            f"gradcheck: kwargs: expected arguments by name, found {type(kwargs).__name__}",
            next_command="kwargs={'axis': 1}",
        )
    if isinstance(inputs, Mapping) and naming.goes_by_order(fn, len(inputs)):
        names, inputs = list(inputs) if names is None else names, tuple(inputs.values())
    args, named = _arguments(inputs)
    labels, rename = naming.labels(fn, args, named, names)
    adapter = adapter_of(_everything(args, named, kwargs or {}), framework)
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
    leaves = naming.renamed(leaves, rename)
    chosen = _chosen(leaves, adapter, wrt, labels)
    _refuse_unreadable([leaves[index] for index in chosen], adapter)
    # What kwargs hold is bound, whatever it is.
    form_named |= {
        key: taken(one, adapter.owns, key, leaves)
        for key, one in _brought(adapter, dict(kwargs or {}), framework).items()
    }
    call = Call(fn, (form_args, form_named), leaves, chosen, adapter)
    problem = OpenedProblem(
        op=op or naming.name_of(fn), call=call, adapter=adapter, backward=backward
    )
    problem.excluded = _excluded(leaves, chosen, adapter)
    problem.notes = _held(adapter.parameters(fn))
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
        found, wide = _both_runs(problem)
    if not wide:
        problem.notes += (f"there is no tensor of {adapter.name} in what the function returns",)
    call.outputs = tuple(n for n, leaf in enumerate(wide) if is_float(adapter.dtype_of(leaf.value)))
    labels = naming.output_names(found, call.outputs, output_names)
    problem.outputs = tuple(_slot(adapter, labels[n], found[n].value) for n in call.outputs)
    problem.excluded += tuple(
        Excluded(name=labels[n], why=f"{adapter.dtype_of(leaf.value)} has no gradient")
        for n, leaf in enumerate(wide)
        if n not in call.outputs
    )


def _both_runs(problem: OpenedProblem) -> tuple[list[Leaf], list[Leaf]]:
    """What comes out as given, and in double precision; one of the two may be all there is."""
    if all(slot.dtype in {"float64", "complex128"} for slot in problem.inputs):
        wide = _first_run(problem, "float64")
        return wide, wide
    # Kernels refuse a dtype with any error there is.
    found: list[Leaf] | None = None
    refused: Exception | None = None
    try:
        found = _first_run(problem, None)
    except Exception as error:  # noqa: BLE001
        refused = error
    try:
        wide = _first_run(problem, "float64")
    except Exception as error:
        if found is None:
            raise refused or error from error
        problem.double = False
        problem.notes += (f"no double precision: {said(error)}",)
        return found, found
    if refused is not None:
        problem.notes += (f"not as given: {said(refused)}",)
    return wide if found is None else found, wide


def _first_run(problem: OpenedProblem, precision: str | None) -> list[Leaf]:
    """Everything that came out, with names."""
    adapter, call = problem.adapter, problem.call
    problem.double = precision is not None
    inputs = problem.natives(problem.point, None)
    found: list[Leaf] = []

    def run(given: Sequence[Any]) -> tuple[Any, ...]:
        args, kwargs = call.arguments(given, precision)
        found.extend(call.results(call.function(precision)(*args, **kwargs)))
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


def _chosen(
    leaves: Sequence[Leaf],
    adapter: Adapter,
    wrt: Sequence[str | int] | str | int | None,
    labels: Sequence[str],
) -> list[int]:
    floats = [n for n, leaf in enumerate(leaves) if is_float(adapter.dtype_of(leaf.value))]
    if wrt is None:
        return floats
    wanted: list[Any] = list(wrt) if isinstance(wrt, list | tuple | set | frozenset) else [wrt]
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


def _held(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"parameters that the function holds are no inputs, and were not looked at: {', '.join(names[:_NAMED])}{more}",
    )


def _refuse_uncallable(functions: Mapping[str, object]) -> None:
    for name, one in functions.items():
        if not callable(one):
            raise UsageError(
                f"gradcheck: {name}: expected a function, found {type(one).__name__}",
                next_command="gradcheck(fn, (x, y)), the function first",
            )


def _refuse_unreadable(leaves: Sequence[Leaf], adapter: Adapter) -> None:
    for leaf in leaves:
        found = adapter.refusal(leaf.value)
        if found:
            raise UsageError(
                f"gradcheck: {leaf.name}: expected a dense tensor to step from, found {found}",
                next_command="wrap it: a function of dense tensors that makes it inside",
            )
