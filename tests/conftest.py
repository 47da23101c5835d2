"""What every test shares: hypothesis without a clock or a die, and what to do without a part."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from factories.forge import Forge
from factories.ray_clusters import RayCluster, ray_cluster
from factories.repositories import Repository
from factories.slurm_clusters import SlurmCluster, slurm_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")

# A shell ignores Ctrl-C in what it starts in the background, nohup ignores hang-ups, and so would every process that a test
# starts to send it one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

CHROMIUM = "/usr/bin/chromium"


def missing(what: str) -> NoReturn:
    """Skips for want of a tool; fails where KARAT_REQUIRE=all says that nothing may be missing."""
    if os.environ.get("KARAT_REQUIRE") == "all":
        pytest.fail(f"{what} is missing and KARAT_REQUIRE=all")
    pytest.skip(f"needs {what}", allow_module_level=True)


def framework(name: str) -> Any:
    """A framework as a module; without it, as `missing` says. A module of tests may ask for all of them."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} (pip install {_PACKAGES.get(name, name)})")


_PACKAGES = {"paddle": "paddlepaddle", "pre_commit": "pre-commit", "yaml": "pyyaml"}


# Every token that a test hands to karat looks like one of these; they must be found nowhere.
_TOKENS = re.compile(rb"gh[ps]_(?:Forge|Planted)|glpat-Forge|glcbt-64_Forge")
_told: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remembers tests whose output or error shows a token."""
    text = f"{report.longreprtext}{report.capstdout}{report.capstderr}{report.caplog}"
    if _TOKENS.search(text.encode(errors="replace")):
        _told.append(report.nodeid)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Every test draws the same numbers, whatever ran before it in its process."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what tests in Paddle's style draw from
    if generator := getattr(sys.modules.get("torch"), "default_generator", None):
        generator.manual_seed(67280421310721)  # torch's own, which it begins with
    if seed := getattr(sys.modules.get("paddle"), "seed", None):
        seed(0)


@pytest.fixture(scope="session", autouse=True)
def _no_token_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all tests: no file they made, and nothing they printed, holds a token."""
    yield
    if _told:
        pytest.fail(f"a token was printed in {', '.join(_told)}")
    for path in tmp_path_factory.getbasetemp().rglob("*"):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > 20_000_000:
            continue
        with contextlib.suppress(PermissionError):
            if _TOKENS.search(path.read_bytes()):
                pytest.fail(f"a token was left behind in {path}")


@pytest.fixture
def forge() -> Iterator[Forge]:
    """A forge on loopback that behaves like GitHub and GitLab."""
    with Forge() as made:
        yield made


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium that playwright can drive."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright (pip install 'karat[browser]')")
    found = CHROMIUM if Path(CHROMIUM).exists() else shutil.which("chromium")
    return found or missing("chromium (apt install chromium)")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A Chromium that asks nobody on its own."""
    from playwright.sync_api import sync_playwright

    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield running
        running.close()


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


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A Ray cluster whose head stays; nodes that a test adds are its to kill. For tests of the xdist group "ray"."""
    with ray_cluster() as made:
        yield made


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A Slurm cluster of two nodes; one that a test drains is its to resume. For tests of the xdist group "slurm"."""
    for program in ("slurmctld", "slurmd", "munged"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            missing(f"{program} (apt install slurm-wlm munge)")
    if os.getuid() != 0:
        missing("root: slurmd starts jobs as other users")
    with slurm_cluster() as made:
        yield made
