"""Suite and flow of a test: what it says, what its marker says, or what its place says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karat.bundles.manifest import Identity
from karat.captures import plugin
from karat.captures.check import Evidence, Program, Question, by_caller, compared
from karat.captures.functions import Active
from karat.tensors.comparison import Report

if TYPE_CHECKING:
    from karat.captures.pytest_session import Capturing


def suite_of(item: pytest.Item, told: str | None) -> str:
    """What was told, --karat-suite, or the last folder of the file; in the root folder, the file's name."""
    asked: str | None = told or item.config.getoption("karat_suite")
    if asked:
        return asked
    path: Path = item.path
    return path.stem if path.parent == _root(item.config) else path.parent.name


def _root(config: pytest.Config) -> Path:
    """The project's folder, whose own name says nothing: pytest's root folder.

    Without a configuration file (`-c /dev/null suite/models`) that is where the tests are, and every suite would
    fall apart into its files: then it is the folder above in which pytest was started.
    """
    started, root = config.invocation_params.dir, config.rootpath
    configured = config.inipath is not None and config.inipath.is_file()
    return started if not configured and root.is_relative_to(started) else root


def flow_of(item: pytest.Item, told: str | None, configured: str | None) -> str:
    """What was told, the parameter or fixture `flow`, --karat-flow, `[bundles] flow`, or `default`."""
    return (
        told or _parameter(item) or item.config.getoption("karat_flow") or configured or "default"
    )


def _parameter(item: Any) -> str | None:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for known in (parameters, getattr(item, "funcargs", {})):
        value = known.get("flow")
        name = value if isinstance(value, str) else getattr(value, "name", None)
        if isinstance(name, str) and name:
            return name
    return None


# DOC-HERE golden: `golden`: the fixture that compares actual with expected and captures what passed.


def golden_of(request: pytest.FixtureRequest) -> Golden:
    """The fixture's object for one test."""
    capturing = request.config.pluginmanager.get_plugin("karat-capturing")
    active = Active()
    if capturing is not None and "subtests" in request.fixturenames:
        active.watch(request.getfixturevalue("subtests"))
        if capturing.trial is not None:
            active.changed = capturing.trial.in_subtest
    return Golden(request.node, active, capturing)


class Golden:
    """What a test holds: `check` compares and captures, `capture` only captures."""

    def __init__(self, item: pytest.Item, active: Active, capturing: Capturing | None) -> None:
        self._item = item
        self._active = active
        self._capturing = capturing
        self._wishes = plugin.wishes(item)

    def check(  # noqa: PLR0913 - one call says everything about one case
        self,
        actual: Any,
        expected: Any,
        *,
        inputs: Any,
        program: Program = None,
        program_name: str | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_dtype: bool = True,
        subtest: str | None = None,
        flow: str | None = None,
        suite: str | None = None,
        seeds: Mapping[str, int | str] | None = None,
        note: str | None = None,
    ) -> Report:
        """Raises `karat.Mismatch` unless actual is as expected; then the case is captured, where that is on.

        Without rtol or atol, each dtype's own tolerance holds. Of several checks in one test each needs
        a `subtest` of its own, or they would be one case.
        """
        __tracebackhide__ = True
        question = Question(
            rtol=self._wishes.get("rtol") if rtol is None else rtol,
            atol=self._wishes.get("atol") if atol is None else atol,
            equal_nan=equal_nan,
            check_dtype=check_dtype,
            note=note,
        )
        identity = self._identity(suite, flow, subtest)
        passed = compared(expected, actual, question, identity.test)
        self._take(
            Evidence(
                identity=identity,
                inputs=inputs,
                expected=passed.expected,
                seen=(inputs, expected, actual),
                program=program,
                program_name=program_name,
                comparator=passed.comparator,
                seeds=seeds,
            )
        )
        return passed.report

    def capture(  # noqa: PLR0913 - one call says everything about one case
        self,
        *,
        inputs: Any,
        expected: Any,
        program: Program = None,
        program_name: str | None = None,
        subtest: str | None = None,
        flow: str | None = None,
        suite: str | None = None,
        seeds: Mapping[str, int | str] | None = None,
        note: str | None = None,
    ) -> None:
        """Captures a case that the test has compared by its own means, which is weaker evidence."""
        identity = self._identity(suite, flow, subtest)
        comparator, finding = by_caller(identity, note)
        self._take(
            Evidence(
                identity=identity,
                inputs=inputs,
                expected=expected,
                program=program,
                program_name=program_name,
                comparator=comparator,
                seeds=seeds,
                findings=(finding,),
                seen=(inputs, expected),
            )
        )

    def _take(self, evidence: Evidence) -> None:
        capturing, wish = self._capturing, self._wishes.get("capture")
        if capturing is not None and capturing.wants(evidence.identity.suite, wish):
            capturing.take(capturing.with_form(evidence, self._wishes))

    def _identity(self, suite: str | None, flow: str | None, subtest: str | None) -> Identity:
        configured = self._capturing.settings.flow if self._capturing else None
        return Identity(
            suite=suite_of(self._item, suite or self._wishes.get("suite")),
            flow=flow_of(self._item, flow or self._wishes.get("flow"), configured),
            test=self._item.nodeid,
            subtest=self._active.name(subtest),
        )
