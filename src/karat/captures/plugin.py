"""The pytest plugin: options, the fixture `golden` and the marker `@pytest.mark.karat(…)`.

It costs nothing if unused: only pytest is imported. With capturing off, `golden` compares and writes nothing, and the
rest of karat is not imported until a test uses it. With capturing on, `karat.captures.pytest_session` is registered as
a second plugin and does the rest.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from karat.captures.golden import Golden

MARKER = "karat"
MARKER_HELP = (
    "karat(capture=True, suite=None, flow=None, raw=None, strides=None, rtol=None, atol=None): "
    "whether and as what golden captures this test"
)
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "capture": ("True or False", (bool,)),
    "suite": ("a text", (str,)),
    "flow": ("a text", (str,)),
    "raw": ("True or False", (bool,)),
    "strides": ("True or False", (bool,)),
    "rtol": ("a number", (int, float)),
    "atol": ("a number", (int, float)),
}


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
    group.addoption("--no-karat-strict", dest="karat_strict", action="store_false")
    group.addoption("--karat-raw", action="store_true", help="also write headerless .bin files for C++ readers")
    group.addoption("--karat-strides", action="store_true", help="also record the strides that tensors had")
    group.addoption("--karat-flow", metavar="NAME", help="the flow of tests that do not name theirs")
    group.addoption("--karat-suite", metavar="NAME", help="the suite of tests that do not name theirs")
    group.addoption(
        "--karat-session", metavar="ID", help="the session's name, the same for all shards of a run; also KARAT_SESSION"
    )
    group.addoption("--karat-replay", metavar="BUNDLE", help="run the captured cases of BUNDLE, and nothing else")
    group.addoption("--karat-run", metavar="M:F", help="replay with function F of module M")
    group.addoption("--karat-command", metavar="CMD", help="replay with a command, see karat replay")
    group.addoption("--karat-replay-settings", metavar="JSON", help=argparse.SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Register the capturing plugin if a directory is named, be it by a conftest.py just now."""
    config.addinivalue_line("markers", MARKER_HELP)
    named = config.getoption("karat_capture") or os.environ.get("KARAT_CAPTURE_DIR")
    if named or os.environ.get("GOLDEN_ARTIFACTS_DIR"):
        from karat.captures.pytest_session import CapturePlugin

        config.pluginmanager.register(CapturePlugin(config), "karat-capturing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """With --karat-replay, collect the cases of a bundle."""
    if session.config.getoption("karat_replay") is None:
        return None
    from karat.replays.pytest_items import collect

    return collect(session)


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
    """Compare actual with expected, and capture what passed if capturing is on."""
    from karat.captures.golden import Golden

    return Golden(request)


def marker_options(item: pytest.Item) -> dict[str, Any]:
    """What all markers of a test say together; the closest one wins."""
    found: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        found |= mark.kwargs
    return {key: value for key, value in found.items() if value is not None}


def marker_problem(item: pytest.Item) -> str | None:
    for mark in item.iter_markers(MARKER):
        problems = [f"expected only named arguments, found {value!r}" for value in mark.args]
        problems += filter(None, (_problem(key, value) for key, value in mark.kwargs.items()))
        if problems:
            return f"{item.nodeid}: @pytest.mark.karat: {problems[0]}"
    return None


def _problem(key: str, value: Any) -> str | None:
    if key not in _TYPES:
        from karat.findings import suggest

        known = ", ".join(_TYPES)
        return f"unknown argument {key!r}{suggest(key, list(_TYPES))} (known: {known})"
    words, types = _TYPES[key]
    odd = isinstance(value, bool) and bool not in types
    if value is not None and (odd or not isinstance(value, types)):
        return f"{key} must be {words}, found {value!r}"
    return None
