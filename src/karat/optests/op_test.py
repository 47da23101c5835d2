"""OpTest: a unittest class for one operator, written as for Paddle's `op_test.OpTest`.

    class TestMatmul(karat.OpTest):
        def setUp(self):
            self.op_type = "matmul_v2"
            self.python_api = paddle.matmul
            self.inputs = {"X": x, "Y": y}
            self.outputs = {"Out": x @ y}

        def test_check_output(self):
            self.check_output()

        def test_check_grad(self):
            self.check_grad(["X", "Y"], "Out")

`check_grad` is `karat.gradcheck` on `python_api`. Nothing is written into classes: what a class checked is known from
comparisons that came to their end, and from nothing else. What Paddle's arguments ask for beyond that is not carried
out; a warning says so, and it is never counted as evidence.
"""

from __future__ import annotations

import logging
import random
import re
import unittest
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from karat.findings import UsageError, suggest
from karat.gradients.report import GradReport, GradVerdict
from karat.optests import checks, frameworks, lifecycle
from karat.optests.lifecycle import declare, skip_check_grad_ci, skip_check_inplace_ci
from karat.optests.subject import (
    OpSetup,
    Subject,
    in_double,
    is_low,
    members,
    op_name,
    read_setup,
    read_slots,
    subject_at,
)

_log = logging.getLogger("karat.optests")

# Other ways of running an op than calling python_api; each release of Paddle's has more.
_OTHER_MODES = re.compile(r"(?:only_)?check_\w+")
# What other arguments of Paddle's mean nothing here: its own tolerances, its own numeric side.
UNUSED = ("atol", "rtol", "inplace_atol", "numeric_place", "custom_place", "check_sparse", "no_check_set", "use_cinn")
# What karat's own check takes beyond Paddle's arguments, handed on to `gradcheck`.
KARATS = ("level", "order", "dtypes", "modes", "reference", "properties", "nondeterminism_bound", "seed")
_NO_KERNEL = re.compile(
    r"not registered|not implemented|unimplemented|not support|unsupported|no kernel|not found", re.IGNORECASE
)
_warned: set[str] = set()


__all__ = ["OpTest", "skip_check_grad_ci", "skip_check_inplace_ci"]

__unittest = True
"""Unittest leaves these frames out, and so does pytest for its classes: a failure is of the test's own line."""
_SEEDS = (123, 124)
"""numpy's and random's, as in Paddle; before every test, so that one test alone sees the same inputs."""


