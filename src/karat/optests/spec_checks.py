"""Specs become a class of ordinary, parametrised pytest items, `test_gradient[softmax-float64-cpu-sample0]`; what each does.

No plugin is needed: pytest finds the class by its name in the test module. Kinds of tests for which no case was declared
are not there at all, so that nothing passes that compares nothing. Claims of a spec are verified in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients import session
from karat.gradients.adapters.calls import takes_positional_only
from karat.gradients.report import GradComparison, GradReport, GradVerdict
from karat.gradients.session import running_test
from karat.optests import frameworks
from karat.optests.checks import OutputTolerance, array_of, assert_close, gradients_of
from karat.optests.op_spec import OpCase, OpSpec, cases, plain, tensors
from karat.optests.op_test import require_evidence

_UNIT = {"float32": 6e-8, "complex64": 6e-8, "float16": 5e-4, "bfloat16": 4e-3}
_ULPS = 64
_declared_cases: set[tuple[str, str, str]] = set()


class RunningCase(msgspec.Struct, frozen=True, kw_only=True):
    case: OpCase
    inputs: Any
    kwargs: dict[str, Any]

    def words(self) -> dict[str, Any]:
        """The arguments that `gradcheck` and `open_problem` have in common."""
        spec = self.case.spec
        return {
            "op": spec.op,
            "names": spec.names,
            "output_names": spec.output_names,
            "kwargs": self.kwargs,
            "backward": spec.backward,
            "framework": self.case.framework,
        }


@contextmanager
def running(case: OpCase) -> Iterator[RunningCase]:
    """The case, ready; declared as an op test, whatever its outcome."""
    device = frameworks.device_name(case.device, case.framework)
    with frameworks.device_scope(device, case.framework) as like:
        inputs, kwargs = tensors(case, like)
        made = RunningCase(case=case, inputs=inputs, kwargs=kwargs)
        test = _test_class()
        key = (test, case.spec.op, case.dtype)
        if key not in _declared_cases:  # once per file, spec and dtype
            named = {one.name: one.dtype for one in _problem(made, whole=True).inputs}
            _declared_cases.add(key)
            file, no_grad = test.partition("::")[0], case.spec.no_grad
            session.notify(session.Declared(op=case.spec.op, test=test, file=file, inputs=named, no_grad=no_grad))
        yield made


def forward(case: OpCase) -> None:
    """What comes out is what the reference gives, in the case's own precision."""
    __tracebackhide__ = True
    with running(case) as made:
        found = _flat(case, _called(made, case.spec.fn))
        if case.spec.reference is None:
            expected = _listed(case.sample().expected)
        else:
            expected = _listed(_called(made, case.spec.reference, as_numpy=True))
        if len(found) != len(expected):
            text = f"{case.id}: expected {len(expected)} outputs, as the reference gives, found {len(found)}"
            raise AssertionError(text)
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            wanted = np.asarray(other)
            floor = _ULPS * _UNIT.get(case.dtype, 0.0)
            scale = float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
            rtol, atol = max(case.spec.rtol, floor), max(case.spec.atol, floor * scale)
            limits = OutputTolerance(rtol=rtol, atol=atol, equal_nan=True)
            assert_close(f"{case.id}: output {number}", one, wanted, limits, like="what the reference gives")


def gradient(case: OpCase) -> None:
    """Every gradient is right: in double precision, and in the case's own."""
    __tracebackhide__ = True
    with running(case) as made:
        report = _gradcheck(made)
        # Probe the gradients without evidence: that an input has none is verified, too.
        proved = {one.input for one in report.comparisons if one.counts}
        whole = _problem(made, whole=True)
        lacking = [one.name for one in whole.inputs if one.name not in proved]
        for name, (outcome, detail) in (gradients_of(lambda: whole, lacking) if lacking else {}).items():
            test = _test_class()
            session.notify(session.NoGrad(op=case.spec.op, input=name, test=test, outcome=outcome, detail=detail))
    require_evidence(report)
    kinked = [one.input for one in report.comparisons if one.kinks]
    if kinked and not case.spec.kinks:
        raise AssertionError(
            f"{case.id}: kinks=False says that no sample lies on a kink, but {', '.join(sorted(set(kinked)))} does; "
            "draw other samples, or say kinks=True"
        )


