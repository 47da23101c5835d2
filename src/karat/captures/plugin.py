"""The pytest plugin: options, the fixture `golden` and the marker `@pytest.mark.karat(…)`.

It costs nothing if unused: only pytest is imported. With capturing off, `golden` compares and writes nothing, and the
rest of karat is not imported until a test uses it. With capturing on, `karat.captures.pytest_session` is registered as
a second plugin and does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from karat.snapshots.golden import Golden
    from karat.snapshots.session import SnapshotPlugin

MARKER = "karat"
DESELECTED = pytest.StashKey[bool]()
_TYPES = {"capture": ("True or False", bool), "suite": ("a text", str), "flow": ("a text", str)}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("karat", "karat: golden values of passing tests")
    group.addoption(
        "--karat-capture",
        metavar="DIR",
        help="capture what golden checked into DIR; also KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR",
    )
    group.addoption(
        "--karat-strict",
        action="store_true",
        default=None,
        help="fail the session if a case could not be captured (the default in CI)",
    )
    group.addoption(
        "--karat-strict-vacuous",
        action="store_true",
        help="fail the session if a captured case would pass with zeros, permuted or otherwise wrong outputs as well",
    )
    group.addoption("--no-karat-strict", dest="karat_strict", action="store_false")
    group.addoption("--karat-raw", action="store_true", help="also write headerless .bin files for C++ readers")
    group.addoption("--karat-flow", metavar="NAME", help="the flow of tests that do not name theirs")
    group.addoption("--karat-suite", metavar="NAME", help="the suite of tests that do not name theirs")
    group.addoption(
        "--karat-session", metavar="ID", help="the session's name, the same for all shards of a run; also KARAT_SESSION"
    )
    group.addoption(
        "--karat-update",
        metavar="GLOB",
        nargs="?",
        const="*",
        help="write the snapshots of golden.series, table, tensors and document that are new or differ; with =GLOB only those "
        "whose name, test or path it fits",
    )
    group.addoption("--karat-update-in-ci", action="store_true", help="let --karat-update write although CI is set")
    group.addoption(
        "--karat-repeat",
        metavar="N",
        type=int,
        help="with --karat-update: run each such test N times, and keep its noise",
    )


def pytest_load_initial_conftests(args: list[str]) -> None:
    """A bare --karat-update is for all snapshots, whatever word comes next: it may be a path."""
    args[:] = ["--karat-update=*" if word == "--karat-update" else word for word in args]


def pytest_configure(config: pytest.Config) -> None:
    """Register the capturing plugin if a directory is named, be it by a conftest.py just now."""
    said = "karat(capture=True, suite=None, flow=None): whether and as what golden captures this test"
    config.addinivalue_line("markers", said)
    named = config.getoption("karat_capture") or os.environ.get("KARAT_CAPTURE_DIR")
    if named or os.environ.get("GOLDEN_ARTIFACTS_DIR"):
        from karat.captures.pytest_session import CapturePlugin

        config.pluginmanager.register(CapturePlugin(config), "karat-capturing")
    if config.getoption("karat_update") is not None or config.getoption("karat_repeat") is not None:
        _snapshots(config)


def _snapshots(config: pytest.Config) -> SnapshotPlugin:
    """The plugin of snapshots, from the moment on in which it is needed."""
    from karat.snapshots.session import SnapshotPlugin

    known: SnapshotPlugin | None = config.pluginmanager.get_plugin("karat-snapshots")
    if known is None:
        known = SnapshotPlugin(config)
        config.pluginmanager.register(known, "karat-snapshots")
    return known


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember that some tests were left out: what they would ask for is not known then."""
    for item in items[:1]:
        item.config.stash[DESELECTED] = True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Sum up what the last reports of the tests say about snapshots."""
    reports = (report for kept in terminalreporter.stats.values() for report in kept)
    told = [report.karat_snapshots for report in reports if hasattr(report, "karat_snapshots")]
    if told:
        from karat.snapshots.session import summary

        summary(terminalreporter, told, exitstatus)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report a misspelt marker as an error instead of silently not capturing the test.

    It is an error of the collection, as pytest's own for markers are: a usage error in a worker of xdist
    would end as an internal one.
    """
    report = yield
    for node in report.result or ():
        wrong = marker_problem(node) if isinstance(node, pytest.Item) else None
        if wrong:
            report.outcome, report.longrepr, report.result = "failed", wrong, []
            break
    return report


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Hold what a test computed against its golden, or against what is expected, and capture what passed."""
    from karat.snapshots.golden import Golden

    snapshots = _snapshots(request.config)
    snapshots.begin(request.node)
    return Golden(request, snapshots)


def marker_options(item: pytest.Item) -> dict[str, Any]:
    """What all markers of a test say together; the closest one wins."""
    found: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        found |= mark.kwargs
    return {key: value for key, value in found.items() if value is not None}


def marker_problem(item: pytest.Item) -> str | None:
    for mark in item.iter_markers(MARKER):
        problems = [f"expected only named arguments, found {value!r}" for value in mark.args]
        for key, value in mark.kwargs.items():
            if key not in _TYPES:
                from karat.findings import suggest

                known = f"{suggest(key, list(_TYPES))} (known: {', '.join(_TYPES)})"
                problems.append(f"unknown argument {key!r}{known}")
            elif value is not None and not isinstance(value, _TYPES[key][1]):
                problems.append(f"{key} must be {_TYPES[key][0]}, found {value!r}")
        if problems:
            return f"{item.nodeid}: @pytest.mark.karat: {problems[0]}"
    return None
