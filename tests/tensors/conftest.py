"""The frameworks, where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from conftest import missing


@pytest.fixture(scope="session")
def torch() -> Any:
    """torch, or a skip by name."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        missing("torch (pip install torch)")


@pytest.fixture(scope="session")
def jax() -> Any:
    """jax, or a skip by name."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        missing("jax (pip install jax)")
