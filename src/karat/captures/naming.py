"""Suite and flow of a test: what it says, what its marker says, or what its place says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def suite_of(item: pytest.Item, told: str | None) -> str:
    """What was told, --karat-suite, or the last folder of the file; in the root folder, the file's name."""
    asked: str | None = told or item.config.getoption("karat_suite")
    if asked:
        return asked
    path: Path = item.path
    return path.stem if path.parent == item.config.rootpath else path.parent.name


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
