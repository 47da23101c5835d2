from __future__ import annotations

from pathlib import Path

import pytest

from factories.pytest_runs import Suite


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """An empty project of a user."""
    return Suite(tmp_path / "project")
