"""The capture sessions of this process, for who captures without pytest: one per directory."""

from __future__ import annotations

import atexit
import os
import shlex
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.bundles.manifest import Identity
from karat.captures import functions
from karat.captures.check import CaptureFailed, CaptureWarning, Evidence
from karat.captures.functions import subtest_name
from karat.captures.records import sweep
from karat.captures.session import Failed, Session, Staged, session_name
from karat.captures.settings import BundleSettings, Chosen, chosen, prepare
from karat.findings import Finding, Severity, UsageError
from karat.goldens.paths import glob_regex
from karat.system.ci import in_ci

if TYPE_CHECKING:
    from unittest import TestCase

    from karat.captures.pytest_session import Capturing

_sessions: dict[tuple[Path, str, int], Session] = {}
_names: dict[tuple[Path, str], str] = {}
"""Of the same session in the processes that this one forks: what two of them capture must not go unnoticed."""


@cache
def settings() -> BundleSettings:
    """`[bundles]` of the configuration that holds where the process was started."""
    from karat.config import load  # noqa: PLC0415 - it brings the settings of every room

    return load(Path.cwd()).bundles


def of_process(directory: str | os.PathLike[str] | None) -> Session | Finding | None:
    """The session that captures into a directory; None if none was named; a finding if it cannot be used."""
    place = _place(directory)
    if place is None:
        return None
    key = (place.path, os.environ.get("KARAT_SESSION", ""), os.getpid())
    if key not in _sessions:
        try:
            prepare(place)
        except UsageError as error:
            return _unusable(error)
        name = _names.setdefault(key[:2], session_name(None, os.environ))
        _sessions[key] = _open(place, name)
    return _sessions[key]


def _place(directory: str | os.PathLike[str] | None) -> Chosen | None:
    if directory is None:
        return chosen(None, os.environ, Path.cwd())
    found = chosen(os.fspath(directory), {}, Path.cwd())
    return found and msgspec.structs.replace(found, origin="directory")


def _open(place: Chosen, name: str) -> Session:
    sweep(place.path)
    run = os.urandom(6).hex()
    session = Session(place.path, name, run=run, worker=f"p{os.getpid()}", root=Path.cwd())
    atexit.register(session.close)
    return session


def _unusable(error: UsageError) -> Finding:
    return Finding(
        kind="capture-failed",
        severity=Severity.FAIL,
        message=str(error),
        next=error.next_command or f"ls -ld {shlex.quote(str(Path.cwd()))}",
    )


# DOC-HERE alone: Capturing without pytest, or from a plain function inside a test of it: who, where to, and what if not.


def identity_of(
    test: str | TestCase, suite: str | None, flow: str | None, subtest: str
) -> Identity:
    """The test is a TestCase's id; suite and flow as pytest's plugin knows them, where it runs the test."""
    joined = functions.current()
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
    from karat.captures import golden, plugin  # noqa: PLC0415 - both need pytest, and it is there

    item = capturing.item()
    wishes = plugin.wishes(item)
    return (
        golden.suite_of(item, suite or wishes.get("suite")),
        golden.flow_of(item, flow or wishes.get("flow"), capturing.settings.flow),
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
    joined = functions.current()
    if joined is not None and directory is None:
        return _join(joined, evidence)
    found = _take_alone(evidence, directory)
    if isinstance(found, Finding):
        _complain(found, strict=in_ci() if strict is None else strict)
        return None
    return found


def _join(capturing: Capturing, evidence: Evidence) -> Path | None:
    """Into the session of pytest, whose summary tells what went wrong."""
    from karat.captures import plugin  # noqa: PLC0415 - it needs pytest, and it is there

    wishes = plugin.wishes(capturing.item())
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
