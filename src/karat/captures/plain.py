"""The plain functions, for unittest and scripts: the same capture without pytest.

Off unless a directory is given or KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR is set. Without a test runner
that would tell how the test ended, a case is published as soon as its comparison passed. Inside a test
that pytest runs with capturing on, both join that session: same directory, same session, published when
the test has passed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import TestCase

import msgspec

from karat.bundles.manifest import Identity
from karat.captures import running
from karat.captures.ci import in_ci
from karat.captures.comparing import Question, by_caller, compared
from karat.captures.errors import CaptureFailed, CaptureWarning
from karat.captures.evidence import Evidence, Program
from karat.captures.process import of_process, settings
from karat.captures.session import Session, Staged
from karat.findings import Finding
from karat.goldens.paths import glob_regex
from karat.tensors.outcome import Report

if TYPE_CHECKING:
    from karat.captures.capturing import Capturing


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    directory: str | os.PathLike[str] | None
    strict: bool | None


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
    identity = _identity(test, suite, flow, subtest)
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
    return _take(evidence, _Place(directory=directory, strict=strict))


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
    identity = _identity(test, suite, flow, subtest)
    question = Question(
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, note=note
    )
    passed = compared(expected, actual, question, identity.test)
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
    _take(evidence, _Place(directory=directory, strict=strict))
    return passed.report


def _identity(test: str | TestCase, suite: str | None, flow: str | None, subtest: str) -> Identity:
    name = test.id() if isinstance(test, TestCase) else test
    joined = running.current()
    configured = joined.settings.flow if joined else settings().flow
    return Identity(
        suite=suite or _suite(test),
        flow=flow or configured or "default",
        test=name,
        subtest=subtest,
    )


def _suite(test: str | TestCase) -> str:
    """The package that a TestCase is in, or its module outside of one; `default` for a mere name."""
    if isinstance(test, TestCase):
        return type(test).__module__.split(".")[-2:][0]
    return "default"


def _take(evidence: Evidence, place: _Place) -> Path | None:
    joined = running.current()
    if joined is not None and place.directory is None:
        return _join(joined, evidence)
    found = _take_alone(evidence, place)
    if isinstance(found, Finding):
        _complain(found, place)
        return None
    return found


def _join(capturing: Capturing, evidence: Evidence) -> Path | None:
    """Into the session of pytest, whose summary tells what went wrong."""
    if not capturing.wants(evidence.identity.suite, None) or capturing.session is None:
        return None
    found = capturing.take(capturing.with_form(evidence, {}))
    return capturing.session.directory / found.claim.path if isinstance(found, Staged) else None


def _take_alone(evidence: Evidence, place: _Place) -> Path | Finding | None:
    session = of_process(place.directory)
    if not isinstance(session, Session):
        return session
    wanted = settings()
    if not any(glob_regex(glob).fullmatch(evidence.identity.suite) for glob in wanted.capture):
        return None
    form = msgspec.structs.replace(
        evidence, raw=evidence.raw or wanted.raw, strides=evidence.strides or wanted.strides
    )
    found = session.stage(form)
    if isinstance(found, Finding):
        return found
    return session.publish(found) or session.directory / found.claim.path


def _complain(finding: Finding, place: _Place) -> None:
    strict = in_ci() if place.strict is None else place.strict
    if strict or finding.kind == "captured-twice":
        raise CaptureFailed(finding)
    # To whoever called capture or check_and_capture, through `_take`.
    warnings.warn(f"{finding.kind}: {finding.message}", CaptureWarning, stacklevel=4)
