"""Generating: specs become a class of ordinary, parametrised pytest items: `test_gradient[softmax-float64-cpu-sample0]`.

No plugin is needed: pytest finds the class by its name in the test module. Kinds of tests for which no case was
declared are not there at all, so that nothing passes that compares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from karat.findings import UsageError
from karat.optests import spec_checks
from karat.optests.op_spec import OpSpec
from karat.optests.spec_cases import Case, cases

_DOUBLE = ("float64", "complex128")
_ORDINARY = (*_DOUBLE, "float32", "complex64")

Chosen = Callable[[Case], bool]
KINDS: dict[str, tuple[Chosen, Callable[[Case], None]]] = {
    "test_forward": (lambda c: bool(c.spec.reference or c.expects), spec_checks.forward),
    "test_gradient": (lambda c: c.dtype in _ORDINARY, spec_checks.gradient),
    "test_low_precision": (lambda c: c.dtype not in _ORDINARY, spec_checks.gradient),
    "test_second_order": (
        lambda c: c.spec.order is not None and c.dtype == c.spec.dtypes[0],
        spec_checks.second_order,
    ),
    "test_forward_mode": (
        lambda c: c.spec.supports_forward is not None and c.dtype == c.spec.dtypes[0],
        spec_checks.forward_mode,
    ),
    "test_in_place": (lambda c: c.spec.in_place is not None, spec_checks.in_place),
    "test_non_contiguous": (
        lambda c: c.spec.non_contiguous and c.dtype == c.spec.dtypes[0],
        spec_checks.non_contiguous,
    ),
}
"""Name of a test → the cases it is made for, and what it does."""


def op_tests(specs: Sequence[OpSpec], *, seed: int) -> type:
    """The class of all tests of all specs."""
    odd = [one for one in specs if not isinstance(one, OpSpec)]
    if not specs or odd:
        raise UsageError(
            f"op_tests: expected specs, found {type(odd[0]).__name__ if odd else 'none: nothing would be tested'}",
            next_command="TestOps = karat.op_tests([karat.OpSpec(op=…, fn=…, samples=…)])",
        )
    every = cases(specs, seed)
    body: dict[str, Any] = {"__doc__": f"Tests of {', '.join(spec.op for spec in specs)}."}
    for name, (chosen, check) in KINDS.items():
        mine = [case for case in every if chosen(case)]
        if mine:
            body[name] = _items(mine, check)
    return type("TestOps", (), body)


def _items(mine: Sequence[Case], check: Callable[[Case], None]) -> Any:
    import pytest  # noqa: PLC0415 - whoever makes tests has it

    def item(self: object, case: Case) -> None:  # noqa: ARG001 - pytest hands over an instance
        __tracebackhide__ = True
        if case.absent is not None:
            pytest.skip(f"{case.spec.op}: nothing was compared: {case.absent}")
        check(case)

    params = [pytest.param(case, id=case.id) for case in mine]
    return pytest.mark.parametrize("case", params)(item)
