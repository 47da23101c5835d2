"""What an op test compares: outputs, gradients by `karat.gradcheck`, and gradients that nobody checked.

Comparing nothing is a failure. An op whose test left gradients unchecked is asked for them (`probe`), so that "has no
gradient" is a fact, not a claim.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.findings import UsageError, suggest
from karat.gradients import session
from karat.gradients.adapters import adapter_named
from karat.gradients.adapters.framework_problem import FrameworkProblem, open_problem
from karat.gradients.gradcheck import gradcheck
from karat.gradients.problem import Unsupported
from karat.gradients.report import GradReport
from karat.optests import frameworks
from karat.optests.subject import Array, Subject, members, read_array, read_setup, subject_at

# Below these nothing can be told in that precision: a few units in the last place, as Paddle has them.
_FLOORS = {"bfloat16": 1e-2, "float16": 1e-3}

__unittest = True  # as in `op_test`


class OutputTolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How far an output may be from what is expected: |found − expected| ≤ atol + rtol·|expected|."""

    atol: float
    rtol: float
    equal_nan: bool = False


def compare_outputs(subject: Subject, tolerance: OutputTolerance, left_out: Collection[str]) -> None:
    """AssertionError for an output that is not as expected, and if there is none to compare."""
    found = subject.outputs()
    # With `python_out_sig`, outputs that it does not name are not python_api's to give.
    given = subject.setup.out_names
    wanted = [
        member
        for slot in subject.setup.outputs
        if slot.name not in left_out
        and (given is None or slot.name in given or any(one.name in given for one in slot.members))
        for member in slot.members
        if member.name not in left_out
    ]
    if not wanted:
        raise AssertionError(
            f"{subject.setup.op}: check_output compared nothing: self.outputs names no output that python_api "
            f"gives ({', '.join(found) or 'none'}) and that is not left out"
        )
    dtypes = [one.dtype for one in members(subject.setup.inputs)]
    kinds = {one.array.dtype.kind for one in members(subject.setup.inputs)}
    for member in wanted:
        # Fractions no tighter than the precision allows; whole numbers are off by what the author says, or not.
        floor = max(_FLOORS.get(dtype, 0.0) for dtype in (member.dtype, *dtypes))
        limits = replace(tolerance, atol=max(tolerance.atol, floor), rtol=max(tolerance.rtol, floor))
        if kind_of_numbers(member.array) in {"integers", "booleans"}:
            limits = OutputTolerance(atol=tolerance.atol, rtol=0.0)
        if member.name not in found:
            raise AssertionError(
                f"{subject.setup.op}: expected the output {member.name!r}, found {', '.join(found) or 'none'}; "
                "set self.python_out_sig to the names of what python_api gives, or leave it out with no_check_set"
            )
        actual, expected = array_of(subject.setup.framework, found[member.name]), member.array
        if actual.dtype.kind in "iu" and set(kinds) <= set("iub") and np.array_equal(expected, np.rint(expected.real)):
            expected = expected.real.astype(actual.dtype)  # numpy made fractions of an op on integers: 3**2.0 is 9.0
        label = f"{subject.setup.op}: output {member.name!r} on {subject.device}"
        assert_close(label, actual, expected, limits, dtype=member.dtype)


def assert_close(
    label: str, found: Array, expected: Array, limits: OutputTolerance, *, dtype: str = "", like: str = "as expected"
) -> None:
    """AssertionError that says where the two differ most, and how much of them does."""
    if found.shape != expected.shape:
        raise AssertionError(f"{label}: expected the shape {expected.shape}, found {found.shape}")
    if kind_of_numbers(found) != kind_of_numbers(expected):
        raise AssertionError(
            f"{label}: expected {kind_of_numbers(expected)} ({dtype or expected.dtype}), "
            f"found {kind_of_numbers(found)} ({found.dtype})"
        )
    if limits.atol < 1 and found.dtype.kind in "biu":  # as whole numbers, since not all have a float
        close = np.asarray(found == expected)
    else:
        close = np.isclose(found, expected, rtol=limits.rtol, atol=limits.atol, equal_nan=limits.equal_nan)
    if close.all():
        return
    with np.errstate(invalid="ignore"):
        wide = np.result_type(found, expected, np.float64)
        error = np.abs(found.astype(wide) - expected.astype(wide))
    error = np.where(close, -1.0, np.where(np.isnan(error), np.inf, error))
    worst = tuple(int(one) for one in np.unravel_index(int(np.argmax(error)), error.shape))
    wanted, got = expected[worst].item(), found[worst].item()
    both_nan = wanted != wanted and got != got  # noqa: PLR0124 - NaN alone differs from itself, complex or not
    raise AssertionError(
        f"{label} is not {like} in {int((~close).sum())} of {close.size} elements; "
        f"worst at {worst}: expected {wanted!r}, found {got!r} (atol={limits.atol:g}, rtol={limits.rtol:g})"
        f"{'; if NaN is right there, say equal_nan=True' if both_nan else ''}"
    )


