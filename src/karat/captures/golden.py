"""`golden`: the fixture that compares actual with expected and captures what passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import pytest

from karat.bundles.manifest import Identity
from karat.captures.check import Passed, by_caller, candidate, compare
from karat.captures.functions import ActiveSubtests, CaptureDetails, CheckDetails, require_known
from karat.captures.plugin import marker_options
from karat.tensors.comparison import ComparisonReport

if TYPE_CHECKING:
    from pathlib import Path

    from karat.captures.pytest_session import CapturePlugin


class Golden:
    """What a test holds: `check` compares and captures, `capture` only captures."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._item: pytest.Item = request.node
        self._plugin: CapturePlugin | None = request.config.pluginmanager.get_plugin("karat-capturing")
        self._active = ActiveSubtests()
        if self._plugin is not None and "subtests" in request.fixturenames:
            self._active.watch(request.getfixturevalue("subtests"))
            if self._plugin.test is not None:
                self._active.changed = self._plugin.test.in_subtest

    def check(self, actual: Any, expected: Any, *, inputs: Any, **details: Unpack[CheckDetails]) -> ComparisonReport:
        """Raise `karat.Mismatch` unless actual is as expected; then capture the case, if capturing is on.

        Without rtol or atol, each dtype's own tolerance holds. Several checks in one test need a
        `subtest` each, or they would be one case.
        """
        __tracebackhide__ = True
        require_known("golden.check", details, CheckDetails)
        marker = marker_options(self._item)
        if details.get("rtol") is None:
            details["rtol"] = marker.get("rtol")
        if details.get("atol") is None:
            details["atol"] = marker.get("atol")
        report, passed = compare(expected, actual, self._item.nodeid, details)
        self._capture(inputs, passed, details)
        return report

    def capture(self, *, inputs: Any, expected: Any, **details: Unpack[CaptureDetails]) -> None:
        """Capture a case that the test compared by its own means, which is weaker evidence."""
        require_known("golden.capture", details, CaptureDetails)
        self._capture(inputs, by_caller(self._identity(details), expected, details), details)

    def _capture(self, inputs: Any, passed: Passed, details: CaptureDetails) -> None:
        if self._plugin is not None:
            self._plugin.capture(candidate(self._identity(details), inputs, passed, details))

    def _identity(self, details: CaptureDetails) -> Identity:
        suite, flow = suite_and_flow(self._item, details, self._plugin.settings.flow if self._plugin else None)
        subtest = self._active.name(details.get("subtest"))
        return Identity(suite=suite, flow=flow, test=self._item.nodeid, subtest=subtest)


def suite_and_flow(item: pytest.Item, details: CaptureDetails, configured_flow: str | None) -> tuple[str, str]:
    """Suite: the argument, the marker, --karat-suite, or the last folder of the file; in the root, the file's name.

    Flow: the argument, the marker, the parameter or fixture `flow`, --karat-flow, `[bundles] flow`, or `default`.
    """
    marker, option = marker_options(item), item.config.getoption
    suite = details.get("suite") or marker.get("suite") or option("karat_suite")
    if not suite:
        suite = item.path.stem if item.path.parent == _root(item.config) else item.path.parent.name
    flow = details.get("flow") or marker.get("flow") or _flow_parameter(item)
    return suite, flow or option("karat_flow") or configured_flow or "default"


def _root(config: pytest.Config) -> Path:
    """Pytest's root folder, whose own name says nothing.

    Without a configuration file (`-c /dev/null suite/models`) that is where the tests are, and every suite would
    fall apart into its files: then it is the folder in which pytest was started.
    """
    started, root = config.invocation_params.dir, config.rootpath
    configured = config.inipath is not None and config.inipath.is_file()
    return started if not configured and root.is_relative_to(started) else root


def _flow_parameter(item: Any) -> str | None:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for known in (parameters, getattr(item, "funcargs", {})):
        value = known.get("flow")
        name = value if isinstance(value, str) else getattr(value, "name", None)
        if isinstance(name, str) and name:
            return name
    return None
