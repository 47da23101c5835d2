"""Which case a capture is; and to capture without pytest, or from a plain function inside one of its tests."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from karat.bundles.manifest import Identity
from karat.captures.check import CaptureFailed, CaptureWarning, CaseToCapture
from karat.captures.functions import CaptureDetails, Directory, current_session, subtest_name
from karat.captures.records import sweep
from karat.captures.session import FailedCase, Session, StagedCase, capture_directory, prepare, session_name
from karat.findings import Finding, UsageError, fail
from karat.settings import BundleSettings
from karat.system.ci import in_ci

if TYPE_CHECKING:
    from unittest import TestCase

    import pytest

_sessions: dict[tuple[Path, str, int], Session] = {}
_names: dict[tuple[Path, str], str] = {}
"""Forked processes share the name of their parent's session: a capture by two of them must not go unnoticed."""


def identity_of(test: str | TestCase | None, details: CaptureDetails) -> Identity:
    """A TestCase goes by its id; suite, flow and, without a name, the test are pytest's, if it runs the test."""
    plugin, own = current_session(), details.get("subtest")
    if plugin is not None and plugin.test is not None:
        item = plugin.test.item
        case = getattr(item, "instance", None) if test is None else test
        name = test if test is None or isinstance(test, str) else test.id()
        return identity_of_item(item, details, plugin.settings, _subtest_of(case, own), name)
    if test is None:
        said = "expected the name of the test, which only pytest with capturing on can tell, found none"
        raise UsageError(said, next_command="karat.capture(self, …) in a TestCase")
    # The package of a TestCase, or its module outside of one.
    package = "default" if isinstance(test, str) else type(test).__module__.split(".")[-2:][0]
    return Identity(
        suite=details.get("suite") or package,
        flow=details.get("flow") or settings().flow or "default",
        test=test if isinstance(test, str) else test.id(),
        subtest=_subtest_of(test, own),
    )


def identity_of_item(
    item: pytest.Item, details: CaptureDetails, settings: BundleSettings, subtest: str, test: str | None = None
) -> Identity:
    """Suite: the argument, the marker, --karat-suite, or the last folder of the file; in the root, the file's name.

    Flow: the argument, the marker, the parameter or fixture that `[bundles] flow_fixture` names, --karat-flow,
    `[bundles] flow`, or `default`. Test: the node id, however pytest was started, unless it is given.
    """
    from karat.captures.plugin import marker_options

    marker, option = marker_options(item), item.config.getoption
    root = _root(item.path.parent, item.config.invocation_params.dir, item.config.rootpath)
    suite = details.get("suite") or marker.get("suite") or option("karat_suite")
    suite = suite or (item.path.stem if item.path.parent == root else item.path.parent.name)
    fixtures = (getattr(getattr(item, "callspec", None), "params", {}), getattr(item, "funcargs", {}))
    values = [known.get(settings.flow_fixture) for known in fixtures]
    named = [value if isinstance(value, str) else getattr(value, "name", None) for value in values]
    flow = (
        details.get("flow")
        or marker.get("flow")
        or next((name for name in named if name and isinstance(name, str)), None)
    )
    flow = flow or option("karat_flow") or settings.flow or "default"
    if test is None:
        _, colons, name = item.nodeid.partition("::")
        inside = item.path.is_relative_to(root)
        test = f"{item.path.relative_to(root).as_posix()}{colons}{name}" if inside else item.nodeid
    return Identity(suite=suite, flow=flow, test=test, subtest=subtest)


@cache
def _root(folder: Path, started: Path, pytests: Path) -> Path:
    """Where the names of the tests in a folder begin: not at pytest's root folder, which depends on how it was started.

    site-packages, for an installed package; else the configuration that pytest finds from the folder upwards, or
    else git's work tree. Without any of these, the folder in which pytest was started, if the tests are in there.
    """
    above = (folder, *folder.parents)
    installed = next((path for path in above if path.name in {"site-packages", "dist-packages"}), None)
    if installed is not None:
        return installed
    with suppress(ImportError, TypeError, AttributeError):  # a pytest that cannot be asked
        from _pytest.config.findpaths import determine_setup

        found = determine_setup(
            inifile=None, override_ini=None, args=[str(folder)], rootdir_cmd_arg=None, invocation_dir=folder
        )
        if found[1] is not None:
            return found[0]
    tree = next((path for path in above if (path / ".git").exists()), None)
    return tree or (started if folder.is_relative_to(started) else pytests)


