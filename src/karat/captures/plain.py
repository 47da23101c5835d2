"""The plain functions, for unittest and scripts: the same capture without pytest.

Off unless a directory is given or KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR is set. Without a test runner
that would tell how the test ended, a case is published as soon as its comparison passed. Inside a test
that pytest runs with capturing on, both join that session: same directory, same session, published when
the test has passed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from karat.captures import running

if TYPE_CHECKING:
    from pathlib import Path
    from unittest import TestCase

    from karat.captures.evidence import Program
    from karat.tensors.outcome import Report


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
    from karat.captures.alone import identity_of, take  # noqa: PLC0415 - off, nothing is imported
    from karat.captures.comparing import by_caller  # noqa: PLC0415
    from karat.captures.evidence import Evidence  # noqa: PLC0415

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
    from karat.captures.comparing import Question, compared  # noqa: PLC0415 - only who checks pays

    question = Question(
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, note=note
    )
    passed = compared(expected, actual, question, test if isinstance(test, str) else test.id())
    if not _is_on(directory):
        return passed.report
    from karat.captures.alone import identity_of, take  # noqa: PLC0415 - off, nothing is imported
    from karat.captures.evidence import Evidence  # noqa: PLC0415

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
    return bool(directory or named or running.current())
