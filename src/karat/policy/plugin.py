"""The pytest plugin of the gradient policy; it must cost nothing to whoever did not ask for it.

It imports pytest alone. Whoever asks for evidence or for the gate gets `karat.policy.session` as a second plugin.
A failed `assert karat.gradcheck(…)` shows the whole report, for everybody.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("karat policy", "karat: check every gradient, and keep the evidence")
    group.addoption(
        "--karat-evidence",
        metavar="DIR",
        help="write journals of gradient evidence to DIR, for karat policy gate; also KARAT_EVIDENCE",
    )
    group.addoption(
        "--karat-policy",
        action="store_true",
        help="check this session against the gradient policy when it ends; tests that were not selected are not judged",
    )
    group.addoption("--karat-grad-seed", metavar="N", type=int, help="seed of gradient checks, to repeat one")


def pytest_configure(config: pytest.Config) -> None:
    """Pass a replay's seed on through the environment; start recording if somebody asked for it."""
    if (seed := config.getoption("karat_grad_seed")) is not None:
        os.environ["KARAT_GRAD_SEED"] = str(seed)
    asked = config.getoption("karat_evidence") or os.environ.get("KARAT_EVIDENCE")
    if asked or config.getoption("karat_policy"):
        from karat.policy.session import GateSession

        config.pluginmanager.register(GateSession(config), "karat-gate-session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside an assertion that shows a gradient report in one line, all of it."""
    report = yield
    session = sys.modules.get("karat.gradients.session")
    if session is not None and call.excinfo and call.excinfo.errisinstance(AssertionError):
        longrepr: Any = report.longrepr
        said = str(call.excinfo.value)
        for one in session.recent:
            # pytest cuts the middle out of what is long.
            if (repr(one)[:60] in said or not said) and hasattr(longrepr, "addsection"):
                longrepr.addsection("karat.gradcheck", str(one))
    if session is not None:
        session.recent.clear()
    return report
