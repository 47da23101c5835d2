"""References: the same function in float64, written in the framework or in numpy, in whose place it is believed.

A kernel that knows no double precision is held against its reference as low precision is against the double run. A
reference of the framework's has a gradient of its own, which is checked first; one in numpy has its whole Jacobian
stepped through, as long as that is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from karat.findings import UsageError
from karat.gradients.adapters.calls import BoundCall, Leaf, flatten, takes_positional_only, unflatten
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.problem import Array, Arrays, Gradients, Problem, Unsupported, error_line, shaped, size, vector
from karat.gradients.roundoff import element_scales

# ruff: noqa: ARG002 - a reference in numpy uses little of what it is asked

_MOST = 2**22  # numbers in a Jacobian
_STEP = 2.0**-10


def open_reference(problem: FrameworkProblem, reference: Callable[..., Any]) -> Problem:
    """The reference at the problem's point: as the framework's function if it is one, else as numpy's."""
    call, adapter = problem.call, problem.adapter
    bound = BoundCall(_by_order(reference, call), call.form, call.leaves, call.chosen, adapter, call.outputs)
    made = FrameworkProblem(op=problem.op, call=bound, adapter=adapter)
    made.inputs, made.outputs, made.point, made.device = problem.inputs, problem.outputs, problem.point, problem.device
    refused = f"returns no gradient in {adapter.name}"
    if adapter.name != "numpy":
        try:
            with adapter.scope():
                args, kwargs = bound.arguments(made.natives(made.point, None), "float64")
                found = bound.results(bound.fn(*args, **kwargs))
                if len(found) == len(problem.outputs):
                    bound.outputs = tuple(range(len(found)))
            outputs = made.forward(made.point)
            gradients = made.vjp(made.point, [np.ones(one.shape) for one in outputs])
            fits = [one.shape for one in outputs] == [slot.shape for slot in problem.outputs]
            if fits and any(one is not None for one in gradients):
                return made
        except Exception as error:  # noqa: BLE001 - a function of numpy's refuses tensors in many ways
            refused = error_line(error)
    own = NumpyReference(problem, reference)
    try:
        own.forward(own.point)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"reference: expected a function of {adapter.name} tensors or numpy arrays in float64; the one {refused},"
            f" the other {error_line(error)}",
            next_command="reference=f with f(*inputs) in float64, which returns what the function returns",
        ) from error
    return own


def _by_order(reference: Callable[..., Any], call: BoundCall) -> Callable[..., Any]:
    args, kwargs = call.form
    if kwargs and takes_positional_only(reference, len(args) + len(kwargs)):
        return lambda *given, **named: reference(*given, *named.values())
    return reference


class NumpyReference:
    """A function of float64 arrays as a `Problem` in double precision; its gradients are slopes, stepped one by one."""

    def __init__(self, problem: FrameworkProblem, reference: Callable[..., Any]) -> None:
        self._problem, self._reference = problem, _by_order(reference, problem.call)
        self.op, self.framework, self.device, self.computes = problem.op, "numpy", "cpu", "float64"
        self.inputs, self.outputs, self.point = problem.inputs, problem.outputs, problem.point
        self.forwards = self.backwards = 0
        self._jacobians: dict[bytes, list[Array]] = {}
        # Tensors that are not differentiated are numpy arrays of their own dtype.
        self._leaves: list[Array] = []
        for leaf in problem.call.leaves:
            array, dtype = problem.adapter.to_numpy(leaf.value), problem.adapter.dtype_of(leaf.value)
            self._leaves.append(array.astype(dtype) if dtype.startswith(("int", "uint", "bool")) else array)

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """What the reference returns, without what has no gradient."""
        self.forwards += 1
        found = []
        for one, slot in zip(self._run(at), self.outputs, strict=True):
            if one.shape != slot.shape:
                raise _malformed(f"shape {slot.shape} for {slot.name}, found {one.shape}")
            found.append(one.astype(np.complex128 if slot.complex else np.float64))
        return tuple(found)

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        return tuple(self._run(at))

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        raise Unsupported("a reference in numpy has no forward mode")

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        key = b"".join(one.tobytes() for one in at)
        if key not in self._jacobians:
            self._jacobians[key] = [self._jacobian(at, i) for i in range(len(self.inputs))]
        pairs = zip(cotangents, self.outputs, strict=True)
        filled = [
            np.zeros(slot.shape, np.complex128 if slot.complex else None) if one is None else one for one, slot in pairs
        ]
        whole = np.concatenate([vector(one) for one in filled])
        return tuple(shaped(one @ whole, slot) for one, slot in zip(self._jacobians[key], self.inputs, strict=True))

    def _jacobian(self, at: Arrays, i: int) -> Array:
        """Input element × output element, by central differences."""
        point, slot = vector(at[i]), self.inputs[i]
        scales, outputs = element_scales(point), sum(size(one) for one in self.outputs)
        if point.size * outputs > _MOST:
            raise Unsupported(
                f"the Jacobian of a numpy reference of {point.size:,} elements by {outputs:,} is too large to step"
                f" through; pass a {self._problem.framework} function as reference=, or smaller inputs"
            )

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

    def _run(self, at: Arrays) -> list[Array]:
        call, leaves = self._problem.call, list(self._leaves)
        for index, one in zip(call.chosen, at, strict=True):
            leaves[index] = one
        args, kwargs = (unflatten(one, leaves) for one in call.form)
        found: list[Leaf] = []
        numbers = np.ndarray | np.generic | float | int | complex
        flatten(self._reference(*args, **kwargs), lambda one: isinstance(one, numbers), "", found)
        arrays = [np.asarray(one.value) for one in found]
        if len(arrays) == len(self.outputs):
            return arrays
        chosen = call.outputs or ()
        if max(chosen, default=-1) >= len(arrays):
            raise _malformed(f"{len(self.outputs)} outputs, found {len(arrays)}")
        return [arrays[index] for index in chosen]


def _malformed(what: str) -> UsageError:
    return UsageError(
        f"reference: expected {what}",
        next_command="return from the reference what the function returns, as float64 arrays",
    )


class KernelProblem:
    """A kernel and its reference as one `Problem`: in double precision the reference, in a lower one the kernel."""

    def __init__(self, kernel: FrameworkProblem, reference: Problem) -> None:
        self.kernel, self.reference = kernel, reference
        self.op, self.framework, self.device, self.computes = kernel.op, kernel.framework, kernel.device, "float64"
        self.inputs, self.outputs, self.point = kernel.inputs, kernel.outputs, kernel.point

    @property
    def forwards(self) -> int:
        return self.kernel.forwards

    @property
    def backwards(self) -> int:
        return self.kernel.backwards

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        return self.reference.forward(at) if dtype is None else self.kernel.forward(at, dtype=self._run_as(dtype))

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        if dtype is None:
            return self.reference.vjp(at, cotangents)
        return self.kernel.vjp(at, cotangents, dtype=self._run_as(dtype))

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        return self.kernel.jvp(at, tangents, dtype=dtype)

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        return self.reference.forward_complex(at)

    def _run_as(self, dtype: str) -> str | None:
        """As given, where that is what the kernel computes in anyway."""
        return None if dtype == self.kernel.computes else dtype