def array_of(framework: str, value: Any) -> Array:
    """A tensor's numbers: floats widened exactly, integers and booleans as they are."""
    adapter = adapter_named(framework)
    if not adapter.owns(value):
        return np.asarray(value)
    if adapter.dtype_of(value).startswith(("int", "uint", "bool")):
        plain = value.detach().cpu() if framework == "torch" else value
        return np.asarray(plain.numpy() if hasattr(plain, "numpy") else plain)
    return np.asarray(adapter.to_numpy(value))


def kind_of_numbers(array: Array) -> str:
    """Precision is the tolerance's business; whether these are truths, whole numbers or fractions is not."""
    return {"b": "booleans", "i": "integers", "u": "integers", "c": "complex numbers"}.get(
        array.dtype.kind, "floating-point numbers"
    )


class GradRequest(msgspec.Struct, frozen=True, kw_only=True):
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    no_grad: frozenset[str] = frozenset()
    rtol: float | None = None
    grads: Any = None  # `user_defined_grads`: one array per input
    cotangents: Any = None  # `user_defined_grad_outputs`: one array per output
    more: dict[str, Any] = msgspec.field(default_factory=dict)


def check(test: Any, subject: Subject, request: GradRequest) -> GradReport:
    """The gradients of a subject, checked; whoever keeps evidence has heard of it afterwards."""
    if subject.setup.widened:  # the author's gradients are those of the precision that was not run
        request = replace(request, grads=None, cotangents=None)
    call, given = _checked_function(test, subject, request)
    # Whether no element goes in, or none comes out, that could be compared.
    sizes = {one.name: one.array.size for one in members(subject.setup.inputs)}
    expected = {one.name: one.array.size for one in members(subject.setup.outputs)}
    if not any(sizes[name] for name in call.wrt) or not any(expected.get(name, 1) for name in call.outputs):
        # Nothing can be compared: the backward is run, its shapes are held against the inputs', and no more is said.
        problem = call.problem()
        problem.vjp(problem.point, [np.zeros(slot.shape) for slot in problem.outputs])
        text = "nothing was compared: there are no elements; the backward runs, and its shapes are right"
        raise unittest.SkipTest(f"{problem.op}: {text}")
    grads = _arrays(request.grads, given, "user_defined_grads")
    cotangents = _arrays(request.cotangents, call.outputs, "user_defined_grad_outputs")
    return gradcheck(
        call,
        subject.tensors,
        **call.words(),
        rtol=request.rtol,
        grads=[grads[name] for name in call.wrt] if grads else None,
        cotangents=[*cotangents.values()] or None,
        identity=f"{subject.setup.op} {type(test).__name__}.{test.id().rpartition('.')[2]}",
        **request.more,
    )


def backward(test: Any, subject: Subject, request: GradRequest) -> None:
    """Run the backward once in the test's own precision, to see whether there is one."""
    if subject.setup.framework != "numpy":
        problem = _checked_function(test, subject, request)[0].problem()
        problem.vjp(problem.point, [np.ones(slot.shape) for slot in problem.outputs], dtype=problem.lowest)


def _checked_function(test: Any, subject: Subject, request: GradRequest) -> tuple[CheckedFunction, tuple[str, ...]]:
    """What is checked, and the names of all inputs that were asked for: the author's gradients follow those."""
    known = {slot.name: slot for slot in subject.setup.inputs}
    excluded = [known[name].members if name in known else () for name in request.no_grad]
    no_grad = request.no_grad | {one.name for listed in excluded for one in listed}
    asked: list[str] = []
    for name in request.inputs:
        if name not in subject.names and name not in known:
            every = [*known, *(one.name for one in members(subject.setup.inputs))]
            raise UsageError(
                f"{subject.setup.op}: check_grad: expected an input out of {', '.join(dict.fromkeys(every))}, "
                f"found {name!r}{suggest(name, every)}",
                next_command=f"self.check_grad([{every[0]!r}], …)" if every else "set self.inputs in setUp",
            )
        asked += [name] if name in subject.names else [member.name for member in known[name].members]
    given = tuple(dict.fromkeys(asked))
    reached = {member.name for name in subject.plan.slots for member in known[name].members}
    lost = [name for name in given if name not in reached]
    if lost:
        raise UsageError(
            f"{subject.setup.op}: check_grad asks for {', '.join(lost)}, which does not reach python_api; "
            f"it takes {', '.join(sorted(reached)) or 'no input'}",
            next_command="set self.python_api to a function that takes every input that is checked",
        )
    dtypes = {one.name: one.dtype for one in members(subject.setup.inputs) if not one.differentiable}
    # In the order of the op, as gradcheck has it, whatever the order of the asking.
    wrt = tuple(name for name in subject.names if name in given and name not in no_grad and name not in dtypes)
    if not wrt:
        why = [f"{name} is {dtypes.get(name, 'in no_grad_set')}" for name in given]
        text = f"{subject.setup.op}: nothing was compared: {', '.join(why)}, which has no gradient to check"
        raise unittest.SkipTest(text)
    outputs = dict.fromkeys(one for name in request.outputs for one in subject.expand(name))
    call = CheckedFunction(
        subject=subject,
        outputs=tuple(outputs),
        wrt=wrt,
        backward=getattr(test, "backward", None) if subject.setup.framework == "numpy" else None,
    )
    return call, given


