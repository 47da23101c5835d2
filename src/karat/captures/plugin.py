"""The pytest plugin; it must cost nothing to whoever did not ask for it, so it imports pytest alone.

With capture off, `golden` compares and writes nothing, and no room of karat is imported until a test uses
it. With capture on, `karat.captures.pytest_session` is registered as a second plugin and does the rest.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from karat.captures.golden import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the group "karat"."""
    group = parser.getgroup("karat", "karat: golden values of passing tests")
    group.addoption(
        "--karat-capture",
        metavar="DIR",
        help="capture what golden checked into DIR, also KARAT_CAPTURE_DIR or GOLDEN_ARTIFACTS_DIR",
    )
    group.addoption(
        "--karat-strict",
        action="store_true",
        default=None,
        help="a case that could not be captured fails the session (default where CI is set)",
    )
    group.addoption("--no-karat-strict", dest="karat_strict", action="store_false")
    group.addoption(
        "--karat-raw", action="store_true", help="also write headerless .bin files for C++ readers"
    )
    group.addoption(
        "--karat-strides", action="store_true", help="also record the strides that tensors had"
    )
    group.addoption("--karat-flow", metavar="NAME", help="the flow of tests that do not say theirs")
    group.addoption(
        "--karat-suite", metavar="NAME", help="the suite of tests that do not say theirs"
    )
    group.addoption(
        "--karat-session",
        metavar="ID",
        help="the session's name, the same for all shards of one run; also KARAT_SESSION",
    )
    group.addoption(
        "--karat-replay",
        metavar="BUNDLE",
        help="run the captured cases of BUNDLE, and nothing else",
    )
    group.addoption("--karat-run", metavar="M:F", help="replay with function F of module M")
    group.addoption(
        "--karat-command", metavar="CMD", help="replay with a command, see karat replay"
    )
    group.addoption("--karat-replay-settings", metavar="JSON", help=argparse.SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Capturing joins in if a directory was named, be it by a conftest.py just now."""
    config.addinivalue_line("markers", HELP)
    if _is_on(config):
        from karat.captures.pytest_session import Capturing  # noqa: PLC0415 - only who asked pays

        config.pluginmanager.register(Capturing(config), "karat-capturing")


def _is_on(config: pytest.Config) -> bool:
    asked = config.getoption("karat_capture") or os.environ.get("KARAT_CAPTURE_DIR")
    return bool(asked or os.environ.get("GOLDEN_ARTIFACTS_DIR"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """With --karat-replay, the cases of a bundle are what is collected."""
    if session.config.getoption("karat_replay") is None:
        return None
    from karat.replays.pytest_items import collect  # noqa: PLC0415 - only who replays pays

    return collect(session)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A misspelt marker is an error, not a test that is silently not captured.

    It is one of the collection, as pytest's own for markers are: a usage error in a worker of xdist
    would end as an internal one.
    """
    report = yield
    for node in report.result or ():
        wrong = complaint(node) if isinstance(node, pytest.Item) else None
        if wrong:
            report.outcome, report.longrepr, report.result = "failed", wrong, []
            break
    return report


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares actual with expected, and captures what passed where capturing is on."""
    from karat.captures.golden import golden_of  # noqa: PLC0415 - only tests that use it pay

    return golden_of(request)


# DOC-HERE marker: `@pytest.mark.karat(…)`: what a test wants of karat; pytest alone is imported here.

NAME = "karat"
HELP = (
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


def wishes(item: pytest.Item) -> dict[str, Any]:
    """What all markers of a test say together; the closest one wins."""
    found: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(NAME))):
        found |= mark.kwargs
    return {key: value for key, value in found.items() if value is not None}


def complaint(item: pytest.Item) -> str | None:
    """What is wrong with a marker that would else be ignored in silence."""
    for mark in item.iter_markers(NAME):
        said = [f"expected only named arguments, found {value!r}" for value in mark.args]
        said += filter(None, (_wrong(key, value) for key, value in mark.kwargs.items()))
        if said:
            return f"{item.nodeid}: @pytest.mark.karat: {said[0]}"
    return None


def _wrong(key: str, value: Any) -> str | None:
    if key not in _TYPES:
        from karat.findings import suggest  # noqa: PLC0415 - only for mistakes

        known = ", ".join(_TYPES)
        return f"unknown argument {key!r}{suggest(key, list(_TYPES))} (known: {known})"
    words, types = _TYPES[key]
    odd = isinstance(value, bool) and bool not in types
    if value is not None and (odd or not isinstance(value, types)):
        return f"{key} must be {words}, found {value!r}"
    return None