def second_order(case: OpCase) -> None:
    """Second derivatives are right if they are claimed, and not there if they are denied."""
    __tracebackhide__ = True
    with running(case) as made:
        if case.spec.order == 2:
            report = _gradcheck(made, order=2)
            _passed(case, report, "second order", [one for one in report.comparisons if one.order == 2])
            return
        from karat.gradients.adapters.derived import gradient_problem

        problem = _problem(made)
        try:
            first = gradient_problem(problem, _drawn(problem.outputs))
            # The gradient is linear in its cotangents, and always has a derivative by them.
            again = first.vjp(first.point, _drawn(first.outputs))[: first.own]
        except Exception:  # noqa: BLE001 - any error means that there is none
            return
        if any(one is not None and np.any(one != 0) for one in again):
            raise AssertionError(
                f"{case.id}: stale claim: order=1 says that there are no second derivatives, but there are; "
                "set order=2 to have them checked"
            )


def forward_mode(case: OpCase) -> None:
    """The forward mode is right if it is claimed, and not there if it is denied."""
    __tracebackhide__ = True
    with running(case) as made:
        if case.spec.supports_forward:
            report = _gradcheck(made, modes=("reverse", "forward"))
            _passed(case, report, "forward mode", [one for one in report.comparisons if one.mode == "forward"])
            return
        problem = _problem(made)
        try:
            problem.jvp(problem.point, _drawn(problem.inputs))
        except Exception:  # noqa: BLE001 - any error means that there is none
            return
        raise AssertionError(
            f"{case.id}: stale claim: supports_forward=False, but there is a forward mode; "
            "set supports_forward=True to have it checked"
        )


def in_place(case: OpCase) -> None:
    """The in-place form gives the same bits: forward in the case's own precision, and backward in double."""
    __tracebackhide__ = True
    with running(case) as made, running(case) as other:
        usual = _flat(case, _called(made, case.spec.fn))
        result = _called(other, case.spec.in_place)
        if result is None:  # in numpy's habit, it wrote to its inputs
            result = list(other.inputs.values() if isinstance(other.inputs, dict) else other.inputs)
        found = _flat(case, result)
    for number, (one, wanted) in enumerate(zip(found, usual, strict=False)):
        if not np.array_equal(one, wanted, equal_nan=one.dtype.kind in "fc"):
            raise AssertionError(
                f"{case.id}: in-place: output {number}: expected what the out-of-place form gives, found other numbers"
            )
    _law(case, "in-place", in_place=case.spec.in_place)


def non_contiguous(case: OpCase) -> None:
    """Inputs with gaps in memory give the same gradients."""
    __tracebackhide__ = True
    _law(case, "non-contiguous")


def _law(case: OpCase, name: str, **more: Any) -> None:
    import pytest

    from karat.gradients.laws import check_properties

    with running(case) as made:
        problem = _problem(made)
        rng = np.random.default_rng(case.seed)
        found = check_properties(problem, rng=rng, which=(name,), **more)
    failed = [one for one in found if one.verdict is GradVerdict.FAIL]
    if failed:
        raise AssertionError(f"{case.id}: {name}: {'; '.join(one.detail for one in failed)}")
    if not any(one.verdict is GradVerdict.PASS for one in found):
        why = "; ".join(one.detail for one in found) or f"{case.framework} has no such thing"
        pytest.skip(f"{case.id}: nothing was compared: {why}")


def _passed(case: OpCase, report: GradReport, what: str, mine: list[GradComparison]) -> None:
    """A claim holds: something of it was compared, and was right; zero everywhere is no evidence either way."""
    if report.verdict is GradVerdict.FAIL:
        report.require()
    if not any(one.verdict.holds for one in mine):
        why = [one.reason for one in mine if one.reason] or report.notes or ("nothing was compared",)
        raise AssertionError(f"{case.id}: {what} is claimed, but missing: {'; '.join(why)}")
    require_evidence(report)


def _gradcheck(made: RunningCase, **more: Any) -> GradReport:
    from karat.gradients.gradcheck import gradcheck

    spec, case = made.case.spec, made.case
    return gradcheck(
        spec.fn,
        made.inputs,
        **made.words(),
        wrt=_wrt(made),
        reference=spec.reference,
        rtol=spec.tolerances.get(case.dtype),
        identity=case.id,
        **more,
    )


