"""The frameworks, where they are installed."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import framework


@pytest.fixture(scope="session")
def torch() -> Any:
    """torch, or a skip by name."""
    return framework("torch")


@pytest.fixture(scope="session")
def jax() -> Any:
    """jax, or a skip by name."""
    return framework("jax")
