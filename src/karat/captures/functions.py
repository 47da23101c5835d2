"""The pytest sessions that capture in this process, so that the plain functions join in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from unittest import TestCase

    from karat.captures.check import Program
    from karat.captures.pytest_session import Capturing
    from karat.tensors.comparison import Report

_running: list[Capturing] = []


def push(capturing: Capturing) -> None:
    """A session begins; it may be one inside another."""
    _running.append(capturing)


def remove(capturing: Capturing) -> None:
    """A session ends."""
    if capturing in _running:
        _running.remove(capturing)


def current() -> Capturing | None:
    """The innermost session, if a test of it runs right now."""
    last = _running[-1] if _running else None
    return last if last is not None and last.trial is not None else None


# DOC-HERE subtests: Subtests: which of pytest's subtests is under way, so that its captures have a name of their own.


class Active:
    """The subtests that a test is in, outermost first.

    Neither pytest 9 nor the plugin pytest-subtests tells which subtest is running, so the test's own
    `subtests` object is watched: only that object, only for this test, and only beside `golden`.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self.changed: Callable[[bool], None] = lambda _: None
        """Called when a subtest begins, and when it has ended."""

    def watch(self, subtests: Any) -> None:
        """From now on, `subtests.test(…)` is noticed."""
        begin = subtests.test

        @contextmanager
        def test(msg: str | None = None, **parameters: Any) -> Iterator[Any]:
            inner = begin(msg, **parameters)
            self._names.append(subtest_name(msg, parameters))
            self.changed(True)
            try:
                with inner as given:
                    yield given
            finally:
                self.changed(False)
                self._names.pop()

        subtests.test = test

    def name(self, own: str | None) -> str:
        """The name of a capture: of the subtests it is in, and what its check calls itself."""
        return " / ".join([*self._names, *([own] if own else [])])


def subtest_name(message: str | None, parameters: dict[str, Any]) -> str:
    """`message (i=0, mode='fast')`."""
    words = ", ".join(f"{name}={_value(value)}" for name, value in parameters.items())
    return f"{message} ({words})" if message and words else message or words or "subtest"


def _value(value: Any) -> str:
    text = repr(value)
    # An address is another one tomorrow, and would make another case of the same test.
    return type(value).__name__ if " at 0x" in text else text


# DOC-HERE plain: The plain functions, for unittest and scripts: the same capture without pytest.
#
# Off unless a directory is given or KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR is set. Without a test runner
# that would tell how the test ended, a case is published as soon as its comparison passed. Inside a test
# that pytest runs with capturing on, both join that session: same directory, same session, published when
# the test has passed.


def capture(  # noqa: PLR0913 - one call says everything about one case
    test: str | TestCase,
    *,
    inputs: Any,
    expected: Any,
    program: Program = None,
    program_name: str | None = None,
    suite: str | None = None,
    flow: str | None = None,
    subtest: str = "",
    directory: str | os.PathLike[str] | None = None,
    seeds: Mapping[str, int | str] | None = None,
    raw: bool = False,
    strides: bool = False,
    note: str | None = None,
    strict: bool | None = None,
) -> Path | None:
    """Captures a case that the caller has compared by its own means; the case's folder, None if off.

    If it cannot be captured, `CaptureFailed` is raised where `strict` (by default where CI is set),
    else `CaptureWarning` is warned; a second capture of one identity always raises.
    """
    if not _is_on(directory):
        return None
    from karat.captures.check import Evidence, by_caller  # noqa: PLC0415
    from karat.captures.standalone import identity_of, take  # noqa: PLC0415 - off, nothing is imported

    identity = identity_of(test, suite, flow, subtest)
    comparator, finding = by_caller(identity, note)
    evidence = Evidence(
        identity=identity,
        inputs=inputs,
        expected=expected,
        program=program,
        program_name=program_name,
        comparator=comparator,
        seeds=seeds,
        raw=raw,
        strides=strides,
        findings=(finding,),
        seen=(inputs, expected),
    )
    return take(evidence, directory, strict)


def check_and_capture(  # noqa: PLR0913 - one call says everything about one case
    test: str | TestCase,
    *,
    actual: Any,
    expected: Any,
    inputs: Any,
    program: Program = None,
    program_name: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    suite: str | None = None,
    flow: str | None = None,
    subtest: str = "",
    directory: str | os.PathLike[str] | None = None,
    seeds: Mapping[str, int | str] | None = None,
    raw: bool = False,
    strides: bool = False,
    note: str | None = None,
    strict: bool | None = None,
) -> Report:
    """Raises `Mismatch` unless actual is as expected; then captures the case, as `capture` would."""
    __tracebackhide__ = True
    from karat.captures.check import Question, compared  # noqa: PLC0415 - only who checks pays

    question = Question(
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, note=note
    )
    passed = compared(expected, actual, question, test if isinstance(test, str) else test.id())
    if not _is_on(directory):
        return passed.report
    from karat.captures.check import Evidence  # noqa: PLC0415
    from karat.captures.standalone import identity_of, take  # noqa: PLC0415 - off, nothing is imported

    identity = identity_of(test, suite, flow, subtest)
    evidence = Evidence(
        identity=identity,
        inputs=inputs,
        expected=passed.expected,
        seen=(inputs, expected, actual),
        program=program,
        program_name=program_name,
        comparator=passed.comparator,
        seeds=seeds,
        raw=raw,
        strides=strides,
    )
    take(evidence, directory, strict)
    return passed.report


def _is_on(directory: str | os.PathLike[str] | None) -> bool:
    named = os.environ.get("KARAT_CAPTURE_DIR") or os.environ.get("GOLDEN_ARTIFACTS_DIR")
    return bool(directory or named or current())
