"""Capture without pytest, or from a plain function inside one of its tests."""

from __future__ import annotations

import atexit
import os
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.bundles.manifest import Identity
from karat.captures.check import CaptureFailed, CaptureWarning, CaseToCapture
from karat.captures.functions import CaptureDetails, Directory, current_session, subtest_name
from karat.captures.records import sweep
from karat.captures.session import FailedCase, Session, session_name
from karat.captures.settings import BundleSettings, capture_directory, prepare
from karat.findings import Finding, UsageError, fail
from karat.system.ci import in_ci

if TYPE_CHECKING:
    from unittest import TestCase

_sessions: dict[tuple[Path, str, int], Session] = {}
_names: dict[tuple[Path, str], str] = {}
"""Forked processes share the name of their parent's session: a capture by two of them must not go unnoticed."""


def identity_of(test: str | TestCase, details: CaptureDetails) -> Identity:
    """A TestCase goes by its id; suite and flow are what pytest's plugin says, if it runs the test."""
    plugin = current_session()
    if plugin is not None and plugin.test is not None:
        from karat.captures.golden import suite_and_flow

        suite, flow = suite_and_flow(plugin.test.item, details, plugin.settings.flow)
    else:
        # The package of a TestCase, or its module outside of one.
        own = "default" if isinstance(test, str) else type(test).__module__.split(".")[-2:][0]
        suite = details.get("suite") or own
        flow = details.get("flow") or settings().flow or "default"
    subtest = details.get("subtest") or ""
    if isinstance(test, str):
        return Identity(suite=suite, flow=flow, test=test, subtest=subtest)
    inner = " / ".join(filter(None, (_subtest_of(test), subtest)))
    return Identity(suite=suite, flow=flow, test=test.id(), subtest=inner)


def _subtest_of(test: TestCase) -> str:
    """The name of the running `TestCase.subTest`, which only a private field knows."""
    running = getattr(test, "_subtest", None)
    if running is None:
        return ""
    message = getattr(running, "_message", None)  # without one it is a mark of unittest's own
    return subtest_name(message if isinstance(message, str) else None, dict(running.params))


def take(case: CaseToCapture, directory: Directory, strict: bool | None) -> Path | None:  # noqa: FBT001
    """Capture the case and return its folder; on failure, raise or warn the caller's caller."""
    plugin = current_session()
    if plugin is not None and directory is None:
        return plugin.capture(case)
    captured = _take_alone(case, directory)
    if not isinstance(captured, Finding):
        return captured
    if captured.kind == "captured-twice" or (in_ci() if strict is None else strict):
        raise CaptureFailed(captured)
    # The caller of capture or check_and_capture.
    warnings.warn(f"{captured.kind}: {captured.message}", CaptureWarning, stacklevel=3)
    return None


def _take_alone(case: CaseToCapture, directory: Directory) -> Path | Finding | None:
    session = session_of_process(directory)
    if not isinstance(session, Session):
        return session
    wanted = settings()
    if not wanted.chooses(case.identity.suite):
        return None
    raw, strides = case.raw or wanted.raw, case.strides or wanted.strides
    staged = session.stage(msgspec.structs.replace(case, raw=raw, strides=strides))
    if isinstance(staged, FailedCase):
        return staged.finding
    return session.publish(staged) or session.directory / staged.claim.path


@cache
def settings() -> BundleSettings:
    """`[bundles]` of the configuration where the process was started."""
    from karat.config import load

    return load(Path.cwd()).bundles


def session_of_process(directory: Directory) -> Session | Finding | None:
    """The session of this process for a directory; None if none is named, a finding if it cannot be used."""
    if directory is None:
        place = capture_directory(None, os.environ, Path.cwd())
    else:
        place = capture_directory(os.fspath(directory), {}, Path.cwd())
        place = place and msgspec.structs.replace(place, origin="directory")
    if place is None:
        return None
    key = (place.path, os.environ.get("KARAT_SESSION", ""), os.getpid())
    if key not in _sessions:
        try:
            prepare(place)
        except UsageError as error:
            return fail("capture-failed", str(error), next=error.next_command)
        name = _names.setdefault(key[:2], session_name(None, os.environ))
        sweep(place.path)
        run, worker = os.urandom(6).hex(), f"p{os.getpid()}"
        _sessions[key] = Session(place.path, name, run=run, worker=worker, root=Path.cwd())
        atexit.register(_sessions[key].close)
    return _sessions[key]
