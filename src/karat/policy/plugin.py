"""The pytest plugin of the gradient policy; it must cost nothing to whoever did not ask for it.

It imports pytest alone. Whoever asks for evidence or for the gate gets `karat.policy.session` as a second plugin.
"""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("karat policy", "karat: every gradient checked, and proof of it")
    group.addoption(
        "--karat-evidence",
        metavar="DIR",
        help="leave journals of gradient evidence in DIR, for karat policy gate; also KARAT_EVIDENCE",
    )
    group.addoption(
        "--karat-policy",
        action="store_true",
        help="hold this session to the gradient policy at its end; what was not selected is not judged",
    )
    group.addoption("--karat-grad-seed", metavar="N", type=int, help="the seed of gradient checks, to replay one")
    group.addoption(
        "--karat-grad-focus",
        metavar="INPUT:OUTPUT:DTYPE",
        help="make only this comparison of gradient checks, to replay one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Pass replay options on through the environment; start recording if somebody asked for it."""
    for option in ("karat_grad_seed", "karat_grad_focus"):
        value = config.getoption(option)
        if value is not None:
            os.environ[option.upper()] = str(value)
    asked = config.getoption("karat_evidence") or os.environ.get("KARAT_EVIDENCE")
    if asked or config.getoption("karat_policy"):
        from karat.policy.session import GateSession

        config.pluginmanager.register(GateSession(config), "karat-gate-session")
