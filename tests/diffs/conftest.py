"""A page in a real browser, for every module that looks at one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from factories.diffs import HOSTILE, hostile, make
from karat.diffs.report import html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    Open = Callable[..., Page]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "usual.html").write_text(html.render(make(), command="karat diff"), "utf-8")
    (folder / "hostile.html").write_text(html.render(hostile(), title=HOSTILE[0], command=HOSTILE[1]), "utf-8")
    return folder


@pytest.fixture
def visit(browser: Browser, pages: Path) -> Iterator[Open]:
    """Opens a page; at the end, nothing may have been asked of the network or gone wrong."""
    contexts, trouble, asked = [], [], []

    def go(name: str = "usual.html", anchor: str = "", **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{pages / name}{anchor}")
        page.locator("#shown").get_by_text("rows").wait_for()
        return page

    yield go
    for context in contexts:
        context.close()
    assert trouble == []
    assert [url for url in asked if not url.startswith("file://") or ".html" not in url] == []
