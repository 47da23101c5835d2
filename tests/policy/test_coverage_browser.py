"""The page of the coverage in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories.evidence import evidence, journal, op_test
from karat.policy.coverage import coverage, page as made_page
from karat.policy.evidence import merge

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
HOSTILE = "</td><img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A matrix of three ops, open; whatever the page complains of is an error."""
    records = op_test(evidence())
    for name in ("relu", HOSTILE):
        records += op_test(op=name, test=f"t.py::{name}")
    journal(tmp_path / "evidence", records)
    (tmp_path / "c.html").write_text(made_page(coverage(merge([tmp_path]))), encoding="utf-8")
    complaints: list[str] = []
    opened = browser.new_page()
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    opened.goto((tmp_path / "c.html").as_uri())
    yield opened
    opened.close()
    assert complaints == []


def shown(page: Page) -> list[str]:
    return page.locator("#rows tr:visible th").all_inner_texts()


@pytest.mark.slow
def test_ops_are_found_by_name_and_by_state(page: Page) -> None:
    assert len(shown(page)) == 3
    page.keyboard.press("/")
    page.keyboard.type("TAN")
    assert shown(page) == ["tanh"]
    assert page.locator("output").inner_text() == "1 of 3 ops"
    page.locator(".chip", has_text="missing").click()
    assert shown(page) == []
    assert page.locator(".nothing").is_visible()
    page.locator("input[type=search]").fill("")
    assert len(shown(page)) == 2


@pytest.mark.slow
def test_hostile_names_are_text(page: Page) -> None:
    assert page.locator("img").count() == 0
    assert any(name.startswith("</td><img src=x") for name in shown(page))


@pytest.mark.slow
def test_cells_say_what_they_are(page: Page) -> None:
    cell = page.locator("#rows tr", has_text="tanh").locator("td").first
    title = cell.get_attribute("title") or ""
    assert title.startswith("strong: X strong (1 comparison)")