def _problem(made: RunningCase, *, whole: bool = False) -> Any:
    """The case as a problem; `whole`: with every input that could have a gradient, whatever the spec says."""
    from karat.gradients.adapters.framework_problem import open_problem

    return open_problem(made.case.spec.fn, made.inputs, **made.words(), wrt=None if whole else _wrt(made))


def _wrt(made: RunningCase) -> tuple[str, ...] | None:
    """The inputs to check: those that are named, or all, less those without a gradient."""
    spec = made.case.spec
    if not spec.no_grad:
        return spec.wrt
    every = tuple(one.name for one in _problem(made, whole=True).inputs)
    for name in spec.no_grad:
        if name not in every:
            raise UsageError(
                f"OpSpec({spec.op!r}): no_grad: expected floating inputs out of {', '.join(every) or 'none'}, "
                f"found {name!r}{suggest(name, every)}",
                next_command=f"no_grad=({every[0]!r},)" if every else "no_grad=()",
            )
    return tuple(name for name in spec.wrt or every if name not in spec.no_grad)


def _drawn(slots: Iterable[Any]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(one.shape) for one in slots]


def _test_class() -> str:
    """`file.py::TestOps`, of the item that runs."""
    return (running_test() or "").partition("[")[0].rpartition("::")[0]


def _called(made: RunningCase, function: Any, *, as_numpy: bool = False) -> Any:
    inputs, kwargs = made.inputs, made.kwargs
    if as_numpy:
        inputs, kwargs = plain(inputs, made.case), plain(kwargs, made.case)
    if isinstance(inputs, dict) and not takes_positional_only(function, len(inputs)):
        return function(**inputs, **kwargs)
    return function(*(inputs.values() if isinstance(inputs, dict) else inputs), **kwargs)


def _flat(case: OpCase, result: Any) -> list[Any]:
    return [array_of(case.framework, one) for one in _listed(result)]


def _listed(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [one for item in result for one in _listed(item)]
    return [result]


_ORDINARY = ("float64", "complex128", "float32", "complex64")

KINDS: dict[str, tuple[Callable[[OpCase], bool], Callable[[OpCase], None]]] = {
    "test_forward": (lambda c: bool(c.spec.reference or c.expects), forward),
    "test_gradient": (lambda c: c.dtype in _ORDINARY, gradient),
    "test_low_precision": (lambda c: c.dtype not in _ORDINARY, gradient),
    "test_second_order": (lambda c: c.spec.order is not None and c.dtype == c.spec.dtypes[0], second_order),
    "test_forward_mode": (lambda c: c.spec.supports_forward is not None and c.dtype == c.spec.dtypes[0], forward_mode),
    "test_in_place": (lambda c: c.spec.in_place is not None, in_place),
    "test_non_contiguous": (lambda c: c.spec.non_contiguous and c.dtype == c.spec.dtypes[0], non_contiguous),
}
"""Name of a test → the cases it is made for, and what it does."""


def op_tests(specs: OpSpec | Iterable[OpSpec], *, seed: int = 0) -> type:
    """All tests of all specs as one class, for pytest to find under a name that begins with `Test`."""
    specs = (specs,) if isinstance(specs, OpSpec) else tuple(specs)
    odd = [one for one in specs if not isinstance(one, OpSpec)]
    if not specs or odd:
        text = f"op_tests: expected specs, found {type(odd[0]).__name__ if odd else 'none: nothing would be tested'}"
        raise UsageError(text, next_command="TestOps = karat.op_tests([karat.OpSpec(op=…, fn=…, samples=…)])")
    import pytest

    def item_of(check: Callable[[OpCase], None]) -> Callable[[object, OpCase], None]:
        def item(self: object, case: OpCase) -> None:  # noqa: ARG001 - pytest hands over an instance
            __tracebackhide__ = True
            if case.absent is not None:
                pytest.skip(f"{case.spec.op}: nothing was compared: {case.absent}")
            check(case)

        return item

    every = cases(specs, seed)
    body: dict[str, Any] = {"__doc__": f"Tests of {', '.join(spec.op for spec in specs)}."}
    for name, (chosen, check) in KINDS.items():
        mine = [pytest.param(case, id=case.id) for case in every if chosen(case)]
        if mine:
            body[name] = pytest.mark.parametrize("case", mine)(item_of(check))
    return type("TestOps", (), body)
