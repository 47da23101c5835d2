"""Capturing without pytest, or from a plain function inside a test of it: who, where to, and what if not."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.bundles.manifest import Identity
from karat.captures import running
from karat.captures.ci import in_ci
from karat.captures.errors import CaptureFailed, CaptureWarning
from karat.captures.evidence import Evidence
from karat.captures.process import of_process, settings
from karat.captures.session import Failed, Session, Staged
from karat.captures.subtests import subtest_name
from karat.findings import Finding
from karat.goldens.paths import glob_regex

if TYPE_CHECKING:
    from unittest import TestCase

    from karat.captures.capturing import Capturing


def identity_of(
    test: str | TestCase, suite: str | None, flow: str | None, subtest: str
) -> Identity:
    """The test is a TestCase's id; suite and flow as pytest's plugin knows them, where it runs the test."""
    joined = running.current()
    known = _known(joined, suite, flow) if joined else _guessed(test, suite, flow)
    if isinstance(test, str):
        return Identity(suite=known[0], flow=known[1], test=test, subtest=subtest)
    inner = " / ".join(filter(None, (_subtest_of(test), subtest)))
    return Identity(suite=known[0], flow=known[1], test=test.id(), subtest=inner)


def _subtest_of(test: TestCase) -> str:
    """What `TestCase.subTest` was told, where the test is in one; only a private field knows."""
    under_way = getattr(test, "_subtest", None)
    if under_way is None:
        return ""
    told = getattr(under_way, "_message", None)  # without one it is a mark of unittest's own
    return subtest_name(told if isinstance(told, str) else None, dict(under_way.params))


def _known(capturing: Capturing, suite: str | None, flow: str | None) -> tuple[str, str]:
    from karat.captures import marker, naming  # noqa: PLC0415 - both need pytest, and it is there

    item = capturing.item()
    wishes = marker.wishes(item)
    return (
        naming.suite_of(item, suite or wishes.get("suite")),
        naming.flow_of(item, flow or wishes.get("flow"), capturing.settings.flow),
    )


def _guessed(test: str | TestCase, suite: str | None, flow: str | None) -> tuple[str, str]:
    """The package of a TestCase, or its module outside of one."""
    own = "default" if isinstance(test, str) else type(test).__module__.split(".")[-2:][0]
    return suite or own, flow or settings().flow or "default"


def take(
    evidence: Evidence,
    directory: str | os.PathLike[str] | None,
    strict: bool | None,  # noqa: FBT001 - three answers
) -> Path | None:
    """The case's folder; where it cannot be captured, an error or a warning to the caller's caller."""
    joined = running.current()
    if joined is not None and directory is None:
        return _join(joined, evidence)
    found = _take_alone(evidence, directory)
    if isinstance(found, Finding):
        _complain(found, strict=in_ci() if strict is None else strict)
        return None
    return found


def _join(capturing: Capturing, evidence: Evidence) -> Path | None:
    """Into the session of pytest, whose summary tells what went wrong."""
    from karat.captures import marker  # noqa: PLC0415 - it needs pytest, and it is there

    wishes = marker.wishes(capturing.item())
    session = capturing.session
    if session is None or not capturing.wants(evidence.identity.suite, wishes.get("capture")):
        return None
    found = capturing.take(capturing.with_form(evidence, wishes))
    return session.directory / found.claim.path if isinstance(found, Staged) else None


def _take_alone(
    evidence: Evidence, directory: str | os.PathLike[str] | None
) -> Path | Finding | None:
    session = of_process(directory)
    if not isinstance(session, Session):
        return session
    wanted = settings()
    if not any(glob_regex(glob).fullmatch(evidence.identity.suite) for glob in wanted.capture):
        return None
    form = msgspec.structs.replace(
        evidence, raw=evidence.raw or wanted.raw, strides=evidence.strides or wanted.strides
    )
    found = session.stage(form)
    if isinstance(found, Failed):
        return found.finding
    return session.publish(found) or session.directory / found.claim.path


def _complain(finding: Finding, *, strict: bool) -> None:
    if strict or finding.kind == "captured-twice":
        raise CaptureFailed(finding)
    # To whoever called capture or check_and_capture, through `take`.
    warnings.warn(f"{finding.kind}: {finding.message}", CaptureWarning, stacklevel=4)
