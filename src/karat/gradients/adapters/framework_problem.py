"""`open_problem`: any function of any framework becomes a problem: numpy arrays in and out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from karat.findings import suggest
from karat.gradients.adapters import Adapter, FlatFunction, Linearised, adapter_of, calls
from karat.gradients.adapters.calls import (
    Backward,
    BoundCall,
    Leaf,
    LeafPlace,
    flatten,
    is_complex,
    is_float,
    unflatten,
)
from karat.gradients.problem import (
    Array,
    Arrays,
    FlatProblem,
    Gradients,
    MalformedGradient,
    TensorSlot,
    error_line,
    misuse,
)
from karat.gradients.report import Excluded
from karat.gradients.roundoff import AUTOCAST, coarseness, effective_precision
from karat.report.words import few

Inputs = Sequence[Any] | Mapping[str, Any] | Any
_MANY = 2**21


class FrameworkProblem:
    """A function at a point; `open_problem` makes them.

    Arrays are float64 or complex128 on this side, whatever the framework computes in. `dtype=None` computes in double
    precision; a name computes in that precision, and the result is widened exactly. Arrays given are never modified,
    arrays returned belong to the caller. `inputs` are the differentiable ones alone; all others are bound inside.
    """

    def __init__(self, *, op: str, call: BoundCall, adapter: Adapter, backward: Backward | None = None) -> None:
        self.op, self.call, self.backward = op, call, backward
        self.adapter, self.framework, self.device = adapter, adapter.name, "cpu"
        self.inputs: tuple[TensorSlot, ...] = ()
        self.outputs: tuple[TensorSlot, ...] = ()
        self.point: tuple[Array, ...] = ()
        self.excluded: tuple[Excluded, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.double = True  # whether the function runs in double precision; if not, `dtype=None` runs as given
        self.forwards = self.backwards = 0
        self.likes: tuple[Any, ...] = tuple(call.leaves[index].value for index in call.chosen)
        self.looked: list[tuple[str, Array]] = []  # the outputs of the first run in double precision, and their dtypes
        self._ran: dict[str | None, Linearised] = {}

    @cached_property
    def computes(self) -> str:
        """The precision in which a double-precision run really computes: float32 for a kernel that knows no other."""
        return effective_precision(self)

    @cached_property
    def here(self) -> FlatProblem:
        """It at its own point; what is known of that is known once."""
        return FlatProblem(self)

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        with self.adapter.scope():
            return tuple([self.adapter.to_numpy(out) for out in self.run(self.natives(at, dtype), dtype)])

    def glimpses(self, points: Iterable[Arrays], *, lent: bool = False) -> Iterator[Sequence[Array]]:
        """As `forward` at each, to be used before the function runs again: maybe in the framework's memory; none if refused.

        Points that are lent may be written to.
        """
        adapter, flat = self.adapter, self.flat(None)
        with adapter.scope():
            for at in points:
                self.forwards += 1
                found: Sequence[Array] = ()
                with suppress(Exception):
                    inputs = list(map(adapter.lent, at)) if lent else self.natives(at, None)
                    found = [adapter.glance(out) for out in adapter.forward(flat, inputs)]
                yield found

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        """Jᵀv: a gradient per input; None where the framework gives none. A None cotangent is left out.

        For complex inputs: the convention ∂/∂Re + i·∂/∂Im of Re⟨v, f⟩ (torch's), whatever the framework's own is.
        """
        with self.adapter.scope():
            # At the problem's own point once for all, where nothing can keep state.
            reused = self.adapter.pure and self.backward is None
            if not reused or any(one is not own for one, own in zip(at, self.point, strict=True)):
                ran = self.linearise(self.natives(at, dtype), dtype=dtype)
            else:
                if dtype not in self._ran:
                    self._ran[dtype] = self.linearise(self.natives(at, dtype), dtype=dtype)
                ran = self._ran[dtype]
            return self.gradients(ran, cotangents)

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        with self.adapter.scope():
            inputs, along = self.natives(at, dtype), self.natives(tangents, dtype)
            found = self.adapter.pushforward(self.flat(dtype), inputs, along)
            self.forwards += 1
            return tuple(self.adapter.to_numpy(one) for one in found)

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        # Frameworks warn where a function drops the imaginary part; the caller looks for that.
        with self.adapter.scope(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dtypes = ["complex128" if np.iscomplexobj(one) else "float64" for one in at]
            inputs = [self.adapter.from_numpy(*each) for each in zip(at, dtypes, self.likes, strict=True)]
            return tuple(self.adapter.glance(out) for out in self.run(inputs, None))

    # What follows is the framework's side; `laws` look at it, the mathematics does not.

    def flat(self, dtype: str | None) -> FlatFunction:
        run = self.call.flat(self.precision(dtype))
        if dtype is None or not dtype.startswith(AUTOCAST):
            return run

        def autocast(inputs: Sequence[Any]) -> tuple[Any, ...]:
            with self.adapter.autocast(dtype.removeprefix(AUTOCAST), self.device):
                return run(inputs)

        return autocast

    def precision(self, dtype: str | None) -> str | None:
        """What bound tensors are cast to: None for as given."""
        if dtype is not None and dtype.startswith(AUTOCAST):
            return "float32"
        if dtype is None:
            return "float64" if self.double else None
        mixed = len({slot.dtype for slot in self.inputs if not slot.complex}) > 1
        return None if dtype == self.lowest and mixed else dtype

    @property
    def lowest(self) -> str:
        """The lowest precision that an input was given in; a run of that name is one as given."""
        return max((slot.dtype for slot in self.inputs), key=coarseness, default="float64")

    def natives(self, at: Arrays, dtype: str | None) -> list[Any]:
        """Arrays as tensors of the framework, in memory of their own."""
        precision, own = self.precision(dtype), [slot.dtype for slot in self.inputs]
        found = own if precision is None else [calls.of_precision(precision, one) for one in own]
        return [self.adapter.from_numpy(*each) for each in zip(at, found, self.likes, strict=True)]

    def run(self, inputs: Sequence[Any], dtype: str | None) -> tuple[Any, ...]:
        self.forwards += 1
        return self.adapter.forward(self.flat(dtype), inputs)

    def linearise(
        self,
        inputs: Sequence[Any],
        *,
        dtype: str | None = None,
        wanted: Sequence[bool] | None = None,
        flat: FlatFunction | None = None,
    ) -> Linearised:
        """The function at tensors, to be asked for gradients."""
        wanted = [True] * len(inputs) if wanted is None else wanted
        self.forwards += 1
        if self.backward is not None and flat is None:
            return calls.linearise_written(self.call, self.backward, inputs, wanted, self.precision(dtype))
        return self.adapter.linearise(flat or self.flat(dtype), inputs, wanted)

    def native_cotangents(self, outputs: Sequence[Any], cotangents: Gradients) -> list[Any | None]:
        """Cotangents as tensors like the outputs; real for a real one, where an imaginary part has no meaning."""
        found: list[Any | None] = []
        for one, out in zip(cotangents, outputs, strict=True):
            dtype = self.adapter.dtype_of(out)
            array = one if one is None or dtype.startswith("complex") else one.real
            found.append(None if array is None else self.adapter.from_numpy(array, dtype, out))
        return found

    def pull(self, ran: Linearised, cotangents: Sequence[Any | None]) -> tuple[Any | None, ...]:
        self.backwards += 1
        return ran.pullback(cotangents)

    def gradients(self, ran: Linearised, cotangents: Gradients) -> tuple[Array | None, ...]:
        return self.arrays(self.pull(ran, self.native_cotangents(ran.outputs, cotangents)))

    def arrays(
        self, gradients: Sequence[Any | None], slots: Sequence[TensorSlot] | None = None
    ) -> tuple[Array | None, ...]:
        pairs = zip(gradients, slots or self.inputs, strict=True)
        return tuple(None if one is None else self._array(one, slot) for one, slot in pairs)

    def _array(self, gradient: Any, slot: TensorSlot) -> Array:
        if self.adapter.owns(gradient):
            found = self.adapter.to_numpy(gradient)
        else:
            # What a written backward gave, if it is numbers.
            found = np.asarray(gradient)
            if found.dtype.kind not in "fciub":
                kind = type(gradient).__name__
                raise MalformedGradient(f"gradient of {slot.name}: expected an array of numbers, found {kind}")
            found = found.astype(np.complex128 if found.dtype.kind == "c" else np.float64)
        if found.shape != slot.shape:
            raise MalformedGradient(_of_another_shape(slot, found))
        if np.iscomplexobj(found) and not slot.complex:
            real = "expected real numbers, as the input has, found complex ones"
            raise MalformedGradient(f"gradient of {slot.name}: {real}")
        return found


def _of_another_shape(slot: TensorSlot, found: Array) -> str:
    text = f"gradient of {slot.name}: expected shape {slot.shape}, found {found.shape}"
    extra = found.ndim - len(slot.shape)
    if extra > 0 and found.shape[extra:] == slot.shape and set(found.shape[:extra]) == {1}:
        return f"{text}; it has an axis of length 1 too many, and wants a reshape"
    if extra > 0 and found.shape[extra:] == slot.shape:
        return f"{text}; the sum over the leading axes, which were broadcast, is missing"
    if extra == 0 and all(want in {have, 1} for have, want in zip(found.shape, slot.shape, strict=True)):
        return f"{text}; the sum over the axes of length 1, which were broadcast, is missing"
    if found.shape == slot.shape[::-1]:
        return f"{text}; it is transposed"
    return text


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
    parameters: bool = True,
    framework: str | None = None,
) -> FrameworkProblem:
    """The function at the given inputs, as a problem.

    `inputs` are its arguments: a tuple or list, a dict by keyword (by order, where a function takes no
    keywords), or one tensor. They may be nested, and hold values that are not tensors. `names` default to the function's own
    parameters; a tensor in a list goes by `xs.0`. What a module learns goes in as well, unless `parameters` is false. `wrt`
    says which are checked, by name or by position; by default every floating or complex tensor.
    """
    for name, one in {"fn": fn, "backward": backward or fn}.items():
        if not callable(one):
            raise misuse(
                f"{name}: expected a function, found {type(one).__name__}", "gradcheck(fn, (x, y)), the function first"
            )
    if not isinstance(kwargs or {}, Mapping):
        raise misuse(f"kwargs: expected arguments by name, found {type(kwargs).__name__}", "kwargs={'axis': 1}")
    if isinstance(inputs, Mapping) and calls.takes_positional_only(fn, len(inputs)):
        names, inputs = list(inputs) if names is None else names, tuple(inputs.values())
    args: tuple[Any, ...] = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    named: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        args, named = (), dict(inputs)
    labels = calls.argument_names(fn, args, named, names)
    values: list[Leaf] = []
    flatten([args, named, kwargs or {}], lambda value: not isinstance(value, list | tuple | dict), "", values)
    adapter = adapter_of([leaf.value for leaf in values], framework)
    args, named = _brought(adapter, args, framework), _brought(adapter, named, framework)
    leaves: list[Leaf] = []
    by_order = zip(args, labels[: len(args)], strict=True)
    form_args = tuple(flatten(one, adapter.owns, label, leaves) for one, label in by_order)
    form_named = {
        key: flatten(one, adapter.owns, label, leaves)
        for (key, one), label in zip(named.items(), labels[len(args) :], strict=True)
    }
    calls.refuse_twice([leaf.name for leaf in leaves], "names", "input")
    held = adapter.parameters(fn)
    holds = bool(held) and parameters and backward is None
    if holds:
        taken, first = {leaf.name for leaf in leaves}, len(leaves)
        given = {dtype for dtype in (adapter.dtype_of(leaf.value) for leaf in leaves) if is_float(dtype)}
        if given <= {"float64", "complex128"}:
            # As the module itself would be, in a run in double precision; there is no other.
            held = {
                name: adapter.cast(one, calls.of_precision("float64", adapter.dtype_of(one)))
                for name, one in held.items()
            }
        leaves += [Leaf(f"self.{name}" if name in taken else name, one) for name, one in held.items()]
        form_args = (*form_args, {name: LeafPlace(first + n) for n, name in enumerate(held)})
    chosen = _chosen(leaves, adapter, wrt, labels)
    sparse = []
    for index in chosen:
        if (stored := adapter.stored(leaves[index].value)) is not None:
            sparse.append(leaves[index].name)
            leaves[index] = Leaf(leaves[index].name, *stored)
        leaf = leaves[index]
        if found := adapter.refusal(leaf.value):
            instead = "wrap it: a function of dense tensors that makes it inside"
            raise misuse(f"{leaf.name}: expected a dense tensor to step from, found {found}", instead)
    # Everything in kwargs is bound.
    form_named |= {
        key: flatten(one, adapter.owns, key, leaves)
        for key, one in _brought(adapter, dict(kwargs or {}), framework).items()
    }
    call = BoundCall(fn, (form_args, form_named), leaves, chosen, adapter, holds=holds)
    problem = FrameworkProblem(op=op or calls.function_name(fn), call=call, adapter=adapter, backward=backward)
    left = [(leaf.name, adapter.dtype_of(leaf.value)) for n, leaf in enumerate(leaves) if n not in chosen]
    why = {dtype: "not asked for" if is_float(dtype) else f"{dtype} has no gradient" for _, dtype in left}
    problem.excluded = tuple(Excluded(name=name, why=why[dtype]) for name, dtype in left)
    if held and not holds:
        problem.notes = (
            f"parameters that the function holds are not inputs and were not checked: {few(list(held), 6)}",
        )
    if sparse:
        problem.notes += (f"sparse: the gradient is that of the stored values of {few(sparse, 6)}",)
    _look(problem, output_names)
    return problem


def with_leaves(problem: FrameworkProblem, values: Sequence[Any]) -> FrameworkProblem:
    """The same function at other tensors, of other shapes maybe."""
    call = problem.call
    leaves = [Leaf(leaf.name, value) for leaf, value in zip(call.leaves, values, strict=True)]
    other = BoundCall(call.fn, call.form, leaves, call.chosen, call.adapter, holds=call.holds)
    made = FrameworkProblem(op=problem.op, call=other, adapter=call.adapter, backward=problem.backward)
    _look(made, None)
    return made


def _look(problem: FrameworkProblem, output_names: Sequence[str] | None) -> None:
    """The first runs: what goes in and out, and whether it can be done in double precision."""
    adapter, call = problem.adapter, problem.call
    given = [call.leaves[index] for index in call.chosen]
    problem.inputs = tuple(_slot(adapter, leaf.name, leaf.value) for leaf in given)
    with adapter.scope():
        # Nothing writes to the tensors that were given: functions get copies. Of very many numbers they are the point.
        look = [adapter.glance if math.prod(slot.shape) >= _MANY else adapter.to_numpy for slot in problem.inputs]
        problem.point = tuple(see(leaf.value) for see, leaf in zip(look, given, strict=True))
        for array in problem.point:
            # What was computed at the point is cached by the identity of its arrays.
            array.setflags(write=False)
        known = given or call.leaves
        problem.device = adapter.device_of(known[0].value) if known else "cpu"
        # What comes out as given, and in double precision; one of the two may be all there is.
        found: list[Leaf] | None = None
        refused: Exception | None = None
        if not all(slot.dtype in {"float64", "complex128"} for slot in problem.inputs):
            try:
                found = _first_run(problem, None)
            except Exception as error:  # noqa: BLE001 - kernels refuse a dtype with any error there is
                refused = error
        try:
            wide = _first_run(problem, "float64")
        except Exception as error:
            if refused is not None:
                raise refused from error
            if found is None:
                raise
            problem.double, wide = False, found
            problem.notes += (f"cannot be run in double precision: {error_line(error)}",)
    if refused is not None:
        problem.notes += (f"cannot be run in the given precision: {error_line(refused)}",)
    found = wide if found is None else found
    if not wide:
        problem.notes += (f"the function returns no {adapter.name} tensor",)
    call.outputs = tuple(n for n, leaf in enumerate(wide) if is_float(adapter.dtype_of(leaf.value)))
    if problem.double:
        with adapter.scope():
            wanted = [wide[n].value for n in call.outputs]
            problem.looked = [(adapter.dtype_of(one), adapter.to_numpy(one)) for one in wanted]
    labels = calls.output_names(found, output_names)
    problem.outputs = tuple(_slot(adapter, labels[n], found[n].value) for n in call.outputs)
    left = [(labels[n], adapter.dtype_of(leaf.value)) for n, leaf in enumerate(wide) if n not in call.outputs]
    problem.excluded += tuple(Excluded(name=name, why=f"{dtype} has no gradient") for name, dtype in left)


def _first_run(problem: FrameworkProblem, precision: str | None) -> list[Leaf]:
    """Everything that came out, with names."""
    adapter, call = problem.adapter, problem.call
    problem.double = precision is not None
    inputs = problem.natives(problem.point, None)
    found: list[Leaf] = []

    def run(given: Sequence[Any]) -> tuple[Any, ...]:
        args, kwargs = call.arguments(given, precision)
        found.extend(call.results(call.invoke(args, kwargs, precision)))
        return tuple(leaf.value for leaf in found)

    problem.forwards += 1
    with adapter.seeded(calls.SEED, problem.device) as drew:
        adapter.forward(run, inputs)
        if drew() and call.random_on is None:
            call.random_on = problem.device
            problem.notes += ("the function draws random numbers; each run starts from the same seed",)
    return found


def _slot(adapter: Adapter, name: str, value: Any) -> TensorSlot:
    dtype = adapter.dtype_of(value)
    return TensorSlot(name=name, shape=adapter.shape_of(value), dtype=dtype, complex=is_complex(dtype))


def _brought(adapter: Adapter, value: Any, framework: str | None) -> Any:
    """Numpy arrays become tensors where the user named the framework; else they stay what they are."""
    if framework is None or adapter.name == "numpy":
        return value
    found: list[Leaf] = []
    form = flatten(value, lambda one: isinstance(one, np.ndarray | np.generic), "", found)
    tensors = []
    for leaf in found:
        array = np.asarray(leaf.value)
        name = str(array.dtype.name)
        wide = array.astype(np.float64) if is_float(name) and not is_complex(name) else array
        with adapter.scope():
            tensors.append(adapter.from_numpy(wide, name, None))
    return unflatten(form, tensors)


def _chosen(
    leaves: Sequence[Leaf], adapter: Adapter, wrt: Sequence[str | int] | str | int | None, labels: Sequence[str]
) -> list[int]:
    floats = [n for n, leaf in enumerate(leaves) if is_float(adapter.dtype_of(leaf.value))]
    if wrt is None:
        return floats
    wanted: list[Any] = list(wrt) if isinstance(wrt, list | tuple | set | frozenset) else [wrt]
    known = [leaf.name for leaf in leaves]
    found: set[int] = set()
    for one in wanted:
        name = labels[one] if isinstance(one, int) and -len(labels) <= one < len(labels) else one
        under = [n for n, own in enumerate(known) if own == name or own.startswith(f"{name}.")]
        if not under:
            said = f"wrt: expected an input out of {', '.join(known)}, found {name!r}{suggest(str(name), known)}"
            raise misuse(said, f"wrt=({known[0]!r},)" if known else "pass a tensor")
        if not set(under) & set(floats):
            dtype = adapter.dtype_of(leaves[under[0]].value)
            said = f"wrt: expected a floating or complex input, found {name!r}, which is {dtype}"
            raise misuse(said, "leave wrt out: integers and booleans have no gradient to check")
        found |= set(under)
    return sorted(found & set(floats))
