"""The table of docs/alternatives.md: what karat claims there is shown by a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "alternatives.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[yes\]\(\.\./(tests/[\w/]+\.py)#(test_\w+)\)")


def table() -> list[list[str]]:
    lines = re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE)
    return [re.split(r" \| ", line) for line in lines]


def test_each_yes_of_karat_links_to_a_test_that_exists() -> None:
    rows = table()[1:]
    assert len(rows) >= 15
    missing = []
    for feature, ours, *_ in rows:
        found = LINK.fullmatch(ours)
        if found is None:
            assert ours == "no", feature
            continue
        path, name = found.groups()
        file = ROOT / path
        if not file.is_file() or f"def {name}(" not in file.read_text(encoding="utf-8"):
            missing.append(f"{feature}: {path}::{name}")
    assert missing == []


def test_each_row_says_something_about_every_tool() -> None:
    columns = re.findall(r"^\| \| (.+) \|$", PAGE, re.MULTILINE)[0].split(" | ")
    assert columns == ["karat", "pytest-regressions", "syrupy", "cargo-insta", "DVC", "asv", "CodSpeed"]
    assert {len(row) for row in table()[1:]} == {1 + len(columns)}