class OpTest(unittest.TestCase):
    """One operator with inputs, attributes and expected outputs; see the module."""

    op_type: str
    python_api: Any  # The function that runs the op.
    inputs: dict[str, Any]  # Name → array, (array, lengths), or [(name, array), …].
    attrs: dict[str, Any]
    outputs: dict[str, Any]
    dtype: Any = None  # as in Paddle, where a test sets none of its own
    check_prim = check_prim_pir = is_calc_ref = False
    framework: str | None = None  # `paddle`, `torch`, `jax` or `numpy`; by default that of `python_api`.
    places: Sequence[Any] | None = None
    """Where checks without a place are made; by default the CPU, and for Paddle the GPU that there is."""

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run one test with seeded generators, restored afterwards."""
        kept = np.random.get_state(), random.getstate()  # noqa: NPY002 - setUp draws from the global generators
        np.random.seed(_SEEDS[0])  # noqa: NPY002
        random.seed(_SEEDS[1])
        lifecycle.begin_test(type(self))
        try:
            result = super().run(result)
        finally:
            np.random.set_state(kept[0])  # noqa: NPY002
            random.setstate(kept[1])
            lifecycle.end_test(self, self._testMethodName, result)
        return result

    def _callSetUp(self) -> None:  # noqa: N802 - unittest's own hook: setUp is overridden without super()
        super()._callSetUp()  # type: ignore[misc] # not in the stubs; since Python 3.8
        self._declared()

    def _declared(self, no_grad: frozenset[str] = frozenset()) -> None:
        if op_name(self) and isinstance(getattr(self, "inputs", None), dict):
            declare(self, op_name(self), no_grad)

    # -- forward ----------------------------------------------------------------------------------

    def check_output_with_place(
        self,
        place: Any,
        atol: float = 1e-5,
        rtol: float = 1e-5,
        no_check_set: Iterable[str] | None = None,
        equal_nan: bool = False,  # noqa: FBT001, FBT002
        check_dygraph: bool = True,  # noqa: FBT001, FBT002
        **asked: Any,
    ) -> None:
        """Check that the op's outputs are `self.outputs`, at this place; skipped if it is not there."""
        refuse_or_warn(self, asked, check_dygraph=check_dygraph)
        left_out = _name_set(no_check_set)
        tolerance = checks.OutputTolerance(atol=atol, rtol=rtol, equal_nan=equal_nan)
        self._at(place, lambda subject: checks.compare_outputs(subject, tolerance, left_out))

    def check_output(self, *args: Any, **kwargs: Any) -> None:
        self._everywhere(lambda place: self.check_output_with_place(place, *args, **kwargs))

    def check_output_customized(self, checker: Callable[[list[Any]], Any], place: Any = None) -> None:
        """Call a function that judges the op's outputs."""
        if place is not None:
            self.check_output_with_place_customized(checker, place)
        else:
            self._everywhere(lambda each: checker(self.calc_output(each)))

    def check_output_with_place_customized(self, checker: Callable[[list[Any]], Any], place: Any) -> None:
        """Call a function that judges the op's outputs at this place."""
        checker(self.calc_output(place))

    def calc_output(self, place: Any = None) -> list[Any]:
        """The op's outputs as numpy arrays, in order."""

        def outputs(subject: Subject) -> list[Any]:
            return [checks.array_of(subject.setup.framework, one) for one in subject.outputs().values()]

        made: list[Any] = self._at(place, outputs)
        return made

    # -- backward ---------------------------------------------------------------------------------

    def check_grad_with_place(  # noqa: PLR0913, PLR0917 - Paddle's signature
        self,
        place: Any,
        inputs_to_check: str | Iterable[str],
        output_names: str | Iterable[str],
        no_grad_set: Iterable[str] | None = None,
        numeric_grad_delta: float | None = None,  # noqa: ARG002 - karat finds the steps itself
        in_place: bool = False,  # noqa: FBT001, FBT002, ARG002 - inputs are never written to here
        max_relative_error: float | None = None,
        user_defined_grads: Any = None,
        user_defined_grad_outputs: Any = None,
        check_dygraph: bool = True,  # noqa: FBT001, FBT002
        **asked: Any,
    ) -> GradReport:
        """Check the gradients of inputs, at this place; skipped if it is not there."""
        refuse_or_warn(self, asked, KARATS, check_dygraph=check_dygraph)
        excluded = _name_set(no_grad_set)
        self._declared(excluded)
        wanted = checks.GradRequest(
            inputs=_names(inputs_to_check),
            outputs=_names(output_names),
            no_grad=excluded,
            rtol=max_relative_error,
            grads=user_defined_grads,
            cotangents=user_defined_grad_outputs,
            more={name: value for name, value in asked.items() if name in KARATS},
        )
        report: GradReport = self._at(
            place,
            lambda subject: checks.check(self, subject, wanted),
            lambda subject: checks.backward(self, subject, wanted),
        )
        return require_evidence(report)

    def check_grad(self, *args: Any, **kwargs: Any) -> None:
        """Check the gradients of inputs at every place."""
        self._everywhere(lambda place: self.check_grad_with_place(place, *args, **kwargs))

    # -- where ------------------------------------------------------------------------------------

    def _everywhere(self, check: Callable[[Any], object]) -> None:
        """The check at every place; SkipTest at the end if there was one at some place, so that it keeps no other."""
        places = self.places
        if places is not None and not places:
            text = f"{op_name(self)}: places: expected at least one, found {self.places!r}"
            raise UsageError(text, next_command="places = ['cpu'] in the class")
        if places is None and read_setup(self).framework == "paddle":
            from karat.optests.original import get_places

            places = get_places()
        skipped: list[str] = []
        for place in [None] if places is None else places:
            try:
                check(place)
            except unittest.SkipTest as why:
                skipped.append(str(why))
        if skipped:
            raise unittest.SkipTest("; ".join(dict.fromkeys(skipped)))

    def _at(
        self, place: Any, use: Callable[[Subject], Any], backward: Callable[[Subject], object] | None = None
    ) -> Any:
        """What `use` makes of the op at a place; SkipTest with the reason if it cannot be had there.

        With `backward`, an op without a kernel for the test's low precision is used in float64 first: that is
        evidence of its own, and the test is skipped all the same.
        """
        self._declared()  # a test may have set other inputs than setUp did
        setup: OpSetup = read_setup(self)
        device = frameworks.device_name(place, setup.framework)
        absent = frameworks.absence_reason(device, setup.framework)
        if absent is not None:
            raise unittest.SkipTest(f"{setup.op}: nothing was compared: {absent}")
        with frameworks.device_scope(device, setup.framework) as like:
            subject = subject_at(setup, device, like)
            lacking = why_not_computed(subject, backward or Subject.outputs)
            if lacking is None:
                return use(subject)
            if backward is not None:
                wide = structs.replace(setup, inputs=in_double(setup.inputs), widened=True)
                require_evidence(use(subject_at(wide, device, like)))
        raise unittest.SkipTest(f"{setup.op}: nothing was compared in that precision: {lacking}")

    # -- what Paddle's tests ask of themselves -------------------------------------------------

    def is_bfloat16_op(self) -> bool:
        return "bfloat16" in self._dtypes()

    def is_float16_op(self) -> bool:
        return "float16" in self._dtypes()

    def is_mkldnn_op(self) -> bool:
        """Whether the test asks for oneDNN kernels, which is the framework's to decide here."""
        attrs = getattr(self, "attrs", None) or {}
        return bool(getattr(self, "use_mkldnn", False) or attrs.get("use_mkldnn", False))

    @staticmethod
    def np_dtype_to_base_dtype(input: Any) -> Any:  # noqa: A002 - Paddle's name
        """The array itself: there was a time when it had to be converted."""
        return input

    np_value_to_base_value = np_dtype_to_base_dtype
    np_dtype_to_fluid_dtype = np_dtype_to_base_dtype
    np_value_to_fluid_value = np_dtype_to_base_dtype

    def _dtypes(self) -> set[str]:
        return {one.dtype for one in members(read_slots(getattr(self, "inputs", {}), "inputs"))}


