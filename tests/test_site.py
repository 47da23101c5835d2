"""The site: builds strictly, has every page, asks no other server, and shows pictures where there is a browser."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from karat.cli import COMMANDS
from karat.schemas import names

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Path:
    """The built site; a page that is not in the navigation, or a link that leads nowhere, is an error."""
    assert chromium
    if importlib.util.find_spec("mkdocs") is None:
        missing("mkdocs (pip install mkdocs-material)")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_has_every_page_and_what_the_code_says(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")}
    assert [page for page in sorted(pages) if not (site / page).exists()] == []
    text = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"Usage: karat {name}" not in text] == []
    schemas = {json.loads(path.read_text(encoding="utf-8"))["$id"] for path in site.glob("reference/*.json")}
    assert schemas == set(names())
    assert "# karat" in (site / "llms.txt").read_text(encoding="utf-8")


def test_no_page_asks_another_server(site: Path) -> None:
    asks = re.compile(
        r"""<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>|@import|url\(["']?http"""
    )
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 70
    found = {str(path): asks.findall(path.read_text(encoding="utf-8")) for path in files if "source" not in path.parts}
    assert {path: hits for path, hits in found.items() if hits} == {}


def test_pictures_are_there(site: Path) -> None:
    wanted = {
        name
        for page in ROOT.glob("docs/**/*.md")
        for name in re.findall(r"<!-- picture: (\S+)", page.read_text(encoding="utf-8"))
    }
    assert wanted
    for name in wanted:
        assert (site / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
