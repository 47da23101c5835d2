from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "executorch.md"
READMES = sorted((ROOT / "examples").glob("*/README.md"))


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 10
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert (f"def {name}(" if name else "def test_") in text, (path, name)


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_links_and_files_of_an_example_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (path.parent / target).exists(), target
    for target in re.findall(r"^\| `([\w./]+)` \|", text, re.MULTILINE):
        assert (path.parent / target).exists(), target
