"""References: the same function in float64, written in the framework or in numpy, in whose place it is believed.

A kernel that knows no double precision is held against its reference as low precision is against the double run. A
reference of the framework's has a gradient of its own, which is checked first; one in numpy has its whole Jacobian
stepped through, as long as that is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from karat.findings import UsageError
from karat.gradients.adapters import Adapter, adapter_named
from karat.gradients.adapters.calls import BoundCall, Leaf, takes_positional_only
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.problem import Array, Arrays, Gradients, Unsupported, error_line, shaped, size, vector
from karat.gradients.roundoff import element_scales

# ruff: noqa: ARG002 - a reference in numpy uses little of what it is asked

_MOST = 2**22  # numbers in a Jacobian
_STEP = 2.0**-10


def open_reference(problem: FrameworkProblem, reference: Callable[..., Any]) -> FrameworkProblem:
    """The reference at the problem's point: as the framework's function if it is one, else as numpy's."""
    call, adapter, refused = problem.call, problem.adapter, "is not one of the framework"
    if adapter.name != "numpy":
        try:
            made = _opened(FrameworkProblem, problem, reference, call.leaves, adapter)
            if any(one is not None for one in made.vjp(made.point, [np.ones(slot.shape) for slot in made.outputs])):
                return made
            refused = f"returns no gradient in {adapter.name}"
        except Exception as error:  # noqa: BLE001 - a function of numpy's refuses tensors in many ways
            refused = error_line(error)
    # Tensors that are not differentiated are numpy arrays of their own dtype.
    leaves = []
    for leaf in call.leaves:
        array, dtype = adapter.to_numpy(leaf.value), adapter.dtype_of(leaf.value)
        leaves.append(Leaf(leaf.name, array.astype(dtype) if dtype.startswith(("int", "uint", "bool")) else array))
    try:
        return _opened(NumpyReference, problem, reference, leaves, adapter_named("numpy"))
    except UsageError:
        raise
    except Exception as error:
        expected = f"reference: expected a function of {adapter.name} tensors or numpy arrays in float64"
        instead = "reference=f with f(*inputs) in float64, which returns what the function returns"
        said = f"{expected}; the one {refused}, the other {error_line(error)}"
        raise UsageError(said, next_command=instead) from error


def _opened(
    kind: type[FrameworkProblem],
    problem: FrameworkProblem,
    reference: Callable[..., Any],
    leaves: Sequence[Leaf],
    adapter: Adapter,
) -> FrameworkProblem:
    """The reference as a problem of that kind, if it returns there what the function returns, or what of it has a gradient."""
    call = problem.call
    by_order = bool(call.form[1]) and takes_positional_only(reference, sum(map(len, call.form)))
    fn = (lambda *given, **named: reference(*given, *named.values())) if by_order else reference
    bound = BoundCall(fn, call.form, leaves, call.chosen, adapter, call.outputs)
    made = kind(op=problem.op, call=bound, adapter=adapter)
    made.inputs, made.outputs, made.point, made.device = problem.inputs, problem.outputs, problem.point, problem.device
    with adapter.scope():
        args, kwargs = bound.arguments(made.natives(made.point, None), "float64")
        found = bound.results(bound.invoke(args, kwargs, "float64"))
        if len(found) == len(problem.outputs):
            bound.outputs = tuple(range(len(found)))
        elif max(bound.outputs or (), default=-1) >= len(found):
            raise _malformed(f"{len(problem.outputs)} outputs, found {len(found)}")
        for one, slot in zip(bound.differentiable(found), problem.outputs, strict=True):
            if adapter.shape_of(one) != slot.shape:
                raise _malformed(f"shape {slot.shape} for {slot.name}, found {adapter.shape_of(one)}")
    return made


class NumpyReference(FrameworkProblem):
    """A function of float64 arrays as a problem in double precision; its gradients are slopes, stepped one by one."""

    def __init__(self, *, op: str, call: BoundCall, adapter: Adapter) -> None:
        super().__init__(op=op, call=call, adapter=adapter)
        self._jacobians: dict[bytes, list[Array]] = {}
        self.computes = "float64"

    def natives(self, at: Arrays, dtype: str | None) -> list[Any]:
        return list(at)

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        key = b"".join(one.tobytes() for one in at)
        if key not in self._jacobians:
            self._jacobians[key] = [self._jacobian(at, i) for i in range(len(self.inputs))]
        pairs = zip(cotangents, self.outputs, strict=True)
        whole = np.concatenate([np.zeros(size(slot)) if one is None else vector(one) for one, slot in pairs])
        return tuple(shaped(one @ whole, slot) for one, slot in zip(self._jacobians[key], self.inputs, strict=True))

    def _jacobian(self, at: Arrays, i: int) -> Array:
        """Input element × output element, by central differences."""
        point, slot = vector(at[i]), self.inputs[i]
        scales, outputs = element_scales(point), sum(size(one) for one in self.outputs)
        if point.size * outputs > _MOST:
            what = f"the Jacobian of a numpy reference of {point.size:,} elements by {outputs:,}"
            instead = "pass a function of the framework as reference=, or smaller inputs"
            raise Unsupported(f"{what} is too large to step through; {instead}")

        def moved(step: Array) -> Array:
            whole = [one if j != i else shaped(point + step, slot) for j, one in enumerate(at)]
            return np.concatenate([vector(one) for one in self.forward(whole)])

        def central(step: Array) -> Array:
            near, far = (moved(h * step) - moved(-h * step) for h in (_STEP, 2 * _STEP))
            return np.asarray((8 * near - far) / (12 * _STEP))

        found, dense = np.zeros((point.size, outputs)), scales * np.where(np.arange(point.size) % 3, 1.0, -0.75)
        for n in np.flatnonzero(scales).tolist():
            found[n] = central(scales * (np.arange(point.size) == n)) / scales[n]
        # Slopes of a smooth function add up.
        expected = central(dense)
        off, largest = (float(np.abs(one).max(initial=0.0)) for one in (dense @ found - expected, expected))
        if not off <= 1e-6 * largest:
            raise Unsupported("the reference in numpy is not smooth near the point")
        return found


def _malformed(what: str) -> UsageError:
    instead = "return from the reference what the function returns, as float64 arrays"
    return UsageError(f"reference: expected {what}", next_command=instead)


class KernelProblem(FrameworkProblem):
    """A kernel and its reference in one: in double precision the reference, in a lower one the kernel."""

    def __init__(self, kernel: FrameworkProblem, reference: FrameworkProblem) -> None:
        super().__init__(op=kernel.op, call=kernel.call, adapter=kernel.adapter)
        self.kernel, self.reference, self.computes = kernel, reference, "float64"
        self.inputs, self.outputs, self.point, self.device = kernel.inputs, kernel.outputs, kernel.point, kernel.device

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        return self.reference.forward(at) if dtype is None else self.kernel.forward(at, dtype=self._run_as(dtype))

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        if dtype is None:
            return self.reference.vjp(at, cotangents)
        return self.kernel.vjp(at, cotangents, dtype=self._run_as(dtype))

    def _run_as(self, dtype: str) -> str | None:
        """As given, where that is what the kernel computes in anyway."""
        return None if dtype == self.kernel.computes else dtype
