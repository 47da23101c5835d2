"""What every test shares: hypothesis without a clock or a die, and what to do without a part."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from factories.repositories import Repository

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

CHROMIUM = "/usr/bin/chromium"


def missing(what: str) -> NoReturn:
    """Skips for want of a tool; fails where KARAT_REQUIRE=all says that nothing may be missing."""
    if os.environ.get("KARAT_REQUIRE") == "all":
        pytest.fail(f"{what} is missing and KARAT_REQUIRE=all")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium that playwright can drive."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright (pip install 'karat[browser]')")
    found = CHROMIUM if Path(CHROMIUM).exists() else shutil.which("chromium")
    return found or missing("chromium (apt install chromium)")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """An empty git repository whose path has a space and letters beyond ASCII."""
    if shutil.which("git") is None:
        missing("git")
    return Repository(tmp_path / "mein Prüfstand")


@pytest.fixture
def shared_data() -> Path:
    """Real third-party goldens beside the checkout, where there are any."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no third-party goldens beside this checkout")
    return folder