def _subtest_of(test: object, own: str | None) -> str:
    """The name of the running `TestCase.subTest`, which only a private field knows, and what a capture calls itself."""
    running = getattr(test, "_subtest", None)
    if running is None:
        return own or ""
    message = getattr(running, "_message", None)  # without one it is a mark of unittest's own
    name = subtest_name(message if isinstance(message, str) else None, dict(running.params))
    return f"{name} / {own}" if own else name


def take(
    case: CaseToCapture,
    test: str | TestCase | None,
    directory: Directory,
    strict: bool | None,  # noqa: FBT001 - as the caller said
) -> Path | None:
    """Capture the case; returns its folder, which a runner's TestCase has once it has passed."""
    plugin = current_session()
    if plugin is not None and directory is None:
        return plugin.capture(case)
    session, wanted = session_of_process(directory), settings()
    raises = in_ci() if strict is None else strict
    if isinstance(session, Finding):
        return _refuse(session, raises=raises)
    if session is None or not wanted.chooses(case.identity.suite):
        return None
    taken = session.stage(msgspec.structs.replace(case, raw=case.raw or wanted.raw))
    outcome: Any = getattr(test, "_outcome", None)  # nothing public knows it, or that a runner is at work
    awaited = hasattr(getattr(outcome, "result", None), "stopTest")
    if awaited:
        _settle_at_end(test, outcome, session, taken, raises=raises)
    if isinstance(taken, FailedCase):
        if taken.finding.kind == "captured-twice":
            raises = strict is True or not awaited  # tests that another module imports run twice, and pass twice
        return _refuse(taken.finding, raises=raises)
    if not awaited and (finding := session.publish(taken)):
        return _refuse(finding, raises=raises)
    return session.directory / taken.claim.path


def _refuse(finding: Finding, *, raises: bool) -> Path | None:
    if raises:
        raise CaptureFailed(finding)
    # The caller of capture or check_and_capture.
    warnings.warn(f"{finding.kind}: {finding.message}", CaptureWarning, stacklevel=4)
    return None


def _settle_at_end(
    test: object, outcome: Any, session: Session, taken: StagedCase | FailedCase, *, raises: bool
) -> None:
    """Publish or drop when the runner stops the test: its cleanups, which are the last to fail, have run only then."""
    result, subtest = outcome.result, getattr(test, "_subtest", None)
    stop = result.stopTest

    def stop_test(ended: object) -> None:
        if ended is test:
            result.stopTest = stop
            if not _has_passed(test, subtest, outcome):
                session.drop(taken)
            elif isinstance(taken, StagedCase) and (finding := session.publish(taken)):
                try:
                    _refuse(finding, raises=raises)
                except (CaptureFailed, CaptureWarning):
                    result.addError(test, sys.exc_info())
        stop(ended)

    result.stopTest = stop_test


def _has_passed(test: object, subtest: object, outcome: Any) -> bool:
    """Whether a test has, and the subtest that a case was captured in."""
    method = getattr(test, getattr(test, "_testMethodName", ""), None)
    if any(getattr(marked, "__unittest_expecting_failure__", False) for marked in (test, method)):
        return False
    if outcome.success:
        return True
    # A skipped subtest is no success of its test either, and yet takes nothing but its own cases along.
    told = {name: [case for case, _ in getattr(outcome.result, name, ())] for name in ("errors", "failures", "skipped")}
    if any(test is case or test is getattr(case, "test_case", None) for case in (*told["errors"], *told["failures"])):
        return False
    skipped = [case for case in told["skipped"] if getattr(case, "test_case", None) is test]
    return (
        bool(skipped) and not any(case is test for case in told["skipped"]) and all(s is not subtest for s in skipped)
    )


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