def _has_gradient(value: Any) -> bool:
    """Whether an output is one that a framework, asked for gradients, would give one for."""
    if hasattr(value, "requires_grad"):  # torch
        return bool(value.requires_grad)
    if hasattr(value, "stop_gradient"):  # paddle
        return not value.stop_gradient
    return getattr(getattr(value, "dtype", None), "kind", "") in {"f", "c"}


class CheckedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs that a test asked for, as a function of all its tensors."""

    subject: Subject
    outputs: tuple[str, ...]
    wrt: tuple[str, ...]
    backward: Any = None
    unasked: set[str] = msgspec.field(default_factory=set)  # Other outputs that came with a gradient.

    @property
    def tested_function(self) -> Any:
        return self.subject.setup.function

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        found = self.subject(*tensors)
        others = (name for name in found if name not in self.outputs)
        self.unasked.update(name for name in others if _has_gradient(found[name]))
        lost = [name for name in self.outputs if name not in found]
        if lost:
            raise UsageError(
                f"{self.subject.setup.op}: check_grad: expected the output {', '.join(lost)}, "
                f"found {', '.join(found) or 'none'}",
                next_command="set self.python_out_sig to the names of what python_api gives, in order",
            )
        return tuple(found[name] for name in self.outputs)

    def words(self) -> dict[str, Any]:
        """What `gradcheck` and `open_problem` are told alike."""
        return {
            "op": self.subject.setup.op,
            "names": self.subject.names,
            "output_names": self.outputs,
            "wrt": self.wrt,
            "backward": self.backward,
            "framework": self.subject.setup.framework,
        }

    def problem(self) -> Any:
        """The function at the test's point."""
        return open_problem(self, self.subject.tensors, **self.words())


def _arrays(given: Any, names: tuple[str, ...], what: str) -> dict[str, Array | None]:
    """One array per name, with bfloat16 widened; None for what its author left out. Nothing where nothing was given."""
    listed = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    if listed and len(listed) != len(names):
        text = f"{what}: expected an array for each of {', '.join(names)}, found {len(listed)}"
        raise UsageError(text, next_command=f"{what}=[…] with {len(names)} arrays, in the order of the names")
    pairs = zip(names, listed, strict=False)
    return {name: None if one is None else read_array(name, one, what).array for name, one in pairs}


# Input → what came of asking for its gradient, and a detail.
Answers = dict[str, tuple[Literal["raises", "zero", "gradient"], str]]


def probe(test: Any, test_name: str, checked: Iterable[str] = ()) -> list[session.NoGrad]:
    """Ask the op of a test for the gradients that were not checked; an op that does not run is skipped."""
    setup = read_setup(test)
    every = [one.name for one in members(setup.inputs) if one.differentiable]
    wrt = tuple(name for name in every if name not in set(checked))
    if not wrt or setup.attrs.get("is_sparse"):  # some of Paddle's kernels for that (hsigmoid_loss) end the process
        return []
    with frameworks.device_scope("cpu", setup.framework) as like:
        subject = subject_at(setup, "cpu", like)
        try:
            subject.outputs()
        except Exception:  # noqa: BLE001 - a broken op raises for other reasons than having no gradient
            return []

        def opened() -> FrameworkProblem:
            # For all of them at once: there are kernels of Paddle that end the process if asked for some alone.
            return open_problem(
                lambda *tensors: tuple(subject(*tensors).values()),
                subject.tensors,
                op=setup.op,
                names=subject.names,
                wrt=every,
                backward=getattr(test, "backward", None),
                framework=setup.framework,
            )

        found = gradients_of(opened, wrt)
    return [
        session.NoGrad(op=setup.op, input=name, test=test_name, outcome=outcome, detail=detail)
        for name, (outcome, detail) in found.items()
    ]


def gradients_of(opened: Callable[[], FrameworkProblem], wrt: Sequence[str]) -> Answers:
    """What comes of asking for the gradients of inputs, at a random cotangent; nothing of what cannot be asked."""
    try:
        problem = opened()
        if not problem.outputs:
            return dict.fromkeys(wrt, ("zero", "nothing that comes out is a float"))
        # Not ones: the gradient of a softmax's sum is zero, and that of the softmax is not.
        rng = np.random.default_rng(len(wrt))
        cotangents = [rng.standard_normal(slot.shape) for slot in problem.outputs]
        gradients = problem.vjp(problem.point, cotangents)
    except Unsupported:
        return {}  # there is nothing to ask: numpy without a backward, a frozen input of Paddle's
    except Exception as error:  # noqa: BLE001 - whatever a framework raises for an op without a gradient
        detail = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return dict.fromkeys(wrt, ("raises", detail))
    answers: Answers = {}
    for slot, one in zip(problem.inputs, gradients, strict=True):
        there = one is not None and np.any(one != 0)
        if slot.name in wrt:
            answers[slot.name] = ("gradient", "it is not zero") if there else ("zero", "it is None or zero")
    return answers
