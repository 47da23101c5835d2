"""The tutorials: every command is run in a scratch folder, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.pages import Shell, differences, fits

ROOT = Path(__file__).parents[1]
PAGES = [path for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if path.stem != "index"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    found = differences(page.read_text(encoding="utf-8"), Shell(folder))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("one\n…\nthree\n", "one\n2\n2\nthree\n", True),
        ("one\n…\nthree\n", "one\nthree\n", True),
        ("…\nthree\n", "one\ntwo\nthree\n", True),
        ("one\n…\n", "one\n", True),
        ("took 0.3 s at 1234567\n", "took 12.7 s at abcdef0123\n", True),
        ("a …b\n", "a long way to b\n", True),
        ("one\n…\nthree\n", "one\ntwo\n", False),
        ("one (two) * [3]\n", "one (two) * [3]\n", True),
        ("one\n", "one\ntwo\n", False),
    ],
)
def test_what_counts_as_the_same(said: str, printed: str, same: bool) -> None:  # noqa: FBT001 - a parameter
    assert fits(said, printed) is same