def require_evidence(report: GradReport) -> GradReport:
    """A report that passed; AssertionError for a wrong gradient, SkipTest where nothing could be told.

    "Cannot tell" must look like neither of the others; the gate sees that there is no evidence.
    """
    if report.verdict is GradVerdict.INCONCLUSIVE:
        raise unittest.SkipTest(f"{report.op}: no evidence: {report.reason}")
    return report.require()


def _name_set(names: Iterable[str] | None) -> frozenset[str]:
    """A name alone is one name, not its letters."""
    return frozenset([names] if isinstance(names, str) else names or ())


def _names(words: str | Iterable[str]) -> tuple[str, ...]:
    names = (words,) if isinstance(words, str) else tuple(words)
    if not names or not all(isinstance(name, str) for name in names):
        text = f"check_grad: expected names of inputs and outputs, found {words!r}"
        raise UsageError(text, next_command='self.check_grad(["X", "Y"], "Out")')
    return names


def refuse_or_warn(test: Any, asked: Mapping[str, Any], karats: tuple[str, ...] = (), *, check_dygraph: bool) -> None:
    """Warn once per process of what is not carried out; SkipTest where the test asks for nothing else."""
    known = (*UNUSED, *karats)
    for name in asked:
        if name not in known and not _OTHER_MODES.fullmatch(name):
            raise UsageError(
                f"{type(test).__name__}: expected an argument of Paddle's check, found {name!r}{suggest(name, known)}",
                next_command="python -c 'import karat; help(karat.OpTest.check_grad)'",
            )
    wanted = sorted(name for name, on in asked.items() if on and name not in (*known, *_warned))
    if wanted:
        _warned.update(wanted)
        _log.warning(
            "%s asks for %s: not carried out (karat calls python_api eagerly), and not counted as evidence",
            type(test).__name__,
            ", ".join(wanted),
        )
    if not check_dygraph:
        raise unittest.SkipTest(
            f"{type(test).__name__}: nothing was compared: check_dygraph=False asks for the static graph alone, "
            "and karat calls python_api eagerly"
        )


def why_not_computed(subject: Subject, run: Callable[[Subject], object]) -> str | None:
    """Why the op cannot be run in the test's low precision at this place: there is no kernel; None if it can."""
    low = sorted({one.dtype for one in members(subject.setup.inputs) if is_low(one.dtype)})
    if not low:
        return None
    try:
        run(subject)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        first = next((line for line in str(error).splitlines() if _NO_KERNEL.search(line)), "")
        if first:  # else it is an error that the check itself will meet, and tell better
            return f"{subject.setup.framework} computes no {', '.join(low)} of it on {subject.device}: {first.strip()[:200]}"
    return None
