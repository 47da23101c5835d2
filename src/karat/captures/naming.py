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
